"""The Ask page: an answer as its sentences are found to hold, and the passages it rests on."""

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, replace
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from ownwords.ask import endpoints
from ownwords.ask.answer import Answer, answer
from ownwords.ask.endpoints import Endpoint
from ownwords.ask.llm_backends import LEAST_PARAMETERS, EndpointBackend, LLMBackend, LocalBackend
from ownwords.ask.passage import RetrievedPassage
from ownwords.core.errors import OwnwordsError
from ownwords.serve.api.fields import JsonFields
from ownwords.serve.api.sending import KEEP_OPEN, EventStreamResponse, event
from ownwords.serve.app_state import AppState
from ownwords.serve.errors import ApiError
from ownwords.serve.loaded_model import LoadedModel

NOBODY = "none"  # the name of no writer: the passages speak for themselves
_MOST_QUESTION = 2000  # characters, as ask.answer has it
_QUIET_S = 10.0  # without an event, after which a sign of life is sent
_FRESH_S = 15.0  # for so long the endpoints that were found are taken to be there
_OWN, _ENDPOINT = "own:", "at:"  # what the name of a writer begins with

Tell = Callable[[str, Any], None]


class _Gone(Exception):  # noqa: N818 - nothing went wrong
    """Nobody reads the answer any more."""


def routes(state: AppState) -> list[BaseRoute]:
    """What the Ask page asks for."""
    pages = _Ask(state)
    return [
        Route("/api/ask", pages.writers),
        Route("/api/ask", pages.answer, methods=["POST"]),
    ]


class _Ask:
    def __init__(self, state: AppState) -> None:
        self._state = state
        self._endpoints = _Endpoints()

    async def writers(self, request: Request) -> Response:
        """Who could put an answer into words; with `again`, the endpoints are looked for anew."""
        again = "again" in request.query_params
        found = await self._state.run(partial(self._endpoints.found, again=again))
        own = await self._state.run(self._state.models)
        there = [one for endpoint in found for one in _at(endpoint)]
        named = [{"name": _OWN + name, "label": name, "where": "yours"} for name in own]
        usual = next((one["name"] for one in there if one["is_fit"]), NOBODY)
        return JSONResponse({"endpoints": there, "own": named, "usual": usual})

    async def answer(self, request: Request) -> Response:
        """Events: `passages`, then `text` sentence by sentence, then `answer`, the whole of it."""
        fields = await JsonFields.of(request)
        question = " ".join(fields.text("question", most=_MOST_QUESTION).split())
        if not question:
            raise ApiError(400, "there is no question", hint="write one, then ask")
        writer = await self._writer(fields.text("writer", most=500, default=NOBODY))
        seed = fields.whole("seed", least=0, most=2**31 - 1, default=1)
        # What must be refused is refused while the answer can still have a status of its own.
        await self._state.run(self._state.archive)
        telling = _Telling()
        work = partial(self._answered, question, writer, seed, telling)
        task = asyncio.ensure_future(self._state.run_long(work))
        task.add_done_callback(telling.end)
        held = AsyncExitStack()
        held.callback(task.cancel)  # what was not begun will not be
        held.callback(telling.leave)  # and what was finds out that nobody listens
        await asyncio.sleep(0)
        if task.done():
            task.result()
        return EventStreamResponse(_told(task, telling), held)

    async def _writer(self, name: str) -> LLMBackend | None:
        if name == NOBODY:
            return None
        if name.startswith(_OWN):
            return self._own(await self._state.opened(name.removeprefix(_OWN)))
        for endpoint in await self._state.run(self._endpoints.found):
            for one in endpoint.models:
                if name == _name_of(endpoint, one.name):
                    return EndpointBackend(replace(endpoint, models=(one,)), named=True)
        raise ApiError(
            404,
            "the model that was to answer is not there any more",
            hint="choose another, or none: the passages are shown then",
        )

    def _own(self, opened: LoadedModel) -> LLMBackend:
        writer = LocalBackend(
            opened.folder,
            model=opened.model,
            generate=lambda request, stops: self._state.text(opened, request, stops),
        )
        writer.context = opened.worker.length
        return writer

    def _answered(
        self, question: str, writer: LLMBackend | None, seed: int, telling: "_Telling"
    ) -> Answer:
        def found(passages: Sequence[RetrievedPassage]) -> None:
            telling.tell("passages", [asdict(one) for one in passages])

        telling.check()
        return answer(
            question,
            self._state.searcher(),
            writer,
            on_text=lambda text: telling.tell("text", text),
            on_passages=found,
            seed=seed,
        )


async def _told(task: asyncio.Future[Answer], telling: "_Telling") -> AsyncIterator[bytes]:
    while (news := await telling.next(_QUIET_S)) is not None:
        yield news or KEEP_OPEN
    try:
        answered = await task
    except OwnwordsError as error:
        said = {"message": error.message, "hint": error.hint}
        yield event("error", json.dumps(said, ensure_ascii=False))
    else:
        yield event("answer", json.dumps(answered.to_dict(), ensure_ascii=False))


class _Telling:
    """News of an answer, from the thread that makes it to the loop that sends them."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._news: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._is_left = False

    def tell(self, name: str, value: object) -> None:
        """From the thread; _Gone where nobody reads it any more."""
        self.check()
        if value == "":  # a word more of a sentence that is not judged yet
            return
        news = event(name, json.dumps(value, ensure_ascii=False))
        try:
            self._loop.call_soon_threadsafe(self._news.put_nowait, news)
        except RuntimeError as error:  # the loop has ended
            raise _Gone from error

    def check(self) -> None:
        """_Gone where nobody reads it any more."""
        if self._is_left:
            raise _Gone

    def leave(self) -> None:
        """Nobody reads it any more."""
        self._is_left = True

    def end(self, task: asyncio.Future[Answer]) -> None:
        """There will be no more; in the loop."""
        if not task.cancelled():
            task.exception()  # is told by whoever awaits it, if anybody still does
        self._news.put_nowait(None)

    async def next(self, wait_s: float) -> bytes | None:
        """The next news; empty where there was none for so long, None at the end."""
        try:
            return await asyncio.wait_for(self._news.get(), wait_s)
        except TimeoutError:
            return b""


class _Endpoints:
    """The endpoints on this machine, looked for when they are asked for, and not at every turn."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: list[Endpoint] = []
        self._at = float("-inf")

    def found(self, *, again: bool = False) -> list[Endpoint]:
        """Those there are, as of some seconds ago at most."""
        with self._lock:
            if again or time.monotonic() - self._at > _FRESH_S:
                self._found, self._at = endpoints.discover(), time.monotonic()
            return self._found


def _at(endpoint: Endpoint) -> list[dict[str, Any]]:
    return [
        {
            "name": _name_of(endpoint, one.name),
            "label": one.name,
            "where": endpoint.name,
            # A small model takes over the form of an answer and not what it says.
            "is_fit": not 0 < one.parameters < LEAST_PARAMETERS,
        }
        for one in endpoint.models
    ]


def _name_of(endpoint: Endpoint, model: str) -> str:
    return f"{_ENDPOINT}{endpoint.url}#{model}"
