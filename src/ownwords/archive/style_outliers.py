"""Find posts whose style differs: Burrows' Delta, made robust and fair to short posts.

The features are the counts of a post's character 3-grams in hash buckets, which reflect the
function words and endings of any language. The distance of a post's rate from the mean rate of the
other posts is divided by the deviation expected at its length: the variance between posts plus the
sampling variance of the counts. A post's Delta is the mean of these scores. Its logarithm is
compared with the others' by median and median absolute deviation, as a robust z. All posts have the
same weight, so that a long one cannot define the norm; outliers are removed from the norm, and all
posts are scored again.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ownwords.archive.features import MIN_STYLE_WORDS, Features
from ownwords.archive.report import UnlikePost

MIN_POSTS = 8  # with fewer posts to judge, none is judged

_ROUNDS = 4
_FLOOR = 0.05  # minimum spread of log Delta: smaller differences are sampling noise
_BLOCK = 1000  # posts scored at once

_Matrix = npt.NDArray[np.float32]
_Vector = npt.NDArray[np.float64]
_Mask = npt.NDArray[np.bool_]


def find_style_outliers(features: Mapping[str, Features], distance: float) -> list[UnlikePost]:
    """Find the posts whose robust z is at least `distance`, the furthest first.

    There are none among fewer than `MIN_POSTS` posts that can be judged.
    """
    ids = sorted(id_ for id_, post in features.items() if post.own_words >= MIN_STYLE_WORDS)
    if len(ids) < MIN_POSTS:
        return []
    posts = [features[id_] for id_ in ids]
    words = np.array([post.own_words for post in posts], float)
    rates: _Matrix = np.array([post.style for post in posts])
    rates /= words[:, None]
    z = _robust_z(rates, words, distance)
    furthest = sorted(np.flatnonzero(z >= distance).tolist(), key=lambda i: (-z[i], ids[i]))
    return [UnlikePost(ids[i], round(float(z[i]), 2)) for i in furthest]


class _StyleNorm(NamedTuple):
    """Sums over the posts in the norm, from which a single post can be subtracted."""

    posts: int
    total: _Vector
    squares: _Vector
    chance: float  # sum of 1 / words
    least: float  # floor of the mean rate: half an occurrence


def _norm(rates: _Matrix, words: _Vector, in_norm: _Mask) -> _StyleNorm:
    inside, lengths = rates[in_norm], words[in_norm]
    total = inside.sum(axis=0, dtype=float)
    squares = np.einsum("ij,ij->j", inside, inside, dtype=float)
    return _StyleNorm(
        len(inside), total, squares, float((1 / lengths).sum()), 0.5 / float(lengths.sum())
    )


def _scores(norm: _StyleNorm, rates: _Matrix, words: _Vector, inside: _Mask) -> _Vector:
    """Return each rate's z-score; `inside` marks the posts that are in the norm."""
    own = rates.astype(float)
    once = inside.astype(float)[:, None]
    others = norm.posts - once
    mean = np.maximum((norm.total - once * own) / others, norm.least)
    spread = np.maximum(norm.squares - once * own * own - others * mean * mean, 0) / (others - 1)
    by_chance = mean * (norm.chance - once / words[:, None]) / others
    between = np.maximum(spread - by_chance, 0.02 * spread)
    expected = (between + mean / words[:, None]) * (1 + 1 / others)
    scores: _Vector = (own - mean) / np.sqrt(expected)
    return scores


def _robust_z(rates: _Matrix, words: _Vector, distance: float) -> _Vector:
    in_norm = np.ones(len(rates), bool)
    for left in reversed(range(_ROUNDS)):
        norm = _norm(rates, words, in_norm)
        deltas = np.empty(len(rates))
        for start in range(0, len(rates), _BLOCK):
            part = slice(start, start + _BLOCK)
            sizes = np.abs(_scores(norm, rates[part], words[part], in_norm[part]))
            deltas[part] = sizes.mean(axis=1)
        logs = np.log(deltas)
        middle = np.median(logs[in_norm])
        spread = 1.4826 * np.median(np.abs(logs[in_norm] - middle))
        # Correct the median deviation, which is too small for few posts.
        z: _Vector = (logs - middle) / (max(float(spread), _FLOOR) * (1 + 2 / in_norm.sum()))
        near = z < distance
        # Stop before the norm has fewer than two thirds of the posts: there may be two authors.
        too_few = near.sum() < max(MIN_POSTS - 2, 2 / 3 * len(rates))
        if too_few or not left or (near == in_norm).all():
            break
        in_norm = near
    return z
