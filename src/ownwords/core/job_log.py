"""The log of a job that the server started: `events.jsonl`, which the page reads as it grows."""

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from ownwords.core.progress import JsonLines, Progress
from ownwords.core.timeline import Timeline

# The environment of a job: where its log is, and how long its earlier attempts took.
LOG_VARIABLE: Final = "OWNWORDS_JOB_LOG"
SPENT_VARIABLE: Final = "OWNWORDS_JOB_SPENT_S"


@contextmanager
def logged_job(progress: Progress, environment: Mapping[str, str]) -> Iterator[None]:
    """Log the parts, the notes and the time left, if this process is a job of the server."""
    path = environment.get(LOG_VARIABLE)
    if not path:
        yield
        return
    spent = environment.get(SPENT_VARIABLE, "")
    with closing(JsonLines(Path(path), ("note", "expect", "begin", "overall"))) as log:
        timeline = Timeline(log, spent_s=float(spent) if spent.replace(".", "").isdecimal() else 0)
        progress.subscribers += [log, timeline]
        yield
