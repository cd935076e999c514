"""The jobs that the page starts, each an `ownwords` command in a process of its own.

A job is a folder in `runs/jobs`: `job.json` holds its request, `events.jsonl` says how far it is,
`result.json` and `output.txt` are what its command has printed, and its process holds `.lock` as
long as it lives. So it survives the server, and a restarted server shows the same as before.
"""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Annotated, Any, ClassVar, Literal, get_args

from ownwords.archive.blog_name import blog_name
from ownwords.core.errors import InUseError, OwnwordsError
from ownwords.core.progress import (
    LOG_VARIABLE,
    SPENT_VARIABLE,
    TRAINS_VARIABLE,
    Event,
    left_after,
    parse_event,
)
from ownwords.core.validation import Meta, decode, encode
from ownwords.core.workspace import (
    Workspace,
    is_held,
    locked,
    path_text,
    translate_os_errors,
    write_atomically,
)
from ownwords.models import atomic_dir
from ownwords.serve.errors import as_conflict, conflict, invalid, not_found
from ownwords.serve.workspace_list import WorkspaceList
from ownwords.training.run import SAMPLE

_MAX_LOG_BYTES = 16 << 20  # at once; the rest comes with the next call
_MAX_JOBS = 50
PYTHON = (sys.executable, "-P", "-m")  # -P keeps the current folder off sys.path
PROGRAM: tuple[str, ...] = (*PYTHON, "ownwords")
_INTERRUPTED = "interrupted"  # prefix of the error message of an interrupted process
_KILL_AFTER = 2  # requests to stop; a kill does not damage what is saved
# A job must not inherit secrets, or the variables of a distributed launcher (torchrun).
_SECRET = re.compile(r"KEY|TOKEN(?!IZERS)|SECRET|PASSWORD|CREDENTIAL", re.IGNORECASE)
_LAUNCHER = re.compile(r"(LOCAL_|GROUP_)?(RANK|WORLD_SIZE)|MASTER_(ADDR|PORT)|TORCHELASTIC_.*")
_NEEDED = {"base": "HF_TOKEN"}  # access to models whose licence was accepted on the hub

# --- what is asked --------------------------------------------------------------------------------

JobKind = Literal["look", "make", "score", "export", "base", "fetch", "encoder"]
ExportForm = Literal["hf", "gguf", "ollama", "zip", "adapter"]
WeightType = Literal["f32", "f16", "bf16", "q8_0", "q4_0"]
_Name = Annotated[str, Meta(max_length=200)]

# What an export is called, and how its name ends.
_FORMS: Mapping[ExportForm, tuple[str, str]] = {
    "hf": ("a folder", ""),
    "gguf": ("GGUF", ".gguf"),
    "ollama": ("a folder for Ollama", "-ollama"),
    "zip": ("a zip", ".zip"),
    "adapter": ("an adapter", "-adapter"),
}


@dataclass(frozen=True)
class JobInputs:
    """What the workspace adds to a request: its paths, and how its posts are read."""

    root: Path
    sources: Sequence[Path] = ()
    flags: Sequence[str] = ()  # further options of the command
    model: Path = Path()
    out: Path = Path()


@dataclass(frozen=True)
class JobRequest:
    """What a job is asked: the body of the request that starts it, and a part of `job.json`."""

    kind: ClassVar[JobKind]
    heading: ClassVar[str]  # what the page calls the job; it may name fields
    module: ClassVar[str] = ""  # that runs the command; "" is ownwords itself
    is_exclusive: ClassVar[bool] = False  # writes the archive or the model, so that it runs alone
    labels: ClassVar[Mapping[str, str]]  # of the stages, in order

    @property
    def title(self) -> str:
        """What the page calls the job."""
        return self.heading.format(**vars(self))

    def arguments(self, inputs: JobInputs) -> list[str]:
        """The arguments of the command that does it, whose options are named as the fields."""
        where = [*map(str, inputs.sources), "--workspace", str(inputs.root)]
        return [self.kind, *where, *_options(encode(self)), *inputs.flags, "--json"]


