"""Batches prefetched by a thread: the right ones, not too many, and a clean end."""

import threading
import time
from contextlib import closing
from itertools import islice

import pytest

from ownwords.training.batches import Batch, Batches, Prefetcher
from ownwords.training.settings import DataConfig
from small_shards import same, shards_of


class CountingBatches(Batches):
    """Batches that count how many were made, and can fail or be slow."""

    batches_made = 0
    fails_at: int | None = None
    pause_s = 0.0

    def batch(self, step: int) -> Batch:
        time.sleep(self.pause_s)
        if step == self.fails_at:
            raise OSError(f"no step {step}")
        self.batches_made += 1
        return super().batch(step)


def counting_batches() -> CountingBatches:
    return CountingBatches(shards_of([60, 40]), rows=2, context=8, seed=1, config=DataConfig())


def alive() -> bool:
    return any(thread.name == "batches" for thread in threading.enumerate())


def test_prefetched_batches_belong_to_their_steps() -> None:
    batches = counting_batches()
    with closing(Prefetcher(batches, 5, 25)) as prefetched:
        got = list(prefetched)
    assert [step for step, _ in got] == list(range(5, 25))
    assert all(same(batch, batches.batch(step)) for step, batch in got)
    assert not alive()


def test_batches_for_cuda_are_pinned_in_the_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    pinned: list[str] = []

    def pin(self: Batch) -> Batch:
        pinned.append(threading.current_thread().name)
        return self

    monkeypatch.setattr(Batch, "pinned", pin)
    for device, expected in (("cpu", []), ("cuda:0", ["batches"] * 3)):
        with closing(Prefetcher(counting_batches(), 0, 3, device=device)) as prefetched:
            assert len(list(prefetched)) == 3
        assert pinned == expected


def test_prefetching_is_limited_to_its_depth() -> None:
    batches = counting_batches()
    with closing(Prefetcher(batches, 0, depth=3)) as prefetched:
        for count in range(5):
            deadline = time.monotonic() + 5
            while batches.batches_made < count + 3 and time.monotonic() < deadline:
                time.sleep(0.001)
            time.sleep(0.02)
            assert batches.batches_made == count + 3
            assert next(prefetched)[0] == count
    assert not alive()


def test_an_error_in_the_thread_is_raised_at_its_step() -> None:
    batches = counting_batches()
    batches.fails_at = 3
    with closing(Prefetcher(batches, 0)) as prefetched:
        assert [step for step, _ in islice(prefetched, 3)] == [0, 1, 2]
        for _ in range(2):
            with pytest.raises(OSError, match="no step 3"):
                next(prefetched)
    assert not alive()


@pytest.mark.parametrize("pause_s", [0.0, 0.05])
def test_closing_ends_the_thread_in_any_state(pause_s: float) -> None:
    batches = counting_batches()
    batches.pause_s = pause_s
    for count in (0, 1):
        prefetched = Prefetcher(batches, 0, depth=2)
        assert len(list(islice(prefetched, count))) == count
        prefetched.close()
        prefetched.close()
        assert not alive()
        assert list(prefetched) == []


def test_closing_wakes_a_waiting_consumer() -> None:
    batches = counting_batches()
    batches.pause_s = 0.2
    prefetched = Prefetcher(batches, 0)
    got: list[object] = []
    waiting = threading.Thread(target=lambda: got.extend(prefetched))
    waiting.start()
    prefetched.close()
    waiting.join(5)
    assert not waiting.is_alive()
    assert got == []
