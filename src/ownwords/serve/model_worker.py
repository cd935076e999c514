"""Generates the texts of many readers: one thread per model steps the batch scheduler.

The thread passes tokens to the event loop once per step, and each reader takes them from its own
`GenerationStream`.
"""

import asyncio
import logging
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
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
    """A first-come, first-served lock: a thread that reacquires it must wait its turn.

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


@dataclass(eq=False)
class GenerationStream:
    """The tokens of one request as they are generated; made by `ModelWorker.generate`."""

    state: GenerationState
    finish_reason: FinishReason | None = None
    steps: asyncio.Queue[tuple[int | None, StreamEnd]] = field(default_factory=asyncio.Queue)

    async def __aiter__(self) -> AsyncIterator[int]:
        """Yield each token. Raises OwnwordsError if generation failed."""
        while self.finish_reason is None:
            token, end = await self.steps.get()
            if isinstance(end, OwnwordsError):
                raise end
            self.finish_reason = end
            if token is not None:
                yield token


class ModelWorker:
    """The thread of one model; create it, and call its methods, on one event loop."""

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
        self._lock = threading.Condition()
        # Shared by the event loop and the thread; protected by the lock.
        self._scheduler: BatchScheduler | None = None  # opened by a request, closed by an error
        self._streams: dict[GenerationState, GenerationStream] = {}  # each with a reader
        self._is_closed = False
        self._thread = threading.Thread(target=self._work, name=f"model {name}", daemon=True)
        self._thread.start()

    @property
    def is_idle(self) -> bool:
        """Whether the worker has no readers."""
        return not self._streams

    @asynccontextmanager
    async def generate(self, request: GenerationRequest) -> AsyncGenerator[GenerationStream, None]:
        """Generate within the block. Raises TooManyRequestsError if the queue is full."""
        with self._lock:
            if self._is_closed:
                raise _closed()
            if len(self._streams) >= self.rows + self._queue:
                raise TooManyRequestsError(
                    f"{self.rows} texts are being written and {self._queue} are waiting",
                    _RETRY_AFTER_S,
                )
            self._scheduler = self._scheduler or BatchScheduler(
                self._engine, rows=self.rows, length=self.length
            )
            state = self._scheduler.submit(request)
            stream = self._streams[state] = GenerationStream(state)
            self._lock.notify()
        try:
            yield stream
        finally:
            with self._lock:
                del self._streams[state]
                state.is_cancelled = True  # frees its row
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
        while scheduler := self._wait_for_work():
            try:
                self._step(scheduler)
            except Exception as error:  # an engine error: none of these requests can continue
                self._end_all(error)
        self._end_all(_closed())

    def _wait_for_work(self) -> BatchScheduler | None:
        """Sleep until there is something to compute; return None once the worker is closed."""

        def is_busy() -> bool:
            return self._scheduler is not None and self._scheduler.busy

        with self._lock:
            self._lock.wait_for(lambda: self._is_closed or is_busy())
            return None if self._is_closed else self._scheduler

    def _step(self, scheduler: BatchScheduler) -> None:
        with self._compute_lock.hold():
            results = scheduler.step()
        with self._lock:
            self._send(
                [
                    (self._streams[state], token, state.error or state.finish_reason)
                    for state, token in results
                    if state in self._streams  # else its reader has left
                ]
            )

    def _end_all(self, error: Exception) -> None:
        """End all requests with this error, and free the cache."""
        if not isinstance(error, OwnwordsError):
            _log.error("the engine of %s failed", self._name, exc_info=error)
            error = internal_error()
        with self._lock:
            if self._scheduler is not None:
                self._scheduler.close()
                self._scheduler = None
            self._send([(stream, None, error) for stream in self._streams.values()])

    def _send(self, updates: Sequence[tuple[GenerationStream, int | None, StreamEnd]]) -> None:
        def deliver() -> None:
            for stream, token, end in updates:
                stream.steps.put_nowait((token, end))

        with suppress(RuntimeError):  # the event loop is closed
            self._loop.call_soon_threadsafe(deliver)


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
    """Load a model; a base gets its adapter for notes, as at the start of a training.

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
    """Return the rows and tokens per row of a KV cache that fits into the free memory."""
    length = min(config.context, settings.context)
    token_bytes = 2 * config.kv_width * config.layers * 4  # keys and values, float32 at most
    free = hardware.read_memory().available_bytes
    rows = int(free * settings.memory_share) // (token_bytes * length) if free else settings.rows
    return max(1, min(settings.rows, rows)), length
