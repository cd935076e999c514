"""Find posts whose style differs: Burrows' Delta, made robust and fair to short posts.

The features are the archive's own most frequent words that occur in at least half of the posts (up
to 150), which are the function words of any language, and its character 3-grams in hash buckets.
The distance of a post's rate from the mean rate of the other posts is divided by the deviation
expected of another post of its length: the variance between posts plus the sampling variance of
counts in a text that long. A post's Delta is the average of two means of these scores: over the
words and over the 3-grams. Its logarithm is compared with the others' by median and median absolute
deviation, as a robust z. All posts weigh the same whatever their length, so that a long one cannot
define the norm; outliers are removed from the norm, and all posts are scored again.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ownwords.archive.features import MIN_STYLE_WORDS, TRIGRAMS, Features
from ownwords.archive.report import UnlikePost
from ownwords.core.text import hash_words

MIN_WORDS = MIN_STYLE_WORDS  # posts with fewer own words are not judged
MIN_POSTS = 8  # with fewer posts to judge, none is judged

_WORDS = 150  # maximum number of most frequent words used
_SPREAD = 0.5  # minimum share of the posts a word must occur in
_SAMPLE = 1000  # posts from which the words are chosen
_ROUNDS = 4
_FLOOR = 0.05  # minimum spread of log Delta: smaller differences are sampling noise
_BLOCK = 1000  # posts scored at once
_EVIDENCE = 5

_Matrix = npt.NDArray[np.float32]
_Vector = npt.NDArray[np.float64]
_Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class StyleComparison:
    """The outliers, the furthest first, or a note on why no post was judged."""

    outliers: tuple[UnlikePost, ...] = ()
    note: str = ""


def find_style_outliers(features: Mapping[str, Features], distance: float) -> StyleComparison:
    """Find the posts whose robust z is at least `distance`."""
    ids = sorted(id_ for id_, post in features.items() if post.own_words >= MIN_WORDS)
    if len(ids) < MIN_POSTS:
        return StyleComparison(
            note=f"Style was not compared: that takes {MIN_POSTS} posts of {MIN_WORDS} words "
            f"or more of your own each, and this archive has {len(ids) or 'none'}.",
        )
    posts = [features[id_] for id_ in ids]
    vocabulary, names = _frequent(posts)
    rates = _rates(posts, vocabulary)
    words = np.array([post.own_words for post in posts], float)
    z, norm, in_norm = _judge(rates, words, len(vocabulary), distance)
    outliers = []
    for i in sorted(np.flatnonzero(z >= distance).tolist(), key=lambda i: (-z[i], ids[i])):
        row = slice(i, i + 1)
        scores, means = _scores(norm, rates[row], words[row], in_norm[row])
        evidence = _evidence(names, rates[i], scores[0], means[0])
        outliers.append(UnlikePost(ids[i], round(float(z[i]), 2), evidence))
    return StyleComparison(tuple(outliers))


def _frequent(posts: Sequence[Features]) -> tuple[npt.NDArray[np.uint32], tuple[str, ...]]:
    """The words used as features: their hashes (ascending) and texts."""
    sample = posts[:: -(-len(posts) // _SAMPLE)]
    known = _names(sample)
    keys = np.concatenate([post.vocabulary for post in sample])
    rate = np.concatenate([post.counts / post.own_words for post in sample])
    distinct, which, spread = np.unique(keys, return_inverse=True, return_counts=True)
    mean = np.bincount(which, rate)
    common = np.flatnonzero(spread >= _SPREAD * len(sample))
    common = common[np.lexsort((distinct[common], -mean[common]))]
    chosen = sorted([key for key in distinct[common].tolist() if key in known][:_WORDS])
    return np.array(chosen, np.uint32), tuple(known[key] for key in chosen)


def _names(sample: Iterable[Features]) -> dict[int, str]:
    known: dict[int, str] = {}
    for post in sample:
        keys = (hash_words(post.named).hashes >> np.uint64(32)).tolist()
        names = post.named.split()
        if len(keys) == len(names):
            known.update(zip(keys, names, strict=True))
    return known


def _rates(posts: Sequence[Features], vocabulary: npt.NDArray[np.uint32]) -> _Matrix:
    """Feature rates, shape (posts, words + TRIGRAMS): word shares, then 3-grams per word."""
    n = len(vocabulary)
    rates = np.zeros((len(posts), n + TRIGRAMS), np.float32)
    for row, post in zip(rates, posts, strict=True):
        if n and len(post.vocabulary):
            place = np.minimum(
                np.searchsorted(post.vocabulary, vocabulary), len(post.vocabulary) - 1
            )
            row[:n] = np.where(post.vocabulary[place] == vocabulary, post.counts[place], 0)
        row[n:] = post.style
    words = np.array([post.own_words for post in posts], np.float32)
    rates /= words[:, None]
    return rates


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


def _scores(
    norm: _StyleNorm, rates: _Matrix, words: _Vector, inside: _Mask
) -> tuple[_Vector, _Vector]:
    """Each rate's z-score and the others' mean; `inside` marks the posts that are in the norm."""
    own = rates.astype(float)
    once = inside.astype(float)[:, None]
    others = norm.posts - once
    mean = np.maximum((norm.total - once * own) / others, norm.least)
    spread = np.maximum(norm.squares - once * own * own - others * mean * mean, 0) / (others - 1)
    by_chance = mean * (norm.chance - once / words[:, None]) / others
    between = np.maximum(spread - by_chance, 0.02 * spread)
    expected = (between + mean / words[:, None]) * (1 + 1 / others)
    return (own - mean) / np.sqrt(expected), mean


def _judge(
    rates: _Matrix, words: _Vector, n_words: int, distance: float
) -> tuple[_Vector, _StyleNorm, _Mask]:
    """The robust z of every post, the final norm, and a mask of the posts in it."""
    in_norm = np.ones(len(rates), bool)
    for left in reversed(range(_ROUNDS)):
        norm = _norm(rates, words, in_norm)
        deltas = np.empty(len(rates))
        for start in range(0, len(rates), _BLOCK):
            part = slice(start, start + _BLOCK)
            sizes = np.abs(_scores(norm, rates[part], words[part], in_norm[part])[0])
            kinds = (sizes[:, :n_words], sizes[:, n_words:])
            deltas[part] = np.mean([size.mean(axis=1) for size in kinds if size.shape[1]], axis=0)
        logs = np.log(deltas)
        middle = np.median(logs[in_norm])
        spread = 1.4826 * np.median(np.abs(logs[in_norm] - middle))
        # Correct the median deviation, which is too small for few posts.
        z = (logs - middle) / (max(float(spread), _FLOOR) * (1 + 2 / in_norm.sum()))
        near = z < distance
        # Stop before the norm has fewer than two thirds of the posts: there may be two authors.
        too_few = near.sum() < max(MIN_POSTS - 2, 2 / 3 * len(rates))
        if too_few or not left or (near == in_norm).all():
            break
        in_norm = near
    return z, norm, in_norm


def _evidence(names: Sequence[str], rates: _Matrix, scores: _Vector, means: _Vector) -> list[str]:
    """The words whose rates differ most, in plain words: '"upon" 9 times as often'."""
    ratios = rates / means
    furthest = np.argsort(-np.abs(scores[: len(names)]), kind="stable").tolist()
    telling = [i for i in furthest if not 1 / 1.5 < ratios[i] < 1.5]
    return [f'"{names[i]}" {_times(float(ratios[i]))}' for i in telling[:_EVIDENCE]]


def _times(ratio: float) -> str:
    if ratio == 0:
        return "never"
    if ratio >= 1.5:
        figure = f"{ratio:.0f}" if ratio >= 9.5 else f"{ratio:.1f}".removesuffix(".0")
        return f"{figure} times as often"
    parts = ("half", "a third", "a quarter", "a fifth", "a sixth", "a seventh", "an eighth")
    share = round(1 / ratio)
    return f"{parts[share - 2]} as often" if share < 9 else "hardly ever"
