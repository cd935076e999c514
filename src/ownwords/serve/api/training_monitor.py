"""Monitors a workspace's trainings by reading their files and locks."""

import json
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

from ownwords.serve.api.run_files import RunFiles
from ownwords.serve.api.training_process import TrainingProcess, TrainingStatus
from ownwords.training.run_history import CurvePoint, RunHistory

_MAX_LOG = 200
_CLOCK_SKEW_S = 1.0  # file times can lag some milliseconds behind the clock
_CHECK_S = 2.0  # between two checks of the locks

Status = Literal[
    "none", "reading", "planning", "training", "finishing", "stopped", "failed", "killed", "done"
]


class TrainingMonitor:
    """Reads the state of the workspace's trainings. Thread-safe."""

    def __init__(self, folder: Path, process: TrainingProcess) -> None:
        self.process = process
        self._folder = folder
        self._runs = RunFiles(folder)
        self._mutex = threading.Lock()
        self._checked_at = -_CHECK_S
        self._worker = ""
        self._in_training: frozenset[str] = frozenset()

    def refresh(self) -> None:
        """Make the next call check the locks again, after a training was started."""
        self._checked_at = -_CHECK_S

    def snapshot(self, chosen: str) -> dict[str, Any]:
        """The full state of the chosen run, or of the newest one."""
        with self._mutex:
            return self._snapshot(chosen)

    def _snapshot(self, chosen: str) -> dict[str, Any]:
        names = self._runs.names()
        process = self.process.status()
        self._check_locks(names)
        name = chosen if chosen in names else self._current(names, process)
        history = self._runs.history(name) if name else RunHistory()
        state = self._state(name, history, process, is_current=chosen in ("", *names[:1]))
        state["outcome"] = _outcome(_read_finished(self._folder), name)
        return {
            "state": state,
            "curve": _curve(history),
            "samples": self._runs.samples(name) if name else [],
            "log": self._log(name, history, names),
            "plan": self._runs.plan(name) if name else None,
            "settings": self._runs.settings(name) if name else "",
            "runs": [self._summary(run) for run in names],
        }

    def _check_locks(self, names: list[str]) -> None:
        # Not at every call: a check holds each lock briefly, and a process asking then would fail.
        if time.monotonic() - self._checked_at < _CHECK_S:
            return
        self._checked_at = time.monotonic()
        self._worker = self.process.find_worker()
        self._in_training = frozenset(n for n in names[:3] if self.process.is_training(n))

    def _current(self, names: list[str], process: TrainingStatus | None) -> str:
        """The name of the newest run; "" if the running process has not started one yet."""
        if not names:
            return ""
        newest = names[0]
        if newest in self._in_training or not (process and process.is_alive):
            return newest
        return newest if self._runs.history(newest).time >= process.started_at else ""

    def _state(
        self, name: str, history: RunHistory, process: TrainingStatus | None, *, is_current: bool
    ) -> dict[str, Any]:
        is_ours = bool(process and process.is_alive)
        is_busy = (is_ours or bool(self._worker)) and is_current
        status: Status
        message = hint = ""
        output: tuple[str, ...] = ()
        if is_busy:
            status = self._stage(name, history, process if is_ours else None)
            message = self.process.last_line() if is_ours else ""
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
            "stop_requests": process.stop_requests if is_ours and process else 0,
            "command": asdict(process.command) if process else None,
            "can": {
                "start": can_start,
                "stop": is_ours,
                "resume": can_start and is_resumable and is_current,
            },
        }

    def _stage(self, name: str, history: RunHistory, process: TrainingStatus | None) -> Status:
        if name in self._in_training:
            return "training"
        notes = self._runs.look_notes()
        began = process.started_at if process else (notes[0][0] if notes else 0.0)
        if history.time >= began and history.is_ended:
            return "finishing"
        return "planning" if notes and notes[0][0] >= began else "reading"

    def _log(self, name: str, history: RunHistory, names: list[str]) -> list[dict[str, Any]]:
        notes = list(history.notes)
        if not name or name == names[0]:
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
