"""Texts under way: from an order to an answer, at once or as a stream."""

import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from http import HTTPStatus
from typing import Protocol

import anyio
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ownwords.core.errors import OwnwordsError
from ownwords.inference.generation import Drawn, Finished, Request
from ownwords.serve.engine_thread import Pen, Written
from ownwords.serve.openai.following import Following, Piece, joined
from ownwords.serve.openai.sending import Events, as_json, while_there
from ownwords.serve.openai.shapes import Shape, Usage
from ownwords.serve.refusing import Refused, body, refusal

_log = logging.getLogger("ownwords.serve")

Tell = Callable[[int, Piece, Finished | None], Awaitable[None]]


class Shapes(Protocol):
    """What the answers of one of the two interfaces look like."""

    def whole(self, texts: Sequence[tuple[Piece, Finished]], usage: Usage) -> Shape: ...
    def first(self, n: int) -> Shape | None: ...
    def chunk(self, n: int, piece: Piece, finished: Finished | None) -> Shape: ...
    def last(self, usage: Usage) -> Shape: ...


@dataclass(frozen=True)
class Task:
    """All that is to be written for one request: a text for each of `asked`."""

    pen: Pen
    asked: Sequence[Request]
    following: Sequence[Following]  # of each text
    prompt_tokens: int
    shapes: Shapes
    streamed: bool
    tells_usage: bool

    @property
    def usage(self) -> Usage:
        """What was used so far."""
        return Usage(self.prompt_tokens, sum(each.count for each in self.following))


class Answer(Response):
    """The answer to a request for texts; they are written while it is sent, and no longer."""

    def __init__(self, task: Task) -> None:
        super().__init__()
        self._task = task

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        events = Events(send)
        path = str(scope["path"])

        async def work() -> None:
            try:
                if self._task.streamed:
                    await _stream(self._task, events)
                else:
                    whole = await _whole(self._task)
                    response = Response(as_json(whole), media_type="application/json")
                    await response(scope, receive, send)
            except OwnwordsError as error:
                if events.began:
                    await events.tell(body(path, error))
                    await events.close()
                else:
                    await refusal(path, error)(scope, receive, send)
            except Exception as error:
                if not events.began:
                    raise
                _log.exception("a stream ended early", exc_info=error)
                await events.tell(body(path, _a_bug()))
                await events.close()

        await while_there(receive, work)


async def _stream(task: Task, events: Events) -> None:
    shapes = task.shapes
    usage: Shape = {"usage": None} if task.tells_usage else {}
    beginning = anyio.Lock()

    async def begin() -> None:
        """Not before there is something to tell: what goes wrong until then has its own status."""
        async with beginning:
            if events.began:
                return
            await events.begin()
            for n in range(len(task.asked)):
                if (first := shapes.first(n)) is not None:
                    await events.tell({**first, **usage})

    async def tell(n: int, piece: Piece, finished: Finished | None) -> None:
        await begin()
        if piece:
            await events.tell({**shapes.chunk(n, piece, None), **usage})
        if finished is not None:
            await events.tell({**shapes.chunk(n, Piece(""), finished), **usage})

    await _write(task, tell)
    if task.tells_usage:
        await events.tell(shapes.last(task.usage))
    await events.end()


async def _whole(task: Task) -> Shape:
    pieces: list[list[Piece]] = [[] for _ in task.asked]
    ends: list[Finished] = ["length" for _ in task.asked]

    async def tell(n: int, piece: Piece, finished: Finished | None) -> None:
        pieces[n].append(piece)
        if finished is not None:
            ends[n] = finished

    await _write(task, tell)
    texts = [(joined(each), end) for each, end in zip(pieces, ends, strict=True)]
    return task.shapes.whole(texts, task.usage)


async def _write(task: Task, tell: Tell) -> None:
    """Write all the texts at once; Busy where there is no room for all of them."""
    failed: list[OwnwordsError] = []
    async with AsyncExitStack() as everything:
        texts: list[tuple[AsyncExitStack, Written]] = []
        for asked in task.asked:
            stack = await everything.enter_async_context(AsyncExitStack())
            texts.append((stack, await stack.enter_async_context(task.pen.write(asked))))

        async with anyio.create_task_group() as group:

            async def follow(n: int, stack: AsyncExitStack, written: Written) -> None:
                try:
                    async with stack:  # left as soon as this text ends
                        await _follow(n, written, task.following[n], tell)
                except OwnwordsError as error:
                    failed.append(error)
                    group.cancel_scope.cancel()

            for n, (stack, written) in enumerate(texts):
                group.start_soon(follow, n, stack, written)
    if failed:
        raise failed[0]


async def _follow(n: int, written: Written, following: Following, tell: Tell) -> None:
    async for several in written.together():
        piece = joined([following.feed(drawn) for drawn in _until_stopped(several, following)])
        if following.stopped:
            await tell(n, piece, "stop")
            return
        if piece:
            await tell(n, piece, None)
    piece = following.finish()
    await tell(n, piece, "stop" if following.stopped else written.finished or "length")


def _until_stopped(several: Sequence[Drawn], following: Following) -> Iterator[Drawn]:
    for drawn in several:
        if following.stopped:
            return
        yield drawn


def _a_bug() -> Refused:
    return Refused(
        HTTPStatus.INTERNAL_SERVER_ERROR,
        "something went wrong in the server, which is a bug of ours",
        "its log says more; asking again may work",
    )
