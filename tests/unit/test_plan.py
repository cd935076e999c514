import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import families
from ownwords.core.errors import ConfigError, CorpusError, OwnwordsError
from ownwords.models.configs.llama import Gemma3Config, config_for_budget, parameter_count
from ownwords.training.plan import (
    BaseModelInfo,
    Plan,
    PlanInputs,
    PlannedValue,
    compare_forecast,
    make_plan,
    read_plan,
)
from ownwords.training.plan_constants import PLAN_CONSTANTS
from ownwords.training.settings import Precision
from ownwords.training.step_time import DeviceSpeeds, StepTimeModel

GB = 10**9


def cpu(flops: float = 2e11) -> DeviceSpeeds:
    return DeviceSpeeds("cpu", {"float32": StepTimeModel(1e-3, flops, is_measured=True)})


def facts(
    text: int, *, speeds: DeviceSpeeds | None = None, memory: int = 8 * GB, **more: object
) -> PlanInputs:
    values = {"validation_bytes": text // 10, "spent_s": 3.0, **more}
    return PlanInputs(text, max(1, text // 4000), speeds or cpu(), memory, **values)  # type: ignore[arg-type]


def size_of(plan: Plan) -> int:
    model = plan.recipe.model
    return parameter_count(
        config_for_budget(model.parameters, model.vocab_size or 261, model.context_length)
    )


def reasons_of(plan: Plan) -> dict[str, PlannedValue]:
    return {reason.key: reason for reason in plan.reasons}


def test_sizes_are_sane_for_a_blog_for_books_and_for_a_gpu() -> None:
    blog = make_plan(facts(300_000), 600, {})
    assert 800_000 <= size_of(blog) <= 3_500_000
    assert blog.recipe.model.vocab_size == 2048
    books = make_plan(facts(180_000_000, speeds=cpu(4e11)), 8 * 3600, {})
    assert 8_000_000 <= size_of(books) <= 25_000_000
    assert 4096 <= books.recipe.model.vocab_size <= 8192
    gpu = DeviceSpeeds("cuda", {"autocast": StepTimeModel(6e-4, 3e14, is_measured=True)})
    large = make_plan(facts(10 * GB, speeds=gpu, memory=70 * GB), 4 * 3600, {})
    assert size_of(large) > 4 * size_of(books)
    assert large.recipe.train.precision == "autocast"


@pytest.mark.parametrize("text", [20_000, 300_000, 5_000_000, 180_000_000])
def test_more_time_never_makes_the_plan_worse(text: int) -> None:
    plans = [
        make_plan(facts(text), seconds, {}) for seconds in (30, 120, 600, 3600, 36_000, 360_000)
    ]
    for before, after in itertools.pairwise(plans):
        assert size_of(after) >= size_of(before)
        assert after.expected.bits_low <= before.expected.bits_low * 1.004


@settings(max_examples=60, deadline=None)
@given(
    st.floats(0, 10).map(lambda power: int(10**power)),
    st.floats(0, 5.8).map(lambda power: 10**power),
    st.sampled_from([1 * GB, 4 * GB, 64 * GB]),
    st.sampled_from([3e10, 3e11, 3e14]),
)
def test_any_text_and_any_time_give_a_plan_that_fits_or_a_sentence(
    text: int, seconds: float, memory: int, flops: float
) -> None:
    inputs = facts(text, speeds=cpu(flops), memory=memory, spent_s=0.5)
    try:
        plan = make_plan(inputs, seconds, {})
    except OwnwordsError as error:
        assert error.message
        assert error.hint
        return
    assert plan.expected.memory_bytes <= memory
    is_shortest = plan.recipe.train.steps <= PLAN_CONSTANTS.least_steps
    assert is_shortest or plan.expected.seconds <= seconds * 1.02 + 0.05  # which is rounded
    assert (
        plan.recipe.train.sequence_length * plan.recipe.train.batch_size * plan.recipe.train.steps
        > 0
    )
    assert 0 < plan.expected.bits_low < plan.expected.bits_high
    assert read_plan(plan.to_toml()) == plan


def test_a_hopeless_request_reports_what_it_takes() -> None:
    with pytest.raises(CorpusError, match=r"1,234 bytes.*40% .*at least 2,000"):
        make_plan(facts(1234, own_share=0.4), 600, {})
    with pytest.raises(ConfigError, match="memory"):
        make_plan(facts(300_000, memory=100_000_000), 600, {})
    with pytest.raises(ConfigError, match=r"training a model of 98,919,552 parameters takes"):
        make_plan(facts(300_000, memory=GB), 600, {"model.parameters": 100_000_000})


@pytest.mark.parametrize("has_base", [False, True])
def test_with_too_little_time_the_fewest_useful_steps_are_planned_and_their_time_is_told(
    has_base: bool,
) -> None:
    inputs = facts(300_000)
    if has_base:
        inputs = facts(250_000, base=LARGE, tokens=60_000, vocabulary=30_000, speeds=cpu(2e10))
    plan = make_plan(inputs, 1, {})
    assert plan.recipe.train.steps == PLAN_CONSTANTS.least_steps
    assert "takes longer than asked" in reasons_of(plan)["train.steps"].reason
    assert plan.expected.seconds > 3  # starting takes so long
    sufficient = make_plan(inputs, 2 * plan.expected.seconds, {})
    assert sufficient.recipe.train.steps > plan.recipe.train.steps
    assert sufficient.expected.seconds <= 2 * plan.expected.seconds
    assert make_plan(inputs, 1, {"train.steps": 2}).recipe.train.steps == 2


def test_every_number_has_a_reason_a_source_and_an_origin() -> None:
    fixed = {"optim.grad_clip": 0.5, "optim.momentum": 0.9, "train.seed": 3}
    plan = make_plan(facts(300_000), 600, fixed)
    for reason in plan.reasons:
        assert reason.reason
        assert reason.source
        assert reason.origin in ("plan", "measured", "setting")
    assert reasons_of(plan)["train.steps"].origin == "measured"
    assert reasons_of(plan)["optim.grad_clip"].origin == "setting"
    assert [reason.key for reason in plan.reasons][-3:] == [*fixed]  # the same in each process


def test_a_setting_changes_what_depends_on_it() -> None:
    free = make_plan(facts(5_000_000), 600, {})
    small = make_plan(facts(5_000_000), 600, {"model.parameters": 200_000})
    assert reasons_of(small)["model.parameters"].origin == "setting"
    assert small.recipe.train.steps > free.recipe.train.steps
    assert small.recipe.optim.learning_rate > free.recipe.optim.learning_rate
    short = make_plan(facts(5_000_000), 600, {"model.context_length": 64})
    assert short.recipe.train.sequence_length == 64
    assert short.recipe.train.batch_size > 2 * free.recipe.train.batch_size
    of_fifty = make_plan(facts(5_000_000), 600, {"train.steps": 50})
    assert of_fifty.recipe.train.steps == 50
    assert of_fifty.expected.seconds < 120
    assert (
        of_fifty.expected.tokens
        == 50 * of_fifty.recipe.train.batch_size * of_fifty.recipe.train.sequence_length
    )
    adamw = make_plan(facts(5_000_000), 600, {"optim.kind": "adamw"})
    assert adamw.recipe.optim.learning_rate == pytest.approx(
        PLAN_CONSTANTS.adamw_lr(size_of(adamw), adamw.expected.tokens), rel=0.01
    )


def test_the_most_steps_follow_from_the_text_and_not_from_the_speed() -> None:
    shape = {"model.parameters": 400_000, "train.batch_size": 8}
    slow, fast, idle = (
        make_plan(facts(3_000_000, speeds=cpu(flops)), 120, shape) for flops in (1e11, 2e11, 1e15)
    )
    assert slow.recipe.train.steps < fast.recipe.train.steps < idle.recipe.train.steps
    assert idle.recipe.train.steps == idle.recipe.train.max_steps
    assert slow.recipe.train.max_steps == fast.recipe.train.max_steps == idle.recipe.train.max_steps
    assert idle.expected.epochs == pytest.approx(PLAN_CONSTANTS.epochs_limit, rel=0.01)
    chosen = make_plan(facts(300_000), 120, {"train.max_steps": 30}).recipe.train
    assert (chosen.steps, chosen.max_steps) == (30, 30)
    exact = make_plan(facts(300_000), 120, {"train.steps": 77}).recipe.train
    assert (exact.steps, exact.max_steps) == (77, 77)


@pytest.mark.parametrize("tokens", [64, 512])
def test_rows_and_context_have_the_length_that_either_is_set_to(tokens: int) -> None:
    for key in ("train.sequence_length", "model.context_length"):
        recipe = make_plan(facts(300_000), 600, {key: tokens}).recipe
        assert recipe.train.sequence_length == recipe.model.context_length == tokens


@pytest.mark.parametrize(
    ("base", "fixed", "message"),
    [
        (
            None,
            {"train.sequence_length": 512, "model.context_length": 64},
            "the context of the model is only 64 tokens",
        ),
        (None, {"optim.kind": "adamw", "optim.muon_lr": 0.02}, "muon_lr has no effect"),
        ("lora", {"optim.muon_lr": 0.02}, "muon_lr has no effect"),
        ("lora", {"optim.kind": "muon"}, "a LoRA is trained with AdamW"),
        ("lora", {"model.parameters": 5}, r"model\.parameters cannot be set"),
    ],
)
def test_settings_that_would_have_no_effect_are_refused(
    base: str | None, fixed: dict[str, object], message: str
) -> None:
    inputs = facts(250_000, base=LARGE if base else None, tokens=60_000, speeds=cpu(5e11))
    with pytest.raises(OwnwordsError, match=message):
        make_plan(inputs, 600, fixed)


def test_a_less_exact_precision_must_be_faster_by_a_margin() -> None:
    def of(autocast: float, master_weights: float) -> str:
        step_times: dict[Precision, float] = {
            "float32": 1e11,
            "autocast": autocast,
            "bf16": master_weights,
        }
        models = {
            name: StepTimeModel(0, flops, is_measured=True) for name, flops in step_times.items()
        }
        speeds = DeviceSpeeds("cpu", models)
        return make_plan(facts(300_000, speeds=speeds), 600, {}).recipe.train.precision

    assert of(1.01e11, 1.01e11) == "float32"
    assert of(2e11, 2.02e11) == "autocast"
    assert of(2e11, 3e11) == "bf16"


def test_memory_decides_the_micro_batch_size() -> None:
    wide = make_plan(
        facts(20_000_000), 600, {"train.batch_size": 256, "model.parameters": 5_000_000}
    )
    tight = make_plan(
        facts(20_000_000, memory=2 * GB),
        600,
        {"train.batch_size": 256, "model.parameters": 5_000_000},
    )
    assert wide.expected.memory_bytes > 0.7 * 2 * GB
    assert 0 < tight.recipe.train.micro_batch_size < 256
    assert tight.recipe.train.batch_size == 256


def test_tuning_starts_gently_and_reads_the_text_a_few_times() -> None:
    shape = config_for_budget(8_000_000, 8192, 256)
    base = BaseModelInfo(shape, parameter_count(shape), 1.59, "muon", 0.02, 3e-3)
    inputs = facts(268_000, base=base, tokens=66_000, vocabulary=8192, replay_bytes=10**8)
    plan = make_plan(inputs, 600, {})
    recipe = plan.recipe
    assert 0.1 * 0.02 <= recipe.optim.muon_lr <= 0.3 * 0.02
    assert 0.1 * 3e-3 <= recipe.optim.learning_rate <= 0.3 * 3e-3
    assert recipe.data.replay > 0 and recipe.train.dropout == 0
    assert recipe.optim.start_lr_scale == PLAN_CONSTANTS.tune_start_lr_scale
    assert recipe.schedule.decay_fraction == 0.9
    assert plan.expected.epochs <= 8.1
    assert plan.expected.bits_high > 1.487 > plan.expected.bits_low  # measured: docs/log.md
    alone = make_plan(facts(268_000, base=base, tokens=66_000, vocabulary=8192), 600, {})
    assert alone.recipe.data.replay == 0.0
    stranger = BaseModelInfo(families.TINY["gpt2"], 40_000, lora=True)
    lora = make_plan(facts(268_000, base=stranger, tokens=66_000, vocabulary=97), 600, {})
    assert lora.recipe.optim.kind == "adamw"
    assert lora.recipe.optim.start_lr_scale == 1.0  # its embedding is frozen
    assert lora.recipe.train.sequence_length <= 64


LARGE = BaseModelInfo(
    Gemma3Config(
        vocabulary=30_000,
        context=32_768,
        width=640,
        layers=18,
        heads=4,
        kv_heads=1,
        head_dim=256,
        hidden=2048,
        window=512,
        query_scalar=256,
    ),
    119_000_000,
    1.36,
)


def test_a_large_base_gets_a_lora_whose_rate_falls_with_the_epochs() -> None:
    speeds = cpu(5e11)
    plans = {
        minutes: make_plan(
            facts(250_000, base=LARGE, tokens=60_000, vocabulary=30_000, speeds=speeds),
            60 * minutes,
            {},
        )
        for minutes in (3, 6, 600)
    }
    for plan in plans.values():
        recipe = plan.recipe
        assert (recipe.lora.rank, recipe.lora.alpha) == (16, 32.0)
        assert recipe.optim.kind == "adamw"
        assert 2e-4 <= recipe.optim.learning_rate <= 1.5e-3
        assert recipe.data.replay == 0.0
        assert plan.expected.memory_bytes < 3 * GB
        assert plan.expected.bits_low < 1.36 < plan.expected.bits_high
    rates = [plan.recipe.optim.learning_rate for plan in plans.values()]
    assert rates == sorted(rates, reverse=True)
    assert rates[0] > rates[-1]
    assert plans[600].expected.epochs < 4.2  # more would only memorise
    # Rows are as long as posts: of 62 posts with 60,000 tokens.
    assert plans[6].recipe.train.sequence_length == 1024
    all_weights = make_plan(
        facts(250_000, base=LARGE, tokens=60_000, vocabulary=30_000, speeds=speeds),
        3600,
        {"lora.rank": 0},
    )
    assert all_weights.recipe.lora.rank == 0
    assert all_weights.expected.tokens_per_s < plans[600].expected.tokens_per_s
    assert all_weights.expected.memory_bytes > plans[600].expected.memory_bytes


def test_a_plan_is_kept_with_its_reasons() -> None:
    plan = make_plan(facts(300_000), 600, {"train.seed": 7})
    assert read_plan(plan.to_toml()) == plan
    assert plan.recipe.train.seed == 7
    with pytest.raises(OwnwordsError, match="damaged"):
        read_plan(plan.to_toml()[:-40] + "x")


def test_the_forecast_is_compared_with_the_result() -> None:
    expected = make_plan(facts(300_000), 600, {}).expected
    good = (expected.bits_low + expected.bits_high) / 2
    sentences = compare_forecast(expected, good, expected.seconds, expected.tokens, 0)
    assert "as expected" in sentences[0]
    assert len(sentences) == 3
    worse = compare_forecast(
        expected, expected.bits_high + 0.25, 1200, 10, 10**9, stopped_early=True
    )
    assert "worse than expected, by 0.25" in worse[0]
    assert "above" in worse[1]
    assert "below" in worse[2]
    assert worse[3] == "Training stopped early."
