"""The jobs that the page starts, each an `ownwords` command in a process of its own.

A job is a folder in `runs/jobs`: `job.json` holds its request, `state.json` says how far it is, and
its command prints to `result.json` and `output.txt`. Its process holds `.lock` while it runs. So a
job survives the server, and a restarted server shows the same as before.
"""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Annotated, Any, Literal, NamedTuple

import msgspec

from ownwords.archive import blog_name
from ownwords.base import catalogue
from ownwords.core.errors import InUseError, OwnwordsError
from ownwords.core.progress import (
    SPENT_VARIABLE,
    STATE_VARIABLE,
    TRAINS_VARIABLE,
    JobProgress,
    left_after,
)
from ownwords.core.validation import Meta, decode, encode
from ownwords.core.workspace import (
    Workspace,
    is_held,
    locked,
    translate_os_errors,
    write_atomically,
)
from ownwords.models import atomic_dir
from ownwords.serve.errors import as_conflict, conflict, not_found

_MAX_JOBS = 50
PYTHON = (sys.executable, "-P", "-m")  # -P keeps the current folder off sys.path
PROGRAM: tuple[str, ...] = (*PYTHON, "ownwords")
_INTERRUPTED = "interrupted"  # prefix of the error message of an interrupted process
_KILL_AFTER = 2  # requests to stop; a kill does not damage what is saved
# A job must not inherit secrets, or the variables of a distributed launcher (torchrun).
_SECRET = re.compile(r"KEY|TOKEN(?!IZERS)|SECRET|PASSWORD|CREDENTIAL", re.IGNORECASE)
_LAUNCHER = re.compile(r"(LOCAL_|GROUP_)?(RANK|WORLD_SIZE)|MASTER_(ADDR|PORT)|TORCHELASTIC_.*")
_NEEDED = {"base": "HF_TOKEN"}  # access to models whose licence was accepted on the hub

# --- requests -------------------------------------------------------------------------------------

JobKind = Literal["look", "make", "score", "export", "base", "fetch", "encoder"]
_Name = Annotated[str, Meta(max_length=200)]


@dataclass(frozen=True)
class KindOfJob:
    """How the page shows the jobs of a kind, and what runs them."""

    heading: str  # the job's title; it may name fields of the request
    parts: Mapping[str, str] = field(default_factory=dict)  # in order, in words
    options: tuple[str, ...] = ()  # fields that are options of the command
    needs: tuple[str, ...] = ()  # fields that must be given
    module: str = "ownwords"  # that runs the command
    is_exclusive: bool = False  # writes the archive or the model, so it runs alone


KINDS: Mapping[JobKind, KindOfJob] = {
    "look": KindOfJob(
        "Reading your blog",
        {"read": "Reading your posts", "analyse": "Comparing your posts"},
        is_exclusive=True,
    ),
    "make": KindOfJob(
        "Making a model",
        {
            "read": "Reading your posts",
            "plan": "Planning",
            "train": "Training",
            "write": "Writing a first paragraph",
            "score": "Scoring",
        },
        options=("minutes", "base", "name"),
        is_exclusive=True,
    ),
    "score": KindOfJob("Scoring the model", {"score": "Scoring"}, is_exclusive=True),
    "export": KindOfJob(
        "Exporting as {form}",
        {"export": "Writing the files"},
        options=("to", "type"),
        needs=("to",),
    ),
    "base": KindOfJob(
        "Installing {called}",
        {"download": "Downloading", "open": "Checking"},
        options=("name",),
        needs=("source",),
    ),
    "fetch": KindOfJob(
        "Fetching posts from {host}",
        {"fetch": "Fetching"},
        needs=("url", "host"),
        module="ownwords.serve.intake",
    ),
    "encoder": KindOfJob(
        "Installing the search by meaning", needs=("name",), module="ownwords.ask.encoder"
    ),
}
# The title of an export, and the end of its file name.
_FORMS = {
    "": ("", ""),
    "hf": ("a folder", ""),
    "gguf": ("GGUF", ".gguf"),
    "ollama": ("a folder for Ollama", "-ollama"),
    "zip": ("a zip", ".zip"),
    "adapter": ("an adapter", "-adapter"),
}


