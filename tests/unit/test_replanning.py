"""A plan made for another speed is revised once, and nothing of the first remains.

Speeds are played: what is measured, and a clock on which each step takes as long as it is told to.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NoReturn

import pytest

pytest.importorskip("torch")

import families  # noqa: F401 - one thread is enough for so little
from ownwords.core.progress import Event, Progress
from ownwords.training import run_plan, session, throughput
from ownwords.training.device import Device
from ownwords.training.job import TrainJob
from ownwords.training.plan import Plan, read_plan
from ownwords.training.recipes import TrainedModel, TrainRequest, plan_finetuning, plan_pretraining
from ownwords.training.replan import ReplanMonitor
from ownwords.training.run_plan import PLAN, RunPlan
from ownwords.training.shards import TrainingText

SHAPE: Mapping[str, object] = {"model.parameters": 40_000, "model.context_length": 32}
FIXED: Mapping[str, object] = {
    "train.batch_size": 16,
    "train.sequence_length": 32,
    "train.evaluations": 2,
    "train.precision": "float32",
    "train.memorised_limit": 0.0,
    "train.patience": 0,
}
TRAIN = [
    TrainingText(f"t{i}", f"The cat number {i} sat on the mat and sang. " * 8) for i in range(7)
]
HELD_OUT = [
    TrainingText(f"v{i}", f"The cat number {i} sat on the mat and slept. " * 4) for i in (40, 41)
]
OTHERS = [
    TrainingText(f"o{i}", f"Zwei mal {i} ist nicht {i}, sagt der Hund. " * 8) for i in range(32)
]
# Times what is assumed: there is time for all that is any good, or far too little.
QUIET, BUSY = 200.0, 7500.0


class PowerCut(Exception):  # noqa: N818
    pass


class FakeSpeeds:
    """The speed a plan assumes and the real one, both as multiples of the default."""

    def __init__(self, patch: pytest.MonkeyPatch, measured: float, real: float) -> None:
        self.measured, self.real, self.monitors = measured, real, 0
        patch.setattr(throughput, "measure_speeds", self._measure)
        patch.setattr(run_plan, "ReplanMonitor", self._monitor)

    def _measure(self, device: Device, *_: object, **__: object) -> throughput.DeviceSpeeds:
        return throughput.scale_speeds(throughput.assumed_speeds(device), self.measured)

    def _monitor(
        self, seconds: float, step_s: float, plan_anew: Callable[[float], bool], *, unseen: int
    ) -> ReplanMonitor:
        self.monitors += 1
        now = 0.0
        took_s = step_s * self.real / self.measured

        class Played(ReplanMonitor):
            def step_done(self) -> None:
                nonlocal now
                now += took_s
                super().step_done()

        return Played(seconds, step_s, plan_anew, unseen=unseen, clock=lambda: now)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def train_run(
    folder: Path,
    notes: list[str] | None = None,
    plans: list[Plan] | None = None,
    **more: object,
) -> TrainedModel:
    def hear(event: Event) -> None:
        if event.kind == "note" and notes is not None:
            notes.append(event.message)

    options: dict[str, object] = {"progress": Progress(hear), "fixed": {**SHAPE, **FIXED}} | more
    request = TrainRequest(folder, 600, device="cpu", **options)  # type: ignore[arg-type]
    planned = plan_pretraining(TRAIN, HELD_OUT, request)
    if plans is not None:
        plans.append(planned.plan)
    return planned.train()


def weights(trained: TrainedModel) -> bytes:
    return (trained.folder / "model.safetensors").read_bytes()


def saved_plan(trained: TrainedModel) -> Plan:
    return read_plan((trained.run.folder / PLAN).read_text("utf-8"))


def test_a_plan_made_on_a_busy_machine_ends_as_on_an_idle_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans: list[Plan] = []
    notes: list[str] = []
    speeds = FakeSpeeds(monkeypatch, measured=BUSY, real=QUIET)
    trained = train_run(tmp_path / "busy", notes, plans)
    first, steps = plans[0].recipe.train.steps, trained.plan.recipe.train.steps
    assert 2 * first < steps
    assert trained.outcome.steps == steps
    assert trained.plan.is_second
    assert saved_plan(trained) == trained.plan
    assert f"steps = {steps}" in trained.run.config.read_text()
    replan_notes = [note for note in notes if "faster than when this run was planned" in note]
    assert len(replan_notes) == 1
    assert f"{steps:,} steps instead of {first:,}" in replan_notes[0]
    assert speeds.monitors == 1  # the second plan is not watched

    FakeSpeeds(monkeypatch, measured=QUIET, real=QUIET)
    quiet = train_run(tmp_path / "quiet")
    assert not quiet.plan.is_second
    assert quiet.plan.recipe == trained.plan.recipe
    assert weights(quiet) == weights(trained)


def test_a_plan_made_on_an_idle_machine_is_cut_to_the_real_speed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes: list[str] = []
    FakeSpeeds(monkeypatch, measured=QUIET, real=BUSY)
    trained = train_run(tmp_path, notes)
    assert trained.plan.is_second
    assert trained.outcome.steps == trained.plan.recipe.train.steps < 40
    assert any("slower than when this run was planned" in note for note in notes)


def test_a_kill_during_replanning_does_not_change_the_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    FakeSpeeds(monkeypatch, measured=BUSY, real=QUIET)
    undisturbed = train_run(tmp_path / "whole")

    def cut_power() -> NoReturn:
        raise PowerCut

    with monkeypatch.context() as patch:  # the old run is gone, the new plan is not there yet
        store = RunPlan._store

        def store_first(run_plan: RunPlan, plan: Plan) -> Plan:
            return cut_power() if plan.is_second else store(run_plan, plan)

        patch.setattr(RunPlan, "_store", store_first)
        with pytest.raises(PowerCut):
            train_run(tmp_path / "parts")

    replan_notes: list[str] = []

    def cut_power_in_second(event: Event) -> None:
        replan_notes.extend([event.message] if "with a new plan" in event.message else [])
        if replan_notes and "validation_bits_per_byte" in event.values:
            raise PowerCut

    with pytest.raises(PowerCut):  # in the midst of the second
        train_run(tmp_path / "parts", progress=Progress(cut_power_in_second))

    speeds = FakeSpeeds(monkeypatch, measured=QUIET, real=BUSY)  # nobody asks any more
    resumed = train_run(tmp_path / "parts")
    assert speeds.monitors == 0
    assert resumed.plan.recipe == undisturbed.plan.recipe
    assert weights(resumed) == weights(undisturbed)


def test_user_settings_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    speeds = FakeSpeeds(monkeypatch, measured=BUSY, real=QUIET)
    fixed = {**SHAPE, **FIXED, "train.batch_size": 4, "optim.muon_lr": 0.011}
    trained = train_run(tmp_path / "one", fixed=fixed)
    assert trained.plan.is_second
    assert trained.plan.recipe.train.batch_size == 4
    assert trained.plan.recipe.optim.muon_lr == 0.011
    # Whose steps are set has nothing to be planned anew.
    trained = train_run(tmp_path / "two", fixed={**fixed, "train.steps": 24})
    assert trained.outcome.steps == 24
    assert speeds.monitors == 1


def test_the_same_amount_of_text_in_another_time_keeps_the_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    speeds = FakeSpeeds(monkeypatch, measured=QUIET, real=QUIET / 3)
    trained = train_run(
        tmp_path
    )  # with either there is time to read the text as often as is any good
    assert speeds.monitors == 1
    assert not trained.plan.is_second


@pytest.mark.parametrize("by_lora", [False, True])
def test_a_base_is_tuned_from_where_it_was(
    by_lora: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    FakeSpeeds(monkeypatch, measured=QUIET, real=QUIET)
    base = train_run(tmp_path / "base", fixed={**SHAPE, **FIXED, "train.steps": 10}).folder

    def tuned(folder: Path) -> TrainedModel:
        fixed = {**FIXED, "data.replay": 0.0}
        work = TrainRequest(folder, 600, fixed, device="cpu")
        return plan_finetuning(base, OTHERS[:30], OTHERS[30:], work, by_lora=by_lora).train()

    quiet = tuned(tmp_path / "quiet")
    FakeSpeeds(monkeypatch, measured=BUSY, real=QUIET)
    trained = tuned(tmp_path / "busy")
    assert trained.plan.is_second
    assert trained.plan.recipe == quiet.plan.recipe
    assert weights(trained) == weights(quiet)


def test_steps_that_are_set_have_a_deadline_only_where_one_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deadlines: list[float | None] = []

    def stop(job: TrainJob) -> None:
        deadlines.append(job.seconds)
        raise PowerCut

    FakeSpeeds(monkeypatch, measured=QUIET, real=QUIET)
    monkeypatch.setattr(session, "run_training_loop", stop)
    for in_time in (False, True):
        with pytest.raises(PowerCut):
            train_run(tmp_path, fixed={**SHAPE, **FIXED, "train.steps": 24}, ends_in_time=in_time)
    assert deadlines[0] is None
    assert deadlines[1] is not None
    assert 500 < deadlines[1] < 600
