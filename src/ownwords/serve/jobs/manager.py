"""The jobs of a workspace: started, listed, stopped and continued."""

import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from http import HTTPStatus
from pathlib import Path
from typing import Any

from ownwords.core.errors import InUseError, OwnwordsError
from ownwords.core.validation import encode
from ownwords.core.workspace import Workspace, translate_os_errors
from ownwords.models import atomic_dir
from ownwords.serve.errors import ApiError
from ownwords.serve.jobs.history import JobHistory
from ownwords.serve.jobs.job import Job, JobActions, JobError, JobStatus
from ownwords.serve.jobs.process import JobOutcome, JobProcess, JobRecord, is_held
from ownwords.serve.jobs.requests import REQUESTS, JobInputs, JobKind, JobRequest, parse_request

_MAX_JOBS = 50
_PYTHON = (sys.executable, "-P", "-m")  # -P keeps the current folder off sys.path
PROGRAM: tuple[str, ...] = (*_PYTHON, "ownwords")

InputsOf = Callable[[JobRequest], JobInputs]
ResultOf = Callable[[JobKind, Mapping[str, Any]], Mapping[str, Any]]


@dataclass(frozen=True)
class JobAttempt:
    """The last attempt at a job; `outcome` is None while it runs."""

    record: JobRecord
    is_alive: bool
    outcome: JobOutcome | None
    last_line: str  # that it printed


