"""Generates for many readers at once: one thread per model steps the batch scheduler.

The thread passes tokens to the event loop once per step, and each reader takes them from its own
`GenerationStream`. The row of a reader that falls behind is paused, which bounds its buffer. A row
that stays paused for `stalled_s` while other requests wait is ended to free its place.
"""

import asyncio
import logging
import math
import threading
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from http import HTTPStatus

from ownwords.core.errors import OwnwordsError
from ownwords.inference.engine import Engine
from ownwords.inference.generation import FinishReason, GeneratedToken, GenerationRequest
from ownwords.inference.scheduler import BatchScheduler, RequestHandle
from ownwords.serve.errors import ApiError, TooManyRequestsError, engine_failed
from ownwords.serve.metrics import Metrics

StreamEnd = FinishReason | OwnwordsError | None

_log = logging.getLogger("ownwords.serve")
_LONGEST_RETRY_S = 30
_SMOOTHING = 0.2  # weight of the last request in the average duration
_STALL_CHECK_S = 1.0


class FairLock:
    """A first-come, first-served lock: a thread that reacquires it at once must wait its turn.

    Engines share the same cores, so running two at once is slower than one after the other.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: deque[threading.Lock] = deque()
        self._is_taken = False

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Hold the lock within the block."""
        with self._lock:
            turn = None
            if self._is_taken:
                turn = threading.Lock()
                turn.acquire()
                self._waiting.append(turn)
            self._is_taken = True
        if turn is not None:
            turn.acquire()  # blocks until the previous holder releases it
        try:
            yield
        finally:
            with self._lock:
                if self._waiting:
                    self._waiting.popleft().release()
                else:
                    self._is_taken = False


class GenerationStream:
    """The tokens of one request as they are generated; made by `ModelWorker.generate`."""

    def __init__(
        self, request: GenerationRequest, taken: Callable[["GenerationStream", int], None]
    ) -> None:
        self.request = request
        self.finish_reason: FinishReason | None = None
        self.token_count = 0  # number of tokens that the reader has taken
        self.requested_at = time.monotonic()
        self.has_begun = False
        self._taken = taken
        self._buffer: list[GeneratedToken] = []
        self._end: StreamEnd = None
        self._ready = asyncio.Event()
        # Used by the worker only, under its lock.
        self.handle: RequestHandle | None = None
        self.backlog = 0  # tokens generated, but not yet taken
        self.paused_at = math.inf

    async def __aiter__(self) -> AsyncIterator[list[GeneratedToken]]:
        """Yield tokens in batches: all that were generated since the last batch."""
        while batch := await self.take():
            yield batch

    async def take(self) -> list[GeneratedToken]:
        """Return the next batch, empty at the end. Raises OwnwordsError if generation failed."""
        while not self._buffer and self._end is None:
            self._ready.clear()
            await self._ready.wait()
        batch, self._buffer = self._buffer, []
        self.token_count += len(batch)
        self._taken(self, len(batch))
        if not batch:
            if isinstance(self._end, OwnwordsError):
                raise self._end
            self.finish_reason = self._end
        return batch

    def push(self, tokens: list[GeneratedToken], end: StreamEnd) -> None:
        """Append the tokens of a step; `end` is not None if it was the last one."""
        self._buffer += tokens
        self._end = end
        self._ready.set()


_Updates = list[tuple[GenerationStream, list[GeneratedToken], StreamEnd]]


