"""Many readers of one model's thread: each as if alone, none in another's way."""

import asyncio
import threading
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from counting_engine import CountingEngine
from ownwords.core.errors import OwnwordsError
from ownwords.inference.generation import GenerationRequest
from ownwords.inference.sampling import SamplingParams
from ownwords.inference.scheduler import generate
from ownwords.serve.errors import ApiError, TooManyRequestsError
from ownwords.serve.fair_lock import FairLock
from ownwords.serve.metrics import Metrics
from ownwords.serve.model_worker import GenerationStream, ModelWorker

LIVELY = SamplingParams(temperature=1.0)
FOREVER = 1_000_000


def asking(seed: int = 1, tokens: int = 30, ids: tuple[int, ...] = (3, 1, 4)) -> GenerationRequest:
    return GenerationRequest(ids=ids, max_tokens=tokens, sampling=LIVELY, seed=seed)


@asynccontextmanager
async def pen_of(
    engine: CountingEngine, *, rows: int = 4, queue: int = 4, ahead: int = 1000
) -> AsyncGenerator[ModelWorker, None]:
    made = ModelWorker(
        engine,
        name="it",
        rows=rows,
        length=engine.context,
        queue=queue,
        ahead=ahead,
        metrics=Metrics(),
        turns=FairLock(),
    )
    try:
        yield made
    finally:
        await made.close()
    assert engine.caches == 0


def run(work: Callable[[], Awaitable[None]]) -> None:
    async def within() -> None:
        async with asyncio.timeout(20):
            await work()

    asyncio.run(within())


async def read(worker: ModelWorker, request: GenerationRequest) -> list[int]:
    async with worker.write(request) as written:
        ids = [drawn.id async for drawn in written]
        assert written.finished == "length"
        assert written.tokens == len(ids)
        return ids


def alone(request: GenerationRequest) -> list[int]:
    return [drawn.id for drawn in generate(CountingEngine(), request)]


async def until(is_so: Callable[[], bool]) -> None:
    while not is_so():
        await asyncio.sleep(0.001)


def test_a_seed_writes_the_same_text_in_any_company() -> None:
    engine = CountingEngine()
    requests = [asking(seed, tokens=20 + seed, ids=(seed % 5, 7, 8)) for seed in range(12)]

    async def work() -> None:
        async with pen_of(engine, rows=4, queue=20) as worker:
            for request in requests[:3]:
                assert await read(worker, request) == alone(request)
            texts = await asyncio.gather(*(read(worker, request) for request in requests))
        assert texts == [alone(request) for request in requests]

    run(work)
    assert engine.at_once == 4


def test_all_that_has_come_is_handed_out_together() -> None:
    engine = CountingEngine()

    async def work() -> None:
        async with pen_of(engine) as worker, worker.write(asking(tokens=50)) as written:
            several = await written.take()
            await until(lambda: engine.reads >= 50 and worker.writing == 0)
            await asyncio.sleep(0.05)
            rest = await written.take()
            assert len(several) + len(rest) == 50
            assert await written.take() == []
            assert written.finished == "length"

    run(work)


def test_who_is_one_too_many_is_told_so_at_once() -> None:
    async def work() -> None:
        async with pen_of(CountingEngine(), rows=2, queue=1) as worker:
            forever = [worker.write(asking(seed, FOREVER)) for seed in range(3)]
            for each in forever:
                await each.__aenter__()
            await until(lambda: worker.writing == 2)
            assert worker.waiting == 1
            with pytest.raises(TooManyRequestsError) as busy:
                async with worker.write(asking()):
                    pass
            assert busy.value.status == 429
            assert 1 <= (busy.value.retry_after_s or 0) <= 30
            await forever[0].__aexit__(None, None, None)
            await until(lambda: worker.waiting == 0)
            for each in forever[1:]:
                await each.__aexit__(None, None, None)
            assert await read(worker, asking()) == alone(asking())
            assert worker.is_idle

    run(work)


def test_a_reader_who_goes_away_frees_its_seat_at_once() -> None:
    engine = CountingEngine()

    async def work() -> None:
        async with pen_of(engine, rows=1) as worker:
            for seed in range(50):
                async with worker.write(asking(seed, FOREVER)) as written:
                    await written.take()
            async with worker.write(asking(99, FOREVER)) as written:
                await written.take()
                task = asyncio.create_task(read(worker, asking(5)))
                await asyncio.sleep(0.02)
                assert not task.done()
            assert await task == alone(asking(5))
            await asyncio.sleep(0.05)
            reads = engine.reads
            await asyncio.sleep(0.1)
            assert engine.reads == reads  # nothing is written for nobody

    run(work)


