"""The scorecard's two files: the page, and JSON for other programs."""

import json
from pathlib import Path

from ownwords.core.errors import ConfigError
from ownwords.core.workspace import write_atomically
from ownwords.evaluation.scorecard import Scorecard
from ownwords.evaluation.scorecard_view import scorecard_view
from ownwords.view import html

PAGE, DATA = "scorecard.html", "scorecard.json"


def write(card: Scorecard, folder: Path) -> tuple[Path, Path]:
    """Write both files atomically into a folder and return their paths."""
    page, data = folder / PAGE, folder / DATA
    text = json.dumps(card.to_dict(), ensure_ascii=False, indent=1, allow_nan=False)
    write_atomically(data, text + "\n")
    write_atomically(page, html.document(scorecard_view(card)))
    return page, data


def read(folder: Path) -> Scorecard | None:
    """Read the scorecard in a folder; None if it is missing or cannot be read."""
    try:
        card = Scorecard.from_dict(json.loads((folder / DATA).read_bytes()))
    except (
        OSError,
        ValueError,
        RecursionError,
        ConfigError,
    ):  # also of another version of ownwords
        return None
    return card if card.verdicts else None
