"""What is going on in a workspace's trainings, put together from their files and their locks."""

import json
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

from ownwords.serve.api.run_history import RunReader
from ownwords.serve.api.training_process import TrainingProcess, TrainingStatus
from ownwords.training.run_history import CurvePoint, RunHistory

_MOST_LOG = 200
_CLOCKS_S = 1.0  # that of the disk is some milliseconds behind
_LOOK_AGAIN_S = 2.0  # after so long it is asked again who works in the workspace

Status = Literal[
    "none", "reading", "planning", "training", "finishing", "stopped", "failed", "killed", "done"
]


class TrainingMonitor:
    """What is going on in the workspace, put together from its files; any thread may ask."""

    def __init__(self, folder: Path, process: TrainingProcess) -> None:
        self.process = process
        self._folder = folder
        self._runs = RunReader(folder)
        self._mutex = threading.Lock()
        self._looked_at = -_LOOK_AGAIN_S
        self._works = ""
        self._trains: frozenset[str] = frozenset()

    def forget(self) -> None:
        """Something was just begun: who works here is to be asked anew."""
        self._looked_at = -_LOOK_AGAIN_S

    def parts(self, chosen: str) -> dict[str, Any]:
        """All there is to show of the run that was chosen, or of the newest."""
        with self._mutex:
            return self._parts(chosen)

    def _parts(self, chosen: str) -> dict[str, Any]:
        names = self._runs.names()
        standing = self.process.standing()
        self._look(names)
        name = chosen if chosen in names else self._current(names, standing)
        course = self._runs.course(name) if name else RunHistory()
        finished = _finished(self._folder)
        state = self._state(name, course, standing, is_current=chosen in ("", *names[:1]))
        state["outcome"] = _outcome(finished, name)
        return {
            "state": state,
            "curve": _curve(course),
            "samples": self._runs.samples(name) if name else [],
            "log": self._log(name, course, names),
            "plan": self._runs.plan(name) if name else None,
            "settings": self._runs.settings(name) if name else "",
            "runs": [self._summary(each) for each in names],
        }

    def _look(self, names: list[str]) -> None:
        # Not at every turn: whoever wants a lock just while it is looked at would be turned away.
        if time.monotonic() - self._looked_at < _LOOK_AGAIN_S:
            return
        self._looked_at = time.monotonic()
        self._works = self.process.whoever_works()
        self._trains = frozenset(n for n in names[:3] if self.process.trains(n))

    def _current(self, names: list[str], standing: TrainingStatus | None) -> str:
        """The newest run; none where what is under way has not come to one yet."""
        if not names:
            return ""
        newest = names[0]
        if newest in self._trains or not (standing and standing.is_alive):
            return newest
        return newest if self._runs.course(newest).time >= standing.started else ""

    def _state(
        self, name: str, course: RunHistory, standing: TrainingStatus | None, *, is_current: bool
    ) -> dict[str, Any]:
        now = time.time()
        is_ours = bool(standing and standing.is_alive)
        works = (is_ours or bool(self._works)) and is_current
        status: Status
        message = hint = ""
        said: tuple[str, ...] = ()
        if works:
            status = self._doing(name, course, standing if is_ours else None)
            message = self.process.last_words() if is_ours else ""
        else:
            status = _ended_as(name, course)
            ending = standing.ending if standing else None
            if ending and is_current and ending.at + _CLOCKS_S >= course.time:
                status, message, hint, said = ending.how, ending.message, ending.hint, ending.said
        is_live = works and status == "training"
        best = course.best
        return {
            "status": status,
            "by": ("page" if is_ours else "elsewhere") if works else "",
            "run": name,
            "kind": name.rpartition("-")[0],
            "step": course.step,
            "steps": course.total,
            "began": course.began,
            "time": course.time or None,
            "remaining_s": course.remaining_s(now) if is_live else None,
            "figures": course.latest,
            "best": {"step": best.step, "bits": best.best} if best else None,
            "message": message,
            "hint": hint,
            "said": said,
            "asked_to_stop": standing.asked_to_stop if is_ours and standing else 0,
            "order": asdict(standing.order) if standing else None,
            "can": {
                "start": not (is_ours or self._works),
                "stop": is_ours,
                "resume": not (is_ours or self._works)
                and standing is not None
                and status in ("stopped", "killed", "failed")
                and is_current,
            },
        }

    def _doing(self, name: str, course: RunHistory, ours: TrainingStatus | None) -> Status:
        if name in self._trains:
            return "training"
        looked = self._runs.reading()
        began = ours.started if ours else (looked[0][0] if looked else 0.0)
        if course.time >= began and course.is_ended:
            return "finishing"
        return "planning" if looked and looked[0][0] >= began else "reading"

    def _log(self, name: str, course: RunHistory, names: list[str]) -> list[dict[str, Any]]:
        told = list(course.notes)
        if not name or name == names[0]:
            told += self._runs.reading()
        return [{"time": at, "text": text} for at, text in sorted(told)[-_MOST_LOG:]]

    def _summary(self, name: str) -> dict[str, Any]:
        course = self._runs.course(name)
        best = course.best
        return {
            "name": name,
            "kind": name.rpartition("-")[0],
            "began": course.began,
            "steps": course.step,
            "best": best.best if best else None,
            "status": "training" if name in self._trains else _ended_as(name, course),
        }


def _ended_as(name: str, course: RunHistory) -> Status:
    if not name:
        return "none"
    return "done" if course.is_ended and not course.is_stopped else "stopped"


def _curve(course: RunHistory) -> dict[str, Any]:
    columns = zip(*course.points, strict=True) if course.points else ((),) * len(CurvePoint._fields)
    return {
        **{
            name: [_short(value) for value in column]
            for name, column in zip(CurvePoint._fields, columns, strict=True)
        },
        "marks": [asdict(mark) for mark in course.evaluations],
        "steps": course.total,
    }


def _short(value: float) -> float | int | None:
    """In as many digits as a screen shows; null for what is no number."""
    if value != value:  # noqa: PLR0124 - nan alone is not itself
        return None
    return value if isinstance(value, int) else float(f"{value:.5g}")


def _finished(runs: Path) -> dict[str, Any]:
    """What `ownwords make` has finished; empty where that cannot be read."""
    try:
        said = json.loads((runs / "make" / "finished.json").read_bytes())
    except (OSError, ValueError):
        return {}
    return said if isinstance(said, dict) else {}


def _outcome(finished: Mapping[str, Any], name: str) -> dict[str, Any] | None:
    """What a run came to in the end, where `ownwords make` has noted it."""
    for stage in ("train", "compare"):
        said = finished.get(stage)
        figures = said.get("figures") if isinstance(said, dict) else None
        if isinstance(figures, dict) and name and figures.get("run") == name:
            wanted = ("bits_per_byte", "before", "epochs", "steps", "stopped", "judged", "share")
            outcome = {key: figures.get(key) for key in (*wanted, "parameters")}
            written = finished.get("write")
            paragraph = written.get("figures") if isinstance(written, dict) else None
            return {**outcome, "paragraph": paragraph if stage == "train" else None}
    return None
