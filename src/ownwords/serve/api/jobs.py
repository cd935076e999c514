"""The jobs of the page, its stream of events, and the details of a training."""

import importlib.util
import os
import re
import time
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache, partial
from http import HTTPStatus
from pathlib import Path
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from ownwords.base import catalogue, estimates
from ownwords.base.catalogue import find_known, is_model_name
from ownwords.core.errors import OwnwordsError
from ownwords.core.packages import install_command
from ownwords.core.progress import parse_event
from ownwords.core.workspace import is_held
from ownwords.make.stages import SCRATCH, FirstParagraph, StageCache, TrainingSummary
from ownwords.serve.api.models import tuning_task
from ownwords.serve.app_state import AppState
from ownwords.serve.errors import as_conflict, conflict, forbidden
from ownwords.serve.jobs import (
    BaseJob,
    Job,
    JobRequest,
    MakeJob,
    WorkspaceState,
    parse_request,
)
from ownwords.serve.json_api import ApiCall, json_route
from ownwords.serve.sse import EventSender, EventStreamResponse
from ownwords.training.plan import read_plan
from ownwords.training.run import CurvePoint, RunHistory

_POLL_S = 0.5
_NEEDS_TORCH = {
    "make": "training needs PyTorch, which is not installed",
    "score": "scoring needs PyTorch, which is not installed",
    "export": "exporting needs PyTorch, which is not installed",
}


def routes(state: AppState) -> list[BaseRoute]:
    """Return the routes under /api/jobs, and the streams of events."""
    one = "/api/jobs/{id}"

    async def changes(_: Request) -> Response:
        """Stream all `jobs`, then the changes: `job`, `removed`, `elsewhere` and `changed`."""
        return EventStreamResponse(partial(send_changes, state))

    async def training(_: Request) -> Response:
        """Stream the newest training: an event per part whenever it changes."""
        return EventStreamResponse(partial(_send_training, state))

    return [
        json_route(state, "POST", "/api/jobs", start, status=HTTPStatus.CREATED),
        json_route(state, "DELETE", one, lambda state, call: state.jobs.remove(call.path["id"])),
        json_route(
            state, "POST", one + "/stop", lambda state, call: state.jobs.stop(call.path["id"])
        ),
        json_route(state, "POST", one + "/resume", resume),
        Route("/api/events", changes),
        Route("/api/train/events", training),
    ]


def start(state: AppState, call: ApiCall) -> Job:
    """Start a job."""
    request, settings = parse_request(call.fields.get("kind"), call.fields), state.settings
    if request.kind in _NEEDS_TORCH and importlib.util.find_spec("torch") is None:
        raise conflict(
            _NEEDS_TORCH[request.kind],
            hint=f"{install_command('train')}, then start ownwords serve again",
        )
    if not settings.is_private and _names_path(request):
        raise forbidden(
            "paths can be chosen only if no other machine can reach the server",
            hint="give the name of a base; `ownwords base add PATH` on that machine makes one",
        )
    if isinstance(request, MakeJob) and request.base and request.minutes:
        task = replace(tuning_task(state), seconds=60 * request.minutes)
        estimates.check_fits(request.base, task, estimates.base_options())
    with as_conflict():
        return state.jobs.start(request)


def _names_path(request: JobRequest) -> bool:
    """Whether the request names a base by its path on this machine."""
    if isinstance(request, BaseJob):
        source = request.source
        is_name = bool(find_known(source)) or is_model_name(source)
        return not is_name or Path(source).exists()
    names = {"", SCRATCH, catalogue.SHIPPED, *(entry.name for entry in catalogue.entries())}
    return isinstance(request, MakeJob) and request.base not in names


def resume(state: AppState, call: ApiCall) -> Job:
    """Continue a stopped job from its saved state."""
    with as_conflict():
        return state.jobs.resume(call.path["id"])


# --- what changes --------------------------------------------------------------------------------


async def send_changes(state: AppState, events: EventSender) -> None:
    """Send the jobs, then those that change, and which parts of the workspace change."""
    before: WorkspaceState | None = None
    async for now in state.poll(lambda: state.broadcaster.next_state(state.jobs), events):
        if before is None:
            await events.send({"jobs": now.jobs, "elsewhere": now.elsewhere}, "jobs")
            before = now
            continue
        known = {job.id: job for job in before.jobs}
        for id_ in known.keys() - {job.id for job in now.jobs}:
            await events.send({"id": id_}, "removed")
        for job in now.jobs:
            if known.get(job.id) != job:
                await events.send(job, "job")
        if before.elsewhere != now.elsewhere:
            await events.send({"jobs": now.elsewhere}, "elsewhere")
        if changed := [name for name, at in now.stamps.items() if at != before.stamps[name]]:
            await events.send({"what": changed}, "changed")
        before = now


