import itertools
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import families
from ownwords.core.config import resolve
from ownwords.core.errors import ConfigError, CorpusError, OwnwordsError
from ownwords.models.configs.qwen3 import config_for_budget, parameter_count
from ownwords.training import planned
from ownwords.training.expectation import Happened, Rental, compared
from ownwords.training.laws import LAWS, Laws
from ownwords.training.measure import MEASURED, Pace, Speeds
from ownwords.training.plan import plan, vocabulary
from ownwords.training.planned import Base, Facts, Plan
from ownwords.training.settings import Recipe

GB = 10**9


def cpu(flops: float = 2e11) -> Speeds:
    return Speeds("cpu", "two cores", {"float32": Pace(1e-3, flops, MEASURED)})


def facts(
    text: int, *, speeds: Speeds | None = None, memory: int = 8 * GB, **more: object
) -> Facts:
    known = {"validation_bytes": text // 10, "spent_s": 3.0, **more}
    return Facts(text, max(1, text // 4000), speeds or cpu(), memory, **known)  # type: ignore[arg-type]


def size_of(made: Plan) -> int:
    model = made.recipe.model
    return parameter_count(
        config_for_budget(model.parameters, model.vocabulary or 261, model.context)
    )


def said(made: Plan) -> dict[str, planned.Derived]:
    return {one.key: one for one in made.reasons}


def test_sizes_are_sane_for_a_blog_for_books_and_for_a_gpu() -> None:
    blog = plan(facts(300_000), 600, {})
    assert 800_000 <= size_of(blog) <= 3_500_000
    assert blog.recipe.model.vocabulary == 2048
    books = plan(facts(180_000_000, speeds=cpu(4e11)), 8 * 3600, {})
    assert 8_000_000 <= size_of(books) <= 25_000_000
    assert 4096 <= books.recipe.model.vocabulary <= 8192
    gpu = Speeds("cuda", "H100", {"autocast": Pace(6e-4, 3e14, MEASURED)})
    large = plan(facts(10 * GB, speeds=gpu, memory=70 * GB), 4 * 3600, {})
    assert size_of(large) > 4 * size_of(books)
    assert large.recipe.train.precision == "autocast"


@pytest.mark.parametrize("text", [20_000, 300_000, 5_000_000, 180_000_000])
def test_more_time_never_makes_the_plan_worse(text: int) -> None:
    plans = [plan(facts(text), seconds, {}) for seconds in (30, 120, 600, 3600, 36_000, 360_000)]
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
    known = facts(text, speeds=cpu(flops), memory=memory, spent_s=0.5)
    try:
        made = plan(known, seconds, {})
    except OwnwordsError as error:
        assert error.message
        assert error.hint
        return
    assert made.expected.memory_bytes <= memory
    assert made.expected.seconds <= seconds * 1.02
    assert made.recipe.train.context * made.recipe.train.rows * made.recipe.train.steps > 0
    assert 0 < made.expected.bits_low < made.expected.bits_high
    assert planned.read(made.to_toml()) == made


def test_what_is_hopeless_says_how_much_there_is_and_what_it_takes() -> None:
    with pytest.raises(CorpusError, match=r"1,234 bytes.*40% .*takes 2,000"):
        plan(facts(1234, own_share=0.4), 600, {})
    with pytest.raises(ConfigError, match=r"1\.0 s are too few.*3\.0 s go") as found:
        plan(facts(300_000), 1, {})
    enough = 60 * float(found.value.hint.removeprefix("give --minutes ").split()[0])
    assert plan(facts(300_000), enough, {}).recipe.train.steps >= LAWS.least_steps
    with pytest.raises(ConfigError, match="memory"):
        plan(facts(300_000, memory=100_000_000), 600, {})
    with pytest.raises(ConfigError, match=r"98,919,552 parameters takes .* to train"):
        plan(facts(300_000, memory=GB), 600, {"model.parameters": 100_000_000})


def test_every_number_has_a_reason_a_source_and_an_origin() -> None:
    made = plan(facts(300_000), 600, {"optim.clip": 0.5})
    for one in made.reasons:
        assert one.reason
        assert one.source
        assert one.origin in ("plan", "measured", "setting")
    assert said(made)["train.steps"].origin == "measured"
    assert said(made)["optim.clip"].origin == "setting"
    for name in Laws.__dataclass_fields__:
        assert LAWS.source(name)


def test_what_depends_on_a_setting_follows_from_it() -> None:
    free = plan(facts(5_000_000), 600, {})
    small = plan(facts(5_000_000), 600, {"model.parameters": 200_000})
    assert said(small)["model.parameters"].origin == "setting"
    assert small.recipe.train.steps > free.recipe.train.steps
    assert small.recipe.optim.rate > free.recipe.optim.rate
    short = plan(facts(5_000_000), 600, {"model.context": 64})
    assert short.recipe.train.context == 64
    assert short.recipe.train.rows > 2 * free.recipe.train.rows
    few = plan(facts(5_000_000), 600, {"train.steps": 50})
    assert few.recipe.train.steps == 50
    assert few.expected.seconds < 120
    assert few.expected.tokens == 50 * few.recipe.train.rows * few.recipe.train.context
    adamw = plan(facts(5_000_000), 600, {"optim.kind": "adamw"})
    assert adamw.recipe.optim.rate == pytest.approx(
        LAWS.adamw_rate(size_of(adamw), adamw.expected.tokens), rel=0.01
    )
    assert vocabulary(300_000, {"model.vocabulary": 512}) == 512


def test_a_wrong_setting_is_named() -> None:
    with pytest.raises(ConfigError, match=r"did you mean train\.rows"):
        plan(facts(300_000), 600, {"train.row": 3})
    with pytest.raises(ConfigError, match=r"model\.context"):
        plan(facts(300_000), 600, {"train.context": 512, "model.context": 64})


def test_compiling_pays_in_long_runs_only() -> None:
    fast = Speeds("cpu", "x", {"autocast": Pace(1e-3, 3e11, MEASURED)})
    assert not plan(facts(180_000_000, speeds=fast), 120, {}).recipe.train.compile
    assert plan(facts(180_000_000, speeds=fast), 3600, {}).recipe.train.compile
    fused = replace(fast, fused=True)
    assert not plan(facts(180_000_000, speeds=fused), 3600, {}).recipe.train.compile


def test_the_fastest_precision_is_taken_a_less_exact_one_only_by_a_margin() -> None:
    def of(autocast: float, masters: float) -> str:
        paces = {"float32": 1e11, "autocast": autocast, "masters": masters}
        speeds = Speeds("cpu", "x", {k: Pace(0, v, MEASURED) for k, v in paces.items()})  # type: ignore[misc]
        return plan(facts(300_000, speeds=speeds), 600, {}).recipe.train.precision

    assert of(1.01e11, 1.01e11) == "float32"
    assert of(2e11, 2.02e11) == "autocast"
    assert of(2e11, 3e11) == "masters"


def test_memory_decides_how_many_rows_are_computed_at_once() -> None:
    wide = plan(facts(20_000_000), 600, {"train.rows": 256, "model.parameters": 5_000_000})
    tight = plan(
        facts(20_000_000, memory=2 * GB),
        600,
        {"train.rows": 256, "model.parameters": 5_000_000},
    )
    assert wide.expected.memory_bytes > 0.7 * 2 * GB
    assert 0 < tight.recipe.train.micro_rows < 256
    assert tight.recipe.train.rows == 256


def test_the_held_out_text_is_read_in_the_time_there_is_for_it() -> None:
    made = plan(facts(2_000_000_000), 300, {})
    assert made.expected.held_out_bytes < 20_000_000
    assert made.expected.seconds < 310
    nothing = plan(facts(300_000, validation_bytes=0), 600, {})
    assert nothing.recipe.train.evaluations == 0


def test_tuning_starts_gently_and_reads_the_text_a_few_times() -> None:
    shape = config_for_budget(8_000_000, 8192, 256)
    base = Base(shape, parameter_count(shape), 1.59, "muon", 0.02, 3e-3)
    known = facts(268_000, base=base, tokens=66_000, vocabulary=8192, replay_bytes=10**8)
    made = plan(known, 600, {})
    recipe = made.recipe
    assert 0.1 * 0.02 <= recipe.optim.matrix_rate <= 0.3 * 0.02
    assert 0.1 * 3e-3 <= recipe.optim.rate <= 0.3 * 3e-3
    assert recipe.data.replay == LAWS.tune_replay
    assert recipe.train.dropout == LAWS.tune_dropout
    assert recipe.schedule.warmdown == 0.9
    assert made.expected.epochs <= 8.1
    assert made.expected.bits_high > 1.487 > made.expected.bits_low  # measured: docs/log.md
    alone = plan(facts(268_000, base=base, tokens=66_000, vocabulary=8192), 600, {})
    assert alone.recipe.data.replay == 0.0
    stranger = Base(families.TINY["gpt2"], 40_000, lora=True)
    lora = plan(facts(268_000, base=stranger, tokens=66_000, vocabulary=97), 600, {})
    assert lora.recipe.optim.kind == "adamw"
    assert lora.recipe.train.context <= 64
    with pytest.raises(ConfigError, match=r"model\.parameters cannot be set"):
        plan(known, 600, {"model.parameters": 5})


def test_a_rented_gpu_has_hours_and_a_price() -> None:
    known = facts(180_000_000, rental=Rental("H100", 2.5, 9.9e14))
    cost = plan(known, 36_000, {}).expected.cost
    assert cost is not None
    assert 0 < cost.hours < 1
    assert cost.dollars == pytest.approx(2.5 * cost.hours)


def test_a_plan_is_kept_with_its_reasons(tmp_path: Path) -> None:
    made = plan(facts(300_000, rental=Rental("H100", 2.5, 9.9e14)), 600, {"train.seed": 7})
    assert planned.read(made.to_toml()) == made
    config = tmp_path / "config.toml"
    config.write_text(made.resolved().to_toml())
    assert "# setting" in config.read_text()
    assert resolve(Recipe, toml=[config]).settings == made.recipe
    with pytest.raises(OwnwordsError, match="damaged"):
        planned.read(made.to_toml()[:-40] + "x")


def test_afterwards_it_is_said_how_right_it_was() -> None:
    expected = plan(facts(300_000), 600, {}).expected
    good = (expected.bits_low + expected.bits_high) / 2
    said = compared(expected, Happened(good, expected.seconds, expected.tokens, 0))
    assert "as expected" in said[0]
    assert len(said) == 3
    worse = compared(expected, Happened(expected.bits_high + 0.25, 1200, 10, 10**9, True))
    assert "worse than expected, by 0.25" in worse[0]
    assert "more" in worse[1]
    assert "stopped early" in worse[2]


def test_reading_again_is_worth_less_each_time() -> None:
    # Muennighoff et al.: nearly full value up to 4 readings, no more than R* + 1 ever.
    assert LAWS.text_worth(1e6, 1e6) == 1e6
    assert 0.85 * 4e6 < LAWS.text_worth(4e6, 1e6) < 4e6
    assert LAWS.text_worth(1e12, 1e6) == pytest.approx(16.4e6)
    # Step Law at 124 million parameters and 2.5 billion tokens, by hand.
    assert LAWS.adamw_rate(124e6, 2.5e9) == pytest.approx(1.79 * 124e6**-0.713 * 2.5e9**0.307)
