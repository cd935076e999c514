"""Sampling against a reference that handles one token at a time, and C++ against NumPy."""

import math
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ownwords.core.errors import ConfigError, OwnwordsError
from ownwords.inference.sampling import (
    Sampler,
    SamplingParams,
    apply_logits_processors,
    draw_token,
    draw_uniform,
    log_probabilities,
    probabilities,
    sample_token,
    top_logprobs,
)

Make = Callable[[SamplingParams, int], Sampler]
NEVER = float("-inf")


def by_hand(
    scores: list[float],
    params: SamplingParams,
    history: list[int],
    banned: list[int],
    prompt: int,
) -> list[float]:
    """The distribution, worked out in plain floats; temperature 0 puts all on one token."""
    remaining = {i: s + params.bias.get(i, 0.0) for i, s in enumerate(scores)}
    for i, s in remaining.items():
        if i in history:
            remaining[i] = s / params.repetition_penalty if s > 0 else s * params.repetition_penalty
        times = history[prompt:].count(i)
        remaining[i] -= params.frequency_penalty * times + (
            params.presence_penalty if times else 0.0
        )
    excluded = {*banned}
    if params.no_repeat_ngram_size:
        for i in remaining:
            run = [*history, i][-params.no_repeat_ngram_size :]
            runs = [history[n : n + params.no_repeat_ngram_size] for n in range(len(history))]
            if len(run) == params.no_repeat_ngram_size and run in runs:
                excluded.add(i)
    remaining = {i: s for i, s in remaining.items() if i not in excluded and s > NEVER}
    ranked = sorted(remaining, key=lambda i: (-remaining[i], i))
    if params.temperature == 0:
        return [float(i == ranked[0]) for i in range(len(scores))]

    def shares() -> dict[int, float]:
        most = max(remaining.values())
        weights = {i: math.exp((s - most) / params.temperature) for i, s in remaining.items()}
        return {i: w / math.fsum(weights.values()) for i, w in weights.items()}

    def first(order: list[int], needed: float) -> dict[int, float]:
        probabilities, reached, chosen = shares(), 0.0, {}
        for i in order:
            if reached < needed:
                chosen[i] = remaining[i]
            reached += probabilities[i]
        return chosen

    if params.top_k:
        remaining = {i: remaining[i] for i in ranked[: params.top_k]}
    if params.typical_p < 1:
        surprise = {i: -math.log(p) if p else 1e9 for i, p in shares().items()}
        mean = math.fsum(p * surprise[i] for i, p in shares().items() if p)
        remaining = first(
            sorted(remaining, key=lambda i: (abs(surprise[i] - mean), i)), params.typical_p
        )
    if params.top_p < 1:
        remaining = first([i for i in ranked if i in remaining], params.top_p)
    probabilities = shares()
    least = params.min_p * max(probabilities.values()) * (1 - 1e-12)
    remaining = {i: s for i, s in remaining.items() if probabilities[i] >= least}
    probabilities = shares()
    return [probabilities.get(i, 0.0) for i in range(len(scores))]


