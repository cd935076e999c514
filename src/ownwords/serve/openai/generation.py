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
from ownwords.inference.generation import FinishReason, GeneratedToken, GenerationRequest
from ownwords.serve.errors import ApiError, body, refusal
from ownwords.serve.model_worker import GenerationStream, ModelWorker
from ownwords.serve.openai.formatters import JsonObject, TokenUsage
from ownwords.serve.openai.sending import EventStreamSender, as_json, while_there
from ownwords.serve.openai.stream_decoder import DecodedChunk, StreamDecoder, joined

_log = logging.getLogger("ownwords.serve")

Tell = Callable[[int, DecodedChunk, FinishReason | None], Awaitable[None]]


class Formatter(Protocol):
    """What the answers of one of the two interfaces look like."""

    def whole(
        self, texts: Sequence[tuple[DecodedChunk, FinishReason]], usage: TokenUsage
    ) -> JsonObject: ...
    def first(self, n: int) -> JsonObject | None: ...
    def chunk(self, n: int, piece: DecodedChunk, finished: FinishReason | None) -> JsonObject: ...
    def last(self, usage: TokenUsage) -> JsonObject: ...


@dataclass(frozen=True)
class GenerationTask:
    """All that is to be written for one request: a text for each of `asked`."""

    worker: ModelWorker
    asked: Sequence[GenerationRequest]
    following: Sequence[StreamDecoder]  # of each text
    prompt_tokens: int
    shapes: Formatter
    streamed: bool
    tells_usage: bool

    @property
    def usage(self) -> TokenUsage:
        """What was used so far."""
        return TokenUsage(self.prompt_tokens, sum(each.count for each in self.following))


class GenerationResponse(Response):
    """The answer to a request for texts; they are written while it is sent, and no longer."""

    def __init__(self, task: GenerationTask) -> None:
        super().__init__()
        self._task = task

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        events = EventStreamSender(send)
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


async def _stream(task: GenerationTask, events: EventStreamSender) -> None:
    shapes = task.shapes
    usage: JsonObject = {"usage": None} if task.tells_usage else {}
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

    async def tell(n: int, piece: DecodedChunk, finished: FinishReason | None) -> None:
        await begin()
        if piece:
            await events.tell({**shapes.chunk(n, piece, None), **usage})
        if finished is not None:
            await events.tell({**shapes.chunk(n, DecodedChunk(""), finished), **usage})

    await _write(task, tell)
    if task.tells_usage:
        await events.tell(shapes.last(task.usage))
    await events.end()


async def _whole(task: GenerationTask) -> JsonObject:
    pieces: list[list[DecodedChunk]] = [[] for _ in task.asked]
    ends: list[FinishReason] = ["length" for _ in task.asked]

    async def tell(n: int, piece: DecodedChunk, finished: FinishReason | None) -> None:
        pieces[n].append(piece)
        if finished is not None:
            ends[n] = finished

    await _write(task, tell)
    texts = [(joined(each), end) for each, end in zip(pieces, ends, strict=True)]
    return task.shapes.whole(texts, task.usage)


async def _write(task: GenerationTask, tell: Tell) -> None:
    """Write all the texts at once; Busy where there is no room for all of them."""
    failed: list[OwnwordsError] = []
    async with AsyncExitStack() as everything:
        texts: list[tuple[AsyncExitStack, GenerationStream]] = []
        for asked in task.asked:
            stack = await everything.enter_async_context(AsyncExitStack())
            texts.append((stack, await stack.enter_async_context(task.worker.write(asked))))

        async with anyio.create_task_group() as group:

            async def follow(n: int, stack: AsyncExitStack, written: GenerationStream) -> None:
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


async def _follow(n: int, written: GenerationStream, following: StreamDecoder, tell: Tell) -> None:
    async for several in written.together():
        piece = joined([following.feed(drawn) for drawn in _until_stopped(several, following)])
        if following.stopped:
            await tell(n, piece, "stop")
            return
        if piece:
            await tell(n, piece, None)
    piece = following.finish()
    await tell(n, piece, "stop" if following.stopped else written.finished or "length")


def _until_stopped(
    several: Sequence[GeneratedToken], following: StreamDecoder
) -> Iterator[GeneratedToken]:
    for drawn in several:
        if following.stopped:
            return
        yield drawn


def _a_bug() -> ApiError:
    return ApiError(
        HTTPStatus.INTERNAL_SERVER_ERROR,
        "something went wrong in the server, which is a bug of ours",
        "its log says more; asking again may work",
    )
