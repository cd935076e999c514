"""What the terminal shows of a training, by its events."""

from ownwords.core.progress import Event
from ownwords.training.run import RunHistory


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
    assert (history.step, history.total) == (20, 40)
    assert 1.8 < history.smooth < 2.0
    assert history.best is not None
    assert (history.best.step, history.best.bits_per_byte) == (10, 2.1)
    assert history.latest["tokens_per_s"] == 500.0
    assert history.sample == "A text."


def test_a_resumed_run_counts_its_steps_from_the_beginning() -> None:
    alone = history_of(
        Event(0.0, "train", "start", total=40), metric(61, steps_done=1, bits_per_byte=2.0)
    )
    assert (alone.step, alone.total) == (61, 100)
    alone.add(metric(70, steps_done=10, bits_per_byte=2.0))
    assert (alone.step, alone.total) == (70, 100)


def test_the_evaluations_of_rolled_back_steps_are_forgotten() -> None:
    history = history_of(
        Event(0.0, "train", "start", total=40),
        *(metric(n, bits_per_byte=2.0) for n in (5, 10, 15, 20)),
        metric(20, validation_bits_per_byte=2.0),
        metric(12, steps_done=21, bits_per_byte=2.0),
    )
    assert history.evaluations == []
    assert (history.step, history.total) == (12, 40)
