"""The jobs that the page starts, each an `ownwords` command in a process of its own.

`JobManager` starts, lists, stops and continues those of one workspace. What the page sees of a job
is read from the files in its folder, of which `events.jsonl` says how far it is.
"""

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from http import HTTPStatus
from pathlib import Path
from typing import Any, Literal

from ownwords.core.errors import InUseError, OwnwordsError
from ownwords.core.progress import Event, parse_event
from ownwords.core.validation import encode
from ownwords.core.workspace import SUFFIX, Workspace, is_held, path_text, translate_os_errors
from ownwords.models import atomic_dir
from ownwords.serve.errors import ApiError, as_conflict
from ownwords.serve.job_process import JobProcess, JobRecord
from ownwords.serve.job_requests import REQUESTS, JobInputs, JobKind, JobRequest, parse_request
from ownwords.serve.workspace_list import WorkspaceList
from ownwords.training.run import SAMPLE

_MAX_LOG_BYTES = 16 << 20  # at once; the rest comes with the next call
_MAX_JOBS = 50
_PYTHON = (sys.executable, "-P", "-m")  # -P keeps the current folder off sys.path
PROGRAM: tuple[str, ...] = (*_PYTHON, "ownwords")

InputsOf = Callable[[JobRequest], JobInputs]
ResultOf = Callable[[JobKind, Mapping[str, Any]], Mapping[str, Any]]

JobStatus = Literal["running", "stopping", "done", "stopped", "failed", "killed"]


@dataclass(frozen=True)
class JobStage:
    """A stage of a job; `seconds` is None before it begins, `expected_s` while unknown."""

    name: str
    label: str
    status: Literal["waiting", "running", "done", "skipped"]
    seconds: float | None = None
    expected_s: float | None = None


@dataclass(frozen=True)
class JobError:
    """Why a job failed, and what to do about it."""

    message: str
    hint: str


@dataclass(frozen=True)
class JobActions:
    """What can be done with a job now."""

    stop: bool
    resume: bool
    remove: bool


@dataclass(frozen=True)
class Job:
    """A job and how far it is; `share` and `remaining_s` are over all of its stages."""

    id: str
    kind: JobKind
    title: str
    status: JobStatus
    stage: str
    stages: tuple[JobStage, ...]
    share: float | None
    remaining_s: float | None
    line: str  # the last sentence that it reported
    began: float
    ended: float | None
    seconds: float  # over all attempts
    request: Mapping[str, Any]
    error: JobError | None
    result: Mapping[str, Any] | None
    can: JobActions


