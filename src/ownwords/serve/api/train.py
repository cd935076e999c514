"""The Train page: starts, shows and stops a training, reading all figures from its files."""

import importlib.util
import time
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import Annotated, Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute

from ownwords.base import catalogue
from ownwords.core.errors import OwnwordsError
from ownwords.core.validation import Meta
from ownwords.make.make_request import COMPARED_FROM, MINUTES, NOTHING
from ownwords.serve.api.training_monitor import TrainingMonitor
from ownwords.serve.api_route import EVENT_STREAM, ApiRoute
from ownwords.serve.app_state import AppState
from ownwords.serve.errors import ApiError, TooManyRequestsError, as_conflict, invalid
from ownwords.serve.jobs.requests import MakeRequest, Minutes
from ownwords.serve.json_body import read_body
from ownwords.serve.sse import EventSender, EventStreamResponse, to_json

_RUN = {"run": "the name of a training; without it the newest"}
_POLL_S = 1.0
_KEEP_ALIVE_S = 15.0
_OPTIONS_FRESH_S = 10.0
_MAX_WATCHERS = 16


@dataclass(frozen=True)
class StartRequest:
    """The body of a POST to /api/train/start."""

    resume: bool = False
    minutes: Minutes | None = None
    base: Annotated[str, Meta(max_length=200)] = catalogue.SHIPPED


def routes(state: AppState) -> list[BaseRoute]:
    """Create the routes of the Train page."""
    train = _Train(state)
    return [
        ApiRoute("GET", "/api/train", train.show, query=_RUN),
        ApiRoute("GET", "/api/train/events", train.events, query=_RUN, media_type=EVENT_STREAM),
        ApiRoute("POST", "/api/train/start", train.start, body=StartRequest),
        ApiRoute("POST", "/api/train/stop", train.stop),
    ]


class _Train:
    def __init__(self, state: AppState) -> None:
        self._state = state
        self._monitor = TrainingMonitor(state.workspace.runs, state.jobs)
        self._watchers = 0
        self._options: dict[str, Any] = {}
        self._options_at = -_OPTIONS_FRESH_S

    async def show(self, request: Request) -> Response:
        """Return the full state once."""
        return JSONResponse(await self._snapshot(_run_of(request)))

    async def events(self, request: Request) -> Response:
        """Stream the state: an event per part, whenever that part changes."""
        if self._watchers >= _MAX_WATCHERS:
            raise TooManyRequestsError(f"{_MAX_WATCHERS} pages already watch the training", 10)
        return EventStreamResponse(partial(self._send_changes, _run_of(request)))

    async def start(self, request: Request) -> Response:
        """Start a training, or resume the one that was stopped."""
        asked = await read_body(self._state, request, StartRequest)
        await self._state.run(partial(self._start, asked))
        return JSONResponse(await self._snapshot(""))

    async def stop(self, _: Request) -> Response:
        """Ask the training that this page has started to save and end."""
        await self._state.run(self._stop)
        return JSONResponse(await self._snapshot(""))

    async def _snapshot(self, run: str) -> dict[str, Any]:
        return await self._state.run(partial(self._parts, run))

    async def _send_changes(self, run: str, events: EventSender) -> None:
        self._watchers += 1
        try:
            sent: dict[str, bytes] = {}
            sent_at = time.monotonic()
            while True:
                try:
                    parts = await self._snapshot(run)
                except TooManyRequestsError:
                    parts = {}  # try again at the next poll
                for name, value in parts.items():
                    data = to_json(value)
                    if sent.get(name) != data:
                        sent[name], sent_at = data, time.monotonic()
                        await events.send(value, name)
                if time.monotonic() - sent_at >= _KEEP_ALIVE_S:
                    sent_at = time.monotonic()
                    await events.keep_alive()
                if not await self._state.sleep(_POLL_S):
                    return
        finally:
            self._watchers -= 1

    # --- in a thread -----------------------------------------------------------------------------

    def _parts(self, run: str) -> dict[str, Any]:
        # Cached: the options are read from many files and rarely change.
        if time.monotonic() - self._options_at >= _OPTIONS_FRESH_S:
            self._options, self._options_at = self._read_options(), time.monotonic()
        return {**self._monitor.snapshot(run), "options": self._options}

    def _start(self, asked: StartRequest) -> None:
        check_can_train()
        jobs = self._state.jobs
        if asked.resume:
            stopped = next((job for job in jobs.jobs() if job.kind in ("make", "tune")), None)
            if stopped is None:
                raise ApiError(
                    HTTPStatus.CONFLICT,
                    "no training was started here that could be continued",
                    hint="continue one from a terminal there, with the same command",
                )
            with as_conflict():
                jobs.resume(stopped.id)
        else:
            if asked.base not in {name for name, *_ in _bases()}:
                raise invalid(
                    f"there is no base called {asked.base}",
                    hint="choose one from the list",
                    param="base",
                )
            with as_conflict():
                jobs.start(MakeRequest(asked.minutes, asked.base))
        self._monitor.refresh()

    def _stop(self) -> None:
        jobs = self._state.jobs
        running = [job for job in jobs.jobs() if job.kind in ("make", "tune") and job.can.stop]
        if not running:
            raise invalid(
                "no training that was started here is running",
                hint="stop one that was started in a terminal there, with Ctrl-C",
            )
        jobs.stop(running[0].id)

    def _read_options(self) -> dict[str, Any]:
        """Read the options for starting a training."""
        return {
            "minutes": MINUTES,
            "compared_from": COMPARED_FROM,
            "bases": [
                {"name": name, "parameters": parameters, "bits": bits}
                for name, parameters, bits in _bases()
            ],
            "blog": [source.name for source in self._state.sources.sources()],
            "can_train": importlib.util.find_spec("torch") is not None,
        }


def check_can_train() -> None:
    """Raise ApiError if this installation cannot train."""
    if importlib.util.find_spec("torch") is None:
        raise ApiError(
            HTTPStatus.CONFLICT,
            "training needs PyTorch, which is not installed",
            hint='pip install "ownwords[train]", then start ownwords serve again',
        )


def _run_of(request: Request) -> str:
    """The requested run's name; "" stands for the newest."""
    return request.query_params.get("run", "")[:200]


def _bases() -> list[tuple[str, int | None, float | None]]:
    try:
        entries = catalogue.entries()
    except OwnwordsError:  # the folder of installed bases is not available
        entries = []
    usable = [(x.name, x.parameters, x.bits_per_byte) for x in entries if not x.problem]
    return [*usable, (NOTHING, None, None)]
