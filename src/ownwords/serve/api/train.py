"""The Train page: starts, shows and stops a training, reading all figures from its files."""

import importlib.util
import json
import shlex
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from ownwords.base import catalogue
from ownwords.core.errors import OwnwordsError
from ownwords.core.validation import Meta
from ownwords.make.make_request import COMPARED_FROM, MINUTES, NOTHING
from ownwords.serve.api.training_monitor import TrainingMonitor
from ownwords.serve.api.training_process import MakeCommand, TrainingProcess
from ownwords.serve.app_state import AppState
from ownwords.serve.errors import ApiError, TooManyRequestsError, invalid
from ownwords.serve.json_body import read_body
from ownwords.serve.sse import EventSender, EventStreamResponse, to_json

_POLL_S = 1.0
_KEEP_ALIVE_S = 15.0
_OPTIONS_FRESH_S = 10.0
_MAX_WATCHERS = 16
_MAX_MINUTES = 10_000_000  # 19 years, as in `ownwords make`
_START_WITH_PATH = "start the server with your blog: ownwords serve PATH"
_SETTINGS_OF_FLAGS = {"--drafts": "drafts", "--hidden": "hidden", "--private": "private"}


@dataclass(frozen=True)
class StartRequest:
    """The body of a POST to /api/train/start."""

    resume: bool = False
    minutes: Annotated[float, Meta(gt=0, le=_MAX_MINUTES)] | None = None
    base: Annotated[str, Meta(max_length=200)] = catalogue.SHIPPED


def routes(state: AppState) -> list[BaseRoute]:
    """Create the routes of the Train page."""
    train = _Train(state)
    return [
        Route("/api/train", train.show),
        Route("/api/train/events", train.events),
        Route("/api/train/start", train.start, methods=["POST"]),
        Route("/api/train/stop", train.stop, methods=["POST"]),
    ]


class _Train:
    def __init__(self, state: AppState) -> None:
        self._state = state
        self._monitor = TrainingMonitor(state.workspace.runs, TrainingProcess(state.workspace))
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
        command = self._stopped_command if asked.resume else partial(self._new_command, asked)
        await self._state.run(partial(self._start, command))
        return JSONResponse(await self._snapshot(""))

    async def stop(self, _: Request) -> Response:
        """Ask the training that this page has started to save and end."""
        await self._state.run(self._monitor.process.stop)
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

    def _start(self, command: Callable[[], MakeCommand]) -> None:
        if importlib.util.find_spec("torch") is None:
            raise ApiError(
                HTTPStatus.CONFLICT,
                "training needs PyTorch, which is not installed",
                hint='pip install "ownwords[train]", then start ownwords serve again',
            )
        try:
            self._monitor.process.start(command())
        except ApiError:
            raise
        except OwnwordsError as error:
            raise ApiError(HTTPStatus.CONFLICT, error.message, error.hint) from error
        self._monitor.refresh()

    def _stopped_command(self) -> MakeCommand:
        status = self._monitor.process.status()
        if status is None:
            raise ApiError(
                HTTPStatus.CONFLICT,
                "no training was started here that could be continued",
                hint="continue one from a terminal there, with the same command",
            )
        return status.command

    def _new_command(self, asked: StartRequest) -> MakeCommand:
        if asked.base not in {name for name, *_ in _bases()}:
            raise invalid(
                f"there is no base called {asked.base}",
                hint="choose one from the list",
                param="base",
            )
        paths, flags = self._sources()
        if not paths:
            raise ApiError(HTTPStatus.CONFLICT, "no blog chosen yet", hint=_START_WITH_PATH)
        for path in paths:
            if not path.exists():
                raise ApiError(
                    HTTPStatus.CONFLICT,
                    f"{path} does not exist, seen from {Path.cwd()}",
                    hint=_START_WITH_PATH,
                )
        minutes = MINUTES if asked.minutes is None else asked.minutes
        is_timed = asked.minutes is not None
        return MakeCommand(minutes, asked.base, tuple(map(str, paths)), flags, is_timed)

    def _sources(self) -> tuple[tuple[Path, ...], tuple[str, ...]]:
        """The paths that the server was started with, or the last look's; and the look's flags."""
        try:
            report = json.loads(self._state.archive().get_meta("report") or "{}")
            paths, flags = parse_look_command(str(report.get("command", "")))
        except (OwnwordsError, ValueError):  # no archive yet
            paths, flags = (), ()
        return self._state.sources or tuple(map(Path, paths)), flags

    def _read_options(self) -> dict[str, Any]:
        """Read the options for starting a training."""
        paths, _ = self._sources()
        return {
            "minutes": MINUTES,
            "compared_from": COMPARED_FROM,
            "bases": [
                {"name": name, "parameters": parameters, "bits": bits}
                for name, parameters, bits in _bases()
            ],
            "blog": [path.name or str(path) for path in paths],
            "can_train": importlib.util.find_spec("torch") is not None,
        }


def _run_of(request: Request) -> str:
    """The requested run's name; "" stands for the newest."""
    return request.query_params.get("run", "")[:200]


def parse_look_command(command: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Parse an `ownwords look` command: its paths, and its flags as flags of `make`."""
    words = shlex.split(command)[2:]
    first_flag = next((i for i, word in enumerate(words) if word.startswith("--")), len(words))
    flags = words[first_flag:]
    settings = [
        f"archive.{_SETTINGS_OF_FLAGS[flag]}=true" for flag in flags if flag in _SETTINGS_OF_FLAGS
    ]
    settings += ["archive.pages=false"] if "--no-pages" in flags else []
    return tuple(words[:first_flag]), tuple(x for setting in settings for x in ("--set", setting))


def _bases() -> list[tuple[str, int | None, float | None]]:
    try:
        entries = catalogue.entries()
    except OwnwordsError:  # the folder of installed bases is not available
        entries = []
    usable = [(x.name, x.parameters, x.bits_per_byte) for x in entries if not x.problem]
    return [*usable, (NOTHING, None, None)]