def _options(fields: Mapping[str, Any]) -> list[str]:
    given = {name: value for name, value in fields.items() if value not in ("", None)}
    return [word for name, value in given.items() for word in (f"--{name}", str(value))]


@dataclass(frozen=True)
class LookJob(JobRequest):
    """Read the sources of this workspace again."""

    kind = "look"
    heading = "Reading your blog"
    is_exclusive = True
    labels: ClassVar[Mapping[str, str]] = {
        "read": "Reading your posts",
        "analyse": "Comparing them",
    }


@dataclass(frozen=True)
class MakeJob(JobRequest):
    """Read the sources, train a model, let it write and score it.

    What is not given is chosen by `ownwords make`; `name` is the model's in this workspace.
    """

    minutes: Annotated[float, Meta(gt=0, le=10_000_000)] | None = None
    base: _Name = ""
    name: _Name = ""

    kind = "make"
    heading = "Making a model"
    is_exclusive = True
    labels: ClassVar[Mapping[str, str]] = {
        "read": "Reading your posts",
        "plan": "Planning",
        "train": "Training",
        "write": "Writing a first paragraph",
        "score": "Scoring",
    }


@dataclass(frozen=True)
class ScoreJob(JobRequest):
    """Score the current model again."""

    kind = "score"
    heading = "Scoring the model"
    is_exclusive = True
    labels: ClassVar[Mapping[str, str]] = {"score": "Scoring"}


@dataclass(frozen=True)
class ExportJob(JobRequest):
    """Write the current model in another format; without a type in the format's usual one."""

    to: ExportForm
    type: WeightType | None = None

    kind = "export"
    labels: ClassVar[Mapping[str, str]] = {"export": "Writing the files"}

    @property
    def title(self) -> str:
        return f"Exporting as {_FORMS[self.to][0]}"

    def file_name(self, model: str) -> str:
        """The name of the exported file or folder, which says what it is."""
        weights = f"-{self.type}" if self.type else ""
        return f"{model.replace(' ', '-')}{weights}{_FORMS[self.to][1]}"

    def arguments(self, inputs: JobInputs) -> list[str]:
        options = _options({"to": self.to, "type": self.type, "out": inputs.out})
        return ["export", str(inputs.model), *options, "--json"]


@dataclass(frozen=True)
class BaseJob(JobRequest):
    """Install a base: ORG/NAME on a hub, or a name of the catalogue.

    `accepted` says that the user has accepted its terms.
    """

    source: Annotated[str, Meta(min_length=1, max_length=200)]
    name: _Name = ""
    accepted: bool = False

    kind = "base"
    labels: ClassVar[Mapping[str, str]] = {"download": "Downloading", "open": "Checking"}

    @property
    def title(self) -> str:
        return f"Installing {self.name or self.source}"

    def arguments(self, inputs: JobInputs) -> list[str]:
        accepted = self.source if self.accepted else ""
        options = _options({"name": self.name, "accept-terms": accepted})
        return ["base", "add", self.source, *options, "--json"]


@dataclass(frozen=True)
class FetchJob(JobRequest):
    """Fetch a feed, or the feed of a site, from the host that the user has named."""

    url: Annotated[str, Meta(min_length=1, max_length=2000)]
    host: Annotated[str, Meta(min_length=1, max_length=253)]

    kind = "fetch"
    heading = "Fetching posts from {host}"
    module = "ownwords.serve.intake"
    labels: ClassVar[Mapping[str, str]] = {"fetch": "Fetching"}

    def arguments(self, inputs: JobInputs) -> list[str]:
        return [self.url, self.host, str(inputs.out), *inputs.flags]


@dataclass(frozen=True)
class EncoderJob(JobRequest):
    """Install an encoder for the search by meaning."""

    name: Literal["minilm", "multilingual"]

    kind = "encoder"
    heading = "Installing the search by meaning"
    module = "ownwords.ask.encoder"

    def arguments(self, inputs: JobInputs) -> list[str]:
        return [self.name]