class Case:
    """A random configuration; the same number, the same case."""

    def __init__(self, number: int, largest: int = 12) -> None:
        dice = np.random.default_rng(number)

        def sometimes(value: Any, otherwise: Any) -> Any:  # noqa: ANN401 - of any kind
            return value if dice.random() < 0.2 else otherwise

        size = int(dice.integers(1, largest + 1))
        spread = dice.choice([0.0, 0.3, 3.0, 30.0])
        scores = (dice.normal(size=size) * spread + dice.choice([0, -50, 100])).round(2)
        never = dice.random(size) < sometimes(0.4, 0.0)
        never[dice.integers(size)] = False
        self.scores = np.where(never, NEVER, scores).astype(np.float32)
        self.history = dice.integers(0, size, int(dice.integers(0, 15))).astype(np.int32)
        self.prompt = int(dice.integers(0, len(self.history) + 2))
        self.uniform = float(dice.random())
        # What is neither banned nor repeated nor -inf may be nothing: there the errors are tested.
        self.banned = np.flatnonzero(dice.random(size) < sometimes(0.3, 0.0)).astype(np.int32)
        bias_ids = dice.integers(0, size, 2).tolist()
        self.params = SamplingParams(
            temperature=float(sometimes(0.0, dice.choice([0.05, 0.7, 1.0, 3.0]))),
            top_k=int(sometimes(dice.integers(1, size + 3), 0)),
            top_p=float(sometimes(dice.uniform(0.05, 1), 1.0)),
            min_p=float(sometimes(dice.uniform(0, 1), 0.0)),
            typical_p=float(sometimes(dice.uniform(0.05, 1), 1.0)),
            repetition_penalty=float(sometimes(dice.uniform(0.5, 2), 1.0)),
            frequency_penalty=float(sometimes(dice.uniform(-1, 1), 0.0)),
            presence_penalty=float(sometimes(dice.uniform(-1, 1), 0.0)),
            no_repeat_ngram_size=int(sometimes(dice.integers(1, 4), 0)),
            bias=sometimes(dict(zip(bias_ids, [1.37, NEVER], strict=True)), {}),
        )

    @property
    def about(self) -> dict[str, Any]:
        return {"history": self.history, "banned": self.banned, "prompt": self.prompt}

    def expected(self) -> list[float] | None:
        """The distribution, or None where nothing is left to choose."""
        arguments = (self.history.tolist(), self.banned.tolist(), self.prompt)
        try:
            return by_hand(self.scores.tolist(), self.params, *arguments)
        except (ValueError, IndexError):
            return None

    def sampler(self) -> Sampler:
        return Sampler(self.params, len(self.scores))

    def drawn(self, sampler: Sampler, uniform: float) -> int:
        length = len(self.history)
        return sampler.sample(self.scores, self.history, length, uniform, self.banned, self.prompt)


def without_native(params: SamplingParams, vocabulary: int) -> Sampler:
    sampler = Sampler(params, vocabulary)
    sampler._native = None
    return sampler


needs_native = pytest.mark.skipif(
    Sampler(SamplingParams(), 2)._native is None, reason="the part in C++ is not built"
)


def test_the_distribution_is_the_one_worked_out_by_hand() -> None:
    for number in range(5000):
        case = Case(number)
        expected = case.expected()
        if expected is None:
            with pytest.raises(OwnwordsError, match="forbidden"):
                sample_token(case.scores, case.params, uniform=case.uniform, **case.about)
            continue
        chosen = sample_token(case.scores, case.params, uniform=case.uniform, **case.about)
        assert expected[chosen] > 0
        if case.params.temperature:
            distribution = probabilities(
                apply_logits_processors(case.scores, case.params, **case.about), case.params
            )
            np.testing.assert_allclose(distribution, expected, atol=5e-4)


def test_draws_of_ten_thousand_configurations_are_distributed_as_worked_out_by_hand() -> None:
    """Chi-square each; so many tests bear no single value beyond one of 10 million."""
    draws, worst, total, freedom = 75, 0.0, 0.0, 0
    every = 1 if Sampler(SamplingParams(), 2)._native else 8  # NumPy takes a hundred times as long
    for number in range(0, 10_000, every):
        case = Case(number)
        expected = case.expected()
        sampler = case.sampler()
        if expected is None:
            with pytest.raises(OwnwordsError, match="forbidden"):
                case.drawn(sampler, 0.5)
            continue
        counts = np.zeros(len(expected))
        for n in range(draws if max(expected) < 1 else 2):
            counts[case.drawn(sampler, draw_uniform(number, n))] += 1
        assert not counts[np.array(expected) == 0].any(), case.params
        square, degrees = chi_square(counts, np.array(expected) * counts.sum())
        total, freedom = total + square, freedom + degrees
        if degrees:
            worst = max(worst, normal_of(square, degrees))
    assert freedom > 10_000 / every
    assert worst < 5.2
    assert abs(normal_of(total, freedom)) < 4


