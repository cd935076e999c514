"""trials.csv: the trials as a table for other programs."""

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


def write(path: Path, axes: Sequence[SearchAxis], trials: Sequence[TrialRecord]) -> None:
    """Write the table, replacing an earlier one atomically."""
    write_atomically(path, table(axes, trials))


def table(axes: Sequence[SearchAxis], trials: Sequence[TrialRecord]) -> str:
    """Format the trials as CSV: a header and one line per trial, with unknown values empty.

    The column `set` holds the settings in which a trial differs from the plan, as JSON.
    """
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow([*_BEFORE, *(axis.name for axis in axes), *_AFTER])
    for trial in trials:
        settings = trial.figures.get("settings")
        rows.writerow(
            [
                trial.number,
                trial.state,
                trial.kind,
                trial.repeats or "",
                trial.seed,
                *(_figure(trial.settings.get(axis.name)) for axis in axes),
                _figure(trial.score),
                f"{trial.seconds:.1f}" if trial.seconds else "",
                trial.figures.get("tokens", ""),
                trial.figures.get("steps", ""),
                json.dumps(settings, sort_keys=True) if isinstance(settings, dict) else "",
                " ".join(trial.error.split()),
            ]
        )
    return text.getvalue()


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"
