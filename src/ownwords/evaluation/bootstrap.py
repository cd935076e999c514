"""Cluster bootstrap: confidence intervals from resampling whole sources.

Sources (a post, a sample, another author) are resampled, not passages, since passages of one source
are not independent.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ownwords.evaluation.scores import Interval

RESAMPLES = 1000
LEVEL = 0.95

Vector = npt.NDArray[np.float64]
Numbers = Sequence[float] | Vector


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure, the number of passages behind it, and its interval.

    There is no interval with fewer than two sources.
    """

    value: float
    of: int
    interval: Interval | None = None


@dataclass(frozen=True, slots=True)
class PairedEstimate:
    """A figure of samples and the same figure of the author's held-out text.

    `excess` is the interval of the difference, samples minus held-out.
    """

    samples: Estimate
    held_out: Estimate
    excess: Interval | None = None


class ClusterBootstrap:
    """How often each source occurs in each resample, and the source of each item."""

    def __init__(self, sources: Sequence[int], seed: int = 1) -> None:
        distinct, which = np.unique(np.asarray(sources, np.int64), return_inverse=True)
        self.items, self.sources = len(sources), len(distinct)
        self._which = which
        generator = np.random.default_rng([seed, self.sources])
        self._counts = np.zeros((RESAMPLES, self.sources))
        if self.sources:
            chances = np.full(self.sources, 1 / self.sources)
            self._counts += generator.multinomial(self.sources, chances, RESAMPLES)

    def sums(self, values: Numbers) -> Vector:
        """Sum of the items' values in each resample."""
        return self._counts @ self.by_source(np.asarray(values, float))

    def quantile(self, values: Numbers, share: float) -> Vector:
        """Quantile of the items' values in each resample."""
        order = np.argsort(np.asarray(values, float), kind="stable")
        reached = np.cumsum(self._counts[:, self._which[order]], axis=1)
        at = (reached < share * reached[:, -1:]).sum(axis=1)
        quantiles: Vector = np.asarray(values, float)[order][np.minimum(at, self.items - 1)]
        return quantiles

    def by_source(self, values: Vector) -> Vector:
        """Sums over the items of each source, along the first axis."""
        sums = np.zeros((self.sources, *values.shape[1:]))
        np.add.at(sums, self._which, values)
        return sums

    def pairs(self, values_AB: Vector, other: "ClusterBootstrap") -> Vector:
        """Mean over all pairs with an item of the other, in each resample."""
        sums = other.by_source(self.by_source(values_AB).T).T
        drawn: Vector = ((self._counts @ sums) * other._counts).sum(axis=1)
        drawn /= self.sums(np.ones(self.items)) * other.sums(np.ones(other.items))
        return drawn


def ratio(parts: Numbers, wholes: Numbers, draws: ClusterBootstrap) -> Estimate:
    """Sum of the parts over the sum of the wholes; 0 without any."""
    value = float(_divided(np.atleast_1d(np.sum(parts)), np.atleast_1d(np.sum(wholes)))[0])
    return Estimate(value, draws.items, interval(_ratios(parts, wholes, draws), draws))


def mean(values: Numbers, draws: ClusterBootstrap) -> Estimate:
    """Mean of the items' values."""
    return ratio(values, np.ones(len(values)), draws)


def beside(
    samples: tuple[Numbers, Numbers, ClusterBootstrap],
    held_out: tuple[Numbers, Numbers, ClusterBootstrap],
) -> PairedEstimate:
    """Ratios of samples and of held-out text, each given as parts, wholes and resamples."""
    apart = _ratios(*samples) - _ratios(*held_out)
    return PairedEstimate(
        ratio(*samples), ratio(*held_out), interval(apart, samples[2], held_out[2])
    )


def over_pairs(values_AB: Vector, rows: ClusterBootstrap, columns: ClusterBootstrap) -> Estimate:
    """Mean over all pairs of items; for wins, the area under the ROC curve."""
    drawn = rows.pairs(values_AB, columns)
    return Estimate(float(values_AB.mean()), rows.items, interval(drawn, rows, columns))


def interval(drawn: Vector, *draws: ClusterBootstrap) -> Interval | None:
    """Interval of the resampled values; None if a side has fewer than two sources."""
    if any(draw.sources < 2 for draw in draws):
        return None
    low, high = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(float(low), float(high), LEVEL)


def _ratios(parts: Numbers, wholes: Numbers, draws: ClusterBootstrap) -> Vector:
    return _divided(draws.sums(parts), draws.sums(wholes))


def _divided(parts: Vector, wholes: Vector) -> Vector:
    return np.divide(parts, wholes, out=np.zeros(len(parts)), where=wholes > 0)