def chi_square(counts: np.ndarray, means: np.ndarray) -> tuple[float, int]:
    """The statistic and its degrees of freedom; what is expected less than 5 times is summed up."""
    rare = means < 5
    counts = np.append(counts[~rare], counts[rare].sum())
    means = np.append(means[~rare], means[rare].sum())
    if means[-1] < 5:
        counts, means = (
            np.append(counts[:-2], counts[-2:].sum()),
            np.append(means[:-2], means[-2:].sum()),
        )
    return float(((counts - means) ** 2 / means).sum()), len(means) - 1


def normal_of(square: float, degrees: int) -> float:
    """How many standard deviations a chi-square is from its mean (Wilson and Hilferty)."""
    spread = 2 / (9 * degrees)
    return float(((square / degrees) ** (1 / 3) - (1 - spread)) / spread**0.5)


@needs_native
def test_numpy_and_native_choose_the_same_for_the_same_draw() -> None:
    differing = 0
    for number in range(3000):
        case = Case(number, largest=3000 if number % 4 == 0 else 40)
        sampler = case.sampler()
        try:
            plain = sample_token(case.scores, case.params, uniform=case.uniform, **case.about)
        except OwnwordsError as error:
            with pytest.raises(OwnwordsError, match=error.message[:30]):
                case.drawn(sampler, case.uniform)
            continue
        token = case.drawn(sampler, case.uniform)
        if token != plain:
            differing += 1
            assert token in near_the_border(case)
    assert differing < 5


def near_the_border(case: Case) -> set[int]:
    """The tokens chosen when the draw or a limit moves by 1e-5."""
    tokens = set()
    for by in (-1e-5, 0, 1e-5):
        params = replace(
            case.params,
            top_p=min(1, case.params.top_p + by) if case.params.top_p < 1 else 1,
            typical_p=min(1, case.params.typical_p + by) if case.params.typical_p < 1 else 1,
            min_p=max(0, case.params.min_p * (1 + by)),
        )
        for uniform in (case.uniform - 1e-5, case.uniform, case.uniform + 1e-5):
            tokens.add(
                sample_token(case.scores, params, uniform=min(max(uniform, 0), 1), **case.about)
            )
    return tokens


@needs_native
@pytest.mark.parametrize("size", [1, 15, 16, 17, 63, 64, 65, 1023, 1025, 8192, 50257])
def test_every_size_of_vocabulary(size: int) -> None:
    dice = np.random.default_rng(size)
    scores = (dice.normal(size=size) * 3).astype(np.float32)
    history = dice.integers(0, size, 200).astype(np.int32)
    default_params = SamplingParams(temperature=0.8, top_p=0.95, min_p=0.05, repetition_penalty=1.1)
    ways = (
        default_params,
        SamplingParams(temperature=0),
        SamplingParams(),
        SamplingParams(top_k=40),
        SamplingParams(top_p=0.9),
        SamplingParams(temperature=4, top_p=0.999),
        SamplingParams(typical_p=0.5),
        SamplingParams(top_k=size, top_p=0.5),
        SamplingParams(min_p=1e-6, no_repeat_ngram_size=1),
    )
    for params in ways:
        native, plain = Sampler(params, size), without_native(params, size)
        for uniform in (1e-10, 0.3, 0.77, 1 - 1e-10):
            if params.no_repeat_ngram_size and len(set(history.tolist())) == size:
                continue
            token = native.sample(scores, history, 150, uniform)
            assert token == plain.sample(scores, history, 150, uniform)
    read_only = scores.copy()
    read_only.setflags(write=False)
    spread_out = np.repeat(scores, 2)[::2]
    first = Sampler(default_params, size).sample(scores, history, 150, 0.4)
    for same in (read_only, spread_out):
        assert Sampler(default_params, size).sample(same, history, 150, 0.4) == first


