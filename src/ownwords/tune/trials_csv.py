"""The trials as a table for other programs: trials.csv, one line a trial."""

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path

from ownwords.core.workspace import write_atomically
from ownwords.tune.axis import SearchAxis
from ownwords.tune.trial import TrialRecord

_BEFORE = ("trial", "state", "kind", "repeats", "seed")
_AFTER = ("bits_per_byte", "seconds", "tokens", "steps", "set", "why")


def write(path: Path, axes: Sequence[SearchAxis], tried: Sequence[TrialRecord]) -> None:
    """Replace the table whole."""
    write_atomically(path, table(axes, tried))


def table(axes: Sequence[SearchAxis], tried: Sequence[TrialRecord]) -> str:
    """A header, and a line for each trial; what is not known of one is empty.

    `set` are the settings of a trial beside the plan's, as JSON.
    """
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow([*_BEFORE, *(axis.name for axis in axes), *_AFTER])
    for one in tried:
        settings = one.told.get("settings")
        rows.writerow(
            [
                one.number,
                one.state,
                one.kind,
                one.of or "",
                one.seed,
                *(_figure(one.settings.get(axis.name)) for axis in axes),
                _figure(one.score),
                f"{one.seconds:.1f}" if one.seconds else "",
                one.told.get("tokens", ""),
                one.told.get("steps", ""),
                json.dumps(settings, sort_keys=True) if isinstance(settings, dict) else "",
                " ".join(one.why.split()),
            ]
        )
    return text.getvalue()


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"
