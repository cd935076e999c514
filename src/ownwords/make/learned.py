"""Which posts the model of a workspace knows. It imports little, so that `look` starts fast."""

import json
from pathlib import Path

from ownwords.archive.report import Report
from ownwords.core.workspace import write_atomically

_LEARNED = Path("runs", "make", "posts.json")  # of a workspace


def write_learned(root: Path, report: Report) -> None:
    """Write the ids of all posts, held-out ones included: none of these is new to the model."""
    write_atomically(root / _LEARNED, json.dumps(sorted(post.id for post in report.posts)) + "\n")


def count_new(root: Path, report: Report) -> int:
    """Return how many posts of a workspace are new to the model that `make` made in it."""
    try:
        learned = json.loads((root / _LEARNED).read_bytes())
        known = {report.renamed.get(id_, id_) for id_ in map(str, learned)}
    except (OSError, ValueError, TypeError, RecursionError):
        return 0
    if not (root / "model").is_dir():
        return 0
    return sum(post.id not in known and post.decision != "leave out" for post in report.posts)
