"""A run that would take too long is shortened, decays to the end, and resumes bit for bit."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("torch")

from ownwords.core.progress import Progress
from ownwords.training import lr_schedule
from ownwords.training.deadline import Deadline, ShortenedRun, points, position
from ownwords.training.loop import TrainJob, train
from ownwords.training.run_record import RunRecord
from ownwords.training.settings import LoopConfig, ScheduleConfig
from training_jobs import LOOP, checksum, job, weights_of

LONG = replace(LOOP, steps=24, evaluations=4, ema_half_life=0.2, dropout=0.1)


class Machine:
    """Steps and evaluations of given durations, on a clock of their own."""

    def __init__(self, seconds: float) -> None:
        self.now = 0.0
        self.deadline = Deadline(seconds, lambda: self.now)

    def run(self, planned: int, step_s: list[float], evaluations: int = 0) -> tuple[list[int], int]:
        """The planned lengths and the steps done, given the time of each step."""
        step, steps, reports = 0, planned, list[int]()
        reading = {round(k * planned / evaluations) for k in range(1, evaluations + 1)}
        while step < steps:
            rate = (steps - step) / steps
            pauses = sum(point > step for point in reading)
            if fitting := self.deadline.max_steps(step, steps, self.now, pauses, rate):
                reports.append(fitting)
                steps = fitting
                reading = {round(step + (p - step) * (steps - step) / planned) for p in reading}
            self.now += step_s[step]
            self.deadline.step_done()
            step += 1
            if step in reading:
                self.now += 2.0
                self.deadline.pause_done(evaluated=True)
        return reports, step


@pytest.mark.parametrize("since", [0, 200, 500, 800])
@pytest.mark.parametrize("times", [1.3, 2.0, 5.0])
def test_it_ends_in_time_whenever_the_machine_gets_slower(since: int, times: float) -> None:
    machine = Machine(100.0)
    reports, _ = machine.run(1000, [0.1] * since + [0.1 * times] * (1000 - since))
    assert reports
    assert machine.now < 112
    assert machine.now > 94


def test_a_machine_as_fast_as_planned_changes_nothing() -> None:
    assert Machine(100.0).run(970, [0.1] * 970)[0] == []
    assert Machine(100.0).run(900, [0.1] * 900, evaluations=4)[0] == []
    assert Machine(math.inf).run(300, [9.0] * 300) == ([], 300)


def test_compilation_does_not_count_as_slowness() -> None:
    assert Machine(100.0).run(700, [25.0] + [0.1] * 699) == ([], 700)


def test_a_slow_start_changes_nothing() -> None:
    assert Machine(100.0).run(900, [0.3] * 27 + [0.1] * 873)[0] == []


def test_reports_are_rare() -> None:
    machine = Machine(100.0)
    reports, _ = machine.run(2000, [0.05 * (1 + 0.002 * i) for i in range(2000)])
    assert 1 <= len(reports) <= 4
    assert reports == sorted(reports, reverse=True)


def test_the_rate_decays_even_after_the_deadline() -> None:
    machine = Machine(100.0)
    reports, step = machine.run(1000, [0.1] * 500 + [60.0] + [0.1] * 499)  # asleep for a minute
    assert reports
    assert step >= 520


cuts = st.tuples(st.integers(2, 500), st.data())


@given(cuts)
def test_the_shortened_schedule_is_complete(lengths: tuple[int, st.DataObject]) -> None:
    planned, data = lengths
    step = data.draw(st.integers(0, planned - 2))
    steps = data.draw(st.integers(step + 1, planned - 1))
    cut = ShortenedRun(step, float(step), steps)
    config = ScheduleConfig(warmup_fraction=0.02, decay_fraction=0.6)
    places = [position(s, planned, cut) for s in range(steps + 1)]
    assert places == sorted(places)
    assert places[: step + 1] == list(range(step + 1))
    assert places[-1] == pytest.approx(planned)
    assert all(lr_schedule.lr_scale(step, planned, config) > 0 for step in places[:-1])
    count = data.draw(st.integers(0, 20))
    steps_found = points(planned, count, cut)
    assert not count or max(steps_found) == steps
    assert all(0 < point <= steps for point in steps_found)
    assert points(planned, count, None) == {
        round(k * planned / count) for k in range(1, count + 1)
    } - {0}


def shortening(monkeypatch: pytest.MonkeyPatch, at: int, to: int) -> None:
    """Shorten the run at a step to a length, once."""

    def fitting(_: Deadline, step: int, steps: int, *__: float) -> int:
        return to if step == at and steps > to else 0

    monkeypatch.setattr(Deadline, "max_steps", fitting)


def parts(job: TrainJob) -> list[str]:
    saved = job.run.checkpoints.load(max(job.run.checkpoints.steps()))
    return [checksum(tensors) for _, tensors in sorted(saved.groups.items())]


def test_a_shortened_run_is_resumed_to_the_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shortening(monkeypatch, at=8, to=15)
    notes: list[str] = []
    rates: list[float] = []

    def hear(event: object) -> None:
        notes.append(getattr(event, "message", ""))
        rates.extend([v["rate"]] if "rate" in (v := getattr(event, "values", {})) else [])

    uninterrupted = job(tmp_path, LONG, key="whole", seconds=60.0, progress=Progress(hear))
    outcome = train(uninterrupted)
    assert (outcome.steps, outcome.shortened, outcome.stopped) == (15, True, "done")
    assert sum("15 steps instead of 24" in note for note in notes) == 1
    assert [evaluation.step for evaluation in outcome.evaluations] == [6, 10, 12, 15]
    assert rates[-1] < 0.3 * max(rates)

    # Killed right after the decision, then gone on with where the clock would say otherwise.
    class PowerCut(Exception):  # noqa: N818
        pass

    decided: list[int] = []

    def interrupt(event: object) -> None:
        if decided and "validation_bits_per_byte" in getattr(event, "values", {}):
            raise PowerCut
        decided.extend([1] if "steps instead" in getattr(event, "message", "") else [])

    with pytest.raises(PowerCut):
        train(job(tmp_path, LONG, key="parts", seconds=60.0, progress=Progress(interrupt)))
    monkeypatch.setattr(Deadline, "max_steps", lambda *_: 0)
    in_parts = job(tmp_path, LONG, key="parts", seconds=None)
    resumed = train(in_parts)
    assert resumed.steps == 15
    assert weights_of(in_parts) == weights_of(uninterrupted)
    assert parts(in_parts) == parts(uninterrupted)
    assert resumed.evaluations == outcome.evaluations


def test_with_enough_time_nothing_changes(tmp_path: Path) -> None:
    ones = [job(tmp_path, LONG, key=f"{s}", seconds=s) for s in (None, 1e6)]
    outcomes = [train(run) for run in ones]
    assert [outcome.shortened for outcome in outcomes] == [False, False]
    assert weights_of(ones[0]) == weights_of(ones[1])
    assert parts(ones[0]) == parts(ones[1])


def test_a_real_run_ends_in_its_time(tmp_path: Path) -> None:
    loop = LoopConfig(
        steps=100_000, batch_size=2, sequence_length=16, evaluations=2, checkpoint_every_s=1e9
    )
    timed = job(tmp_path, loop, seconds=1.5)
    outcome = train(timed)
    assert outcome.shortened
    assert outcome.steps < loop.steps


def test_a_record_is_restored_with_its_shortened_schedule() -> None:
    assert RunRecord.restored(RunRecord(step=3).state()).steps(24) == 24
    cut = RunRecord(step=9, shortened=ShortenedRun(8, 8.0, 15))
    assert RunRecord.restored(cut.state()).shortened == cut.shortened