class EventTail:
    """Reads the events of a log incrementally, a bounded part of it at a time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._inode = -1

    def read(self) -> tuple[bool, list[Event]]:
        """Return whether the file was replaced, and the events since the last call."""
        try:
            with self._path.open("rb") as file:
                stat = os.fstat(file.fileno())
                is_replaced = stat.st_ino != self._inode or stat.st_size < self._offset
                if is_replaced:
                    self._inode, self._offset = stat.st_ino, 0
                file.seek(self._offset)
                data = file.read(_MAX_LOG_BYTES)
        except OSError:  # not there yet, or deleted
            was_there, self._inode, self._offset = self._inode != -1, -1, 0
            return was_there, []
        complete = data.rfind(b"\n") + 1  # the last line may be incomplete
        self._offset += complete
        events = map(parse_event, data[:complete].splitlines())
        return is_replaced, [event for event in events if event is not None]


class JobHistory:
    """Reads a job's `events.jsonl` as it grows; not thread-safe."""

    def __init__(self, path: Path) -> None:
        self._tail = EventTail(path)
        self._clear()

    def _clear(self) -> None:
        self.note = ""  # the last one
        self.stage = ""
        self.share: float | None = None
        self.time = 0.0
        self._remaining_s: float | None = None
        self._expected: dict[str, float | None] = {}
        self._began: dict[str, float] = {}
        self._ended: dict[str, float] = {}

    def update(self) -> None:
        """Take in what was logged since the last call."""
        is_replaced, events = self._tail.read()
        if is_replaced:
            self._clear()
        for event in events:
            self._add(event)

    def remaining_s(self, now: float) -> float | None:
        """Seconds until the job is done; None while unknown."""
        if self._remaining_s is None:
            return None
        return max(1.0, self._remaining_s - max(0.0, now - self.time))

    def stages(
        self, labels: Mapping[str, str], now: float, *, is_running: bool
    ) -> Iterator[JobStage]:
        """The stages of `labels` as far as they are; without those that it has not."""
        for name, label in labels.items():
            expected = self._expected.get(name)
            began, ended = self._began.get(name), self._ended.get(name)
            if began is None:
                if expected == 0 and name in self._expected:
                    continue
                yield JobStage(name, label, "skipped" if ended else "waiting", None, expected)
                continue
            is_current = ended is None and is_running
            if not is_current and expected == 0:
                continue
            seconds = round((ended or (now if is_current else self.time)) - began, 1)
            yield JobStage(name, label, "running" if is_current else "done", seconds, expected)

    def _add(self, event: Event) -> None:
        self.time = event.time
        if event.kind == "note" and event.message and not event.message.startswith(SAMPLE):
            self.note = event.message
        elif event.kind == "expect":
            self._expected[event.stage] = event.values.get("seconds")
        elif event.kind == "begin" and event.stage in self._expected:
            for name in self._expected:
                if name == event.stage:
                    break
                self._ended.setdefault(name, event.time)
            self.stage = event.stage
            self._began.setdefault(event.stage, event.time)
            self._ended.pop(event.stage, None)
        elif event.kind == "overall":
            self.share = max(self.share or 0.0, event.values.get("share", 0.0))
            self._remaining_s = event.values.get("remaining_s")


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
            if any(is_held(path) for path in runs.glob("*/.lock")):
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
                began=now,
                attempt_began=now,
            )
            process = self._processes[record.id] = JobProcess(self._folder / record.id)
            process.start(record, [*self._program_for(request), *request.arguments(inputs)])
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
            following = replace(
                record,
                attempt_began=time.time(),
                spent_s=before.seconds,
                share=before.share or 0.0,
                pid=0,
                stop_requests=0,
            )
            arguments = request.arguments(self._inputs_of(request))
            process.start(following, [*self._program_for(request), *arguments])
        return self.job(id_)

    def stop(self, id_: str) -> Job:
        """Ask a job to save and end; a second call ends it at once, a third one kills it."""
        self.job(id_)  # raises ApiError if there is none
        with self._mutex, as_conflict():
            self._process(id_).stop()
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
        line = history.note
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


def job_result(kind: JobKind, printed: Mapping[str, Any]) -> Mapping[str, Any]:
    """The few fields of a command's JSON that tell how it went."""
    if kind in ("make", "score"):
        card = printed.get("scorecard") if kind == "make" else printed
        verdict = card.get("verdict", {}) if isinstance(card, Mapping) else {}
        return {"sentence": str(verdict.get("sentence", ""))}
    if kind == "tune":
        sentences = printed.get("sentences") or [""]
        return {"sentence": str(sentences[0])}
    if kind == "export":
        path = Path(str(printed["path"]))
        written = {key: printed[key] for key in ("path", "bytes", "type")}
        return {**written, "name": path.name, "to": printed["form"]}
    if kind == "base":
        return {"name": str(printed["name"])}
    if kind == "fetch":
        return {key: printed[key] for key in ("path", "name", "label", "posts")}
    return {}


@dataclass(frozen=True)
class OtherJob:
    """A running job of the blog whose workspace is at a path; `share` is how far it is."""

    path: str
    name: str
    title: str
    share: float | None


class OtherJobs:
    """Reads the jobs of all listed workspaces but the current one."""

    def __init__(self, current: Workspace) -> None:
        self._list = WorkspaceList(current)
        self._managers: dict[Path, JobManager] = {}

    def running(self) -> list[OtherJob]:
        """The jobs that run."""
        jobs = []
        for path in self._list.paths()[1:]:
            manager = self._managers.setdefault(path, JobManager(Workspace(path)))
            name = path.name.removesuffix(SUFFIX)
            jobs += [
                OtherJob(path_text(path), name, job.title, job.share) for job in manager.running()
            ]
        return jobs
