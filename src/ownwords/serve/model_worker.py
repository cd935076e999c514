"""A model at work for many readers: one thread per model steps the batch scheduler.

The thread passes tokens to the event loop once per step, and each reader takes them from its own
`GenerationStream`.
"""

import asyncio
import logging
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path

from ownwords.core import hardware
from ownwords.core.errors import OwnwordsError
from ownwords.drafts.drafting import adapter_of
from ownwords.inference.engine import Engine
from ownwords.inference.generation import (
    BatchScheduler,
    FinishReason,
    GenerationRequest,
    GenerationState,
)
from ownwords.inference.model import Model
from ownwords.models import directory
from ownwords.models.configs.config import ModelConfig
from ownwords.models.directory import ModelDirectory, Stamp, model_stamp
from ownwords.serve.errors import ApiError, TooManyRequestsError, internal_error
from ownwords.serve.settings import ServeSettings

StreamEnd = FinishReason | OwnwordsError | None

_log = logging.getLogger("ownwords.serve")
_RETRY_AFTER_S = 2


class FairLock:
    """A first-come, first-served lock: a thread that reacquires it at once must wait its turn.

    Engines share the same cores, so running two at once is slower than one after the other.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._tickets = self._turn = 0

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Hold the lock within the block."""
        with self._changed:
            ticket = self._tickets
            self._tickets += 1
            self._changed.wait_for(lambda: self._turn == ticket)
        try:
            yield
        finally:
            with self._changed:
                self._turn += 1
                self._changed.notify_all()


class GenerationStream:
    """The tokens of one request as they are generated; made by `ModelWorker.generate`."""

    def __init__(self, request: GenerationRequest) -> None:
        self.request = request
        self.finish_reason: FinishReason | None = None
        self.steps: asyncio.Queue[tuple[int | None, StreamEnd]] = asyncio.Queue()
        self.handle: GenerationState | None = None  # used by the worker only, under its lock

    async def __aiter__(self) -> AsyncIterator[int]:
        """Yield each token. Raises OwnwordsError if generation failed."""
        while self.finish_reason is None:
            token, end = await self.steps.get()
            if isinstance(end, OwnwordsError):
                raise end
            self.finish_reason = end
            if token is not None:
                yield token