def test_who_waits_and_goes_away_leaves_nothing_behind() -> None:
    engine = CountingEngine()

    async def work() -> None:
        async with pen_of(engine, rows=1, queue=100) as worker:
            engine.may_go_on.clear()
            async with worker.write(asking(1, FOREVER)):
                await until(lambda: worker.writing == 1)
                for _ in range(20):
                    others = [worker.write(asking(seed)) for seed in range(50)]
                    for each in others:
                        await each.__aenter__()
                    assert worker.waiting == 50
                    for each in others:
                        await each.__aexit__(None, None, None)
                    assert worker.waiting == 0
            engine.may_go_on.set()
            assert await read(worker, asking(2)) == alone(asking(2))

    run(work)


def test_a_text_does_not_run_away_from_its_reader_and_is_the_same_nevertheless() -> None:
    engine = CountingEngine()
    slow = asking(7, tokens=100)

    async def work() -> None:
        async with pen_of(engine, rows=1, ahead=10) as worker, worker.write(slow) as written:
            ids = []
            async for several in written.together():
                assert len(several) < 20
                ids += [drawn.id for drawn in several]
                # Put aside, it has given its row to others.
                assert await read(worker, asking(8, tokens=5)) == alone(asking(8, tokens=5))
                await asyncio.sleep(0.005)
            assert ids == alone(slow)

    run(work)


def test_an_order_that_cannot_be_met_harms_no_other() -> None:
    async def work() -> None:
        async with pen_of(CountingEngine()) as worker:

            async def wrong() -> None:
                async with worker.write(asking(ids=(3, 1000))) as written:
                    await written.take()

            good = asyncio.create_task(read(worker, asking(4)))
            with pytest.raises(OwnwordsError, match="id 1000 is not in the vocabulary"):
                await wrong()
            assert await good == alone(asking(4))

    run(work)


@pytest.mark.parametrize("error", [OwnwordsError("no memory"), RuntimeError("a bug")])
def test_an_engine_that_fails_ends_what_it_wrote_and_is_tried_again(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    engine = CountingEngine()

    async def work() -> None:
        async with pen_of(engine) as worker:
            tasks = [asyncio.create_task(read(worker, asking(seed, FOREVER))) for seed in range(3)]
            await until(lambda: worker.writing == 3)
            engine.fails = error
            for each in await asyncio.gather(*tasks, return_exceptions=True):
                assert isinstance(each, OwnwordsError)
            assert await read(worker, asking(1)) == alone(asking(1))

    run(work)
    assert ("a bug" in caplog.text) == isinstance(error, RuntimeError)


def test_the_end_is_told_to_all_who_still_read() -> None:
    async def work() -> None:
        async with pen_of(CountingEngine(), rows=1) as worker:
            tasks = [asyncio.create_task(read(worker, asking(seed, FOREVER))) for seed in range(3)]
            await until(lambda: worker.writing == 1 and worker.waiting == 2)
            await worker.close()
            for each in await asyncio.gather(*tasks, return_exceptions=True):
                assert isinstance(each, ApiError)
                assert each.status == 503
            with pytest.raises(ApiError):
                await read(worker, asking())

    run(work)


def test_a_text_of_no_tokens_ends_at_once() -> None:
    async def work() -> None:
        async with pen_of(CountingEngine()) as worker:
            assert await read(worker, asking(tokens=0)) == []

    run(work)


def test_late_news_of_an_earlier_writing_are_not_taken_for_those_of_a_later_one() -> None:
    ids = alone(asking(3, tokens=10))
    request = asking(3, tokens=10)
    drawn = list(generate(CountingEngine(), request))

    async def work() -> None:
        again: list[GenerationStream] = []
        written = GenerationStream(request, 4, again.append)
        written.begins()
        assert written.told(1, drawn[:5], None)  # far enough ahead: put aside
        got = await written.take()
        task = asyncio.create_task(written.take())
        await asyncio.sleep(0)
        assert again == [written]
        written.begins()
        assert not written.told(1, drawn[5:7], None)  # was under way when it was put aside
        written.told(2, drawn[:3], None)
        written.told(2, drawn[3:8], None)
        got += await task
        written.told(2, drawn[8:], "length")
        got += await written.take()
        assert [one.id for one in got] == ids

    run(work)


def test_who_waits_comes_before_who_has_just_had_a_turn() -> None:
    turns, order, is_there = FairLock(), list[str](), threading.Event()

    def other() -> None:
        is_there.set()
        with turns.one():
            order.append("other")

    thread = threading.Thread(target=other)
    with turns.one():
        thread.start()
        assert is_there.wait(5)
        time.sleep(0.05)  # until it waits
    with turns.one():
        order.append("again")
    thread.join()
    assert order == ["other", "again"]


def test_requests_are_not_changed_by_being_written() -> None:
    request = asking()
    copy = replace(request)

    async def work() -> None:
        async with pen_of(CountingEngine()) as worker:
            await read(worker, request)

    run(work)
    assert request == copy
