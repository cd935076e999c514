"""One job's process: its folder in `runs/jobs`, its start, its end, and stopping it.

The process survives the server. A restarted server finds it by the files in the folder: a lock,
which the process inherits and holds as long as it lives; its request; and what it printed.
"""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, Literal

from ownwords.core.errors import OwnwordsError
from ownwords.core.progress import LOG_VARIABLE, SPENT_VARIABLE, TRAINS_VARIABLE
from ownwords.core.validation import decode, encode
from ownwords.core.workspace import (
    SUFFIX,
    is_held,
    locked,
    translate_os_errors,
    write_atomically,
)

_MAX_RESULT = 64 << 20
_INTERRUPTED = "interrupted"  # prefix of the error message of an interrupted process
_KILL_AFTER = 2  # requests to stop; a kill does not damage what is saved
# A job must not inherit secrets, or the variables of a distributed launcher (torchrun).
_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|CREDENTIAL", re.IGNORECASE)
_TRAIN = ("make", "tune")  # one at a time on this machine
_NEEDED = {"base": "HF_TOKEN"}  # access to models whose licence was accepted on the hub
_LAUNCHER = re.compile(r"(LOCAL_|GROUP_)?(RANK|WORLD_SIZE)|MASTER_(ADDR|PORT)|TORCHELASTIC_.*")


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


@dataclass(frozen=True)
class JobOutcome:
    """How an attempt ended, when, and what its command printed as its result."""

    kind: Literal["done", "stopped", "failed", "killed"]
    message: str = ""
    hint: str = ""
    time: float = 0.0  # of its last output
    result: dict[str, Any] | None = None


class JobProcess:
    """A job in its folder; every state is read from the files, but for the child's own exit."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.events = folder / "events.jsonl"
        self._record_path = folder / "job.json"
        self._lock_path = folder / ".lock"
        self._output_path = folder / "output.txt"
        self._result_path = folder / "result.json"
        self._child: subprocess.Popen[bytes] | None = None

    def start(self, record: JobRecord, command: Sequence[str]) -> None:
        """Start an attempt. Raises InUseError while another one is running."""
        with locked(self._lock_path, "this job is still running", "stop it first") as lock:
            # Remove what the last attempt left, so that it is not mistaken for the new one's.
            for path in (self._result_path, self.events):
                path.unlink(missing_ok=True)
            blog = self.folder.absolute().parents[2].name.removesuffix(SUFFIX)
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
                        LOG_VARIABLE: str(self.events.absolute()),
                        SPENT_VARIABLE: f"{record.spent_s:.1f}",
                        TRAINS_VARIABLE: blog if record.kind in _TRAIN else "",
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
            return decode(JobRecord, json.loads(self._record_path.read_bytes()), unknown="ignore")
        except (OSError, ValueError, OwnwordsError):
            return None

    def is_alive(self) -> bool:
        """Whether the process runs."""
        if self._child is not None and self._child.poll() is not None:
            self._child = None
        if self._child is not None:
            return True
        # After a restart of the server, only the lock shows whether it is alive.
        return sys.platform != "win32" and is_held(self._lock_path)

    def outcome(self, stop_requests: int) -> JobOutcome:
        """How the attempt that is over has ended."""
        paths = (self._output_path, self._result_path, self.events)
        ended = max((path.stat().st_mtime for path in paths if path.exists()), default=0.0)
        try:
            with self._result_path.open("rb") as file:
                result = json.loads(file.read(_MAX_RESULT))
        except (OSError, ValueError):
            if stop_requests:
                return JobOutcome("stopped", "stopped before it began", time=ended)
            return JobOutcome(
                "killed",
                "the job ended without an error message, as when the memory is full",
                "what it saved is still there: continue it",
                ended,
            )
        error = result.get("error") if isinstance(result, dict) else None
        if not isinstance(error, dict):
            result = result if isinstance(result, dict) else None
            return JobOutcome("done", time=ended, result=result)
        message, hint = str(error.get("message", "")), str(error.get("hint", ""))
        if message.startswith(_INTERRUPTED):
            message = message.removeprefix(_INTERRUPTED).lstrip(": ") or "stopped"
            return JobOutcome("stopped", message, hint, ended)
        return JobOutcome("failed", message, hint, ended)

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
