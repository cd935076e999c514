"""Monitors a workspace's trainings by reading their files and locks."""

import json
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

from ownwords.core.workspace import is_held
from ownwords.make.make_request import MINUTES
from ownwords.serve.api.run_files import RunFiles
from ownwords.serve.jobs.manager import JobAttempt, JobManager
from ownwords.serve.jobs.requests import JobKind
from ownwords.training.run_history import COMPARISON, CurvePoint, RunHistory

_MAX_LOG = 200
_CLOCK_SKEW_S = 1.0  # file times can lag some milliseconds behind the clock
_MAX_SNAPSHOTS = 8
_FRESH_S = 0.5  # for which what was read is told again, to any number of readers
_TRAINING: tuple[JobKind, ...] = ("make", "tune")

Status = Literal[
    "none", "reading", "planning", "training", "finishing", "stopped", "failed", "killed", "done"
]


class TrainingMonitor:
    """Reads the state of the workspace's trainings. Thread-safe."""

    def __init__(self, folder: Path, jobs: JobManager) -> None:
        self._jobs = jobs
        self._folder = folder
        self._runs = RunFiles(folder)
        self._mutex = threading.Lock()
        self._snapshots: dict[str, tuple[float, dict[str, Any]]] = {}
        self._worker = ""
        self._in_training: frozenset[str] = frozenset()

    def refresh(self) -> None:
        """Make the next call read everything again, after a training was started."""
        self._snapshots = {}

    def snapshot(self, chosen: str) -> dict[str, Any]:
        """The full state of the chosen run, or of the newest one; read once for all readers."""
        with self._mutex:
            read_at, state = self._snapshots.get(chosen, (-_FRESH_S, {}))
            if time.monotonic() - read_at >= _FRESH_S:
                state = self._snapshot(chosen)
                if len(self._snapshots) >= _MAX_SNAPSHOTS:
                    self._snapshots.clear()
                self._snapshots[chosen] = time.monotonic(), state
            return state

    def _snapshot(self, chosen: str) -> dict[str, Any]:
        names = self._runs.names()
        process = self._jobs.attempt(*_TRAINING)
        self._check_locks(names)
        current = self._current(names, process)
        name = chosen if chosen in names else current
        is_current = name == current
        history = self._runs.history(name) if name else RunHistory()
        state = self._state(name, history, process, is_current=is_current)
        state["outcome"] = _outcome(_read_finished(self._folder), name)
        return {
            "state": state,
            "curve": _curve(history),
            "samples": self._runs.samples(name) if name else [],
            "log": self._log(history, with_look=is_current),
            "plan": self._runs.plan(name) if name else None,
            "settings": self._runs.settings(name) if name else "",
            "runs": [self._summary(run) for run in names],
        }

    def _check_locks(self, names: list[str]) -> None:
        self._worker = self._jobs.find_worker()
        locks = {name: self._folder / name / ".lock" for name in names[:3]}
        self._in_training = frozenset(name for name, path in locks.items() if is_held(path))

    def _current(self, names: list[str], process: JobAttempt | None) -> str:
        """The name of the newest run of a model that is not only compared with.

        "" if the running process has not started one yet.
        """
        newest = next((name for name in names if not name.startswith(COMPARISON)), "")
        if not newest or newest in self._in_training or not (process and process.is_alive):
            return newest
        return newest if self._runs.history(newest).time >= process.record.attempt_began else ""

    def _state(
        self, name: str, history: RunHistory, process: JobAttempt | None, *, is_current: bool
    ) -> dict[str, Any]:
        is_ours = bool(process and process.is_alive)
        is_busy = (is_ours or bool(self._worker)) and is_current
        status: Status
        message = hint = ""
        output: tuple[str, ...] = ()
        if is_busy:
            status = self._stage(name, history, process if is_ours else None)
            message = process.last_line if is_ours and process else ""
        else:
            status = _final_status(name, history)
            outcome = process.outcome if process else None
            if outcome and is_current and outcome.time + _CLOCK_SKEW_S >= history.time:
                status, message = outcome.kind, outcome.message
                hint, output = outcome.hint, outcome.output
        best = history.best
        can_start = not (is_ours or self._worker)
        is_resumable = status in ("stopped", "killed", "failed") and process is not None
        return {
            "status": status,
            "by": ("page" if is_ours else "elsewhere") if is_busy else "",
            "run": name,
            "kind": name.rpartition("-")[0],
            "step": history.step,
            "steps": history.total,
            "began": history.began,
            "time": history.time or None,
            "remaining_s": history.remaining_s(time.time()) if status == "training" else None,
            "metrics": history.latest,
            "best": {"step": best.step, "bits": best.best} if best else None,
            "message": message,
            "hint": hint,
            "output": output,
            "stop_requests": process.record.stop_requests if is_ours and process else 0,
            "command": _command(process) if process else None,
            "can": {
                "start": can_start,
                "stop": is_ours,
                "resume": can_start and is_resumable and is_current,
            },
        }

    def _stage(self, name: str, history: RunHistory, process: JobAttempt | None) -> Status:
        if name in self._in_training:
            return "training"
        notes = self._runs.look_notes()
        began = process.record.attempt_began if process else (notes[0][0] if notes else 0.0)
        if history.time >= began and history.is_ended:
            return "finishing"
        return "planning" if notes and notes[0][0] >= began else "reading"

    def _log(self, history: RunHistory, *, with_look: bool) -> list[dict[str, Any]]:
        notes = list(history.notes)
        if with_look:
            notes += self._runs.look_notes()
        return [{"time": time, "text": text} for time, text in sorted(notes)[-_MAX_LOG:]]

    def _summary(self, name: str) -> dict[str, Any]:
        history = self._runs.history(name)
        best = history.best
        is_training = name in self._in_training
        return {
            "name": name,
            "kind": name.rpartition("-")[0],
            "began": history.began,
            "steps": history.step,
            "best": best.best if best else None,
            "status": "training" if is_training else _final_status(name, history),
        }


