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

import numpy as np
import numpy.typing as npt

from ownwords.archive.features import MIN_STYLE_WORDS, Features
from ownwords.archive.report import UnlikePost

MIN_POSTS = 8  # with fewer posts to judge, none is judged

_ROUNDS = 4
_MIN_SPREAD = 0.05  # of log Delta: smaller differences are sampling noise

_Array = npt.NDArray[np.float64]


def find_style_outliers(features: Mapping[str, Features], distance: float) -> list[UnlikePost]:
    """Find the posts whose robust z is at least `distance`, the furthest first.

    There are none among fewer than `MIN_POSTS` posts that can be judged.
    """
    ids = sorted(id_ for id_, post in features.items() if post.own_words >= MIN_STYLE_WORDS)
    if len(ids) < MIN_POSTS:
        return []
    words = np.array([[features[id_].own_words] for id_ in ids], float)
    rates = np.array([features[id_].style for id_ in ids], float) / words
    in_norm = np.ones(len(ids), bool)
    for _ in range(_ROUNDS):
        logs = np.log(_deltas(rates, words, in_norm))
        middle = np.median(logs[in_norm])
        spread = 1.4826 * float(np.median(np.abs(logs[in_norm] - middle)))
        # Correct the median deviation, which is too small for few posts.
        z = (logs - middle) / (max(spread, _MIN_SPREAD) * (1 + 2 / in_norm.sum()))
        near = z < distance
        # Stop before the norm has fewer than two thirds of the posts: there may be two authors.
        too_few = near.sum() < max(MIN_POSTS - 2, 2 / 3 * len(ids))
        if too_few or (near == in_norm).all():
            break
        in_norm = near
    furthest = sorted(np.flatnonzero(z >= distance).tolist(), key=lambda i: (-z[i], ids[i]))
    return [UnlikePost(ids[i], round(float(z[i]), 2)) for i in furthest]


def _deltas(rates: _Array, words: _Array, in_norm: npt.NDArray[np.bool_]) -> _Array:
    """Return each post's mean score; a post in the norm is compared with the others in it."""
    own = np.where(in_norm[:, None], rates, 0.0)
    others = in_norm.sum() - in_norm[:, None]
    mean = np.maximum((own.sum(0) - own) / others, 0.5 / words[in_norm].sum())
    spread = np.maximum((own**2).sum(0) - own**2 - others * mean**2, 0) / (others - 1)
    chance = np.where(in_norm[:, None], 1 / words, 0.0)
    by_chance = mean * (chance.sum() - chance) / others
    between = np.maximum(spread - by_chance, 0.02 * spread)
    expected = (between + mean / words) * (1 + 1 / others)
    return np.asarray(np.abs((rates - mean) / np.sqrt(expected)).mean(axis=1))
