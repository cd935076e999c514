"""Which posts read unlike the others: Burrows' Delta, made robust and fair to short posts.

The yardstick is the archive's own most frequent words, those that stand in at least half of the
posts (up to 150), and its character 3-grams, hashed into buckets. No list of function words is
shipped: in a long enough text the most frequent words are the function words of whatever language
it is in, so a Polish or German blog is measured as well as an English one. A word that is
frequent because of the blog's one subject is frequent in all its posts, and tells none of them
apart.

How far a post's rate of a word lies from the mean rate of the others is divided by what would be
expected of one more post of its length: the spread between posts and the chance of counting in a
text so long, added. The mean of these over the words, and that over the 3-grams, averaged, is the
post's Delta. Its logarithm is compared with that of the others (median, median absolute
deviation). Every post weighs the same, whatever its length, so that a long one cannot become the
norm; posts found unlike are taken out of the norm, and all are measured once more.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ownwords.archive.features import MIN_STYLE_WORDS, TRIGRAMS, Features, hash_words

MIN_WORDS = MIN_STYLE_WORDS  # own words below which a post is not judged
MIN_POSTS = 8  # posts that can be judged, below which none is

_WORDS = 150  # of the archive's most frequent
_SPREAD = 0.5  # share of the posts a word must stand in
_SAMPLE = 1000  # posts that choose the words
_ROUNDS = 4
_FLOOR = 0.05  # least spread of log Delta: below it posts differ by chance of counting alone
_BLOCK = 1000  # posts measured at once
_EVIDENCE = 5

_Matrix = npt.NDArray[np.float32]
_Vector = npt.NDArray[np.float64]
_Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class StyleOutlier:
    """A post that reads unlike the others: its robust z, and the words that show it most."""

    id: str
    distance: float
    evidence: tuple[str, ...]  # '"upon" 9 times as often'


@dataclass(frozen=True, slots=True)
class StyleComparison:
    """The posts found unlike, furthest first; how many could be judged, and a sentence if none."""

    outliers: tuple[StyleOutlier, ...] = ()
    judged: int = 0
    note: str = ""
    distances: Mapping[str, float] = field(default_factory=dict)  # of every post judged


def find_style_outliers(features: Mapping[str, Features], distance: float) -> StyleComparison:
    """The posts whose robust z is at least `distance`."""
    ids = sorted(id_ for id_, one in features.items() if one.own_words >= MIN_WORDS)
    if len(ids) < MIN_POSTS:
        return StyleComparison(
            note=f"Style was not compared: that takes {MIN_POSTS} posts of {MIN_WORDS} words "
            f"or more of your own each, and this archive has {len(ids) or 'none'}.",
        )
    posts = [features[id_] for id_ in ids]
    vocabulary, names = _frequent(posts)
    rates = _rates(posts, vocabulary)
    words = np.array([post.style_words for post in posts], float)
    z, norm, in_norm = _judge(rates, words, len(vocabulary), distance)
    far = sorted(np.flatnonzero(z >= distance).tolist(), key=lambda i: (-z[i], ids[i]))
    outliers = []
    for i in far:
        one = slice(i, i + 1)
        scores, means = _scores(norm, rates[one], words[one], in_norm[one])
        evidence = _evidence(names, rates[i], scores[0], means[0])
        outliers.append(StyleOutlier(ids[i], round(float(z[i]), 2), evidence))
    distances = {id_: round(float(one), 2) for id_, one in zip(ids, z, strict=True)}
    return StyleComparison(tuple(outliers), len(ids), "", distances)


def _frequent(posts: Sequence[Features]) -> tuple[npt.NDArray[np.uint32], tuple[str, ...]]:
    """The hashes, ascending, of the words to measure by, and the words."""
    sample = posts[:: -(-len(posts) // _SAMPLE)]
    known = _names(sample)
    keys = np.concatenate([post.vocabulary for post in sample])
    rate = np.concatenate([post.counts / post.style_words for post in sample])
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
    """One row a post: the share of its words that each word is, then its 3-grams per word."""
    n = len(vocabulary)
    rates = np.zeros((len(posts), n + TRIGRAMS), np.float32)
    for row, post in zip(rates, posts, strict=True):
        if n and len(post.vocabulary):
            place = np.minimum(
                np.searchsorted(post.vocabulary, vocabulary), len(post.vocabulary) - 1
            )
            row[:n] = np.where(post.vocabulary[place] == vocabulary, post.counts[place], 0)
        row[n:] = post.style
    words = np.array([post.style_words for post in posts], np.float32)
    rates /= words[:, None]
    return rates


class _StyleNorm(NamedTuple):
    """Sums over the posts that make the norm, from which one can be taken out."""

    posts: int
    total: _Vector
    squares: _Vector
    chance: float  # sum of 1 / words
    least: float  # a rate below which nothing was seen


def _norm(rates: _Matrix, words: _Vector, in_norm: _Mask) -> _StyleNorm:
    total, squares = np.zeros(rates.shape[1]), np.zeros(rates.shape[1])
    for start in range(0, len(rates), _BLOCK):
        block = rates[start : start + _BLOCK][in_norm[start : start + _BLOCK]].astype(float)
        total += block.sum(axis=0)
        squares += (block * block).sum(axis=0)
    chance = float((1 / words[in_norm]).sum())
    return _StyleNorm(int(in_norm.sum()), total, squares, chance, 0.5 / float(words[in_norm].sum()))


def _scores(
    norm: _StyleNorm, rates: _Matrix, words: _Vector, inside: _Mask
) -> tuple[_Vector, _Vector]:
    """How far out each rate is, and the mean of the others; `inside`: it is in the norm."""
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
    """The robust z of every post, the norm at last, and which posts made it."""
    in_norm = np.ones(len(rates), bool)
    for left in reversed(range(_ROUNDS)):
        norm = _norm(rates, words, in_norm)
        deltas = np.empty(len(rates))
        for start in range(0, len(rates), _BLOCK):
            part = slice(start, start + _BLOCK)
            sizes = np.abs(_scores(norm, rates[part], words[part], in_norm[part])[0])
            kinds = (sizes[:, :n_words], sizes[:, n_words:])
            deltas[part] = np.mean([one.mean(axis=1) for one in kinds if one.shape[1]], axis=0)
        logs = np.log(deltas)
        middle = np.median(logs[in_norm])
        spread = 1.4826 * np.median(np.abs(logs[in_norm] - middle))
        # Of a few posts the median deviation comes out too small.
        z = (logs - middle) / (max(float(spread), _FLOOR) * (1 + 2 / in_norm.sum()))
        near = z < distance
        # A norm of fewer than two thirds of the posts would be one author's out of two.
        too_few = near.sum() < max(MIN_POSTS - 2, 2 / 3 * len(rates))
        if too_few or not left or (near == in_norm).all():
            break
        in_norm = near
    return z, norm, in_norm


def _evidence(
    names: Sequence[str], rates: _Matrix, scores: _Vector, means: _Vector
) -> tuple[str, ...]:
    """The words that put a post furthest out, as an author would say it."""
    evidence: list[str] = []
    for i in np.argsort(-np.abs(scores[: len(names)]), kind="stable").tolist():
        ratio = float(rates[i] / means[i])
        if ratio >= 1.5 or ratio <= 1 / 1.5:
            evidence.append(f'"{names[i]}" {_times(ratio)}')
        if len(evidence) == _EVIDENCE:
            break
    return tuple(evidence)


def _times(ratio: float) -> str:
    if ratio == 0:
        return "never"
    if ratio >= 1.5:
        return (
            f"{ratio:.1f}".removesuffix(".0") + " times as often"
            if ratio < 9.5
            else (f"{ratio:.0f} times as often")
        )
    parts = ("half", "a third", "a quarter", "a fifth", "a sixth", "a seventh", "an eighth")
    share = round(1 / ratio)
    return f"{parts[share - 2]} as often" if share < 9 else "hardly ever"
