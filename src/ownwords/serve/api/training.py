"""The newest training in detail, from its files as they grow: figures, curve, samples, plan, log.

The files are the only state: a training that was started in a terminal is shown too, and a
restarted server shows the same as before.
"""

import re
import time
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from ownwords.core.errors import OwnwordsError
from ownwords.core.workspace import is_held
from ownwords.make.result import FirstParagraph, StageCache, TrainingSummary
from ownwords.serve.app_state import AppState
from ownwords.serve.jobs import EventTail
from ownwords.serve.sse import EventSender, EventStreamResponse, to_json
from ownwords.training.plan import read_plan
from ownwords.training.run import COMPARISON, CurvePoint, RunHistory

_POLL_S = 1.0
_MAX_LOG = 200
_MAX_SAMPLES = 40
_MAX_BYTES = 16 << 20  # read at most of samples.txt or plan.toml
_LOG = "metrics.jsonl"
_STEP = re.compile(r"^--- step (\d+)\n", re.MULTILINE)


def routes(state: AppState) -> list[BaseRoute]:
    """Create the route of a training's details."""

    async def events(_: Request) -> Response:
        """Stream the newest training: an event per part, whenever that part changes."""
        return EventStreamResponse(send_changes)

    async def send_changes(events: EventSender) -> None:
        reader, sent = TrainingReader(state.workspace.runs), dict[str, bytes]()

        def read() -> dict[str, Any]:
            began = (job.began for job in state.jobs.running() if job.kind == "make")
            return reader.parts(since=max(began, default=0.0))

        async for parts in state.poll(read, _POLL_S, events):
            for name, value in parts.items():
                if sent.get(name) != (data := to_json(value)):
                    sent[name] = data
                    await events.send(value, name)

    return [Route("/api/train/events", events)]


class TrainingReader:
    """Reads the newest training in a workspace's `runs`, for one page; not thread-safe."""

    def __init__(self, runs: Path) -> None:
        self._runs = runs
        self._folder: Path | None = None
        self._tail = EventTail(runs)
        self._history = RunHistory()

    def parts(self, since: float = 0.0) -> dict[str, Any]:
        """The parts that the page shows; those of no training if none is as new as `since`."""
        folder = self._newest(since)
        if folder != self._folder:
            self._folder = folder
            self._tail, self._history = EventTail((folder or self._runs) / _LOG), RunHistory()
        is_replaced, events = self._tail.read()
        if is_replaced:
            self._history = RunHistory()
        for event in events:
            self._history.add(event)
        return {
            "state": self._state(),
            "curve": _curve(self._history),
            "samples": _samples(self._text("samples.txt")),
            "log": [{"time": at, "text": text} for at, text in self._history.notes[-_MAX_LOG:]],
            **_plan(self._text("plan.toml")),
        }

    def _newest(self, since: float) -> Path | None:
        """The newest run of a model that is not only compared with."""
        newest: tuple[float, Path] | None = None
        for plan in self._runs.glob("*/plan.toml"):
            log = plan.with_name(_LOG)
            try:
                changed = (log if log.exists() else plan).stat().st_mtime
            except OSError:  # deleted meanwhile
                continue
            is_newer = newest is None or changed > newest[0]
            if is_newer and changed >= since and not plan.parent.name.startswith(COMPARISON):
                newest = changed, plan.parent
        return newest[1] if newest else None

    def _state(self) -> dict[str, Any]:
        history, best = self._history, self._history.best
        is_training = self._folder is not None and is_held(self._folder / ".lock")
        return {
            "status": "training" if is_training else "none" if self._folder is None else "ended",
            "step": history.step,
            "steps": history.total,
            "began": history.began,
            "time": history.time or None,
            "remaining_s": history.remaining_s(time.time()) if is_training else None,
            "metrics": history.latest,
            "best": {"step": best.step, "bits": best.best} if best else None,
            "outcome": self._outcome(),
        }

    def _outcome(self) -> dict[str, Any] | None:
        """What `ownwords make` has stored of this run, once it is over."""
        finished = StageCache(self._runs / "make" / "finished.json")
        summary = finished.latest("train", TrainingSummary)
        if summary is None or self._folder is None or summary.run != self._folder.name:
            return None
        paragraph = finished.latest("write", FirstParagraph)
        return {
            "before": summary.before,
            "judged": summary.judged,
            "paragraph": asdict(paragraph) if paragraph else None,
        }

    def _text(self, name: str) -> str:
        """The text of a file of the run; "" if it cannot be read."""
        if self._folder is None:
            return ""
        try:
            with (self._folder / name).open("rb") as file:
                return file.read(_MAX_BYTES).decode("utf-8", "replace")
        except OSError:
            return ""


def _samples(text: str) -> list[dict[str, Any]]:
    """The texts that the model wrote during the training, the newest last."""
    parts = _STEP.split(text)
    pairs = zip(parts[1::2], parts[2::2], strict=True)
    samples = [{"step": int(step), "text": text.strip("\n")} for step, text in pairs]
    return samples[-_MAX_SAMPLES:]


@lru_cache(maxsize=2)
def _plan(text: str) -> dict[str, Any]:
    """The plan's values with their reasons, its forecast, and all settings of the run."""
    try:
        plan = read_plan(text)
    except OwnwordsError:
        return {"plan": None, "settings": ""}
    numbers = [asdict(number) for number in plan.reasons]
    return {
        "plan": {"numbers": numbers, "expected": asdict(plan.expected)},
        "settings": plan.resolved().to_toml(),
    }


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