_KINDS = (LookJob, MakeJob, ScoreJob, ExportJob, BaseJob, FetchJob, EncoderJob)
REQUESTS: Mapping[str, type[JobRequest]] = {request.kind: request for request in _KINDS}


def parse_request(kind: object, fields: Mapping[str, object]) -> JobRequest:
    """The request of a kind from its fields. Raises ApiError for a kind that does not exist."""
    if not isinstance(kind, str) or kind not in REQUESTS:
        kinds = ", ".join(get_args(JobKind))
        raise invalid("there is no such kind of job", hint=f"the kinds are: {kinds}", param="kind")
    rest = {name: value for name, value in fields.items() if name != "kind"}
    return decode(REQUESTS[kind], rest, unknown="ignore", null_is_missing=True)


# --- its process ----------------------------------------------------------------------------------

InputsOf = Callable[[JobRequest], JobInputs]
OnDone = Callable[[JobKind, Mapping[str, Any]], None]
JobStatus = Literal["running", "stopping", "done", "stopped", "failed", "killed"]


@dataclass(frozen=True)
class JobStage:
    """A stage of a running job."""

    label: str
    status: Literal["waiting", "running", "done"]


@dataclass(frozen=True)
class JobError:
    """Why a job failed, and what to do about it."""

    message: str
    hint: str = ""


@dataclass(frozen=True)
class Job:
    """A job as the page shows it; `share` and `remaining_s` are over all of its stages."""

    id: str
    kind: JobKind
    title: str
    status: JobStatus
    stage: str  # in words; "" if none runs
    stages: tuple[JobStage, ...]
    share: float | None
    remaining_s: float | None
    line: str  # the last sentence that it reported
    began: float
    ended: float | None
    error: JobError | None


@dataclass(frozen=True)
class JobRecord:
    """The contents of `job.json`."""

    id: str
    kind: str
    request: dict[str, Any]
    began: float  # its first attempt
    attempt_began: float
    spent_s: float = 0.0  # by earlier attempts
    share: float = 0.0  # done by earlier attempts
    pid: int = 0
    stop_requests: int = 0


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


class _History:
    """How far one attempt at a job is, by its events."""

    def __init__(self, record: JobRecord, path: Path) -> None:
        self.attempt_began = record.attempt_began
        self.note = self.stage = ""  # the last ones
        self.share = record.share
        self._tail = EventTail(path)
        self._time = 0.0
        self._remaining_s: float | None = None
        self._expected: dict[str, float | None] = {}  # seconds of each stage, 0 if it is left out
        self._began: set[str] = set()
        self._ended: set[str] = set()

    def update(self) -> None:
        """Take in what was logged since the last call."""
        for event in self._tail.read()[1]:
            self._time = event.time
            if event.kind == "note" and event.message and not event.message.startswith(SAMPLE):
                self.note = event.message
            elif event.kind == "expect":
                self._expected[event.stage] = event.values.get("seconds")
            elif event.kind == "begin" and event.stage in self._expected:
                before = list(self._expected)[: list(self._expected).index(event.stage)]
                self._ended = (self._ended | {*before}) - {event.stage}
                self._began.add(event.stage)
                self.stage = event.stage
            elif event.kind == "overall":
                self.share = max(self.share, event.values.get("share", 0.0))
                self._remaining_s = event.values.get("remaining_s")

    def remaining_s(self, now: float) -> float | None:
        """Seconds until the job is done; None while unknown."""
        if self._remaining_s is None:
            return None
        return float(round(max(1.0, left_after(self._remaining_s, max(0.0, now - self._time)))))

    def stages(self, labels: Mapping[str, str]) -> Iterator[JobStage]:
        """The stages of `labels` as far as they are; without those that it has not."""
        for name, label in labels.items():
            is_over = name in self._ended
            if name in self._began and not is_over:
                yield JobStage(label, "running")
            elif self._expected.get(name) != 0 and (name in self._began or not is_over):
                yield JobStage(label, "done" if is_over else "waiting")


