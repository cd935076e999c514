from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from ownwords.core.progress import Event
from ownwords.training.run import MAX_POINTS, RunHistory


def metric(
    step: int, steps_done: int | None = None, total: int = 40, time: float = 0.0, **values: float
) -> Event:
    steps_done = step if steps_done is None else steps_done
    figures = {"step": float(step), **values}
    return Event(time, "train", "metric", steps_done, total, "steps", values=figures)


def history_of(*events: Event) -> RunHistory:
    history = RunHistory()
    for event in events:
        history.add(event)
    return history


def test_a_history_has_steps_evaluations_and_the_best() -> None:
    history = history_of(
        Event(100.0, "train", "start", total=40),
        metric(10, time=110.0, bits_per_byte=2.0, loss=1.4, tokens_per_s=500.0),
        metric(10, time=111.0, validation_bits_per_byte=2.1),
        metric(20, time=120.0, bits_per_byte=1.8, loss=1.2),
        metric(20, time=121.0, validation_bits_per_byte=2.2),
        Event(122.0, "train", "note", message="sample: A text."),
    )
    assert (history.step, history.total, history.is_ended) == (20, 40, False)
    assert [point[:2] for point in history.points] == [(10, 2.0), (20, 1.8)]
    assert history.best is not None
    assert (history.best.step, history.best.bits_per_byte) == (10, 2.1)
    assert history.latest["tokens_per_s"] == 500.0
    assert history.sample == "A text."
    texts = [text for _, text in history.notes]
    assert texts[0] == "Training starts: 40 steps to go."
    assert "Step 10: 2.100 bits per byte on held-out posts." in texts


def test_the_remaining_time_is_what_the_run_last_reported() -> None:
    history = history_of(
        Event(0.0, "train", "start", total=100),
        replace(metric(50, total=100, time=50.0, bits_per_byte=1.0), remaining_s=30.0),
        Event(51.0, "train", "note", message="A note."),
    )
    assert history.remaining_s(50.0) == 30.0
    assert history.remaining_s(61.0) == 20.0
    history.add(Event(62.0, "train", "start", total=50))  # resumed, and no step was timed yet
    assert history.remaining_s(62.0) is None


def test_a_resumed_run_counts_its_steps_from_the_beginning() -> None:
    alone = history_of(
        Event(0.0, "train", "start", total=40), metric(61, steps_done=1, bits_per_byte=2.0)
    )
    assert (alone.step, alone.total) == (61, 100)
    alone.add(metric(70, steps_done=10, bits_per_byte=2.0))
    assert (alone.step, alone.total) == (70, 100)
    both = history_of(
        Event(0.0, "train", "start", total=40),
        metric(10, bits_per_byte=2.0),
        Event(5.0, "train", "done", 10, 40, message="stopped"),
        Event(9.0, "train", "start", total=30),
        metric(15, steps_done=5, total=30, bits_per_byte=1.9),
    )
    assert (both.step, both.total, both.is_ended) == (15, 40, False)
    assert [point.step for point in both.points] == [10, 15]


def test_rolled_back_steps_are_removed_from_the_curve() -> None:
    history = history_of(
        Event(0.0, "train", "start", total=40),
        *(metric(n, bits_per_byte=2.0) for n in (5, 10, 15, 20)),
        metric(20, validation_bits_per_byte=2.0),
        metric(12, steps_done=21, bits_per_byte=2.0),
    )
    assert [point.step for point in history.points] == [5, 10, 12]
    assert history.evaluations == []
    assert (history.step, history.total) == (12, 40)


@settings(max_examples=20)
@given(st.integers(1, 2000))
def test_a_curve_is_never_longer_than_a_screen_and_ends_where_the_run_is(evaluations: int) -> None:
    history = history_of(
        *(metric(n, total=5000, bits_per_byte=1.0 + 1 / n) for n in range(1, evaluations + 1))
    )
    steps = [point.step for point in history.points]
    assert len(steps) <= MAX_POINTS
    assert steps[-1] == evaluations
    assert all(a < b for a, b in pairwise(steps))
    assert min(evaluations, MAX_POINTS // 2) <= len(steps)
