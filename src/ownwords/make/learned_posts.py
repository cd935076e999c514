"""`runs/make/posts.json`: the posts that the model knows, to say which ones are new to it."""

import json
from pathlib import Path

from ownwords.archive.report import Report
from ownwords.core.workspace import write_atomically

FILE = "posts.json"


def write_learned(folder: Path, report: Report) -> None:
    """Write the ids of the posts that the model was made from; held-out ones are not new either."""
    write_atomically(folder / FILE, json.dumps(sorted(post.id for post in report.posts)) + "\n")


def read_learned(folder: Path) -> frozenset[str] | None:
    """The ids of the posts that the model was made from; None if they are not known."""
    try:
        ids = json.loads((folder / FILE).read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    return frozenset(map(str, ids)) if isinstance(ids, list) else None