_Updates = list[tuple[GenerationStream, int | None, StreamEnd]]


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
        compute_lock: FairLock,
    ) -> None:
        self.length = min(length, engine.context)
        self.rows = rows
        self._engine = engine
        self._name, self._queue = name, queue
        self._compute_lock = compute_lock
        self._loop = asyncio.get_running_loop()
        self._readers = 0
        self._lock = threading.Condition()
        # Shared by the event loop and the thread; protected by the lock.
        self._waiting: dict[GenerationStream, None] = {}
        self._running: dict[GenerationState, GenerationStream] = {}
        self._is_closed = False
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
                _RETRY_AFTER_S,
            )
        stream = GenerationStream(request)
        self._readers += 1
        try:
            with self._lock:
                self._waiting[stream] = None
                self._lock.notify()
            yield stream
        finally:
            self._readers -= 1
            with self._lock:
                self._waiting.pop(stream, None)
                if stream.handle is not None and stream.handle in self._running:
                    del self._running[stream.handle]
                    stream.handle.is_cancelled = True
                    self._lock.notify()

    async def close(self) -> None:
        """End the thread; remaining readers get an error."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            self._lock.notify()
        # Bounded: the engine may be processing a long prompt while the program shuts down.
        await asyncio.to_thread(self._thread.join, 2.0)

    # --- in the thread ---------------------------------------------------------------------------

    def _work(self) -> None:
        scheduler: BatchScheduler | None = None
        while self._wait_for_work():
            try:
                scheduler = scheduler or BatchScheduler(
                    self._engine, rows=self.rows, length=self.length
                )
                self._step(scheduler)
            except Exception as error:  # an engine error: none of these requests can continue
                if scheduler is not None:
                    scheduler.close()
                scheduler = None
                self._fail(error)
        if scheduler is not None:
            scheduler.close()
        self._fail(_closed())

    def _wait_for_work(self) -> bool:
        """Sleep until there is something to compute; return False if the worker is closed."""
        with self._lock:
            self._lock.wait_for(lambda: self._is_closed or self._running or self._waiting)
            return not self._is_closed

    def _step(self, scheduler: BatchScheduler) -> None:
        self._admit(scheduler)
        with self._compute_lock.hold():
            results = scheduler.step()
        updates: _Updates = []
        with self._lock:
            for handle, token in results:
                stream = self._running.get(handle)
                if stream is None:  # the reader has left
                    continue
                updates.append((stream, token, handle.error or handle.finish_reason))
                if handle.finish_reason:
                    del self._running[handle]
        if updates:
            self._send(updates)

    def _admit(self, scheduler: BatchScheduler) -> None:
        """Give rows to waiting requests, and tell those that are rejected why.

        They are told before the step, which may fail.
        """
        rejected: _Updates = []
        with self._lock:
            while self._waiting and len(self._running) < self.rows:
                stream = next(iter(self._waiting))
                del self._waiting[stream]
                try:
                    stream.handle = scheduler.submit(stream.request)
                except OwnwordsError as error:
                    rejected.append((stream, None, error))
                else:
                    self._running[stream.handle] = stream
        if rejected:
            self._send(rejected)

    def _fail(self, error: Exception) -> None:
        """End all requests with this error."""
        if not isinstance(error, OwnwordsError):
            _log.error("the engine of %s failed", self._name, exc_info=error)
            error = internal_error()
        with self._lock:
            streams = [*self._running.values(), *self._waiting]
            self._running.clear()
            self._waiting.clear()
        self._send([(stream, None, error) for stream in streams])

    def _send(self, updates: _Updates) -> None:
        try:
            self._loop.call_soon_threadsafe(self._deliver, updates)
        except RuntimeError:  # the event loop is closed
            self._is_closed = True

    # --- in the event loop -----------------------------------------------------------------------

    def _deliver(self, updates: _Updates) -> None:
        for stream, token, end in updates:
            stream.steps.put_nowait((token, end))


def _closed() -> ApiError:
    return ApiError(
        HTTPStatus.SERVICE_UNAVAILABLE, "the server is shutting down, or has replaced this model"
    )


_GRACE_S = 5.0  # time for a request that has just got the model to start using it


@dataclass(eq=False)
class LoadedModel:
    """A model in memory; `stamp` is its folder's stamp at the time of loading."""

    name: str
    folder: Path
    model: Model
    worker: ModelWorker
    stamp: Stamp = field(repr=False, default=())

    async def close_when_idle(self) -> None:
        """Close the worker as soon as it has no readers."""
        await asyncio.sleep(_GRACE_S)
        while not self.worker.is_idle:
            await asyncio.sleep(1.0)
        await self.worker.close()


def load(folder: Path, settings: ServeSettings) -> tuple[ModelDirectory, Model, Stamp]:
    """Load a model, a base with its adapter for notes, as trainings begin with it.

    The stamp is older than the weights if a training replaces the model meanwhile.
    """
    stamp = model_stamp(folder)
    with directory.open_directory(folder) as path:
        contents = directory.read(path)
    model = Model.load(
        folder,
        device=settings.device,
        weights=settings.weights,
        threads=settings.threads,
        adapter=adapter_of(folder),
    )
    return contents, model, stamp


def cache_size(config: ModelConfig, settings: ServeSettings) -> tuple[int, int]:
    """The rows and tokens per row of a KV cache that fits into the free memory."""
    length = min(config.context, settings.context)
    token_bytes = 2 * config.kv_width * config.layers * 4  # keys and values, float32 at most
    free = hardware.read_memory().available_bytes
    rows = int(free * settings.memory_share) // (token_bytes * length) if free else settings.rows
    return max(1, min(settings.rows, rows)), length
