"""A model at work for many at once: one thread that writes, and an async face to it.

The thread steps a `BatchScheduler`; whoever reads is told once a step. Between the two stands a
bounded queue, and in front of each reader another. A text that runs too far ahead of its reader
gives up its row and is written again from its beginning when the reader has caught up: it is the
same text, since it depends on nothing but its request.
"""

import asyncio
import logging
import math
import threading
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from http import HTTPStatus

from ownwords.core.errors import OwnwordsError
from ownwords.inference.engine import Engine
from ownwords.inference.generation import FinishReason, GeneratedToken, GenerationRequest
from ownwords.inference.scheduler import BatchScheduler, RequestHandle
from ownwords.serve.errors import ApiError, TooManyRequestsError
from ownwords.serve.fair_lock import FairLock
from ownwords.serve.metrics import Metrics

End = FinishReason | OwnwordsError | None

_log = logging.getLogger("ownwords.serve")
_LONGEST_RETRY_S = 30
_REMEMBERED = 0.2  # how much of the average time of a text is that of the last


class GenerationStream:
    """The tokens of one text as they are generated; made by `ModelWorker.write`, for one reader."""

    def __init__(
        self, request: GenerationRequest, ahead: int, resume: Callable[["GenerationStream"], None]
    ) -> None:
        self.request = request
        self.finished: FinishReason | None = None
        self.tokens = 0  # handed to the reader
        self._ahead = ahead
        self._resume = resume
        self.asked = time.monotonic()
        self.number = 0  # how often its writing began
        self._known = 0  # tokens that the reader has or is about to get
        self._skip = 0  # of those, how many are still to be drawn once more
        self._drawn: deque[GeneratedToken] = deque()
        self._end: End = None
        self._is_aside = False
        self._came = asyncio.Event()

    async def __aiter__(self) -> AsyncIterator[GeneratedToken]:
        async for several in self.together():
            for drawn in several:
                yield drawn

    async def together(self) -> AsyncIterator[list[GeneratedToken]]:
        """All that has come since the last time, as soon as there is any, to the end."""
        while several := await self.take():
            yield several

    async def take(self) -> list[GeneratedToken]:
        """The same once; nothing at the end. OwnwordsError where the text comes to nothing."""
        while not self._drawn and self._end is None:
            if self._is_aside:
                self._is_aside = False
                self._resume(self)
            self._came.clear()
            await self._came.wait()
        several = list(self._drawn)
        self._drawn.clear()
        self.tokens += len(several)
        if not several:
            if isinstance(self._end, OwnwordsError):
                raise self._end
            self.finished = self._end
        return several

    def begins(self) -> None:
        """Its writing begins, for the first time or anew; what is known is not told again."""
        self.number += 1
        self._skip = self._known

    @property
    def is_new(self) -> bool:
        """Whether nothing of it has come yet."""
        return self._known == 0

    def told(self, number: int, several: Iterable[GeneratedToken], end: End) -> bool:
        """What a step came to; whether the text is so far ahead that it should be put aside."""
        if number != self.number or self._end is not None or self._is_aside:
            return False
        for drawn in several:
            if self._skip:
                self._skip -= 1
            else:
                self._drawn.append(drawn)
                self._known += 1
        self._end = end
        self._is_aside = end is None and len(self._drawn) >= self._ahead
        self._came.set()
        return self._is_aside


