"""Sampling against a reference that handles one token at a time."""

import math
from collections.abc import Collection
from typing import Any

import numpy as np
import pytest

from ownwords.core.errors import ConfigError, OwnwordsError
from ownwords.inference.sampling import Sampler, SamplingParams, draw_uniform

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
    remaining = {i: s for i, s in remaining.items() if i not in excluded and s > NEVER}
    ranked = sorted(remaining, key=lambda i: (-remaining[i], i))
    if params.temperature == 0:
        return [float(i == ranked[0]) for i in range(len(scores))]

    def shares() -> dict[int, float]:
        most = max(remaining.values())
        weights = {i: math.exp((s - most) / params.temperature) for i, s in remaining.items()}
        total = math.fsum(weights.values())
        return {i: w / total for i, w in weights.items()}

    def first(order: list[int], needed: float) -> dict[int, float]:
        probabilities, reached, chosen = shares(), 0.0, {}
        for i in order:
            if reached < needed:
                chosen[i] = remaining[i]
            reached += probabilities[i]
        return chosen

    if params.top_k:
        remaining = {i: remaining[i] for i in ranked[: params.top_k]}
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
        self.history = dice.integers(0, size, int(dice.integers(0, 15))).tolist()
        self.prompt = int(dice.integers(0, len(self.history) + 2))
        self.uniform = float(dice.random())
        # What is neither banned nor repeated nor -inf may be nothing: there the errors are tested.
        self.banned = np.flatnonzero(dice.random(size) < sometimes(0.3, 0.0)).tolist()
        bias_ids = dice.integers(0, size, 2).tolist()
        self.params = SamplingParams(
            temperature=float(sometimes(0.0, dice.choice([0.05, 0.7, 1.0, 3.0]))),
            top_k=int(sometimes(dice.integers(1, size + 3), 0)),
            top_p=float(sometimes(dice.uniform(0.05, 1), 1.0)),
            min_p=float(sometimes(dice.uniform(0, 1), 0.0)),
            repetition_penalty=float(sometimes(dice.uniform(0.5, 2), 1.0)),
            frequency_penalty=float(sometimes(dice.uniform(-1, 1), 0.0)),
            presence_penalty=float(sometimes(dice.uniform(-1, 1), 0.0)),
            bias=sometimes(dict(zip(bias_ids, [1.37, NEVER], strict=True)), {}),
        )

        self.sampler = Sampler(self.params, self.prompt)

    def expected(self) -> list[float] | None:
        """The distribution, or None where nothing is left to choose."""
        scores = self.scores.tolist()
        try:
            return by_hand(scores, self.params, self.history, self.banned, self.prompt)
        except (ValueError, IndexError):
            return None

    def drawn(self, uniform: float) -> int:
        return self.sampler.sample(self.scores, uniform, self.history, self.banned)


def distribution(scores: np.ndarray, sampler: Sampler) -> np.ndarray:
    ids, weights = sampler.candidates(scores)
    shares = np.zeros(len(scores))
    shares[ids] = weights / weights.sum()
    return shares


def test_the_distribution_is_the_one_worked_out_by_hand() -> None:
    for number in range(500):
        case = Case(number)
        expected = case.expected()
        if expected is None:
            with pytest.raises(OwnwordsError, match="forbidden"):
                case.drawn(case.uniform)
            continue
        assert expected[case.drawn(case.uniform)] > 0
        if case.params.temperature:
            scores = case.sampler.process(case.scores, case.history, case.banned)
            np.testing.assert_allclose(distribution(scores, case.sampler), expected, atol=5e-4)
        if number % 10 == 0:  # evenly drawn, each token comes as often as it is likely
            drawn = [case.drawn((n + 0.5) / 500) for n in range(500)]
            shares = np.bincount(drawn, minlength=len(expected)) / 500
            np.testing.assert_allclose(shares, expected, atol=0.003)


