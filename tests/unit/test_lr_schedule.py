"""The rate of a run by its steps, and by a clock that runs faster and slower."""

from collections.abc import Sequence
from dataclasses import asdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ownwords.core.validation import decode
from ownwords.training.optim import lr_scale
from ownwords.training.run import Evaluation, RunRecord
from ownwords.training.settings import ScheduleConfig


def shape(steps: int, **settings: float) -> list[float]:
    config = ScheduleConfig(**settings)
    return [lr_scale(step, steps, step / steps, config) for step in range(steps)]


def test_up_flat_down() -> None:
    scales = shape(100, warmup_fraction=0.1, decay_fraction=0.5)
    assert scales[:10] == pytest.approx([(i + 1) / 10 for i in range(10)])
    assert scales[10:51] == [1.0] * 41
    assert scales[50:] == pytest.approx([1 - i / 50 for i in range(50)])


@pytest.mark.parametrize("steps", [1, 7, 1000])
@pytest.mark.parametrize(
    ("warmup", "decay"), [(0.01, 0.6), (0.5, 0.5), (0.0, 1.0), (0.0, 0.0), (1.0, 0.0)]
)
def test_never_zero_never_above_the_peak_and_one_summit(
    steps: int, warmup: float, decay: float
) -> None:
    scales = shape(steps, warmup_fraction=warmup, decay_fraction=decay)
    assert all(0 < scale <= 1 for scale in scales)
    summit = scales.index(max(scales))
    assert scales[: summit + 1] == sorted(scales[: summit + 1])
    assert scales[summit:] == sorted(scales[summit:], reverse=True)


# --- by the clock ---------------------------------------------------------------------------------

SCHEDULE = ScheduleConfig(warmup_fraction=0.02, decay_fraction=0.6)


def by_the_clock(
    step_s: Sequence[float], planned: int, max_steps: int, resumed_at: Sequence[int] = ()
) -> tuple[list[float], list[float], float]:
    """The rate and the progress at each step of a run of 100 seconds, and when it ends.

    The last of `step_s` repeats. A resumed run goes on from what a checkpoint holds.
    """
    record, now = RunRecord(), 0.0
    rates, places = list[float](), list[float]()
    while True:
        if record.step in resumed_at:
            record = decode(RunRecord, asdict(record))
        record.update_progress(max_steps, now / 100)
        if record.is_over:
            return rates, places, now
        places.append(record.progress)
        rates.append(lr_scale(record.step, planned, record.progress, SCHEDULE))
        now += step_s[min(record.step, len(step_s) - 1)]
        record.step += 1


def test_steps_longer_than_the_time_are_counted_as_left() -> None:
    record = RunRecord()
    for left in range(10, 0, -1):  # each takes all of the time
        record.update_progress(400, float(record.step))
        assert record.fewest_steps_left == left
        record.step += 1
    record.update_progress(400, float(record.step))
    assert record.is_over and record.fewest_steps_left == 0


@given(
    st.lists(st.floats(0.02, 4.0), min_size=1, max_size=200),
    st.integers(20, 400),
    st.integers(1, 4),
    st.lists(st.integers(1, 200), max_size=4),
)
def test_once_in_decay_no_rate_exceeds_the_one_before(
    step_s: list[float], planned: int, times: int, resumed_at: list[int]
) -> None:
    rates, places, _ = by_the_clock(step_s, planned, times * planned, resumed_at)
    assert all(0 < rate <= 1 for rate in rates)
    summit = rates.index(max(rates))
    assert rates[: summit + 1] == sorted(rates[: summit + 1])
    assert rates[summit:] == sorted(rates[summit:], reverse=True)
    assert places == sorted(places)
    # A step falls as far as its time, or its share of the steps, lets it, and no further.
    for step in range(summit, len(rates) - 1):
        moved = max(0.1, 1 / (times * planned))
        passed = min(moved, places[step + 1] - places[step])
        assert rates[step] - rates[step + 1] <= passed / SCHEDULE.decay_fraction + 1e-9
    assert by_the_clock(step_s, planned, times * planned) == by_the_clock(
        step_s, planned, times * planned, resumed_at
    )


@pytest.mark.parametrize("since", [0, 200, 500, 800])
@pytest.mark.parametrize("times", [0.5, 1.3, 2.0, 5.0])
def test_a_run_fills_its_time_whatever_becomes_of_the_machine(since: int, times: float) -> None:
    rates, _, ended = by_the_clock([0.1] * since + [0.1 * times], planned=1000, max_steps=4000)
    assert 99.9 < ended < 100.1 + 0.1 * times
    assert rates[-1] < 0.02


def test_a_run_of_which_more_steps_do_not_help_ends_with_them() -> None:
    rates, places, ended = by_the_clock([0.02], planned=1000, max_steps=1000)
    assert len(rates) == 1000
    assert ended == pytest.approx(20)
    assert places == [step / 1000 for step in range(1000)]


def test_the_rate_decays_after_the_machine_was_asleep() -> None:
    rates, _, _ = by_the_clock([0.1] * 300 + [3600.0, 0.1], planned=1000, max_steps=4000)
    assert rates[300] == 1.0
    assert len(rates[301:]) >= 6
    assert rates[-1] < 0.2


def test_a_first_step_that_compiles_does_not_use_up_the_warmup() -> None:
    rates, _, _ = by_the_clock([5.0, 0.1], planned=1000, max_steps=4000)
    assert rates[:20] == pytest.approx([(i + 1) / 20 for i in range(20)])


@given(st.integers(1, 60), st.integers(1, 30), st.lists(st.floats(0.02, 9.0), min_size=1))
def test_evaluations_are_evenly_spaced_and_one_is_at_the_end(
    steps: int, count: int, step_s: list[float]
) -> None:
    for seconds in (None, 20.0):
        record, now, seen = RunRecord(), 0.0, list[float]()
        while not record.is_over:
            record.update_progress(steps, now / seconds if seconds else 0.0)
            if record.is_evaluation_due(count):
                seen.append(record.progress)
                record.evaluations.append(Evaluation(record.step, None, progress=record.progress))
            now += step_s[record.step % len(step_s)]
            record.step += 1
        assert seen[-1] == record.progress
        assert len(seen) <= count
        if seconds is None:
            assert len(seen) == min(count, steps)
            assert (
                all(place * count + 1e-6 >= n for n, place in enumerate(seen, 1)) or count > steps
            )


def test_the_estimated_number_of_steps_turns_from_the_plan_to_the_pace() -> None:
    record = RunRecord()
    assert record.total_steps(1000) == 1000
    record = RunRecord(step=200, progress=0.4)
    assert 500 < record.total_steps(1000) < 560
    for step in (0, 1, 333, 999, 1000):  # exact where the steps are the measure
        assert RunRecord(step=step, progress=step / 1000).total_steps(1000) == 1000
