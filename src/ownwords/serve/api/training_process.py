"""Runs the training that the page starts: `ownwords make` in a separate process.

The process survives the server. A restarted server finds it by the files in `runs/serve`: a lock,
which the process inherits and holds as long as it lives; its command; and its output.
"""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, Literal

from ownwords.core.errors import InUseError, OwnwordsError
from ownwords.core.validation import decode, encode
from ownwords.core.workspace import Workspace, translate_os_errors, try_lock, write_atomically

_MAX_OUTPUT = 1 << 20  # bytes read from the end of the output
_MAX_LINES = 60
_INTERRUPTED = "interrupted"  # prefix of the error message of an interrupted process
_KILL_AFTER = 2  # requests to stop; a kill does not damage what is saved
# A training must not inherit secrets, or the variables of a distributed launcher (torchrun).
_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|CREDENTIAL", re.IGNORECASE)
_LAUNCHER = re.compile(r"(LOCAL_|GROUP_)?(RANK|WORLD_SIZE)|MASTER_(ADDR|PORT)|TORCHELASTIC_.*")


@dataclass(frozen=True)
class MakeCommand:
    """The arguments of `ownwords make`; `flags` set how the posts are read."""

    minutes: float
    base: str
    paths: tuple[str, ...]
    flags: tuple[str, ...] = ()
    is_timed: bool = True  # False: omit --minutes, so that make uses its default


@dataclass(frozen=True)
class TrainingOutcome:
    """How a training ended: a message, a hint, and the last lines of its output."""

    kind: Literal["done", "stopped", "failed", "killed"]
    message: str = ""
    hint: str = ""
    output: tuple[str, ...] = ()
    time: float = 0.0  # time of its last output


@dataclass(frozen=True)
class TrainingStatus:
    """The state of the training that this page has started."""

    command: MakeCommand
    started_at: float
    is_alive: bool
    stop_requests: int
    outcome: TrainingOutcome | None = None


@dataclass(frozen=True)
class _StartRecord:
    """The contents of `started.json`."""

    command: MakeCommand
    started_at: float
    pid: int
    stop_requests: int = 0


