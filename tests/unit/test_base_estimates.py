import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ownwords.base import estimates
from ownwords.base.catalogue import KNOWN_BASES, RECOMMENDED, Entry, find_known
from ownwords.base.estimates import (
    BaseOption,
    TuningTask,
    check_fits,
    choose_base,
    task_here,
    usual_minutes,
)
from ownwords.core.errors import ConfigError
from ownwords.models.configs.llama import config_for_budget
from ownwords.training.plan import Plan, make_plan
from ownwords.training.plan_constants import PLAN_CONSTANTS
from ownwords.training.step_time import DeviceSpeeds, StepTimeModel

BOX = BaseOption.of(Entry("shipped", Path("box"), "", 1, config_for_budget(15_400_000, 8192, 512)))
KNOWN = {base.name: BaseOption(base.name, base.title, base.config, base) for base in KNOWN_BASES}
GEMMA = KNOWN["gemma3-270m"]
SPEEDS = DeviceSpeeds("cpu", {"autocast": StepTimeModel(1e-3, 5e11)})
BLOG = TuningTask(124_000, 60, SPEEDS, 16 * 10**9, keeps_bf16=True, seconds=600)


def _installed(base: BaseOption, name: str) -> BaseOption:
    assert base.known
    entry = Entry(name, Path(name), base.known.repository, 1, base.config)
    return BaseOption.of(entry)


def test_parameters_are_those_that_the_makers_publish() -> None:
    published = {
        "smollm2-135m": 134_515_008,
        "gemma3-270m": 268_098_176,
        "smollm2-360m": 361_821_120,
        "qwen3-0.6b": 596_049_920,
        "gemma3-1b": 999_885_952,
        "smollm2-1.7b": 1_711_376_384,
        "qwen3-1.7b": 1_720_574_976,
    }
    assert {base.name: base.parameters for base in KNOWN_BASES} == published
    assert find_known(RECOMMENDED) is not None


def test_every_known_base_can_be_tuned_beside_bfloat16_weights_in_16_gb() -> None:
    for base in KNOWN.values():
        expected = BLOG.figures(base)
        assert expected["minutes"] and expected["memory_bytes"] and not expected["is_too_large"]
    half = replace(BLOG, memory_bytes=7 * 10**9)
    large = [name for name, base in KNOWN.items() if half.figures(base)["is_too_large"]]
    assert large == ["smollm2-1.7b", "qwen3-1.7b"]


def test_bits_are_expected_of_measured_bases_only() -> None:
    bits = {name: BLOG.figures(base)["expected_bits_per_byte"] for name, base in KNOWN.items()}
    assert {name for name, value in bits.items() if value} == {"smollm2-135m", "gemma3-270m"}
    polish = replace(BLOG, is_english=False).figures(KNOWN["smollm2-135m"])
    assert polish["minutes"] and polish["expected_bits_per_byte"] is None


def test_a_graphics_card_is_judged_by_its_own_memory_where_there_is_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    card = SimpleNamespace(kind="cuda", free_memory=lambda: 24 << 30)
    monkeypatch.setattr("ownwords.training.device.choose", lambda _: card)
    for has_driver in (True, False):
        monkeypatch.setattr(estimates, "has_driver", lambda has=has_driver: has)
        task = task_here(device="auto")
        assert (task.speeds.kind, task.memory_bytes == 24 << 30) == (
            ("cuda", True) if has_driver else ("cpu", False)
        )
    assert task_here(device="cuda").speeds.kind == "cuda"


def test_a_slower_machine_needs_more_minutes_and_says_when_it_is_too_slow() -> None:
    def minutes(flops: float) -> float | None:
        speeds = DeviceSpeeds("cpu", {"float32": StepTimeModel(1e-3, flops)})
        minutes: float | None = replace(BLOG, speeds=speeds).figures(KNOWN["qwen3-1.7b"])["minutes"]
        return minutes

    fast, slow = minutes(1e12), minutes(1e10)
    assert fast and slow and fast < slow
    assert minutes(1e7) is None


