"""Many readers of one model's thread, each as if alone, and the text that each is given."""

import asyncio
import threading
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from counting_engine import CountingEngine
from ownwords.core.errors import OwnwordsError
from ownwords.inference.generation import GenerationRequest, generate
from ownwords.inference.sampling import SamplingParams
from ownwords.serve.model_worker import (
    FairLock,
    ModelWorker,
)

LIVELY = SamplingParams(temperature=1.0)
FOREVER = 1_000_000


def request_of(
    seed: int = 1, tokens: int = 30, ids: tuple[int, ...] = (3, 1, 4)
) -> GenerationRequest:
    return GenerationRequest(ids=ids, max_tokens=tokens, sampling=LIVELY, seed=seed)


@asynccontextmanager
async def worker_of(
    engine: CountingEngine,
    *,
    rows: int = 4,
    queue: int = 4,
) -> AsyncGenerator[ModelWorker, None]:
    worker = ModelWorker(
        engine,
        name="it",
        rows=rows,
        length=engine.context,
        queue=queue,
        compute_lock=FairLock(),
    )
    try:
        yield worker
    finally:
        await worker.close()
    assert engine.caches == 0


def run(work: Callable[[], Awaitable[None]]) -> None:
    async def within() -> None:
        async with asyncio.timeout(20):
            await work()

    asyncio.run(within())


async def read(worker: ModelWorker, request: GenerationRequest) -> list[int]:
    async with worker.generate(request) as stream:
        ids = [token async for token in stream]
        assert stream.finish_reason == "length"
        return ids


def single_text(request: GenerationRequest) -> list[int]:
    return list(generate(CountingEngine(), request))


def rows_of(worker: ModelWorker) -> tuple[int, int]:
    """How many texts have a row, and how many wait for one."""
    scheduler = worker._scheduler
    return (len(scheduler._running), len(scheduler._waiting)) if scheduler else (0, 0)


async def until(is_so: Callable[[], bool]) -> None:
    while not is_so():
        await asyncio.sleep(0.001)


def test_a_seed_gives_the_same_text_in_any_batch() -> None:
    engine = CountingEngine()
    requests = [request_of(seed, tokens=20 + seed, ids=(seed % 5, 7, 8)) for seed in range(12)]

    async def work() -> None:
        async with worker_of(engine, rows=4, queue=20) as worker:
            for request in requests[:3]:
                assert await read(worker, request) == single_text(request)
            texts = await asyncio.gather(*(read(worker, request) for request in requests))
        assert texts == [single_text(request) for request in requests]

    run(work)
    assert engine.at_once == 4


def test_a_disconnected_reader_frees_its_row() -> None:
    engine = CountingEngine()

    async def work() -> None:
        async with worker_of(engine, rows=1) as worker:
            for seed in range(50):
                async with worker.generate(request_of(seed, FOREVER)) as stream:
                    await anext(aiter(stream))
            async with worker.generate(request_of(99, FOREVER)) as stream:
                await anext(aiter(stream))
                task = asyncio.create_task(read(worker, request_of(5)))
                await until(lambda: rows_of(worker) == (1, 1))
            assert await task == single_text(request_of(5))
            await until(lambda: rows_of(worker) == (0, 0))  # nothing is generated for nobody

    run(work)


def test_an_invalid_request_does_not_affect_others() -> None:
    async def work() -> None:
        async with worker_of(CountingEngine()) as worker:

            async def wrong() -> None:
                async with worker.generate(request_of(ids=(3, 1000))) as stream:
                    await anext(aiter(stream))

            good = asyncio.create_task(read(worker, request_of(4)))
            with pytest.raises(OwnwordsError, match="id 1000 is not in the vocabulary"):
                await wrong()
            assert await good == single_text(request_of(4))

    run(work)


@pytest.mark.parametrize("error", [OwnwordsError("no memory"), RuntimeError("a bug")])
def test_an_engine_failure_ends_its_texts_and_the_engine_is_retried(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    engine = CountingEngine()

    async def work() -> None:
        async with worker_of(engine) as worker:
            tasks = [
                asyncio.create_task(read(worker, request_of(seed, FOREVER))) for seed in range(3)
            ]
            await until(lambda: rows_of(worker) == (3, 0))
            engine.fails = error
            for result in await asyncio.gather(*tasks, return_exceptions=True):
                assert isinstance(result, OwnwordsError)
            assert await read(worker, request_of(1)) == single_text(request_of(1))

    run(work)
    assert ("a bug" in caplog.text) == isinstance(error, RuntimeError)


def test_memory_that_does_not_suffice_for_the_cache_ends_the_text_and_not_the_worker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads = []

    def full(*_: int) -> None:
        threads.append(threading.current_thread())
        raise MemoryError

    async def work() -> None:
        engine = CountingEngine()
        async with worker_of(engine) as worker:
            with monkeypatch.context() as patch, pytest.raises(OwnwordsError):
                patch.setattr(engine, "cache", full)
                await read(worker, request_of(1))
            assert threads == [worker._thread]
            assert await read(worker, request_of(1)) == single_text(request_of(1))

    run(work)


def test_the_lock_is_fair() -> None:
    lock, order = FairLock(), list[str]()

    def other_turn() -> None:
        with lock.hold():
            order.append("other")

    thread = threading.Thread(target=other_turn)
    with lock.hold():
        thread.start()
        while lock._tickets < 2:
            time.sleep(0.001)
    with lock.hold():
        order.append("again")
    thread.join()
    assert order == ["other", "again"]