class ModelWorker:
    """The thread of one model; call `generate` and `close` on the loop that created it."""

    def __init__(
        self,
        engine: Engine,
        *,
        name: str,
        rows: int,
        length: int,
        queue: int,
        buffer_tokens: int,
        stalled_s: float,
        metrics: Metrics,
        compute_lock: FairLock,
    ) -> None:
        self.length = min(length, engine.context)
        self.rows = rows
        self._engine = engine
        self._name, self._queue = name, queue
        self._buffer_tokens, self._stalled_s = buffer_tokens, stalled_s
        self._metrics, self._compute_lock = metrics, compute_lock
        self._loop = asyncio.get_running_loop()
        self._readers = 0
        self._average_s = 1.0  # moving average of a request's duration
        self._lock = threading.Condition()
        # Shared by the event loop and the thread; protected by the lock.
        self._waiting: dict[GenerationStream, None] = {}
        self._running: dict[RequestHandle, GenerationStream] = {}
        self._is_closed = False
        self._scheduler: BatchScheduler | None = None
        self._thread = threading.Thread(target=self._work, name=f"model {name}", daemon=True)
        self._thread.start()

    @property
    def running(self) -> int:
        """The number of requests that have a row."""
        return len(self._running)

    @property
    def waiting(self) -> int:
        """The number of requests that wait for a row."""
        return len(self._waiting)

    @property
    def is_idle(self) -> bool:
        """Whether the worker has no readers."""
        return self._readers == 0

    @asynccontextmanager
    async def generate(self, request: GenerationRequest) -> AsyncGenerator[GenerationStream, None]:
        """Generate within the block. Raises TooManyRequestsError if the queue is full."""
        if self._is_closed:
            raise _closed()
        if self._readers >= self.rows + self._queue:
            raise TooManyRequestsError(
                f"{self.rows} texts are being written and {self._queue} are waiting",
                self._retry_after_s(),
            )
        stream = GenerationStream(request, self._taken)
        self._readers += 1
        try:
            with self._lock:
                self._waiting[stream] = None
                self._lock.notify()
            yield stream
        finally:
            self._readers -= 1
            self._leave(stream)
            elapsed_s = time.monotonic() - stream.requested_at
            self._average_s += _SMOOTHING * (elapsed_s - self._average_s)

    async def close(self) -> None:
        """End the thread; remaining readers get an error."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            self._lock.notify()
        # Bounded: the engine may be processing a long prompt while the program shuts down.
        await asyncio.to_thread(self._thread.join, 2.0)

    def _retry_after_s(self) -> int:
        rounds = 1 + self._queue / self.rows / 2
        return max(1, min(_LONGEST_RETRY_S, math.ceil(self._average_s * rounds / 2)))

    def _leave(self, stream: GenerationStream) -> None:
        with self._lock:
            self._waiting.pop(stream, None)
            if stream.handle is not None and stream.handle in self._running:
                del self._running[stream.handle]
                stream.handle.is_cancelled = True
                self._lock.notify()

    def _taken(self, stream: GenerationStream, count: int) -> None:
        with self._lock:
            stream.backlog -= count
            if stream.handle is not None and stream.handle.is_paused:
                stream.handle.is_paused, stream.paused_at = False, math.inf
                self._lock.notify()

    # --- in the thread ---------------------------------------------------------------------------

    def _work(self) -> None:
        while self._wait_for_work():
            try:
                if self._scheduler is None:
                    self._scheduler = BatchScheduler(
                        self._engine, rows=self.rows, length=self.length
                    )
                self._step(self._scheduler)
            except Exception as error:  # an engine error: none of these requests can continue
                self._close_scheduler()
                self._fail(error)
        self._close_scheduler()
        self._fail(_closed())

    def _close_scheduler(self) -> None:
        if self._scheduler is not None:
            self._scheduler.close()
            self._scheduler = None

    def _wait_for_work(self) -> bool:
        """Sleep until there is something to compute; return False if the worker is closed."""
        with self._lock:
            while not self._is_closed and not self._has_work():
                self._lock.wait(_STALL_CHECK_S if self._waiting else None)
            return not self._is_closed

    def _has_work(self) -> bool:
        can_admit = len(self._running) < self.rows or bool(self._stalled())
        return (bool(self._waiting) and can_admit) or any(
            not handle.is_paused for handle in self._running
        )

    def _stalled(self) -> list[GenerationStream]:
        """The running requests that have been paused for more than `stalled_s`."""
        limit = time.monotonic() - self._stalled_s
        return [stream for stream in self._running.values() if stream.paused_at < limit]

    def _step(self, scheduler: BatchScheduler) -> None:
        updates = self._admit(scheduler)
        with self._compute_lock.hold():
            results = scheduler.step()
        with self._lock:
            for handle, tokens, finish_reason in results:
                stream = self._running.get(handle)
                if stream is None:  # the reader has left
                    continue
                updates.append((stream, tokens, handle.error or finish_reason))
                stream.backlog += len(tokens)
                if finish_reason:
                    del self._running[handle]
                elif stream.backlog >= self._buffer_tokens:
                    handle.is_paused, stream.paused_at = True, time.monotonic()
        if updates:
            self._send(updates)

    def _admit(self, scheduler: BatchScheduler) -> _Updates:
        """Give rows to waiting requests; return errors for those that are stalled or rejected."""
        updates: _Updates = []
        with self._lock:
            if self._waiting and len(self._running) >= self.rows:
                for stream in self._stalled():
                    assert stream.handle is not None
                    scheduler.cancel(stream.handle)
                    del self._running[stream.handle]
                    updates.append((stream, [], _stalled_reader()))
            while self._waiting and len(self._running) < self.rows:
                stream = next(iter(self._waiting))
                del self._waiting[stream]
                try:
                    stream.handle = scheduler.submit(stream.request)
                except OwnwordsError as error:
                    updates.append((stream, [], error))
                else:
                    self._running[stream.handle] = stream
        return updates

    def _fail(self, error: Exception) -> None:
        """End all requests with this error."""
        if not isinstance(error, OwnwordsError):
            _log.error("the engine of %s failed", self._name, exc_info=error)
            error = engine_failed()
        with self._lock:
            streams = [*self._running.values(), *self._waiting]
            self._running.clear()
            self._waiting.clear()
        self._send([(stream, [], error) for stream in streams])

    def _send(self, updates: _Updates) -> None:
        try:
            self._loop.call_soon_threadsafe(self._deliver, updates)
        except RuntimeError:  # the event loop is closed
            self._is_closed = True

    # --- in the event loop -----------------------------------------------------------------------

    def _deliver(self, updates: _Updates) -> None:
        for stream, tokens, end in updates:
            if tokens and not stream.has_begun:
                stream.has_begun = True
                self._metrics.first_token(time.monotonic() - stream.requested_at)
            stream.push(tokens, end)
        self._metrics.tokens(self._name, sum(len(tokens) for _, tokens, _ in updates))


def _closed() -> ApiError:
    return ApiError(
        HTTPStatus.SERVICE_UNAVAILABLE, "the server is shutting down, or has replaced this model"
    )


def _stalled_reader() -> ApiError:
    return ApiError(
        HTTPStatus.SERVICE_UNAVAILABLE,
        "the answer was read too slowly while other requests were waiting",
        hint="read the stream as it comes, or try again later",
    )