class JobProcess:
    """A job in its folder; every state is read from the files, but for the child's own exit.

    `on_done` gets what the command of a job has printed, at least once.
    """

    def __init__(self, folder: Path, on_done: OnDone) -> None:
        self.folder = folder
        self._on_done = on_done
        self._record_path, self._lock_path = folder / "job.json", folder / ".lock"
        self._events_path, self._result_path = folder / "events.jsonl", folder / "result.json"
        self._output_path = folder / "output.txt"
        self._child: subprocess.Popen[bytes] | None = None
        self._history: _History | None = None
        self._last: tuple[JobRecord, Job] | None = None  # once it has ended

    def start(self, record: JobRecord, command: Sequence[str]) -> None:
        """Start an attempt. Raises InUseError while another one is running."""
        with locked(self._lock_path, "this job is still running", "stop it first") as lock:
            # Remove what the last attempt left, so that it is not mistaken for the new one's.
            for path in (self._result_path, self._events_path):
                path.unlink(missing_ok=True)
            blog = blog_name(self.folder.absolute().parents[2])
            self._write_record(record)
            with (
                translate_os_errors(self.folder),
                self._result_path.open("wb") as result,
                self._output_path.open("wb") as output,
            ):
                self._child = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=result,
                    stderr=output,
                    env=clean_environment(os.environ, _NEEDED.get(record.kind, ""))
                    | {
                        LOG_VARIABLE: str(self._events_path.absolute()),
                        SPENT_VARIABLE: f"{record.spent_s:.1f}",
                        TRAINS_VARIABLE: blog if record.kind == "make" else "",
                    },
                    **_detached(lock),
                )
            self._write_record(replace(record, pid=self._child.pid))

    def stop(self) -> None:
        """Ask the job to save and end; a second call ends it at once, a third one kills it."""
        record = self.record()
        if record is None or not record.pid or not self.is_alive():
            raise OwnwordsError("this job is not running")
        self._write_record(replace(record, stop_requests=record.stop_requests + 1))
        with suppress(ProcessLookupError):  # the process has just ended
            _interrupt(record.pid, kill=record.stop_requests >= _KILL_AFTER)

    def record(self) -> JobRecord | None:
        """The contents of `job.json`; None if it is missing or damaged."""
        try:
            record = decode(JobRecord, json.loads(self._record_path.read_bytes()), unknown="ignore")
            parse_request(record.kind, record.request)
        except (OSError, ValueError, OwnwordsError):  # damaged, or of a kind that is gone
            return None
        return record

    def is_alive(self) -> bool:
        """Whether the process runs."""
        if self._child is not None:
            if self._child.poll() is None:
                return True
            self._child = None
        # After a restart of the server, only the lock shows whether it is alive.
        return sys.platform != "win32" and is_held(self._lock_path)

    def job(self) -> Job | None:
        """The job as it is now; None if its files are missing or damaged."""
        record = self.record()
        if record is None:
            return None
        is_alive = self.is_alive()
        if not is_alive and self._last and self._last[0] == record:
            return self._last[1]
        if self._history is None or self._history.attempt_began != record.attempt_began:
            self._history = _History(record, self._events_path)
        history, request = self._history, parse_request(record.kind, record.request)
        history.update()
        job = Job(
            id=record.id,
            kind=request.kind,
            title=request.title,
            status="stopping" if record.stop_requests else "running",
            stage=request.labels.get(history.stage, "") if is_alive else "",
            stages=tuple(history.stages(request.labels)) if is_alive else (),
            share=round(history.share, 4) or None,
            remaining_s=history.remaining_s(time.time()) if is_alive else None,
            line=history.note,
            began=record.began,
            ended=None,
            error=None,
        )
        if not is_alive:
            job = self._ended(job, record)
            self._last = record, job
        return job

    def _ended(self, job: Job, record: JobRecord) -> Job:
        """The job whose attempt is over, by what it has printed."""
        paths = (self._output_path, self._result_path, self._events_path)
        printed_at = max((path.stat().st_mtime for path in paths if path.exists()), default=0.0)
        job = replace(job, ended=max(printed_at, record.attempt_began))
        try:
            result = json.loads(self._result_path.read_bytes())
            failure = result.get("error") if isinstance(result, dict) else None
        except (OSError, ValueError):
            if record.stop_requests:
                return replace(job, status="stopped", line="stopped before it began")
            error = JobError(
                "the job ended without an error message, as when the memory is full",
                "what it saved is still there: continue it",
            )
            return replace(job, status="killed", line=error.message, error=error)
        if not failure:
            self._on_done(job.kind, result)
            return replace(job, status="done", share=1.0)
        error = decode(JobError, failure, unknown="ignore", null_is_missing=True)
        if error.message.startswith(_INTERRUPTED):
            saved = error.message.removeprefix(_INTERRUPTED).lstrip(": ")
            return replace(job, status="stopped", line=saved or "stopped")
        return replace(job, status="failed", line=error.message, error=error)

    def _write_record(self, record: JobRecord) -> None:
        write_atomically(self._record_path, json.dumps(encode(record)) + "\n")


