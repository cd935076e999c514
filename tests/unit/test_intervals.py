"""Confidence intervals cover what they say, also with few posts of very different lengths."""

from collections.abc import Callable
from functools import partial

import numpy as np
import numpy.typing as npt
import pytest

from ownwords.evaluation import intervals
from ownwords.evaluation.intervals import (
    Estimate,
    Interval,
    beside,
    rate,
    ratio_interval,
    share,
    wilson,
)

Generator = np.random.Generator
Vector = npt.NDArray[np.float64]
TIMES = 1000  # the standard error of a coverage of 95% is .7%
FEWER = 200  # for rates, which take longer


def lengths(rng: Generator, posts: int) -> Vector:
    """Bytes of posts: the middle 80% differ by a factor of about ten."""
    return np.exp(rng.normal(np.log(3000), 0.9, posts))


def bits(rng: Generator, posts: int) -> Interval | None:
    """Bits per byte of posts, 1.4 in all, short ones harder to predict."""
    sizes = lengths(rng, posts)
    return ratio_interval(1.4 * sizes * np.exp(rng.normal(-0.0072, 0.12, posts)) + 60, sizes)


def gains(rng: Generator, posts: int) -> Interval | None:
    """Bits gained over a model that is as good in the mean, with heavy tails."""
    sizes = lengths(rng, posts)
    spread = np.sqrt(0.01**2 + 0.5 / sizes)
    return ratio_interval(sizes * spread * rng.standard_t(4, posts), sizes)


def rare_events(truth: float, words: int, rng: Generator, posts: int) -> Interval | None:
    """Made-up words in texts, some of whose authors invent more of them than others."""
    sizes = np.ceil(words / 3000 * lengths(rng, posts))
    events = rng.binomial(sizes.astype(int), np.minimum(1, rng.gamma(2, truth / 2, posts)))
    return rate(events.astype(float), sizes, range(posts)).interval


def clustered(truth: float, correlation: float, rng: Generator, posts: int) -> Interval | None:
    """Rare events of which a few texts of 300 words have nearly all, the others none."""
    pseudo, words = 1 / correlation - 1, np.full(posts, 300)
    events = rng.binomial(words, rng.beta(pseudo * truth, pseudo * (1 - truth), posts))
    return rate(events.astype(float), words.astype(float), range(posts)).interval


def shares(truth: float, rng: Generator, posts: int) -> Interval | None:
    """Hits among passages, where those of a post are alike."""
    passages = np.ceil(lengths(rng, posts) / 1500).astype(int)
    chances = rng.beta(2 * truth, 2 - 2 * truth, posts)
    sources = np.repeat(np.arange(posts), passages)
    hits = (rng.random(len(sources)) < chances[sources]).astype(float)
    return share(hits, sources.tolist()).interval


def differences(rng: Generator, posts: int) -> Interval | None:
    """Of 20 samples and the posts."""
    sides = []
    for texts in (20, posts):
        words = np.ceil(lengths(rng, texts) / 4)
        events = rng.binomial(words.astype(int), rng.gamma(3, 0.01 / 3, texts))
        sides.append(rate(events.astype(float), words, range(texts)))
    return beside(*sides).excess


def limits(interval: Interval | None) -> tuple[float, float]:
    assert interval is not None
    return interval.low, interval.high


@pytest.mark.parametrize("posts", [5, 20])
@pytest.mark.parametrize(
    ("draw", "truth", "times"),
    [
        (bits, 1.4 + 60 / (3000 * np.exp(0.405)), TIMES),
        (gains, 0.0, TIMES),
        *((partial(rare_events, *case), case[0], FEWER) for case in ((0.006, 700), (0.001, 700))),
        (partial(rare_events, 0.05, 60), 0.05, FEWER),
        *((partial(shares, truth), truth, TIMES) for truth in (0.5, 0.85, 0.95)),
        (differences, 0.0, FEWER),
    ],
)
def test_intervals_cover_the_truth(
    draw: Callable[[Generator, int], Interval | None], truth: float, times: int, posts: int
) -> None:
    rng = np.random.default_rng(posts)
    drawn = np.array([limits(draw(rng, posts)) for _ in range(times)])
    below, above = (drawn[:, 1] < truth).mean(), (drawn[:, 0] > truth).mean()
    assert below + above <= 0.07
    if draw in (bits, gains):
        # How often a model that is no better would be said to be.
        assert above <= 0.04


@pytest.mark.parametrize(
    ("truth", "correlation", "posts"),
    [(0.003, 0.05, 12), (0.02, 0.2, 8), (0.005, 0.1, 6), (0.003, 0.02, 6), (0.02, 0.05, 6)],
)
def test_intervals_of_rare_events_in_few_texts_cover_the_truth(
    truth: float, correlation: float, posts: int
) -> None:
    rng = np.random.default_rng(posts)
    drawn = np.array([limits(clustered(truth, correlation, rng, posts)) for _ in range(FEWER)])
    assert ((drawn[:, 0] <= truth) & (truth <= drawn[:, 1])).mean() >= 0.9
    assert np.median(drawn[:, 1]) < 0.1  # and yet it says something


def test_below_five_sources_there_is_no_interval() -> None:
    for count in range(5):
        ones = np.ones(count)
        assert ratio_interval(ones, ones) is None
        assert rate(ones, ones, range(count)).interval is None
        assert share(np.repeat(ones, 9), np.repeat(range(count), 9).tolist()).interval is None
    of_four = rate([1.0] * 8, [9.0] * 8, [0, 0, 1, 1, 2, 2, 3, 3])
    assert of_four == Estimate(1 / 9, 8)
    assert beside(of_four, rate([1.0] * 9, [9.0] * 9, range(9))).excess is None
    assert rate([], [], []).value == share([], []).value == 0
    # Texts without an opportunity say nothing.
    assert rate([0.0] * 9, [1.0] * 4 + [0.0] * 5, range(9)).interval is None


def test_all_of_few_is_not_surely_all() -> None:
    """The number of posts counts, not that of their passages."""
    sources = [post for post in range(10) for _ in range(30)]
    low, high = limits(share(np.ones(300), sources).interval)
    assert high == 1
    assert 0.6 < low < 0.75
    assert limits(share(np.zeros(300), sources).interval)[1] == pytest.approx(1 - low)
    # An event that never occurred in ten posts may fill the eleventh, and be one word in a hundred.
    low, high = limits(rate([0.0] * 10, [300.0] * 10, range(10)).interval)
    assert low == 0
    assert 0.003 < high < 0.02
    mirrored = limits(rate([300.0] * 10, [300.0] * 10, range(10)).interval)
    assert mirrored == pytest.approx((1 - high, 1))


# scipy.stats.t.ppf(0.975, degrees)
@pytest.mark.parametrize(
    ("degrees", "quantile"), [(2, 4.303), (3, 3.182), (4, 2.776), (9, 2.262), (30, 2.042)]
)
def test_quantiles_of_student(degrees: int, quantile: float) -> None:
    assert intervals.student_t(degrees) == pytest.approx(quantile, rel=0.01)


# Of Brown, Cai and DasGupta 2001, and of R's prop.test(correct=FALSE).
@pytest.mark.parametrize(
    ("hits", "of", "low", "high"),
    [(0, 10, 0.0, 0.2775), (5, 10, 0.2366, 0.7634), (81, 263, 0.2553, 0.3662), (10, 10, 0.7225, 1)],
)
def test_wilson_s_interval(hits: int, of: int, low: float, high: float) -> None:
    assert limits(wilson(hits / of, of)) == pytest.approx((low, high), abs=1e-4)
