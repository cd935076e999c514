"""Jobs for tests: a job manager with a fake `ownwords make`, whose processes are cleaned up."""

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from ownwords.core.workspace import DATA_FOLDER_VARIABLE, Workspace
from ownwords.serve.jobs import JobManager, JobRequest

PLAYED = Path(__file__).resolve().parent / "fake_make.py"


def until(condition: Callable[[], Any], seconds: float = 30.0) -> Any:  # noqa: ANN401
    """Wait until the condition returns a value; returns it."""
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        if value := condition():
            return value
        time.sleep(0.01)
    raise AssertionError("that never came")


@contextmanager
def fake_jobs(workspace: Workspace) -> Iterator[Callable[[str], JobManager]]:
    """Start jobs that behave in a given manner; none outlives the block."""
    managers: list[JobManager] = []
    patch = pytest.MonkeyPatch()  # no training of another test is waited for
    patch.setenv(DATA_FOLDER_VARIABLE, str(workspace.root.parent / "home"))

    def arguments(request: JobRequest) -> list[str]:
        place, minutes = str(workspace.root), str(request.minutes)
        return [request.kind, "blog", "--workspace", place, "--minutes", minutes]

    def start_manager(manner: str) -> JobManager:
        program = (sys.executable, str(PLAYED), manner)
        jobs = JobManager(workspace, arguments_of=arguments, program=program)
        managers.append(jobs)
        return jobs

    try:
        yield start_manager
    finally:
        for record in (workspace.runs / "jobs").glob("*/job.json"):
            with suppress(OSError, ValueError):
                pid = json.loads(record.read_text())["pid"]
                if pid > 1 and pid != os.getpid():  # which a test writes there
                    os.killpg(pid, signal.SIGKILL)
        patch.undo()
        for jobs in managers:
            until(lambda jobs=jobs: not jobs.find_worker())  # type: ignore[misc]