def clean_environment(environment: Mapping[str, str], needed: str = "") -> dict[str, str]:
    """The environment for a job, without secrets, but one that it needs, and launcher variables."""
    inherited = {
        name: value
        for name, value in environment.items()
        if name == needed or (not _SECRET.search(name) and not _LAUNCHER.fullmatch(name))
    }
    return {**inherited, "PYTHONUNBUFFERED": "1", "PYTHONIOENCODING": "utf-8"}


if sys.platform == "win32":

    def _detached(_: IO[str]) -> dict[str, Any]:
        """Popen options for a separate process group, which can be interrupted alone."""
        return {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP}

    def _interrupt(pid: int, *, kill: bool) -> None:
        os.kill(pid, signal.SIGTERM if kill else signal.CTRL_BREAK_EVENT)

else:

    def _detached(lock: IO[str]) -> dict[str, Any]:
        """Popen options for a separate session, out of reach of Ctrl-C, that inherits the lock."""
        return {"start_new_session": True, "pass_fds": (lock.fileno(),)}

    def _interrupt(pid: int, *, kill: bool) -> None:
        if os.getpgid(pid) != pid:  # another process has this pid now
            raise ProcessLookupError(pid)
        if kill:
            os.killpg(pid, signal.SIGKILL)
        else:
            os.kill(pid, signal.SIGINT)


