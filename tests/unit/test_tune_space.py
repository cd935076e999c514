import tomllib
from dataclasses import replace

import pytest

pytest.importorskip("torch")

from ownwords.core.config import resolve
from ownwords.models.configs.llama import Qwen3Config, config_for_budget
from ownwords.training.plan import BaseModelInfo, Plan, PlanInputs
from ownwords.training.plan_constants import PLAN_CONSTANTS
from ownwords.training.planner import make_plan
from ownwords.training.settings import Recipe
from ownwords.training.step_time import DeviceSpeeds, StepTimeModel
from ownwords.tune.search import search_space, settings_toml

SPEEDS = DeviceSpeeds("cpu", {"float32": StepTimeModel(1e-3, 1.2e11)})
FACTS = PlanInputs(
    text_bytes=268_000,
    documents=31,
    speeds=SPEEDS,
    memory_bytes=8 << 30,
    validation_bytes=30_000,
    tokens=90_000,
    vocabulary=2048,
)
BASE = BaseModelInfo(config_for_budget(8_000_000, 8192, 256), 8_000_000, 1.6, "muon", 0.02, 5e-3)
TUNED = replace(FACTS, base=BASE, replay_bytes=300_000, tokens=70_000, vocabulary=8192)


def from_nothing(**fixed: object) -> Plan:
    return make_plan(FACTS, 120.0, fixed)


def from_a_base(seconds: float = 200.0, **fixed: object) -> Plan:
    return make_plan(TUNED, seconds, fixed)


def replanned(of: Plan, facts: PlanInputs, seconds: float, settings: dict[str, object]) -> Plan:
    assert of
    return make_plan(facts, seconds, settings)


def test_the_plan_s_own_values_change_nothing() -> None:
    for plan, has_base in ((from_nothing(), False), (from_a_base(), True)):
        ranges = search_space(plan, {}, 200.0, has_base=has_base)
        assert ranges.settings({axis.name: axis.plan for axis in ranges.axes}) == {}


def test_few_things_are_searched_within_four_times() -> None:
    ranges = search_space(from_nothing(), {}, 120.0, has_base=False)
    assert [axis.name for axis in ranges.axes] == ["rate", "memory", "dropout", "size"]
    for axis in ranges.axes:
        if axis.is_ratio:
            assert (axis.low, axis.high, axis.plan) == (0.25, 4.0, 1.0)
    ranges = search_space(from_a_base(), {}, 200.0, has_base=True)
    assert [axis.name for axis in ranges.axes] == ["rate", "dropout", "replay", "readings"]
    bare = make_plan(replace(TUNED, replay_bytes=0), 200.0, {})
    names = [axis.name for axis in search_space(bare, {}, 200.0, has_base=True).axes]
    assert names == ["rate", "dropout", "readings"]


def test_user_settings_are_not_searched() -> None:
    fixed = {"optim.weight_decay": 0.3, "model.parameters": 1_000_000, "train.seed": 7}
    ranges = search_space(make_plan(FACTS, 120.0, fixed), fixed, 120.0, has_base=False)
    assert [axis.name for axis in ranges.axes] == ["rate", "dropout"]
    values = {"rate": 2.0, "dropout": 0.2}
    assert not {"optim.weight_decay", "model.parameters"} & ranges.settings(values).keys()


def test_a_faster_rate_forgets_as_much_in_a_reading() -> None:
    """Rate times decay is the share forgotten per step: only `memory` changes it."""
    plan = from_nothing()
    ranges = search_space(plan, {}, 120.0, has_base=False)
    optim = plan.recipe.optim
    values = {"rate": 1.6, "memory": 1.0, "dropout": plan.recipe.train.dropout, "size": 1.0}
    settings = ranges.settings(values)
    assert settings["optim.muon_lr"] == pytest.approx(1.6 * optim.muon_lr, rel=0.01)
    assert settings["optim.learning_rate"] == pytest.approx(1.6 * optim.learning_rate, rel=0.01)
    rate, decay = settings["optim.muon_lr"], settings["optim.weight_decay"]
    assert isinstance(rate, float) and isinstance(decay, float)
    assert rate * decay == pytest.approx(optim.muon_lr * optim.weight_decay, rel=0.02)
    longer = ranges.settings({**values, "rate": 1.0, "memory": 2.0})
    assert longer == {"optim.weight_decay": pytest.approx(optim.weight_decay / 2, rel=0.01)}