def _command(process: JobAttempt) -> dict[str, Any]:
    """What the training was asked, for the page."""
    request = process.record.request
    minutes = request.get("minutes")
    return {
        "minutes": MINUTES if minutes is None else minutes,
        "base": request.get("base", ""),
        "is_timed": minutes is not None,
    }


def _final_status(name: str, history: RunHistory) -> Status:
    if not name:
        return "none"
    return "done" if history.is_ended and not history.is_stopped else "stopped"


def _curve(history: RunHistory) -> dict[str, Any]:
    names = CurvePoint._fields
    columns = zip(*history.points, strict=True) if history.points else ((),) * len(names)
    rounded = [[_rounded(value) for value in column] for column in columns]
    return {
        **dict(zip(names, rounded, strict=True)),
        "evaluations": [asdict(point) for point in history.evaluations],
        "steps": history.total,
    }


def _rounded(value: float) -> float | int | None:
    """Round to five significant digits, for the page; None for NaN."""
    if value != value:  # noqa: PLR0124 - only NaN differs from itself
        return None
    return value if isinstance(value, int) else float(f"{value:.5g}")


def _read_finished(runs: Path) -> dict[str, Any]:
    """Read the finished stages of `ownwords make`; empty if the file cannot be read."""
    try:
        finished = json.loads((runs / "make" / "finished.json").read_bytes())
    except (OSError, ValueError):
        return {}
    return finished if isinstance(finished, dict) else {}


def _outcome(finished: Mapping[str, Any], name: str) -> dict[str, Any] | None:
    """The result of a run, if `ownwords make` has stored one."""
    for stage in ("train", "compare"):
        entry = finished.get(stage)
        figures = entry.get("figures") if isinstance(entry, dict) else None
        if isinstance(figures, dict) and name and figures.get("run") == name:
            keys = ("bits_per_byte", "before", "epochs", "steps", "stopped", "judged", "share")
            outcome = {key: figures.get(key) for key in (*keys, "parameters")}
            written = finished.get("write")
            paragraph = written.get("figures") if isinstance(written, dict) else None
            return {**outcome, "paragraph": paragraph if stage == "train" else None}
    return None
