"""The training that the page starts: `ownwords make` in a process of its own.

It is not tied to the server: it goes on when the server ends, and a server that is started anew
finds it again. What holds them together are three files in `runs/serve`: a lock that the process
inherits and so holds as long as it lives, what it was started with, and what it said.
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
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any, Literal

from ownwords.core.errors import InUseError, OwnwordsError
from ownwords.core.workspace import Workspace, translate_os_errors, try_lock, write_atomically

Ended = Literal["done", "stopped", "failed", "killed"]

_MOST_SAID = 1 << 20  # bytes of what it said that are read again
_MOST_LINES = 60
_INTERRUPTED = "interrupted"  # how the sentence of a process begins that was asked to stop
_FORCE_AFTER = 2  # times of being asked to stop; then it is ended, what is saved staying whole
# What a training must not inherit: secrets, and the marks of a launcher of several processes.
_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|CREDENTIAL", re.IGNORECASE)
_OF_LAUNCHERS = re.compile(r"(LOCAL_|GROUP_)?(RANK|WORLD_SIZE)|MASTER_(ADDR|PORT)|TORCHELASTIC_.*")


@dataclass(frozen=True)
class StartTraining:
    """What a training was started with."""

    minutes: float
    base: str
    paths: tuple[str, ...]
    extra: tuple[str, ...] = ()  # flags that say how the texts were read
    is_timed: bool = True  # somebody named the minutes; else they are those that make has itself


@dataclass(frozen=True)
class TrainingOutcome:
    """How a training ended: in a sentence, with what to do, and the last lines it said."""

    how: Ended
    message: str = ""
    hint: str = ""
    said: tuple[str, ...] = ()
    at: float = 0.0  # when it had last said something


@dataclass(frozen=True)
class TrainingStatus:
    """Where the training that was started here stands."""

    order: StartTraining
    started: float
    is_alive: bool
    asked_to_stop: int
    ending: TrainingOutcome | None = None


class TrainingProcess:
    """Starts, finds and ends the one training of a workspace; may be asked from several threads."""

    def __init__(self, workspace: Workspace, command: Sequence[str] = ()) -> None:
        self._workspace = workspace
        # Without the current folder among the places that modules come from.
        self._command = tuple(command) or (sys.executable, "-P", "-m", "ownwords")
        self._folder = workspace.runs / "serve"
        self._lock_path = self._folder / ".lock"
        self._started = self._folder / "started.json"
        self._said = self._folder / "said.txt"
        self._result = self._folder / "result.json"
        self._child: subprocess.Popen[bytes] | None = None
        self._mutex = threading.RLock()

    def start(self, order: StartTraining) -> None:
        """Start it; InUseError while another training is under way, from wherever it was begun."""
        with self._mutex:
            if holder := self.whoever_works():
                raise InUseError(holder, hint="wait for it to end, or stop it")
            with translate_os_errors(self._folder):
                self._folder.mkdir(parents=True, exist_ok=True)
                lock = self._lock_path.open("a+b")
            with lock:
                if not try_lock(lock.fileno()):
                    raise InUseError(
                        "a training that was started here is still under way", hint="stop it first"
                    )
                # Whoever finds no such file does not take another process for this one.
                self._started.unlink(missing_ok=True)
                self._result.unlink(missing_ok=True)
                self._begin(order, lock)

    def _begin(self, order: StartTraining, lock: IO[bytes]) -> None:
        arguments = ["make", *order.paths, "--workspace", str(self._workspace.root)]
        arguments += ["--minutes", f"{order.minutes:g}"] if order.is_timed else []
        arguments += [*order.extra, "--json"]
        if order.base:
            arguments += ["--base", order.base]
        with (
            translate_os_errors(self._folder),
            self._result.open("wb") as result,
            self._said.open("wb") as said,
        ):
            self._child = subprocess.Popen(
                [*self._command, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=result,
                stderr=said,
                env=clean_environment(os.environ),
                **_on_its_own(lock),
            )
        self._write(order, time.time(), self._child.pid, 0)

    def stop(self) -> None:
        """Ask it to save and end; asked again it ends at once, and a third time it is ended."""
        with self._mutex:
            record = self._record()
            if record is None or not self._is_alive():
                raise OwnwordsError(
                    "no training that was started here is under way",
                    hint="one begun in a terminal is stopped there, with Ctrl-C",
                )
            order, started, pid, asked = record
            self._write(order, started, pid, asked + 1)
            with suppress(ProcessLookupError):  # it has just ended
                _interrupt(pid, by_force=asked >= _FORCE_AFTER)

    def standing(self) -> TrainingStatus | None:
        """Where it stands; None where none was started here."""
        with self._mutex:
            record = self._record()
            if record is None:
                return None
            order, started, _, asked = record
            is_alive = self._is_alive()
            ending = None if is_alive else self._ending(asked)
        return TrainingStatus(order, started, is_alive, asked, ending)

    def whoever_works(self) -> str:
        """A sentence about the process that is working in the workspace; empty if there is none."""
        with self._mutex:
            if self._is_alive():
                return "a training that was started here is still under way"
            root, runs = self._workspace.root, self._workspace.runs
            if _is_held(runs / "make" / ".lock") or _is_held(root / ".lock"):
                return f"another ownwords is working in {root}"
            if any(_is_held(path) for path in runs.glob("*/.lock")):
                return f"another ownwords is training in {root}"
            return ""

    def trains(self, run: str) -> bool:
        """Whether a process is in the midst of training the run of that name."""
        with self._mutex:
            return _is_held(self._workspace.runs / run / ".lock")

    def last_words(self) -> str:
        """The last line that it said."""
        return next(reversed(_lines(self._said)), "")

    def _is_alive(self) -> bool:
        if self._child is not None and self._child.poll() is not None:
            self._child = None
        if self._child is not None:
            return True
        # Of a server that was started since: the lock tells.
        return sys.platform != "win32" and _is_held(self._lock_path)

    def _ending(self, asked: int) -> TrainingOutcome:
        said, at = tuple(_lines(self._said)[-_MOST_LINES:]), _written_at(self._said, self._result)
        try:
            result = json.loads(self._result.read_bytes())
        except (OSError, ValueError):
            if asked:  # before it had got so far as to say anything
                return TrainingOutcome(
                    "stopped", "it was stopped before it had begun", "", said, at
                )
            return TrainingOutcome(
                "killed",
                "the training ended without a word, as when the memory is full or the power goes",
                "what was saved is there: go on with it",
                said,
                at,
            )
        error = result.get("error") if isinstance(result, dict) else None
        if not isinstance(error, dict):
            return TrainingOutcome("done", said=said, at=at)
        message, hint = str(error.get("message", "")), str(error.get("hint", ""))
        if message.startswith(_INTERRUPTED):
            told = message.removeprefix(_INTERRUPTED).lstrip(": ") or "it was stopped"
            return TrainingOutcome("stopped", told, hint, said, at)
        return TrainingOutcome("failed", message, hint, said, at)

    def _record(self) -> tuple[StartTraining, float, int, int] | None:
        try:
            said = json.loads(self._started.read_bytes())
            order = dict(said["order"])
            made = StartTraining(
                float(order["minutes"]),
                str(order["base"]),
                tuple(map(str, order["paths"])),
                tuple(map(str, order["extra"])),
                bool(order.get("is_timed", True)),  # of versions that always named them
            )
            return made, float(said["started"]), int(said["pid"]), int(said["asked"])
        except (OSError, ValueError, TypeError, LookupError):
            return None

    def _write(self, order: StartTraining, started: float, pid: int, asked: int) -> None:
        said = {"order": asdict(order), "started": started, "pid": pid, "asked": asked}
        write_atomically(self._started, json.dumps(said) + "\n")


def clean_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """What a training is told of its surroundings: no secrets, no part of another launch."""
    kept = {
        name: value
        for name, value in environment.items()
        if not _SECRET.search(name) and not _OF_LAUNCHERS.fullmatch(name)
    }
    return {**kept, "PYTHONUNBUFFERED": "1", "PYTHONIOENCODING": "utf-8"}


def _is_held(path: Path) -> bool:
    """Whether a process holds that lock; it is held here for the moment that asking takes."""
    try:
        with path.open("r+b") as file:
            return not try_lock(file.fileno())
    except OSError:
        return False


def _lines(path: Path) -> list[str]:
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _MOST_SAID))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return []
    return [line.rstrip() for line in text.splitlines() if line.strip()]


def _written_at(*paths: Path) -> float:
    return max((path.stat().st_mtime for path in paths if path.exists()), default=0.0)


if sys.platform == "win32":

    def _on_its_own(_: IO[bytes]) -> dict[str, Any]:
        """A group of its own, which alone can be interrupted."""
        return {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP}

    def _interrupt(pid: int, *, by_force: bool) -> None:
        os.kill(pid, signal.SIGTERM if by_force else signal.CTRL_BREAK_EVENT)

else:

    def _on_its_own(lock: IO[bytes]) -> dict[str, Any]:
        """A session of its own: Ctrl-C for the server is none for it. It inherits the lock."""
        return {"start_new_session": True, "pass_fds": (lock.fileno(),)}

    def _interrupt(pid: int, *, by_force: bool) -> None:
        if os.getpgid(pid) != pid:  # not the leader that was started here
            raise ProcessLookupError(pid)
        if by_force:
            os.killpg(pid, signal.SIGKILL)
        else:
            os.kill(pid, signal.SIGINT)