def test_another_size_uses_the_learning_rate_planned_for_it() -> None:
    plan = from_nothing()
    ranges = search_space(plan, {}, 120.0, has_base=False)
    settings = ranges.settings({"rate": 2.0, "memory": 1.0, "dropout": 0.1, "size": 0.25})
    wanted = plan.recipe.model.parameters // 4
    assert settings["model.parameters"] == pytest.approx(wanted, rel=0.01)
    own = replanned(plan, FACTS, 120.0, {"model.parameters": settings["model.parameters"]})
    shape = config_for_budget(own.recipe.model.parameters, 2048, own.recipe.model.context_length)
    assert isinstance(shape, Qwen3Config)
    assert own.recipe.optim.learning_rate == pytest.approx(
        PLAN_CONSTANTS.embedding_lr(shape.width), rel=0.01
    )
    assert settings["optim.learning_rate"] == pytest.approx(
        2 * own.recipe.optim.learning_rate, rel=0.02
    )


def test_epochs_are_of_the_author_s_text_and_fit_the_time() -> None:
    plan = from_a_base()
    ranges = search_space(plan, {}, 200.0, has_base=True)
    plain = {axis.name: axis.plan for axis in ranges.axes}
    for times in (0.25, 0.5):
        settings = ranges.settings({**plain, "readings": times})
        planned = replanned(plan, TUNED, 200.0, settings)
        assert planned.expected.epochs == pytest.approx(times * plan.expected.epochs, rel=0.03)
        settings = ranges.settings({**plain, "readings": times, "replay": 0.6})
        planned = replanned(plan, TUNED, 200.0, settings)
        assert planned.expected.epochs == pytest.approx(times * plan.expected.epochs, rel=0.03)
    most = next(axis for axis in ranges.axes if axis.name == "readings").high
    longest = ranges.settings({**plain, "readings": most, "replay": 0.75})
    assert replanned(plan, TUNED, 200.0, longest).expected.seconds <= 200


def test_a_plan_that_fills_the_time_allows_no_more_epochs() -> None:
    short = from_a_base(40.0)
    axes = {axis.name: axis for axis in search_space(short, {}, 40.0, has_base=True).axes}
    assert axes["readings"].high == 1.0
    long = from_a_base(2000.0)
    axes = {axis.name: axis for axis in search_space(long, {}, 2000.0, has_base=True).axes}
    assert axes["readings"].high == 2.0


def test_an_adamw_base_has_one_learning_rate() -> None:
    adamw_plan = make_plan(replace(TUNED, base=replace(BASE, kind="adamw")), 200.0, {})
    ranges = search_space(adamw_plan, {}, 200.0, has_base=True)
    settings = ranges.settings({**{a.name: a.plan for a in ranges.axes}, "rate": 3.0})
    assert settings.keys() == {"optim.learning_rate"}
    assert settings["optim.learning_rate"] == pytest.approx(
        3 * adamw_plan.recipe.optim.learning_rate, rel=0.01
    )


def test_settings_are_valid_lines_of_the_settings_file() -> None:
    settings: dict[str, object] = {
        "optim.learning_rate": 0.0123,
        "optim.muon_lr": 0.05,
        "train.dropout": 0.0,
        "data.replay": 0.25,
    }
    text = settings_toml(settings)
    parsed = tomllib.loads(text)
    assert parsed == {
        "data": {"replay": 0.25},
        "optim": {"muon_lr": 0.05, "learning_rate": 0.0123},
        "train": {"dropout": 0.0},
    }
    flat = {f"{a}.{b}": value for a, table in parsed.items() for b, value in table.items()}
    assert resolve(Recipe, flags=flat).settings.optim.learning_rate == 0.0123
    assert settings_toml({}) == ""
    # Steps suit one length only: they are told, and not set.
    assert tomllib.loads(settings_toml({"train.steps": 40, "train.batch_size": 8})) == {"train": {}}
