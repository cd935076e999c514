"""A plan made for another speed is made anew once, and nothing of the first is left.

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
    """What a plan is told of the machine, and what is so: both as times what is assumed."""

    def __init__(self, patch: pytest.MonkeyPatch, told: float, real: float) -> None:
        self.told, self.real, self.outsets = told, real, 0
        patch.setattr(throughput, "measure_speeds", self._measure)
        patch.setattr(run_plan, "ReplanMonitor", self._monitor)

    def _measure(self, device: Device, *_: object, **__: object) -> throughput.DeviceSpeeds:
        return throughput.scale_speeds(throughput.assumed_speeds(device), self.told)

    def _monitor(
        self, seconds: float, step_s: float, plan_anew: Callable[[float], bool], *, unseen: int
    ) -> ReplanMonitor:
        self.outsets += 1
        now = 0.0
        took_s = step_s * self.real / self.told

        class Played(ReplanMonitor):
            def step_done(self) -> None:
                nonlocal now
                now += took_s
                super().step_done()

        return Played(seconds, step_s, plan_anew, unseen=unseen, clock=lambda: now)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def made(
    folder: Path,
    notes: list[str] | None = None,
    shown: list[Plan] | None = None,
    **more: object,
) -> TrainedModel:
    def hear(event: Event) -> None:
        if event.kind == "note" and notes is not None:
            notes.append(event.message)

    given: dict[str, object] = {"progress": Progress(hear), "fixed": {**SHAPE, **FIXED}} | more
    request = TrainRequest(folder, 600, device="cpu", **given)  # type: ignore[arg-type]
    planned = plan_pretraining(TRAIN, HELD_OUT, request)
    if shown is not None:
        shown.append(planned.plan)
    return planned.train()


def weights(one: TrainedModel) -> bytes:
    return (one.folder / "model.safetensors").read_bytes()


def kept(one: TrainedModel) -> Plan:
    return read_plan((one.run.folder / PLAN).read_text("utf-8"))


def test_planned_while_busy_it_is_as_if_planned_on_a_quiet_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[Plan] = []
    notes: list[str] = []
    speeds = FakeSpeeds(monkeypatch, told=BUSY, real=QUIET)
    found = made(tmp_path / "busy", notes, shown)
    first, steps = shown[0].recipe.train.steps, found.plan.recipe.train.steps
    assert 2 * first < steps
    assert found.outcome.steps == steps
    assert found.plan.is_second
    assert kept(found) == found.plan
    assert f"steps = {steps}" in found.run.config.read_text()
    said = [note for note in notes if "faster than when this run was planned" in note]
    assert len(said) == 1
    assert f"{steps:,} steps instead of {first:,}" in said[0]
    assert speeds.outsets == 1  # the second plan is not watched

    FakeSpeeds(monkeypatch, told=QUIET, real=QUIET)
    usual = made(tmp_path / "quiet")
    assert not usual.plan.is_second
    assert usual.plan.recipe == found.plan.recipe
    assert weights(usual) == weights(found)


def test_planned_in_a_quiet_moment_it_is_cut_to_what_the_machine_can_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes: list[str] = []
    FakeSpeeds(monkeypatch, told=QUIET, real=BUSY)
    found = made(tmp_path, notes)
    assert found.plan.is_second
    assert found.outcome.steps == found.plan.recipe.train.steps < 40
    assert any("slower than when this run was planned" in note for note in notes)


def test_killed_at_any_moment_of_it_the_same_comes_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    FakeSpeeds(monkeypatch, told=BUSY, real=QUIET)
    undisturbed = made(tmp_path / "whole")

    def die() -> NoReturn:
        raise PowerCut

    with monkeypatch.context() as patch:  # the old run is gone, the new plan is not there yet
        store = RunPlan._store

        def store_first(run_plan: RunPlan, plan: Plan) -> Plan:
            return die() if plan.is_second else store(run_plan, plan)

        patch.setattr(RunPlan, "_store", store_first)
        with pytest.raises(PowerCut):
            made(tmp_path / "parts")

    noted: list[str] = []

    def off(event: Event) -> None:
        noted.extend([event.message] if "with a new plan" in event.message else [])
        if noted and "validation_bits_per_byte" in event.values:
            raise PowerCut

    with pytest.raises(PowerCut):  # in the midst of the second
        made(tmp_path / "parts", progress=Progress(off))

    speeds = FakeSpeeds(monkeypatch, told=QUIET, real=BUSY)  # nobody asks any more
    again = made(tmp_path / "parts")
    assert speeds.outsets == 0
    assert again.plan.recipe == undisturbed.plan.recipe
    assert weights(again) == weights(undisturbed)


def test_what_the_user_has_set_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    speeds = FakeSpeeds(monkeypatch, told=BUSY, real=QUIET)
    fixed = {**SHAPE, **FIXED, "train.batch_size": 4, "optim.muon_lr": 0.011}
    found = made(tmp_path / "one", fixed=fixed)
    assert found.plan.is_second
    assert found.plan.recipe.train.batch_size == 4
    assert found.plan.recipe.optim.muon_lr == 0.011
    # Whose steps are set has nothing to be planned anew.
    found = made(tmp_path / "two", fixed={**fixed, "train.steps": 24})
    assert found.outcome.steps == 24
    assert speeds.outsets == 1


def test_as_much_of_the_text_in_another_time_is_no_other_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    speeds = FakeSpeeds(monkeypatch, told=QUIET, real=QUIET / 3)
    found = made(tmp_path)  # with either there is time to read the text as often as is any good
    assert speeds.outsets == 1
    assert not found.plan.is_second


@pytest.mark.parametrize("by_lora", [False, True])
def test_a_base_is_tuned_from_where_it_was(
    by_lora: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    FakeSpeeds(monkeypatch, told=QUIET, real=QUIET)
    base = made(tmp_path / "base", fixed={**SHAPE, **FIXED, "train.steps": 10}).folder

    def tuned(folder: Path) -> TrainedModel:
        fixed = {**FIXED, "data.replay": 0.0}
        work = TrainRequest(folder, 600, fixed, device="cpu")
        return plan_finetuning(base, OTHERS[:30], OTHERS[30:], work, by_lora=by_lora).train()

    usual = tuned(tmp_path / "quiet")
    FakeSpeeds(monkeypatch, told=BUSY, real=QUIET)
    found = tuned(tmp_path / "busy")
    assert found.plan.is_second
    assert found.plan.recipe == usual.plan.recipe
    assert weights(found) == weights(usual)


def test_steps_that_are_set_have_a_deadline_only_where_one_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[float | None] = []

    def stop(job: TrainJob) -> None:
        seen.append(job.seconds)
        raise PowerCut

    FakeSpeeds(monkeypatch, told=QUIET, real=QUIET)
    monkeypatch.setattr(session, "run_training_loop", stop)
    for in_time in (False, True):
        with pytest.raises(PowerCut):
            made(tmp_path, fixed={**SHAPE, **FIXED, "train.steps": 24}, ends_in_time=in_time)
    assert seen[0] is None
    assert seen[1] is not None
    assert 500 < seen[1] < 600