@pytest.mark.parametrize("make", [Sampler, without_native])
def test_scores_without_a_distribution(make: Make) -> None:
    def chosen(scores: list[float], banned: Collection[int] = (), **params: Any) -> int:  # noqa: ANN401
        sampler: Sampler = make(SamplingParams(**params), len(scores))
        nothing = np.zeros(0, np.int32)
        return sampler.sample(np.array(scores, np.float32), nothing, 0, 0.61, banned)

    for params in ({}, {"temperature": 0}, {"top_k": 1}, {"top_p": 0.5}, {"min_p": 0.1}):
        for bad in (float("nan"), float("inf")):
            for index in range(3):
                scores = [0.0] * 3
                scores[index] = bad
                with pytest.raises(OwnwordsError, match="not finite numbers"):
                    chosen(scores, **params)
                with pytest.raises(OwnwordsError, match="not finite numbers"):
                    chosen(scores, banned=[index], **params)
        with pytest.raises(OwnwordsError, match="forbidden"):
            chosen([NEVER] * 20, **params)
        with pytest.raises(OwnwordsError, match="forbidden"):
            chosen([1.0, 2.0], banned=(0, 1), **params)
        assert chosen([NEVER, 3e38, NEVER, -3e38], **params) == 1
        assert chosen([1.0, 1.0, 1.0], banned={0, 2, 99, -1}, **params) == 1
    assert chosen([7.0] * 5) == 3  # all equal: 0.61 lies in the fourth fifth
    assert chosen([7.0] * 5, temperature=0) == 0
    assert chosen([7.0] * 5, top_k=2) == 1
    assert chosen([7.0] * 5, top_p=0.39) == 1
    assert chosen([7.0] * 5, min_p=1.0) == 3
    assert chosen([7.0] * 5, typical_p=0.3) == 1
    for temperature in (1e-30, 1e-3):
        assert chosen([3e4, 2.9e4, -3e38], temperature=temperature) == 0
    assert chosen([3e38, -3e38], temperature=1e30) in (0, 1)
    with pytest.raises(ConfigError, match="vocabulary has 2"):
        chosen([0.0, 0.0], bias={2: 1.0})


@pytest.mark.parametrize("make", [Sampler, without_native])
def test_penalties_and_bias(make: Make) -> None:
    def likeliest_of(
        scores: list[float],
        history: list[int],
        prompt: int = 0,
        **params: Any,  # noqa: ANN401
    ) -> int:
        sampler: Sampler = make(SamplingParams(temperature=0, **params), len(scores))
        scores_array, past = np.array(scores, np.float32), np.array(history, np.int32)
        chosen = sampler.sample(scores_array, past, len(past), 0.5, (), prompt)
        assert scores_array.tolist() == pytest.approx(scores)  # what was given stays
        return chosen

    # Once a token, whatever the sign of its score: 2 becomes 1 and not 0.25, -2 becomes -4.
    assert likeliest_of([2.0, -2.0, 1.5], [0, 0, 0], repetition_penalty=2.0) == 2
    assert likeliest_of([2.0, -2.0, 0.9], [0, 0, 0], repetition_penalty=2.0) == 0
    assert likeliest_of([-2.0, -3.0], [0], repetition_penalty=2.0) == 1
    # By how often, and only what was generated.
    assert likeliest_of([2.0, 0.5], [0, 0], frequency_penalty=1.0) == 1
    assert likeliest_of([2.0, 0.5], [0, 0], 1, frequency_penalty=1.0) == 0
    assert likeliest_of([2.0, 0.5], [0, 0, 0], presence_penalty=1.0) == 0
    assert likeliest_of([2.0, 0.5], [0, 0], presence_penalty=1.6) == 1
    assert likeliest_of([2.0, 0.5], [0, 0], 2, presence_penalty=1.6) == 0
    assert likeliest_of([2.0, 0.5], [], bias={0: -1.0, 1: 1.0}) == 1
    assert likeliest_of([2.0, 0.5], [], bias={0: NEVER}) == 1
    # "1 2 3 1 2": after it no 3 if runs of three come once, no 1 or 2 after if runs of one do.
    history = [1, 2, 3, 1, 2]
    assert likeliest_of([0.0, 1.0, 2.0, 3.0], history, no_repeat_ngram_size=3) == 2
    assert likeliest_of([0.0, 1.0, 2.0, 3.0], history, no_repeat_ngram_size=4) == 3
    assert likeliest_of([0.0, 1.0, 2.0, 3.0], history, no_repeat_ngram_size=1) == 0
    assert likeliest_of([0.0, 1.0], [-5, 9, 1], repetition_penalty=3.0) == 1  # no such tokens