class JobManager:
    """Thread-safe. `program` is the command line's, which tests replace.

    `result_of` picks from what a command printed what the page shows.
    """

    def __init__(
        self,
        workspace: Workspace,
        *,
        inputs_of: InputsOf | None = None,
        result_of: ResultOf = lambda _, result: result,
        program: Sequence[str] = (),
    ) -> None:
        self.workspace = workspace
        self._folder = workspace.runs / "jobs"
        self._inputs_of = inputs_of or (lambda _: JobInputs(workspace.root))
        self._result_of = result_of
        self._program = tuple(program)
        self._processes: dict[str, JobProcess] = {}
        self._histories: dict[str, tuple[float, JobHistory]] = {}
        self._ended: dict[str, tuple[JobRecord, Job]] = {}
        self._mutex = threading.RLock()

    # --- what there is ---------------------------------------------------------------------------

    def jobs(self) -> list[Job]:
        """All jobs, the newest first."""
        with self._mutex:
            jobs = [self._job(process) for process in self._all()]
        known = [job for job in jobs if job is not None]
        return sorted(known, key=lambda job: job.began, reverse=True)[:_MAX_JOBS]

    def running(self) -> list[Job]:
        """The jobs that run."""
        with self._mutex:
            return [job for each in self._all() if each.is_alive() and (job := self._job(each))]

    def job(self, id_: str) -> Job:
        """The job with this id. Raises ApiError if there is none."""
        with self._mutex:
            job = self._job(self._process(id_))
        if job is None:
            raise _no_such_job(id_)
        return job

    def attempt(self, *kinds: JobKind) -> JobAttempt | None:
        """The newest job of these kinds as its files tell it."""
        with self._mutex:
            known = [(record, each) for each in self._all() if (record := each.record())]
            known = [(record, each) for record, each in known if record.kind in kinds]
            if not known:
                return None
            record, process = max(known, key=lambda pair: pair[0].attempt_began)
            is_alive = process.is_alive()
            outcome = None if is_alive else process.outcome(record.stop_requests)
            return JobAttempt(record, is_alive, outcome, next(reversed(process.lines()), ""))

    def lines(self, id_: str) -> list[tuple[float | None, str]]:
        """The notes of a job with their times, then the last lines that it printed."""
        with self._mutex:
            process = self._process(id_)
            record = process.record()
            if record is None:
                raise _no_such_job(id_)
            history = self._history(process, record)
            history.update()
            return [*history.notes, *((None, line) for line in process.lines())]

    def find_worker(self) -> str:
        """Describe the process that works in the workspace in a sentence; "" if there is none."""
        with self._mutex:
            for process in self._all():
                record = process.record()
                if record and REQUESTS[record.kind].is_exclusive and process.is_alive():
                    return f"{_title(record)[:1].lower()}{_title(record)[1:]} is still running"
            root, runs = self.workspace.root, self.workspace.runs
            if is_held(runs / "make" / ".lock") or is_held(root / ".lock"):
                return f"another ownwords is working in {root}"
            locks = (path for path in runs.glob("*/.lock"))
            if any(is_held(path) for path in locks):
                return f"another ownwords is training in {root}"
            return ""

    # --- what can be done ------------------------------------------------------------------------

    def start(self, request: JobRequest) -> Job:
        """Start a job. Raises InUseError if another one excludes it."""
        inputs = self._inputs_of(request)
        with self._mutex:
            self._check_free(request)
            # Create the workspace first: a folder with only `runs` is not recognised as one.
            if not self._folder.is_dir():
                with self.workspace.opened(), translate_os_errors(self._folder):
                    self._folder.mkdir(parents=True, exist_ok=True)
            now = time.time()
            record = JobRecord(
                id=self._new_id(request.kind),
                kind=request.kind,
                request=encode(request),
                command=tuple(request.arguments(inputs)),
                began=now,
                attempt_began=now,
            )
            process = self._processes[record.id] = JobProcess(self._folder / record.id)
            process.start(record, self._program_for(request))
            self._forget_oldest()
        return self.job(record.id)

    def resume(self, id_: str) -> Job:
        """Start the next attempt at a job that was stopped, killed or failed."""
        before = self.job(id_)
        if not before.can.resume:
            raise ApiError(HTTPStatus.CONFLICT, "this job cannot be continued")
        with self._mutex:
            process = self._process(id_)
            record = process.record()
            if record is None:
                raise _no_such_job(id_)
            request = parse_request(record.kind, record.request)
            self._check_free(request)
            process.start(
                replace(
                    record,
                    command=tuple(request.arguments(self._inputs_of(request))),
                    attempt_began=time.time(),
                    spent_s=before.seconds,
                    share=before.share or 0.0,
                    pid=0,
                    stop_requests=0,
                ),
                self._program_for(request),
            )
        return self.job(id_)

    def stop(self, id_: str) -> Job:
        """Ask a job to save and end; a second call ends it at once, a third one kills it."""
        with self._mutex:
            process = self._process(id_)
            if process.record() is None:
                raise _no_such_job(id_)
            try:
                process.stop()
            except OwnwordsError as error:
                raise ApiError(HTTPStatus.CONFLICT, error.message, error.hint) from error
        return self.job(id_)

    def remove(self, id_: str) -> None:
        """Forget a job that has ended."""
        if not self.job(id_).can.remove:
            raise ApiError(HTTPStatus.CONFLICT, "this job is still running", "stop it first")
        with self._mutex:
            self._delete(self._process(id_))

    # --- inside, with the mutex ------------------------------------------------------------------

    def _check_free(self, request: JobRequest) -> None:
        if request.is_exclusive and (holder := self.find_worker()):
            raise InUseError(holder, hint="wait until it ends, or stop it")

    def _program_for(self, request: JobRequest) -> tuple[str, ...]:
        return (*_PYTHON, request.module) if request.module else self._program or PROGRAM

    def _new_id(self, kind: JobKind) -> str:
        numbers = [
            int(number)
            for number in (path.name.rpartition("-")[2] for path in self._folders())
            if number.isdecimal()
        ]
        return f"{kind}-{max(numbers, default=0) + 1}"

    def _folders(self) -> list[Path]:
        try:
            return [path for path in self._folder.iterdir() if not path.name.startswith(".")]
        except OSError:
            return []

    def _all(self) -> list[JobProcess]:
        return [self._process(path.name) for path in self._folders()]

    def _process(self, id_: str) -> JobProcess:
        # Only the names of existing folders become paths.
        if id_ not in self._processes:
            if id_ not in {path.name for path in self._folders()}:
                raise _no_such_job(id_)
            self._processes[id_] = JobProcess(self._folder / id_)
        return self._processes[id_]

    def _history(self, process: JobProcess, record: JobRecord) -> JobHistory:
        attempt, history = self._histories.get(record.id, (0.0, None))
        if history is None or attempt != record.attempt_began:
            history = JobHistory(process.events)
            self._histories[record.id] = record.attempt_began, history
        return history

    def _job(self, process: JobProcess) -> Job | None:
        record = process.record()
        if record is None or record.kind not in REQUESTS:
            return None
        is_alive = process.is_alive()
        ended = self._ended.get(record.id)
        if not is_alive and ended and ended[0] == record:
            return ended[1]
        history = self._history(process, record)
        history.update()
        job = self._describe(process, record, history, is_alive=is_alive)
        if not is_alive:
            self._ended[record.id] = record, job
        return job

    def _describe(
        self, process: JobProcess, record: JobRecord, history: JobHistory, *, is_alive: bool
    ) -> Job:
        now = time.time()
        outcome = None if is_alive else process.outcome(record.stop_requests)
        status: JobStatus = "stopping" if record.stop_requests else "running"
        error = result = ended = None
        line = history.notes[-1][1] if history.notes else ""
        if outcome:
            status, ended = outcome.kind, max(outcome.time, record.attempt_began)
            line = outcome.message or line
            if status in ("failed", "killed"):
                error = JobError(outcome.message, outcome.hint)
            if status == "done":
                with suppress(LookupError, TypeError, ValueError, OwnwordsError):
                    result = self._result_of(REQUESTS[record.kind].kind, outcome.result or {})
        stages = history.stages(REQUESTS[record.kind].labels, now, is_running=is_alive)
        if status == "done":  # what was not to be done again never began
            stages = (
                replace(stage, status="skipped") if stage.status == "waiting" else stage
                for stage in stages
            )
        share = max(record.share, history.share or 0.0)
        return Job(
            id=record.id,
            kind=REQUESTS[record.kind].kind,
            title=_title(record),
            status=status,
            stage=history.stage if is_alive else "",
            stages=tuple(stages),
            share=1.0 if status == "done" else round(share, 4) or None,
            remaining_s=_whole(history.remaining_s(now)) if is_alive else None,
            line=line,
            began=record.began,
            ended=ended,
            seconds=round(record.spent_s + (ended or now) - record.attempt_began, 1),
            request={"kind": record.kind, **record.request},
            error=error,
            result=result,
            can=JobActions(
                stop=is_alive and bool(record.pid),
                resume=status in ("stopped", "failed", "killed"),
                remove=not is_alive,
            ),
        )

    def _forget_oldest(self) -> None:
        """Delete the logs of the oldest jobs, so that their number stays bounded."""
        ended = [job for job in (self._job(each) for each in self._all()) if job and job.can.remove]
        ended.sort(key=lambda job: job.began)
        for job in ended[: max(0, len(ended) - _MAX_JOBS)]:
            self._delete(self._process(job.id))

    def _delete(self, process: JobProcess) -> None:
        atomic_dir.delete_dir(process.folder)
        self._processes.pop(process.folder.name, None)
        self._histories.pop(process.folder.name, None)
        self._ended.pop(process.folder.name, None)


def _title(record: JobRecord) -> str:
    return parse_request(record.kind, record.request).title


def _whole(seconds: float | None) -> float | None:
    return None if seconds is None else float(round(seconds))


def _no_such_job(id_: str) -> ApiError:
    return ApiError(HTTPStatus.NOT_FOUND, f"there is no job {id_[:80]!r}")
