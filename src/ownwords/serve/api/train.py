"""The Train page: a training is started, watched and stopped; every figure comes from its files."""

import importlib.util
import json
import shlex
import time
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from ownwords.base import catalogue
from ownwords.core.errors import OwnwordsError
from ownwords.make.make_request import COMPARED_FROM, MINUTES, NOTHING
from ownwords.serve.api.fields import JsonFields
from ownwords.serve.api.sending import KEEP_OPEN, EventStreamResponse, event
from ownwords.serve.api.training_monitor import TrainingMonitor
from ownwords.serve.api.training_process import StartTraining, TrainingProcess
from ownwords.serve.app_state import AppState
from ownwords.serve.errors import ApiError, TooManyRequestsError

_EVERY_S = 1.0  # a screen that changes more often cannot be read
_QUIET_S = 15.0  # without an event, after which a sign of life is sent
_OFFER_AGAIN_S = 10.0
_MOST_WATCHERS = 16
_MOST_MINUTES = 10_000_000  # nineteen years, as `ownwords make` has it
_NO_BLOG = "nobody has said yet which blog is to be read"
_START_WITH_IT = "start the server with its path: ownwords serve PATH"
_FLAGS = {"--drafts": "drafts", "--hidden": "hidden", "--private": "private"}


def routes(state: AppState) -> list[BaseRoute]:
    """What the Train page asks for."""
    train = _Train(state)
    return [
        Route("/api/train", train.now),
        Route("/api/train/events", train.events),
        Route("/api/train/start", train.start, methods=["POST"]),
        Route("/api/train/stop", train.stop, methods=["POST"]),
    ]