def test_draws_depend_on_the_seed_and_position_only() -> None:
    draws = {draw_uniform(seed, drawn) for seed in range(-20, 20) for drawn in range(50)}
    assert len(draws) == 2000
    assert 0 < min(draws) < 0.01 and 0.99 < max(draws) < 1
    scores = np.random.default_rng(3).normal(size=50).astype(np.float32)
    first, second = Sampler(SamplingParams(), 50), Sampler(SamplingParams(), 50)
    nothing = np.zeros(0, np.int32)
    texts = [
        [sampler.sample(scores, nothing, 0, draw_uniform(seed, n)) for n in range(20)]
        for sampler, seed in ((first, 1), (second, 1), (first, 2))
    ]
    assert texts[0] == texts[1] != texts[2]


@given(st.lists(st.sampled_from([0.0, 1e-7, 0.1, 0.5]), min_size=1).filter(any))
def test_impossible_tokens_are_never_drawn(weights: list[float]) -> None:
    p = np.array(weights) / sum(weights)
    for uniform in (2**-33, 0.25, 0.5, 1 - 2**-33):
        assert p[draw_token(p, uniform)] > 0


@given(st.lists(st.floats(-30, 30, width=32), min_size=1, max_size=300), st.integers(0, 9))
def test_logprobs_are_those_of_the_model(scores: list[float], count: int) -> None:
    given_V = np.array(scores, np.float32)
    most = max(scores)
    total = math.log(math.fsum(math.exp(s - most) for s in scores))
    expected = [s - most - total for s in scores]
    actual = log_probabilities(given_V, range(len(scores)))
    np.testing.assert_allclose(actual, expected, atol=1e-5)
    best = sorted(range(len(scores)), key=lambda i: (-scores[i], i))[:count]
    assert [i for i, _ in top_logprobs(given_V, count)] == best
    np.testing.assert_allclose([p for _, p in top_logprobs(given_V, count)], actual[best])


def test_top_logprobs_of_many_and_of_invalid_scores() -> None:
    scores = np.random.default_rng(5).normal(size=5000).astype(np.float32)
    scores[[7, 4999]] = 9.0
    assert [i for i, _ in top_logprobs(scores, 20)] == np.argsort(-scores, kind="stable")[
        :20
    ].tolist()
    for bad, message in ((float("nan"), "not finite numbers"), (NEVER, "forbidden")):
        with pytest.raises(OwnwordsError, match=message):
            log_probabilities(np.full(3, bad, np.float32), [0])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", -1),
        ("temperature", float("nan")),
        ("temperature", float("inf")),
        ("top_k", -1),
        ("top_p", 0),
        ("top_p", 1.5),
        ("min_p", 2),
        ("typical_p", 0),
        ("repetition_penalty", 0),
        ("frequency_penalty", float("nan")),
        ("presence_penalty", float("inf")),
        ("no_repeat_ngram_size", -1),
        ("bias", {-1: 0.0}),
        ("bias", {1: float("nan")}),
        ("bias", {1: float("inf")}),
    ],
)
def test_settings_without_meaning_are_refused(name: str, value: object) -> None:
    with pytest.raises(ConfigError, match=f"{name} should be"):
        SamplingParams(**{name: value})  # type: ignore[arg-type]
