"""The log of a job that the server started: `events.jsonl`, which the page reads as it grows."""

import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from typing import Final

from ownwords.core.errors import OwnwordsError
from ownwords.core.progress import JsonLines, Progress
from ownwords.core.timeline import Timeline
from ownwords.core.workspace import data_folder, try_lock

# The environment of a job: where its log is, how long its earlier attempts took, and the name of
# its blog if it trains.
LOG_VARIABLE: Final = "OWNWORDS_JOB_LOG"
SPENT_VARIABLE: Final = "OWNWORDS_JOB_SPENT_S"
TRAINS_VARIABLE: Final = "OWNWORDS_JOB_TRAINS"
_POLL_S = 0.5


@contextmanager
def logged_job(progress: Progress, environment: Mapping[str, str]) -> Iterator[None]:
    """Log the parts, the notes and the time left, if this process is a job of the server."""
    path = environment.get(LOG_VARIABLE)
    if not path:
        yield
        return
    spent = environment.get(SPENT_VARIABLE, "")
    with closing(JsonLines(Path(path), ("note", "expect", "begin", "overall"))) as log:
        progress.subscribers.append(log)
        blog = environment.get(TRAINS_VARIABLE)
        with _alone(progress, blog) if blog else nullcontext():
            spent_s = float(spent) if spent.replace(".", "").isdecimal() else 0
            progress.subscribers.append(Timeline(log, spent_s=spent_s))
            yield


@contextmanager
def _alone(progress: Progress, blog: str) -> Iterator[None]:
    """Wait until no other blog is being trained: two at once would slow each other down."""
    try:
        path = data_folder() / "training.lock"
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = path.open("a")
    except (OSError, OwnwordsError):  # such as a read-only disk
        yield
        return
    name = path.with_suffix(".txt")  # on Windows a locked file cannot be read
    with lock:
        if not try_lock(lock.fileno()):
            other = (name.exists() and name.read_text("utf-8", "replace")) or "another blog"
            progress.note(f"Waiting: {other} is being trained, and this starts after it.")
            while not try_lock(lock.fileno()):
                time.sleep(_POLL_S)
        name.write_text(blog, "utf-8", "replace")
        yield