class JobManager:
    """Starts, lists, stops and continues the jobs of one workspace. Thread-safe.

    `inputs_of` adds to a request what the workspace knows, `on_done` gets what a job has printed.
    `program` is the command line's, which tests replace.
    """

    def __init__(
        self,
        workspace: Workspace,
        *,
        inputs_of: InputsOf | None = None,
        on_done: OnDone = lambda _, result: None,
        program: Sequence[str] = (),
    ) -> None:
        self.workspace = workspace
        self._folder = workspace.runs / "jobs"
        self._inputs_of = inputs_of or (lambda _: JobInputs(workspace.root))
        self._on_done = on_done
        self._program = tuple(program)
        self._processes: dict[str, JobProcess] = {}
        self._mutex = threading.RLock()

    def jobs(self) -> list[Job]:
        """All jobs, the newest first."""
        with self._mutex:
            jobs = [job for process in self._all() if (job := process.job())]
        return sorted(jobs, key=lambda job: job.began, reverse=True)[:_MAX_JOBS]

    def running(self) -> list[Job]:
        """The jobs that run."""
        with self._mutex:
            return [job for each in self._all() if each.is_alive() and (job := each.job())]

    def find_worker(self) -> str:
        """Describe the process that works in the workspace in a sentence; "" if there is none."""
        title = next((job.title for job in self.running() if REQUESTS[job.kind].is_exclusive), "")
        if title:
            return f"{title} is still running"
        root, runs = self.workspace.root, self.workspace.runs
        if is_held(runs / "make" / ".lock") or is_held(root / ".lock"):
            return f"another ownwords is working in {root}"
        if any(is_held(path) for path in runs.glob("*/.lock")):
            return f"another ownwords is training in {root}"
        return ""

    def start(self, request: JobRequest) -> Job:
        """Start a job. Raises InUseError if another one excludes it."""
        with self._mutex:
            numbers = [path.name.rpartition("-")[2] for path in self._folders()]
            number = max((int(each) for each in numbers if each.isdecimal()), default=0) + 1
            now, kind = time.time(), request.kind
            record = JobRecord(f"{kind}-{number}", kind, encode(request), now, now)
            return self._begin(record, request)

    def resume(self, id_: str) -> Job:
        """Start the next attempt at a job that was stopped, killed or failed."""
        with self._mutex:
            process, before = self._find(id_)
            record = process.record()
            if record is None or before.ended is None or before.status == "done":
                raise conflict("this job cannot be continued")
            following = replace(
                record,
                attempt_began=time.time(),
                spent_s=record.spent_s + before.ended - record.attempt_began,
                share=before.share or 0.0,
                pid=0,
                stop_requests=0,
            )
            return self._begin(following, parse_request(record.kind, record.request))

    def stop(self, id_: str) -> Job:
        """Ask a job to save and end; a second call ends it at once, a third one kills it."""
        with self._mutex:
            process, _ = self._find(id_)
            with as_conflict():
                process.stop()
            return self._find(id_)[1]

    def remove(self, id_: str) -> None:
        """Forget a job that has ended."""
        with self._mutex:
            process, job = self._find(id_)
            if job.ended is None:
                raise conflict("this job is still running", "stop it first")
            self._delete(process)

    # --- inside, with the mutex ------------------------------------------------------------------

    def _begin(self, record: JobRecord, request: JobRequest) -> Job:
        inputs = self._inputs_of(request)
        if request.is_exclusive and (holder := self.find_worker()):
            raise InUseError(holder, hint="wait until it ends, or stop it")
        # Create the workspace first: a folder with only `runs` is not recognised as one.
        if not self._folder.is_dir():
            with self.workspace.opened(), translate_os_errors(self._folder):
                self._folder.mkdir(parents=True, exist_ok=True)
        program = (*PYTHON, request.module) if request.module else self._program or PROGRAM
        process = self._process(record.id)
        process.start(record, [*program, *request.arguments(inputs)])
        self._forget_oldest()
        return self._find(record.id)[1]

    def _folders(self) -> list[Path]:
        try:
            return [path for path in self._folder.iterdir() if not path.name.startswith(".")]
        except OSError:
            return []

    def _all(self) -> list[JobProcess]:
        return [self._process(path.name) for path in self._folders()]

    def _process(self, id_: str) -> JobProcess:
        if id_ not in self._processes:
            self._processes[id_] = JobProcess(self._folder / id_, self._on_done)
        return self._processes[id_]

    def _find(self, id_: str) -> tuple[JobProcess, Job]:
        # Only the names of existing folders become paths.
        process = next((each for each in self._all() if each.folder.name == id_), None)
        job = process.job() if process else None
        if process is None or job is None:
            raise not_found(f"there is no job {id_[:80]!r}")
        return process, job

    def _forget_oldest(self) -> None:
        """Delete the logs of the oldest jobs, so that their number stays bounded."""
        ended = [(job.began, each) for each in self._all() if (job := each.job()) and job.ended]
        ended.sort(key=lambda pair: pair[0])
        for _, process in ended[: max(0, len(ended) - _MAX_JOBS)]:
            self._delete(process)

    def _delete(self, process: JobProcess) -> None:
        atomic_dir.delete_dir(process.folder)
        self._processes.pop(process.folder.name, None)


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
            if path not in self._managers:
                self._managers[path] = JobManager(Workspace(path))
            jobs += [
                OtherJob(path_text(path), blog_name(path), job.title, job.share)
                for job in self._managers[path].running()
            ]
        return jobs