class ModelWorker:
    """One model's thread. `write` and `close` belong to the event loop it was made in."""

    def __init__(
        self,
        engine: Engine,
        *,
        name: str,
        rows: int,
        length: int,
        queue: int,
        ahead: int,
        metrics: Metrics,
        turns: FairLock,
    ) -> None:
        self.length = min(length, engine.context)
        self.rows = rows
        self._engine = engine
        self._name, self._queue, self._ahead = name, queue, ahead
        self._metrics, self._turns = metrics, turns
        self._loop = asyncio.get_running_loop()
        self._inside = 0  # texts that have a reader
        self._usual_s = 1.0  # that a text takes, by those of late
        self._lock = threading.Condition()
        # Between the loop and the thread, under the lock.
        self._waiting: dict[GenerationStream, None] = {}
        self._seated: dict[RequestHandle, GenerationStream] = {}
        self._tickets: dict[GenerationStream, RequestHandle] = {}  # the same the other way round
        self._left: list[RequestHandle] = []
        self._is_ended = False
        self._thread = threading.Thread(target=self._work, name=f"pen {name}", daemon=True)
        self._thread.start()

    @property
    def writing(self) -> int:
        """Texts that have a row."""
        return len(self._seated)

    @property
    def waiting(self) -> int:
        """Texts that wait for a row."""
        return len(self._waiting)

    @property
    def is_idle(self) -> bool:
        """Whether nobody reads anything from it."""
        return self._inside == 0

    @asynccontextmanager
    async def write(self, request: GenerationRequest) -> AsyncGenerator[GenerationStream, None]:
        """A text, written as long as the block lasts; Busy where too many wait already."""
        if self._is_ended:
            raise _ended()
        if self._inside >= self.rows + self._queue:
            raise TooManyRequestsError(
                f"{self.rows} texts are being written and {self._queue} wait", self._retry_after_s()
            )
        written = GenerationStream(request, self._ahead, self._enter)
        began = time.monotonic()
        self._inside += 1
        try:
            self._enter(written)
            yield written
        finally:
            self._inside -= 1
            self._leave(written)
            self._usual_s += _REMEMBERED * (time.monotonic() - began - self._usual_s)

    async def close(self) -> None:
        """End the thread; whoever still reads is told so."""
        with self._lock:
            if self._is_ended:
                return
            self._is_ended = True
            self._lock.notify()
        # Not forever: an engine may be reading a long prompt, and the program is to end.
        await asyncio.to_thread(self._thread.join, 2.0)

    def _retry_after_s(self) -> int:
        rounds = 1 + self._queue / self.rows / 2
        return max(1, min(_LONGEST_RETRY_S, math.ceil(self._usual_s * rounds / 2)))

    def _enter(self, written: GenerationStream) -> None:
        written.begins()
        with self._lock:
            if self._is_ended:
                written.told(written.number, (), _ended())
                return
            self._waiting[written] = None
            self._lock.notify()

    def _leave(self, written: GenerationStream) -> None:
        with self._lock:
            self._waiting.pop(written, None)
            if (ticket := self._tickets.pop(written, None)) is not None:
                del self._seated[ticket]
                self._left.append(ticket)
                self._lock.notify()

    # --- what follows runs in the thread -------------------------------------------------------

    def _work(self) -> None:
        desk: BatchScheduler | None = None
        while self._sleep_until_there_is_work(desk):
            try:
                if desk is None:
                    desk = BatchScheduler(self._engine, rows=self.rows, length=self.length)
                self._step(desk)
            except Exception as error:  # of the engine: none of these texts can go on
                if desk is not None:
                    desk.close()
                    desk = None
                self._fail(error)
        if desk is not None:
            desk.close()
        self._fail(_ended())

    def _sleep_until_there_is_work(self, desk: BatchScheduler | None) -> bool:
        with self._lock:
            while not self._is_ended and not self._waiting and not (desk and desk.busy):
                self._left.clear()  # with no desk, or an idle one, there is nobody to take out
                self._lock.wait()
            return not self._is_ended

    def _step(self, desk: BatchScheduler) -> None:
        news = self._seat(desk)
        with self._turns.one():
            told = desk.step()
        with self._lock:
            for ticket, drawn, finished in told:
                written = self._seated.get(ticket)
                if written is None:  # its reader went away
                    continue
                news.append((written, written.number, drawn, ticket.error or finished))
                if finished:
                    del self._seated[ticket], self._tickets[written]
        if news:
            self._tell(news)

    def _seat(self, desk: BatchScheduler) -> "_News":
        """Take out who left, and let in who waits; what is to be told of those who cannot come."""
        news: _News = []
        with self._lock:
            for ticket in self._left:
                desk.cancel(ticket)
            self._left.clear()
            while self._waiting and len(self._seated) < self.rows:
                written = next(iter(self._waiting))
                del self._waiting[written]
                try:
                    ticket = desk.submit(written.request)
                except OwnwordsError as error:
                    news.append((written, written.number, [], error))
                else:
                    self._seated[ticket], self._tickets[written] = written, ticket
        return news

    def _fail(self, error: Exception) -> None:
        """Nothing that was asked for so far comes to anything."""
        if not isinstance(error, OwnwordsError):
            _log.error("the engine of %s failed", self._name, exc_info=error)
            error = ApiError(
                HTTPStatus.INTERNAL_SERVER_ERROR,
                "the engine failed, which is a bug of ours",
                hint="the server's log says more; asking again may work",
            )
        with self._lock:
            asked = [*self._seated.values(), *self._waiting]
            self._seated.clear()
            self._tickets.clear()
            self._waiting.clear()
            self._left.clear()
        self._tell([(written, written.number, [], error) for written in asked])

    def _tell(self, news: "_News") -> None:
        try:
            self._loop.call_soon_threadsafe(self._hand_out, news)
        except RuntimeError:  # the loop has ended, and nobody listens
            self._is_ended = True

    # --- and this in the loop again ------------------------------------------------------------

    def _hand_out(self, news: "_News") -> None:
        now, tokens = time.monotonic(), 0
        for written, number, several, end in news:
            if several and written.is_new:
                self._metrics.first_token(now - written.asked)
            tokens += len(several)
            if written.told(number, several, end):
                self._leave(written)
        self._metrics.wrote(self._name, tokens)


# A text, the number of its writing, what was drawn of it, and its end.
_News = list[tuple[GenerationStream, int, list[GeneratedToken], End]]


def _ended() -> ApiError:
    return ApiError(
        HTTPStatus.SERVICE_UNAVAILABLE, "the server is ending, or has another model now"
    )