@dataclass(frozen=True)
class JobRequest:
    """The body of the request that starts a job, and a part of `job.json`.

    Each kind reads only some of the fields; what is missing is chosen by its command.
    """

    kind: JobKind
    minutes: Annotated[float, Meta(gt=0, le=10_000_000)] | None = None
    base: _Name = ""
    name: _Name = ""  # of the new model or base, or of the encoder
    to: Literal["", "hf", "gguf", "ollama", "zip", "adapter"] = ""
    type: Literal["f32", "f16", "bf16", "q8_0", "q4_0"] | None = None
    source: _Name = ""  # of a base: ORG/NAME on a hub, or a name of the catalogue
    accepted: bool = False  # whether the user has accepted the terms of the base
    url: Annotated[str, Meta(max_length=2000)] = ""  # of a feed, or of a site with one
    host: Annotated[str, Meta(max_length=253)] = ""  # that the user has named

    def __post_init__(self) -> None:
        if missing := [name for name in KINDS[self.kind].needs if not getattr(self, name)]:
            raise ValueError(f"{missing[0]} is missing")

    @property
    def title(self) -> str:
        """The job's title on the page."""
        words = {"form": _FORMS[self.to][0], "called": self.name or self.source, "host": self.host}
        return KINDS[self.kind].heading.format(**words)

    def file_name(self, model: str) -> str:
        """Return the name of the exported file or folder, which shows its format."""
        weights = f"-{self.type}" if self.type else ""
        return f"{model.replace(' ', '-')}{weights}{_FORMS[self.to][1]}"


# --- the process of a job -------------------------------------------------------------------------

ArgumentsOf = Callable[[JobRequest], list[str]]
OnDone = Callable[[JobKind, Mapping[str, Any]], None]
JobStatus = Literal["running", "stopping", "done", "stopped", "failed", "killed"]


@dataclass(frozen=True)
class JobStage:
    """A part of a running job."""

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
    request: JobRequest
    began: float  # of the first attempt
    attempt_began: float
    spent_s: float = 0.0  # by earlier attempts
    share: float = 0.0  # done by earlier attempts
    pid: int = 0
    stop_requests: int = 0