# --- a training ----------------------------------------------------------------------------------

_MAX_LOG_BYTES = 16 << 20  # per call; the next call reads the rest
_MAX_LOG = 200
_MAX_SAMPLES = 40
_LOG = "metrics.jsonl"
_STEP = re.compile(r"^--- step (\d+)\n", re.MULTILINE)


async def _send_training(state: AppState, events: EventSender) -> None:
    reader, sent = TrainingReader(state.workspace.runs), dict[str, bytes]()

    def read() -> dict[str, Any]:
        began = (job.began for job in state.jobs.running() if job.kind == "make")
        return reader.parts(since=max(began, default=0.0))

    async for parts in state.poll(lambda: state.run(read), events, pause_s=_POLL_S):
        for name, value in parts.items():
            if sent.get(name) != (data := msgspec.json.encode(value)):
                sent[name] = data
                await events.send(value, name)


class TrainingReader:
    """Reads the newest training in a workspace's `runs`, for one page; not thread-safe."""

    def __init__(self, runs: Path) -> None:
        self._runs = runs
        self._folder: Path | None = None
        self._history = RunHistory()
        self._inode = self._offset = 0  # of the log, as far as it is in the history

    def parts(self, since: float = 0.0) -> dict[str, Any]:
        """Return the parts that the page shows; empty ones if no training is as new as `since`."""
        self._folder = self._newest(since)
        self._read_log()
        return {
            "state": self._state(),
            "curve": _curve(self._history),
            "samples": _samples(self._text("samples.txt")),
            "log": [{"time": at, "text": text} for at, text in self._history.notes[-_MAX_LOG:]],
            **_plan(self._text("plan.toml")),
        }

    def _read_log(self) -> None:
        """Add new events to the history; begin again if the log was replaced or deleted."""
        try:
            with ((self._folder or self._runs) / _LOG).open("rb") as file:
                inode = os.fstat(file.fileno()).st_ino
                if inode != self._inode:
                    self._inode, self._offset, self._history = inode, 0, RunHistory()
                file.seek(self._offset)
                data = file.read(_MAX_LOG_BYTES)
        except OSError:  # not there yet, or deleted
            self._inode, self._history = 0, RunHistory()
            return
        complete = data.rfind(b"\n") + 1  # the last line may be incomplete
        self._offset += complete
        for event in map(parse_event, data[:complete].splitlines()):
            if event is not None:
                self._history.add(event)

    def _newest(self, since: float) -> Path | None:
        """Return the newest run."""
        newest, folder = since, None
        for plan in self._runs.glob("*/plan.toml"):
            log = plan.with_name(_LOG)
            with suppress(OSError):  # deleted meanwhile
                changed = (log if log.exists() else plan).stat().st_mtime
                if changed >= newest:
                    newest, folder = changed, plan.parent
        return folder

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
            "best": {"step": best.step, "bits": best.bits_per_byte} if best else None,
            "outcome": self._outcome(),
        }

    def _outcome(self) -> dict[str, Any] | None:
        """Return the results that `ownwords make` has stored of this run, once it is over."""
        finished = StageCache(self._runs / "make" / "finished.json")
        summary = finished.latest("train", TrainingSummary)
        if summary is None or self._folder is None or summary.run != self._folder.name:
            return None
        return {
            "before": summary.before,
            "judged": summary.judged,
            "paragraph": finished.latest("write", FirstParagraph),
        }

    def _text(self, name: str) -> str:
        """Return the text of a file of the run; "" if it cannot be read."""
        if self._folder is None:
            return ""
        try:
            return (self._folder / name).read_text("utf-8", "replace")
        except OSError:
            return ""


def _samples(text: str) -> list[dict[str, Any]]:
    """Return the texts that the model wrote during the training, the newest last."""
    parts = _STEP.split(text)
    pairs = zip(parts[1::2], parts[2::2], strict=True)
    samples = [{"step": int(step), "text": text.strip("\n")} for step, text in pairs]
    return samples[-_MAX_SAMPLES:]


@lru_cache(maxsize=2)
def _plan(text: str) -> dict[str, Any]:
    """Return the plan's values with their reasons, its forecast, and all settings of the run."""
    try:
        plan = read_plan(text)
    except OwnwordsError:
        return {"plan": None, "settings": ""}
    return {
        "plan": {"numbers": plan.reasons, "expected": plan.expected},
        "settings": plan.resolved().to_toml(),
    }


def _curve(history: RunHistory) -> dict[str, Any]:
    names = CurvePoint._fields
    columns = zip(*history.points, strict=True) if history.points else ((),) * len(names)
    return {
        **dict(zip(names, columns, strict=True)),
        "evaluations": history.evaluations,
        "steps": history.total,
    }