class _Train:
    def __init__(self, state: AppState) -> None:
        self._state = state
        self._watch = TrainingMonitor(state.workspace.runs, TrainingProcess(state.workspace))
        self._watchers = 0
        self._offered: dict[str, Any] = {}
        self._offered_at = -_OFFER_AGAIN_S

    async def now(self, request: Request) -> Response:
        """All there is to show, once."""
        name = self._chosen(request)
        return JSONResponse(await self._state.run(partial(self._parts, name)))

    async def events(self, request: Request) -> Response:
        """The same as it changes: an event for each part, whenever that is another."""
        name = self._chosen(request)
        if self._watchers >= _MOST_WATCHERS:
            raise TooManyRequestsError(f"{_MOST_WATCHERS} pages watch the training already", 10)
        first = await self._state.run(partial(self._parts, name))
        return EventStreamResponse(self._following(name, first))

    async def start(self, request: Request) -> Response:
        """Begin a training, or go on with the one that was stopped."""
        fields = await JsonFields.of(request)
        if fields.flag("resume", default=False):
            work = self._resumed
        else:
            minutes = fields.number("minutes", least=0, most=_MOST_MINUTES, default=MINUTES)
            if minutes <= 0:
                raise ApiError(400, f"the minutes should be more than 0, and are {minutes:g}")
            base = fields.text("base", most=200, default=catalogue.SHIPPED)
            work = partial(self._new, minutes, base, is_timed=fields.has("minutes"))
        await self._state.run(partial(self._begin, work))
        return JSONResponse(await self._state.run(partial(self._parts, "")))

    async def stop(self, request: Request) -> Response:
        """Ask the training that was started here to save and end."""
        await JsonFields.of(request)
        await self._state.run(self._watch.process.stop)
        return JSONResponse(await self._state.run(partial(self._parts, "")))

    # --- in a thread -----------------------------------------------------------------------------

    def _parts(self, name: str) -> dict[str, Any]:
        # What can be begun with is read from many files, and changes seldom.
        if time.monotonic() - self._offered_at >= _OFFER_AGAIN_S:
            self._offered, self._offered_at = self._offer(), time.monotonic()
        return {**self._watch.parts(name), "offer": self._offered}

    def _begin(self, order: Callable[[], StartTraining]) -> None:
        if importlib.util.find_spec("torch") is None:
            raise ApiError(
                HTTPStatus.CONFLICT,
                "making a model takes PyTorch, which is not installed",
                hint='pip install "ownwords[train]", then start ownwords serve again',
            )
        try:
            self._watch.process.start(order())
        except ApiError:
            raise
        except OwnwordsError as error:
            raise ApiError(HTTPStatus.CONFLICT, error.message, error.hint) from error
        self._watch.forget()

    def _resumed(self) -> StartTraining:
        standing = self._watch.process.standing()
        if standing is None:
            raise ApiError(
                HTTPStatus.CONFLICT,
                "no training was started here that could be gone on with",
                hint="one begun in a terminal goes on with the same command there",
            )
        return standing.order

    def _new(self, minutes: float, base: str, *, is_timed: bool) -> StartTraining:
        if base not in {name for name, *_ in _bases()}:
            raise ApiError(400, f"there is no base called {base}", hint="choose one that is listed")
        paths, extra = self._texts()
        if not paths:
            raise ApiError(HTTPStatus.CONFLICT, _NO_BLOG, hint=_START_WITH_IT)
        for path in paths:
            if not path.exists():
                raise ApiError(
                    HTTPStatus.CONFLICT,
                    f"{path} is not there, seen from {Path.cwd()}",
                    hint=_START_WITH_IT,
                )
        return StartTraining(minutes, base, tuple(map(str, paths)), extra, is_timed)

    def _texts(self) -> tuple[tuple[Path, ...], tuple[str, ...]]:
        """What is read, and with which settings: as the server was told, or as it was last read."""
        told = self._state.sources
        try:
            report = json.loads(self._state.archive().get_meta("report") or "{}")
            paths, flags = read_by(str(report.get("command", "")))
        except (OwnwordsError, ValueError):  # there is no archive yet
            paths, flags = (), ()
        return tuple(told) or tuple(map(Path, paths)), flags

    def _offer(self) -> dict[str, Any]:
        """What a training can be started with."""
        paths, _ = self._texts()
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

    # --- for whoever watches ---------------------------------------------------------------------

    def _chosen(self, request: Request) -> str:
        """The run that is asked for, which is one of those there are; empty: the newest."""
        return request.query_params.get("run", "")[:200]

    async def _following(self, name: str, first: Mapping[str, Any]) -> AsyncIterator[bytes]:
        self._watchers += 1
        try:
            sent: dict[str, str] = {}
            parts, silent_since = first, time.monotonic()
            while True:
                for part, said in parts.items():
                    text = json.dumps(said, ensure_ascii=False)
                    if sent.get(part) != text:
                        sent[part] = text
                        silent_since = time.monotonic()
                        yield event(part, text)
                if time.monotonic() - silent_since >= _QUIET_S:
                    silent_since = time.monotonic()
                    yield KEEP_OPEN
                if not await self._state.pause(_EVERY_S):
                    return
                try:
                    parts = await self._state.run(partial(self._parts, name))
                except TooManyRequestsError:  # the next second will do
                    continue
        finally:
            self._watchers -= 1


def read_by(command: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The paths of an `ownwords look` as it was typed, and its flags as settings of `make`."""
    words = shlex.split(command)[2:]
    first = next((i for i, word in enumerate(words) if word.startswith("--")), len(words))
    settings = [f"archive.{_FLAGS[word]}=true" for word in words[first:] if word in _FLAGS]
    settings += ["archive.pages=false"] if "--no-pages" in words[first:] else []
    return tuple(words[:first]), tuple(part for each in settings for part in ("--set", each))


def _bases() -> list[tuple[str, int | None, float | None]]:
    try:
        found = catalogue.entries()
    except OwnwordsError:  # no folder of added ones can be had
        found = []
    usable = [(one.name, one.parameters, one.bits_per_byte) for one in found if not one.problem]
    return [*usable, (NOTHING, None, None)]
