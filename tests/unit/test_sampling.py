import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ownwords.core.errors import ConfigError, OwnwordsError
from ownwords.inference.sampling import Sampling, chance, choose, draw, probabilities

rows = st.lists(st.floats(-20, 20, width=32), min_size=1, max_size=12)


def by_hand(scores: list[float], how: Sampling) -> np.ndarray:
    """The same distribution, worked out one token at a time."""
    left = {i: s / how.temperature for i, s in enumerate(scores)}

    def shares() -> dict[int, float]:
        most = max(left.values())
        weights = {i: math.exp(s - most) for i, s in left.items()}
        return {i: w / sum(weights.values()) for i, w in weights.items()}

    ranked = sorted(left, key=lambda i: (-np.float32(scores[i]), i))
    if how.top_k:
        left = {i: left[i] for i in ranked[: how.top_k]}
    chances, reached = shares(), 0.0
    for i in [i for i in ranked if i in left]:
        if reached >= how.top_p and len(left) > 1:
            del left[i]
        reached += chances[i]
    chances = shares()
    most = max(chances.values())
    left = {i: s for i, s in left.items() if chances[i] >= how.min_p * most}
    out = np.zeros(len(scores))
    for i, p in shares().items():
        out[i] = p
    return out


@given(
    rows,
    st.sampled_from([0.3, 1.0, 2.5]),
    st.integers(0, 5),
    st.sampled_from([0.33, 0.77, 1.0]),
    st.sampled_from([0.0, 0.013, 0.37]),
)
def test_the_distribution_is_the_one_worked_out_by_hand(
    scores: list[float], temperature: float, top_k: int, top_p: float, min_p: float
) -> None:
    how = Sampling(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    # Scores far enough from one another that rounding moves nothing over a limit.
    scores = [round(score) + 0.01 * i for i, score in enumerate(scores)]
    found = probabilities(torch.tensor([scores]), how)[0].numpy()
    np.testing.assert_allclose(found, by_hand(scores, how), atol=2e-5)


def test_of_equals_the_lower_ids_stay() -> None:
    flat = torch.zeros(1, 5)
    assert probabilities(flat, Sampling(top_k=2))[0].tolist() == [0.5, 0.5, 0, 0, 0]
    assert probabilities(flat, Sampling(top_p=0.39))[0].tolist() == [0.5, 0.5, 0, 0, 0]
    assert probabilities(flat, Sampling(min_p=1.0))[0].tolist() == pytest.approx([0.2] * 5)
    assert choose(flat, Sampling(temperature=0), [1], 0).tolist() == [0]


def test_a_temperature_close_to_nothing_takes_the_likeliest() -> None:
    scores = torch.tensor([[3e4, 2.9e4, -3e38]])
    for temperature in (0, 1e-30, 1e-3):
        assert choose(scores, Sampling(temperature=temperature), [5], 3).tolist() == [0]


def test_draws_follow_the_distribution() -> None:
    p = torch.tensor([0.0, 0.5, 0.0, 0.2, 0.3, 0.0])
    n = 20_000
    chances = torch.tensor([chance(7, i) for i in range(n)])
    counts = torch.bincount(draw(p.expand(n, -1), chances), minlength=6) / n
    # Five standard deviations of a count of 20,000.
    assert torch.allclose(counts, p, atol=5 * (0.25 / n) ** 0.5)
    assert counts[[0, 2, 5]].tolist() == [0, 0, 0]


@given(st.lists(st.sampled_from([0.0, 1e-7, 0.1, 0.5]), min_size=1).filter(any))
def test_what_has_no_probability_is_never_drawn(weights: list[float]) -> None:
    p = torch.tensor([weights]) / sum(weights)
    for luck in (2**-33, 0.25, 0.5, 1 - 2**-33):
        assert p[0, draw(p, torch.tensor([luck], dtype=torch.float64))] > 0


def test_a_draw_knows_nothing_of_the_batch() -> None:
    scores = torch.randn(4, 50, generator=torch.Generator().manual_seed(3))
    how = Sampling(temperature=1.3, top_p=0.9, repetition_penalty=1.2)
    seeds, seen = [11, 12, 13, 11], [[1, 2], [3], [], [49, 49]]
    for drawn in range(5):
        together = choose(scores, how, seeds, drawn, seen).tolist()
        alone = [
            int(choose(scores[i : i + 1], how, seeds[i : i + 1], drawn, seen[i : i + 1]))
            for i in range(4)
        ]
        turned = choose(scores.flip(0), how, seeds[::-1], drawn, seen[::-1]).tolist()
        assert together == alone == turned[::-1]
    state = torch.get_rng_state()
    choose(scores, how, seeds, 0, seen)
    assert torch.equal(state, torch.get_rng_state())


def test_seeds_and_places_have_luck_of_their_own() -> None:
    lucks = {chance(seed, drawn) for seed in range(-20, 20) for drawn in range(50)}
    assert len(lucks) == 2000
    assert 0 < min(lucks) < 0.01 and 0.99 < max(lucks) < 1


def test_repetition_is_penalised_once_a_token_whatever_its_sign() -> None:
    scores = torch.tensor([[2.0, -2.0, 1.5, -3.0]])
    how = Sampling(temperature=0, repetition_penalty=2.0)
    assert choose(scores, how, [0], 0, [[0, 0, 0]]).tolist() == [2]  # 2 -> 1, and not 0.25
    low = torch.tensor([[-2.0, -3.0]])
    assert choose(low, how, [0], 0, [[0]]).tolist() == [1]  # -2 -> -4
    assert scores[0, 0] == 2.0  # what was given stays


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_scores_that_are_no_numbers_are_said(bad: float) -> None:
    with pytest.raises(OwnwordsError, match="not numbers"):
        choose(torch.tensor([[0.0, bad]]), Sampling(), [1], 0)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", -1),
        ("temperature", float("nan")),
        ("top_k", -1),
        ("top_p", 0),
        ("top_p", 1.5),
        ("min_p", 2),
        ("repetition_penalty", 0),
    ],
)
def test_settings_without_meaning_are_refused(name: str, value: float) -> None:
    with pytest.raises(ConfigError, match=f"{name} should be"):
        Sampling(**{name: value})  # type: ignore[arg-type]