class JobProcess:
    """A job in its folder; every state is read from the files, except for the child's own exit.

    `on_done` is called at least once with the output of a successful command.
    """

    def __init__(self, folder: Path, on_done: OnDone) -> None:
        self.folder = folder
        self._on_done = on_done
        self._record_path, self._lock_path = folder / "job.json", folder / ".lock"
        self._state_path, self._result_path = folder / "state.json", folder / "result.json"
        self._output_path = folder / "output.txt"
        self._child: subprocess.Popen[bytes] | None = None
        self._ended: tuple[object, Job] | None = None  # with the stamp of its record

    def start(self, record: JobRecord, command: Sequence[str]) -> None:
        """Start an attempt. Raises InUseError while another one is running."""
        with locked(self._lock_path, "this job is still running", "stop it first") as lock:
            # Remove what the last attempt left, so that it is not mistaken for the new one's.
            self._result_path.unlink(missing_ok=True)
            self._state_path.unlink(missing_ok=True)
            kind, blog = record.request.kind, blog_name.blog_name(self.folder.absolute().parents[2])
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
                    env=clean_environment(os.environ, _NEEDED.get(kind, ""))
                    | {
                        STATE_VARIABLE: str(self._state_path.absolute()),
                        SPENT_VARIABLE: f"{record.spent_s:.1f}",
                        TRAINS_VARIABLE: blog if kind == "make" else "",
                    },
                    **_detached(lock),
                )
            self._write_record(replace(record, pid=self._child.pid))

    def stop(self) -> None:
        """Ask the job to save and end; a second call ends it at once, a third one kills it."""
        record = self.read()
        if record is None or not record.pid or not self.is_alive():
            raise OwnwordsError("this job is not running")
        self._write_record(replace(record, stop_requests=record.stop_requests + 1))
        with suppress(ProcessLookupError):  # the process has just ended
            _interrupt(record.pid, kill=record.stop_requests >= _KILL_AFTER)

    def read(self) -> JobRecord | None:
        """Return the contents of `job.json`; None if it is missing or damaged."""
        try:
            record = json.loads(self._record_path.read_bytes())
            # Earlier versions stored the kind beside the request.
            record["request"] = {"kind": record.get("kind"), **record["request"]}
            return decode(JobRecord, record, unknown="ignore")
        except (OSError, ValueError, TypeError, KeyError, OwnwordsError):
            return None

    def is_alive(self) -> bool:
        """Whether the process runs."""
        if self._child is not None:
            if self._child.poll() is None:
                return True
            self._child = None
        # After a restart of the server, only the lock shows whether it is alive.
        return sys.platform != "win32" and is_held(self._lock_path)

    def job(self) -> Job | None:
        """Return the job as it is now; None if its files are missing or damaged."""
        stamp = file_stamp(self._record_path)
        if self._ended and self._ended[0] == stamp:
            return self._ended[1]
        record, is_alive, progress = self.read(), self.is_alive(), self._progress()
        if record is None:
            return None
        request, parts = record.request, KINDS[record.request.kind].parts
        left_s = None
        if is_alive and progress.remaining_s is not None:
            silent_s = max(0.0, time.time() - progress.time)
            left_s = float(round(max(1.0, left_after(progress.remaining_s, silent_s))))
        job = Job(
            id=record.id,
            kind=request.kind,
            title=request.title,
            status="stopping" if record.stop_requests else "running",
            stage=parts.get(progress.part, "") if is_alive else "",
            stages=_stages(parts, progress) if is_alive and progress.parts else (),
            share=round(max(record.share, progress.share), 4) or None,
            remaining_s=left_s,
            line=progress.note,
            began=record.began,
            ended=None,
            error=None,
        )
        if not is_alive:
            job = self._end(job, record)
            self._ended = stamp, job
        return job

    def _progress(self) -> JobProgress:
        """Read how far the attempt is."""
        try:
            return msgspec.json.decode(self._state_path.read_bytes(), type=JobProgress)
        except (OSError, msgspec.MsgspecError):
            return JobProgress()

    def _end(self, job: Job, record: JobRecord) -> Job:
        """Complete the job whose attempt is over with what it has printed."""
        paths = (self._output_path, self._result_path, self._state_path)
        printed_at = max((path.stat().st_mtime for path in paths if path.exists()), default=0.0)
        job = replace(job, ended=max(printed_at, record.attempt_began))
        try:
            result = json.loads(self._result_path.read_bytes())
            failure = result.get("error") if isinstance(result, dict) else None
        except (OSError, ValueError):
            if record.stop_requests:
                return replace(job, status="stopped", line="stopped before it began")
            error = JobError(
                "the job ended without an error message; perhaps the memory is full",
                "what it saved is still there: resume it",
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


def _stages(parts: Mapping[str, str], progress: JobProgress) -> tuple[JobStage, ...]:
    """Return the parts of the job in words, without those that it skips."""
    known = ((label, progress.parts.get(part, "waiting")) for part, label in parts.items())
    return tuple(JobStage(label, status) for label, status in known if status != "skipped")


def file_stamp(path: Path) -> tuple[int, int, int] | None:
    """Return what changes with a file or folder; None if there is none."""
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_ino, stat.st_mtime_ns, stat.st_size


def clean_environment(environment: Mapping[str, str], needed: str = "") -> dict[str, str]:
    """Return the environment of a job, without launcher variables and secrets it does not need."""
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
        # Another process may have this pid now; the group 1 would be every process of the user.
        if pid <= 1 or os.getpgid(pid) != pid:
            raise ProcessLookupError(pid)
        if kill:
            os.killpg(pid, signal.SIGKILL)
        else:
            os.kill(pid, signal.SIGINT)


# --- the jobs of a workspace ----------------------------------------------------------------------

POLL_S = 0.5


class WorkspaceState(NamedTuple):
    """The jobs of a workspace, and a stamp of each part that may change."""

    jobs: list[Job]
    stamps: Mapping[str, object]


class JobManager:
    """Starts, lists, stops and continues the jobs of one workspace. Thread-safe.

    `arguments_of` returns the arguments of the command for a request; `on_done` is called with the
    output of a successful one. Tests replace the `program`.
    """

    def __init__(
        self,
        workspace: Workspace,
        *,
        arguments_of: ArgumentsOf = lambda request: [request.kind],
        on_done: OnDone = lambda _, result: None,
        program: Sequence[str] = (),
    ) -> None:
        self.workspace = workspace
        self._folder = workspace.runs / "jobs"
        self._arguments_of, self._on_done = arguments_of, on_done
        self._program = tuple(program)
        self._processes: dict[str, JobProcess] = {}
        self._mutex = threading.RLock()
        self._state: WorkspaceState | None = None
        self._state_read_at = 0.0  # by the monotonic clock

    def state(self) -> WorkspaceState:
        """Return the state of the workspace, read once per `POLL_S` for all pages together."""
        with self._mutex:
            now = time.monotonic()
            if self._state is None or now - self._state_read_at > 0.9 * POLL_S:
                self._state, self._state_read_at = self._read_state(), now
            return self._state

    def _read_state(self) -> WorkspaceState:
        root = self.workspace.root
        parts = {
            "blog": (self.workspace.archive, self.workspace.choices, root / blog_name.FILE),
            "sources": (root / "sources.json",),
            "models": (root / "models",),
            "exports": (root / "exports",),
            "texts": (root / "texts",),
            "bases": (catalogue.bases_folder(),),
            "model": (root / "model", root / "scorecard.json"),
        }
        stamps = {name: [file_stamp(path) for path in paths] for name, paths in parts.items()}
        return WorkspaceState(self.jobs(), stamps)

    def jobs(self) -> list[Job]:
        """Return all jobs, the newest first."""
        with self._mutex:
            jobs = [job for process in self._all() if (job := process.job())]
        return sorted(jobs, key=lambda job: job.began, reverse=True)

    def running(self) -> list[Job]:
        """Return the jobs that run."""
        return [job for job in self.jobs() if job.ended is None]

    def find_worker(self) -> str:
        """Describe the process that works in the workspace in a sentence; "" if there is none."""
        title = next((job.title for job in self.running() if KINDS[job.kind].is_exclusive), "")
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
            now = time.time()
            return self._begin(JobRecord(f"{request.kind}-{number}", request, now, now))

    def resume(self, id_: str, check: Callable[[JobRequest], None] | None = None) -> Job:
        """Start the next attempt at a job that was stopped, killed or failed.

        `check` raises ApiError for a request that may not be carried out now.
        """
        with self._mutex:
            process, before = self._find(id_)
            record = process.read()
            if record is None or before.ended is None or before.status == "done":
                raise conflict("this job cannot be resumed")
            if check:
                check(record.request)
            following = replace(
                record,
                attempt_began=time.time(),
                spent_s=record.spent_s + before.ended - record.attempt_began,
                share=before.share or 0.0,
                pid=0,
                stop_requests=0,
            )
            return self._begin(following)

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

    def _begin(self, record: JobRecord) -> Job:
        arguments, kind = self._arguments_of(record.request), KINDS[record.request.kind]
        if kind.is_exclusive and (holder := self.find_worker()):
            raise InUseError(holder, hint="wait until it ends, or stop it")
        # Create the workspace first: a folder with only `runs` is not recognised as one.
        if not self._folder.is_dir():
            with self.workspace.opened(), translate_os_errors(self._folder):
                self._folder.mkdir(parents=True, exist_ok=True)
        process = self._process(record.id)
        program = (*PYTHON, kind.module) if kind.module != "ownwords" else PROGRAM
        process.start(record, [*(self._program or program), *arguments])
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
        """Delete the folders of the oldest jobs, so that their number stays bounded."""
        ended = [(job.began, each) for each in self._all() if (job := each.job()) and job.ended]
        ended.sort(key=lambda pair: pair[0])
        for _, process in ended[: max(0, len(ended) - _MAX_JOBS)]:
            self._delete(process)

    def _delete(self, process: JobProcess) -> None:
        atomic_dir.delete_dir(process.folder)
        self._processes.pop(process.folder.name, None)