@pytest.mark.parametrize("size", [63, 64, 65, 8192, 50257])
def test_bounds_leave_out_nothing_that_may_be_drawn(size: int) -> None:
    """Large vocabularies, where most tokens are left out before they are weighed."""
    scores = (np.random.default_rng(size).normal(size=size) * 3).astype(np.float32)
    given = scores.copy()
    for params in (
        SamplingParams(temperature=0.8, top_p=0.95, min_p=0.05),
        SamplingParams(top_k=40),
        SamplingParams(top_p=0.9),
        SamplingParams(temperature=4, top_p=0.999),
        SamplingParams(min_p=1e-6),
    ):
        expected = by_hand(scores.tolist(), params, [], [], 0)
        np.testing.assert_allclose(distribution(scores, Sampler(params)), expected, atol=1e-5)
    assert (scores == given).all()


def test_scores_without_a_distribution() -> None:
    def chosen(scores: list[float], banned: Collection[int] = (), **params: Any) -> int:  # noqa: ANN401
        logits = np.array(scores, np.float32)
        return Sampler(SamplingParams(**params)).sample(logits, 0.61, banned=banned)

    for params in ({}, {"temperature": 0}, {"top_k": 1}, {"top_p": 0.5}, {"min_p": 0.1}):
        for bad in (float("nan"), float("inf")):
            for index in range(3):
                scores = [0.0] * 3
                scores[index] = bad
                with pytest.raises(OwnwordsError, match="not finite numbers"):
                    chosen(scores, **params)
        with pytest.raises(OwnwordsError, match="forbidden"):
            chosen([NEVER] * 20, **params)
        with pytest.raises(OwnwordsError, match="forbidden"):
            chosen([1.0, 2.0], banned=(0, 1), **params)
        assert chosen([NEVER, 3e4, NEVER, -3e4], **params) == 1
        assert chosen([1.0, 1.0, 1.0], banned={0, 2, 99, -1}, **params) == 1
    assert chosen([7.0] * 5) == 3  # all equal: 0.61 lies in the fourth fifth
    assert chosen([7.0] * 5, temperature=0) == 0
    assert chosen([7.0] * 5, top_k=2) == 1
    assert chosen([7.0] * 5, top_p=0.39) == 1
    assert chosen([7.0] * 5, min_p=1.0) == 3
    for temperature in (1e-30, 1e-3):
        assert chosen([3e4, 2.9e4, -3e4], temperature=temperature) == 0


def test_penalties_and_bias() -> None:
    def likeliest_of(
        scores: list[float],
        history: list[int],
        prompt: int = 0,
        **params: Any,  # noqa: ANN401
    ) -> int:
        logits = np.array(scores, np.float32)
        chosen = Sampler(SamplingParams(temperature=0, **params), prompt).sample(
            logits, 0.5, history
        )
        assert logits.tolist() == pytest.approx(scores)  # what was given stays
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
    assert likeliest_of([0.0, 1.0], [-5, 9, 1], repetition_penalty=3.0) == 1  # no such tokens


def test_draws_depend_on_the_seed_and_position_only() -> None:
    draws = {draw_uniform(seed, drawn) for seed in range(-20, 20) for drawn in range(50)}
    assert len(draws) == 2000
    assert min(draws) > 0 and max(draws) < 1
    even = (np.arange(2000) + 0.5) / 2000
    assert np.abs(np.sort([*draws]) - even).max() < 0.05  # Kolmogorov and Smirnov, at 1e-4
    scores = np.random.default_rng(3).normal(size=50).astype(np.float32)
    sampler = Sampler(SamplingParams())
    texts = [
        [sampler.sample(scores, draw_uniform(seed, n)) for n in range(20)] for seed in (1, 1, 2)
    ]
    assert texts[0] == texts[1] != texts[2]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", -1),
        ("temperature", float("nan")),
        ("temperature", float("inf")),
        ("top_k", -1),
        ("top_p", 1.5),
        ("min_p", 2),
        ("repetition_penalty", 0),
        ("frequency_penalty", float("nan")),
        ("presence_penalty", float("inf")),
        ("bias", {-1: 0.0}),
        ("bias", {1: float("nan")}),
        ("bias", {1: float("inf")}),
    ],
)
def test_settings_without_meaning_are_refused(name: str, value: object) -> None:
    with pytest.raises(ConfigError, match=rf"{name} (must be from \S+ to \S+, not|must )"):
        SamplingParams(**{name: value})  # type: ignore[arg-type]