def test_the_best_installed_base_that_fits_time_and_memory_is_chosen() -> None:
    for name in ("gemma3-270m", "my-gemma"):  # whatever it was called when it was added
        chosen = choose_base(BLOG, [BOX, _installed(GEMMA, name)])
        assert chosen is not None
        assert (chosen.name, chosen.folder) == (name, name)
        assert len(chosen.sentences) == 1 and "Gemma 3 270M" in chosen.sentences[0]
    gemma = _installed(GEMMA, "gemma3-270m")
    for short in (replace(BLOG, seconds=40), replace(BLOG, memory_bytes=10**9)):
        chosen = choose_base(short, [BOX, gemma])
        assert chosen is not None and chosen.name == "shipped"
    damaged = replace(gemma, config=None)
    chosen = choose_base(BLOG, [BOX, damaged])
    assert chosen is not None and chosen.name == "shipped"
    assert choose_base(BLOG, [replace(BOX, name="mine")]) is None


def test_a_better_base_is_offered_with_its_minutes_and_how_to_get_it() -> None:
    chosen = choose_base(BLOG, [BOX, *KNOWN.values()])
    assert chosen is not None
    offers = " ".join(chosen.sentences[1:])
    assert "ownwords base add smollm2-135m" in offers and "ownwords base add gemma3-270m" in offers
    assert "qwen3" not in offers
    short = choose_base(replace(BLOG, seconds=40), [BOX, _installed(GEMMA, "gemma3-270m")])
    assert short is not None and "min" in short.sentences[1] and "Get it" not in short.sentences[1]
    polish = choose_base(replace(BLOG, is_english=False), [BOX, *KNOWN.values()])
    assert polish is not None and "base add gemma3-270m" in polish.sentences[1]


def test_a_base_that_does_not_fit_is_refused_with_what_it_needs() -> None:
    gemma = _installed(GEMMA, "gemma3-270m")
    options = [BOX, gemma]
    needed = BLOG.shortest(gemma)
    assert needed is not None and 30 < needed.seconds < 600
    for reading in BLOG.readings(gemma):  # whatever a card offers can be started
        check_fits("gemma3-270m", replace(BLOG, seconds=reading.seconds), options)
    with pytest.raises(ConfigError, match="30 s is too short to train Gemma"):
        check_fits("gemma3-270m", replace(BLOG, seconds=30), options)
    check_fits("gemma3-270m", replace(BLOG, seconds=60 * math.ceil(needed.seconds / 60)), options)
    with pytest.raises(ConfigError, match="of free memory"):
        check_fits("gemma3-270m", replace(BLOG, memory_bytes=10**9), options)
    check_fits("somewhere/else", replace(BLOG, seconds=1), options)


@pytest.mark.parametrize(("flops", "minutes"), [(2e12, 2), (5e11, 2), (1.2e11, 5), (1e10, 4)])
def test_without_minutes_a_large_base_gets_those_that_it_needs(flops: float, minutes: int) -> None:
    """From 2 to 6; where 6 are too few for it, the box is the best base, and gets 4."""
    speeds = DeviceSpeeds("cpu", {"autocast": StepTimeModel(1e-3, flops)})
    smol = _installed(KNOWN["smollm2-135m"], "smollm2-135m")
    task = replace(BLOG, speeds=speeds)
    for base in ("", "smollm2-135m"):
        chosen = usual_minutes(base, task, [BOX, smol])
        assert 2 <= chosen <= 6
    assert usual_minutes("", task, [BOX, smol]) == minutes
    assert usual_minutes("none", task, [BOX, smol]) == usual_minutes("", task, [BOX]) == 4


@pytest.mark.parametrize("is_english", [True, False])
def test_the_estimate_reserves_what_the_plan_of_a_training_does(
    is_english: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans: list[Plan] = []

    def planned(*inputs: Any) -> Plan:  # noqa: ANN401
        plans.append(make_plan(*inputs))
        return plans[-1]

    monkeypatch.setattr(estimates, "make_plan", planned)
    assert replace(BLOG, is_english=is_english).forecast(KNOWN["smollm2-135m"], 300, 16 * 10**9)
    assert plans[0].recipe.train.evaluations > 0
    assert plans[0].recipe.data.replay == (PLAN_CONSTANTS.lora_pairs if is_english else 0)


def test_more_time_and_more_text_never_promise_less() -> None:
    for base in (BOX, KNOWN["smollm2-135m"], GEMMA):
        bits = []
        for seconds, text in ((1, 1e5), (60, 1e5), (600, 1e5), (600, 1e6), (6000, 1e7)):
            task = replace(BLOG, text_bytes=int(text))
            bits.append(task.bits(base, task.forecast(base, seconds, task.memory_bytes)))
        assert bits == sorted(bits, key=lambda value: -(value or 0))
        assert base.measured and bits[0] == base.measured.english
