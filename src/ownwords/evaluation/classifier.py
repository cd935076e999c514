"""Logistic regression of one author's passages against others', scored by cross-validation.

The author's posts and the other authors are divided into folds. Each fold's weights are fitted
without its posts and authors, and score only passages outside their training data. All folds are
fitted together.

Shapes: N passages, F features, K folds.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float32]

FOLDS = 4
PENALTY = 1e-3  # L2 penalty, for standardised features whose rows have length about 1

_STEPS = 60  # 150 steps change an area under the curve by 0.001
_SMALL = 1e-3  # stop below this share of the first gradient's norm


class StandardScaler:
    """Standardizes square roots of relative counts: mean 0 and deviation 1 per feature.

    Features are also divided by the square root of their number, so that rows have length about 1.
    """

    def __init__(self, counts_NF: Array) -> None:
        damped_NF = _damped(counts_NF)
        self._mean_F = damped_NF.mean(axis=0)
        spread_F = damped_NF.std(axis=0)
        # Constant features become 0 instead of being divided by a zero deviation.
        scale_F = np.where(spread_F > 0, 1 / np.maximum(spread_F, 1e-9), 0)
        self._scale_F = (scale_F / np.sqrt(max(1, counts_NF.shape[1]))).astype(np.float32)

    def __call__(self, counts_NF: Array) -> Array:
        features_NF: Array = (_damped(counts_NF) - self._mean_F) * self._scale_F
        return features_NF


def _damped(counts_NF: Array) -> Array:
    shares_NF = counts_NF / np.maximum(counts_NF.sum(axis=1, keepdims=True), 1)
    # The square root gives less weight to words that occur in bursts, such as those of a topic.
    damped_NF: Array = np.sqrt(shares_NF, dtype=np.float32)
    return damped_NF


def folds(sources: Sequence[int], count: int = FOLDS) -> npt.NDArray[np.int64]:
    """Return the fold of each passage: one fold per source, folds of about equal size."""
    distinct, which, sizes = np.unique(sources, return_inverse=True, return_counts=True)
    filled = np.zeros(count)
    fold_of = np.zeros(len(distinct), np.int64)
    for source in np.argsort(-sizes, kind="stable"):
        fold_of[source] = filled.argmin()
        filled[fold_of[source]] += sizes[source]
    return fold_of[which]


def fit(
    features_NF: Array, is_author_N: npt.NDArray[np.bool_], fold_N: npt.NDArray[np.int64]
) -> Array:
    """Fit the weights of each fold, constant last, weighting both classes equally.

    Accelerated gradient steps with restarts (O'Donoghue and Candès, 2015).
    """
    ones_N1 = np.ones((len(features_NF), 1), np.float32)
    rows_NF = np.concatenate([features_NF, ones_N1], axis=1)
    signs_N1 = np.where(is_author_N, 1, -1)[:, None].astype(np.float32)
    weights_NK = _weights(is_author_N, fold_N)
    step = 1 / (0.25 * _largest(rows_NF, weights_NK.max(axis=1)) + PENALTY)

    def gradient(at_FK: Array) -> Array:
        margins_NK = signs_N1 * (rows_NF @ at_FK)
        pull_NK = -signs_N1 * weights_NK / (1 + np.exp(np.minimum(margins_NK, 80)))
        down_FK: Array = rows_NF.T @ pull_NK + PENALTY * at_FK
        down_FK[-1] -= PENALTY * at_FK[-1]
        return down_FK

    at_FK: Array = np.zeros((rows_NF.shape[1], weights_NK.shape[1]), np.float32)
    ahead_FK, momentum_K = at_FK, np.ones(weights_NK.shape[1], np.float32)
    enough = 0.0
    for _ in range(_STEPS):
        down_FK = gradient(ahead_FK)
        size = float(np.linalg.norm(down_FK))
        enough = enough or _SMALL * size
        if size <= enough:
            break
        next_FK: Array = ahead_FK - step * down_FK
        moved_FK = next_FK - at_FK
        # Restart: reset the momentum of folds whose last step went uphill.
        uphill_K = (down_FK * moved_FK).sum(axis=0) > 0
        momentum_K = np.where(uphill_K, np.float32(1), momentum_K)
        later_K = ((1 + np.sqrt(1 + 4 * momentum_K**2)) / 2).astype(np.float32)
        ahead_FK = next_FK + (momentum_K - 1) / later_K * moved_FK
        at_FK, momentum_K = next_FK, later_K
    return at_FK


def scores(features_NF: Array, weights_FK: Array) -> npt.NDArray[np.float64]:
    """Return the logit of each passage under each fold's weights [N, K]; above 0: the author's."""
    scores_NK: Array = features_NF @ weights_FK[:-1] + weights_FK[-1]
    return scores_NK.astype(np.float64)


def _weights(is_author_N: npt.NDArray[np.bool_], fold_N: npt.NDArray[np.int64]) -> Array:
    used_NK = fold_N[:, None] != np.arange(int(fold_N.max(initial=0)) + 1)
    weights_NK = np.zeros(used_NK.shape)
    for side_N in (is_author_N, ~is_author_N):
        here_NK = used_NK & side_N[:, None]
        weights_NK += 0.5 * here_NK / np.maximum(here_NK.sum(axis=0), 1)
    return weights_NK.astype(np.float32)


def _largest(rows_NF: Array, weights_N: Array) -> float:
    """Estimate the largest eigenvalue of the weighted Gram matrix by power iteration."""
    at_F = rows_NF.T @ weights_N + 1e-3
    size = 0.0
    for _ in range(12):
        at_F = rows_NF.T @ (weights_N * (rows_NF @ at_F))
        size = float(np.linalg.norm(at_F))
        if not size:
            return 1.0
        at_F /= size
    return 1.1 * size  # power iteration approaches the value from below