class TrainingProcess:
    """Starts, finds and stops the one training of a workspace. Thread-safe."""

    def __init__(self, workspace: Workspace, command: Sequence[str] = ()) -> None:
        self._workspace = workspace
        # -P keeps the current folder off sys.path.
        self._command = tuple(command) or (sys.executable, "-P", "-m", "ownwords")
        self._folder = workspace.runs / "serve"
        self._lock_path = self._folder / ".lock"
        self._record_path = self._folder / "started.json"
        self._output_path = self._folder / "output.txt"
        self._result_path = self._folder / "result.json"
        self._child: subprocess.Popen[bytes] | None = None
        self._mutex = threading.RLock()

    def start(self, command: MakeCommand) -> None:
        """Start the training. Raises InUseError if any process is working in the workspace."""
        with self._mutex:
            if holder := self.find_worker():
                raise InUseError(holder, hint="wait until it ends, or stop it")
            # Create the workspace first: a folder with only `runs` is not recognised as one.
            with self._workspace.opened(), translate_os_errors(self._folder):
                self._folder.mkdir(parents=True, exist_ok=True)
                lock = self._lock_path.open("a+b")
            with lock:
                if not try_lock(lock.fileno()):
                    raise InUseError(
                        "a training that was started here is still running", hint="stop it first"
                    )
                # Remove the old record, so that its process is not mistaken for the new one.
                self._record_path.unlink(missing_ok=True)
                self._result_path.unlink(missing_ok=True)
                self._launch(command, lock)

    def _launch(self, command: MakeCommand, lock: IO[bytes]) -> None:
        arguments = ["make", *command.paths, "--workspace", str(self._workspace.root)]
        arguments += ["--minutes", f"{command.minutes:g}"] if command.is_timed else []
        arguments += [*command.flags, "--json"]
        arguments += ["--base", command.base] if command.base else []
        with (
            translate_os_errors(self._folder),
            self._result_path.open("wb") as result,
            self._output_path.open("wb") as output,
        ):
            self._child = subprocess.Popen(
                [*self._command, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=result,
                stderr=output,
                env=clean_environment(os.environ),
                **_detached(lock),
            )
        self._write_record(_StartRecord(command, time.time(), self._child.pid))

    def stop(self) -> None:
        """Ask the training to save and end; a second call ends it at once, a third one kills it."""
        with self._mutex:
            record = self._read_record()
            if record is None or not self._is_alive():
                raise OwnwordsError(
                    "no training that was started here is running",
                    hint="stop one that was started in a terminal there, with Ctrl-C",
                )
            self._write_record(replace(record, stop_requests=record.stop_requests + 1))
            with suppress(ProcessLookupError):  # the process has just ended
                _interrupt(record.pid, kill=record.stop_requests >= _KILL_AFTER)

    def status(self) -> TrainingStatus | None:
        """The state of the training; None if the page has not started one."""
        with self._mutex:
            record = self._read_record()
            if record is None:
                return None
            is_alive = self._is_alive()
            outcome = None if is_alive else self._outcome(record.stop_requests)
        return TrainingStatus(
            record.command, record.started_at, is_alive, record.stop_requests, outcome
        )

    def find_worker(self) -> str:
        """Describe the process that works in the workspace in a sentence; "" if there is none."""
        with self._mutex:
            if self._is_alive():
                return "a training that was started here is still running"
            root, runs = self._workspace.root, self._workspace.runs
            if _is_held(runs / "make" / ".lock") or _is_held(root / ".lock"):
                return f"another ownwords is working in {root}"
            if any(_is_held(path) for path in runs.glob("*/.lock")):
                return f"another ownwords is training in {root}"
            return ""

    def is_training(self, run: str) -> bool:
        """Whether a process is training this run."""
        with self._mutex:
            return _is_held(self._workspace.runs / run / ".lock")

    def last_line(self) -> str:
        """The last line of the training's output."""
        return next(reversed(_read_lines(self._output_path)), "")

    def _is_alive(self) -> bool:
        if self._child is not None and self._child.poll() is not None:
            self._child = None
        if self._child is not None:
            return True
        # After a restart of the server, only the lock shows whether it is alive.
        return sys.platform != "win32" and _is_held(self._lock_path)

    def _outcome(self, stop_requests: int) -> TrainingOutcome:
        output = tuple(_read_lines(self._output_path)[-_MAX_LINES:])
        paths = (self._output_path, self._result_path)
        time = max((path.stat().st_mtime for path in paths if path.exists()), default=0.0)
        try:
            result = json.loads(self._result_path.read_bytes())
        except (OSError, ValueError):
            if stop_requests:
                return TrainingOutcome("stopped", "stopped before it began", "", output, time)
            return TrainingOutcome(
                "killed",
                "the training ended without an error message, as when the memory is full",
                "what it saved is still there: continue it",
                output,
                time,
            )
        error = result.get("error") if isinstance(result, dict) else None
        if not isinstance(error, dict):
            return TrainingOutcome("done", output=output, time=time)
        message, hint = str(error.get("message", "")), str(error.get("hint", ""))
        if message.startswith(_INTERRUPTED):
            message = message.removeprefix(_INTERRUPTED).lstrip(": ") or "stopped"
            return TrainingOutcome("stopped", message, hint, output, time)
        return TrainingOutcome("failed", message, hint, output, time)

    def _read_record(self) -> _StartRecord | None:
        try:
            return decode(_StartRecord, json.loads(self._record_path.read_bytes()))
        except (OSError, ValueError, OwnwordsError):
            return None

    def _write_record(self, record: _StartRecord) -> None:
        write_atomically(self._record_path, json.dumps(encode(record)) + "\n")


def clean_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment for a training, without secrets and launcher variables."""
    inherited = {
        name: value
        for name, value in environment.items()
        if not _SECRET.search(name) and not _LAUNCHER.fullmatch(name)
    }
    return {**inherited, "PYTHONUNBUFFERED": "1", "PYTHONIOENCODING": "utf-8"}


def _is_held(path: Path) -> bool:
    """Whether a process holds the lock; the check itself holds it for a moment."""
    try:
        with path.open("r+b") as file:
            return not try_lock(file.fileno())
    except OSError:
        return False


def _read_lines(path: Path) -> list[str]:
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _MAX_OUTPUT))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return []
    return [line.rstrip() for line in text.splitlines() if line.strip()]


if sys.platform == "win32":

    def _detached(_: IO[bytes]) -> dict[str, Any]:
        """Popen options for a separate process group, which can be interrupted alone."""
        return {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP}

    def _interrupt(pid: int, *, kill: bool) -> None:
        os.kill(pid, signal.SIGTERM if kill else signal.CTRL_BREAK_EVENT)

else:

    def _detached(lock: IO[bytes]) -> dict[str, Any]:
        """Popen options for a separate session, out of reach of Ctrl-C, that inherits the lock."""
        return {"start_new_session": True, "pass_fds": (lock.fileno(),)}

    def _interrupt(pid: int, *, kill: bool) -> None:
        if os.getpgid(pid) != pid:  # another process has this pid now
            raise ProcessLookupError(pid)
        if kill:
            os.killpg(pid, signal.SIGKILL)
        else:
            os.kill(pid, signal.SIGINT)
