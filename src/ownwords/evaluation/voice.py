"""Stylometry: how close samples, held-out posts and other authors are to the training posts.

Both measures use passages of equal length. Burrows' Delta uses the most frequent words, which do
not depend on the topic: the mean absolute difference of their rates from the author's means, in
standard deviations over all passages. It needs long passages (it ranks 80 of 100 passages correctly
with 250 words, 99 with 1,000: docs/log.md), so short samples are joined for it. A small distance
alone is not a merit: the author's words in random order are nearer to his mean than his own texts.
The classifier uses character n-grams of 3 to 5 letters; it is fitted to training posts and other
authors, and scored on posts and authors it was not fitted to.

Most of the other authors wrote before 1929, and a contemporary voice is easier to distinguish from
theirs than from a contemporary's. What counts is how near samples come to real held-out posts.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from ownwords.core.text import distinct
from ownwords.evaluation.intervals import Estimate, Vector, median, share
from ownwords.evaluation.passages import (
    TextPassage,
    evenly,
    hashes_of,
    passages,
    word_counts,
)
from ownwords.evaluation.reference_data import FeatureCounts, ReferenceAuthors, is_in_the_language

LENGTHS = (250, 500, 1000)  # words of a passage, without reference authors
DELTA_WORDS = 150  # number of most frequent words, the same as in the corpus report

_MIN_PASSAGES = 12  # of each kind, to use a longer passage length
_MIN_JOINED = 5  # the same for Burrows' Delta
_MIN_TRAINING = 8  # training passages, for a meaningful mean
_MAX_PASSAGES = 600  # of one kind: more would not change a figure
FOLDS = 4  # of the cross-validation
_PENALTY = 1e-3  # L2 penalty, for standardised features whose rows have length about 1
_STEPS = 60  # 150 steps change an area under the curve by 0.001
_SMALL_GRADIENT = 1e-3  # stop below this share of the first gradient's norm

Array = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class DeltaDistribution:
    """Median and quartiles of the distances of passages to the author's training posts."""

    median: Estimate
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Delta:
    """Burrows' Delta of each kind of passage."""

    words: int  # counted
    passage_words: int
    held_out: DeltaDistribution
    samples: DeltaDistribution
    others: DeltaDistribution | None


@dataclass(frozen=True, slots=True)
class AuthorClassification:
    """The share of each kind of passage that the classifier takes for the author's."""

    # The probability that it scores a held-out passage above one of another author's: the area
    # under the ROC curve, 0.5 by chance. It has no interval.
    held_out_auc: Estimate
    held_out: Estimate
    samples: Estimate
    others: Estimate

    @property
    def halfway(self) -> float:
        """The share between that of held-out passages and that of other authors'."""
        return (self.held_out.value + self.others.value) / 2


@dataclass(frozen=True, slots=True)
class Voice:
    """The figures of both measures; None for what could not be measured, see `reason`."""

    passage_words: int  # of the classifier
    training: int  # passages
    held_out: int
    samples: int
    others: int = 0
    authors: int = 0
    delta: Delta | None = None
    classification: AuthorClassification | None = None
    reason: str = ""


def voice(
    training: Sequence[str],
    held_out: Sequence[str],
    samples: Sequence[str],
    others: ReferenceAuthors | None,
) -> Voice:
    """Compare samples and real held-out posts with the training posts.

    Without `others`, or with others in another language, only Burrows' Delta is measured.
    """
    reason = "" if others else "There are no other authors to compare with."
    if others and not is_in_the_language(training, others.vocabulary.words):
        others = None
        reason = (
            "The other authors wrote in English, but these posts are in another language: they were"
            " compared with each other only."
        )
    # Passages of every length, the longest first.
    cut = {
        length: [
            evenly(passages(texts, length), _MAX_PASSAGES)
            for texts in (training, held_out, samples)
        ]
        for length in sorted(others.lengths if others else LENGTHS, reverse=True)
    }
    shortest = min(cut)
    length = next((n for n, kinds in cut.items() if _suit_classifier(kinds, samples)), shortest)
    joined = next((n for n, kinds in cut.items() if _suit_delta(kinds)), shortest)
    own, real, written = kinds = cut[length]
    measured = Voice(length, len(own), len(real), len(written), reason=_too_little(kinds, length))
    if measured.reason:
        return measured
    posts = len({passage.source for passage in own})
    if others and posts < FOLDS:
        reason = f"There are too few training posts for a classifier: {posts} ({FOLDS} needed)."
    measured = replace(measured, delta=_delta(cut[joined], others, joined), reason=reason)
    if others is None or posts < FOLDS:
        return measured
    theirs = others.passages(length)
    counted = [*(others.vocabulary.count(kind) for kind in kinds), theirs]
    return replace(
        measured,
        others=len(theirs),
        authors=len(others.authors),
        classification=_classify(counted),
    )


def _suit_classifier(kinds: Sequence[Sequence[TextPassage]], samples: Sequence[str]) -> bool:
    """Whether every kind has enough passages, without those joined from several samples."""
    unjoined = sum(passage.source < len(samples) for passage in kinds[-1])
    return min(unjoined, *map(len, kinds)) >= _MIN_PASSAGES


def _suit_delta(kinds: Sequence[Sequence[TextPassage]]) -> bool:
    own, *rest = map(len, kinds)
    return own >= _MIN_TRAINING and min(rest) >= _MIN_JOINED


def _too_little(kinds: Sequence[Sequence[TextPassage]], length: int) -> str:
    """Return a sentence if a kind has too few passages, otherwise an empty string."""
    needed = {"training posts": _MIN_TRAINING, "held-out posts": 1, "samples": 1}
    short = [
        f"{len(kind)} in the {name} ({need} needed)"
        for kind, (name, need) in zip(kinds, needed.items(), strict=True)
        if len(kind) < need
    ]
    reason = f"There is too little text to compare style: of passages of {length} words there are"
    return f"{reason} {' and '.join(short)}." if short else ""


def _own_vocabulary(own: Sequence[TextPassage]) -> npt.NDArray[np.uint64]:
    """Return hashes of the words in the most passages, for languages without a word list."""
    hashes = np.concatenate([distinct(passage.hashes) for passage in own])
    words, spread = np.unique(hashes, return_counts=True)
    return words[np.argsort(-spread, kind="stable")[:DELTA_WORDS]]


def _rates(kind: Sequence[TextPassage], vocabulary: npt.NDArray[np.uint64]) -> Vector:
    return np.array(
        [word_counts(passage.hashes, vocabulary) / len(passage.hashes) for passage in kind]
    )


def _delta(
    kinds: Sequence[Sequence[TextPassage]], others: ReferenceAuthors | None, length: int
) -> Delta:
    if others is None:
        vocabulary = _own_vocabulary(kinds[0])
    else:
        vocabulary = hashes_of(others.vocabulary.words[:DELTA_WORDS])
    own, real, written = (_rates(kind, vocabulary) for kind in kinds)
    theirs = others.passages(length) if others else None
    away = np.empty((0, len(vocabulary)))
    if theirs:
        away = np.asarray(theirs.words[:, : len(vocabulary)], float) / length
    spread = np.concatenate([own, away]).std(axis=0)
    varies = spread > 0
    centre, spread = own.mean(axis=0)[varies], spread[varies]

    def distances(rates: Vector) -> Vector:
        means: Vector = np.abs((rates[:, varies] - centre) / spread).mean(axis=1)
        return means

    real, written, away = distances(real), distances(written), distances(away)
    return Delta(
        words=int(varies.sum()),
        passage_words=length,
        held_out=_distribution(real, [passage.source for passage in kinds[1]]),
        samples=_distribution(written, [passage.source for passage in kinds[2]]),
        others=_distribution(away, theirs.sources) if theirs else None,
    )


def _distribution(values: Vector, sources: Sequence[int]) -> DeltaDistribution:
    low, high = np.quantile(values, [0.25, 0.75])
    return DeltaDistribution(median(values, sources), float(low), float(high))


def _threshold(own: Vector, others: Vector) -> float:
    """Return the threshold with equal error rates for the author's passages and others'."""
    values = np.unique(np.concatenate([own, others]))
    between = (values[:-1] + values[1:]) / 2 if len(values) > 1 else values
    missed = np.searchsorted(np.sort(own), between) / len(own)
    mistaken = 1 - np.searchsorted(np.sort(others), between) / len(others)
    worst = np.maximum(missed, mistaken)
    best = np.flatnonzero(worst <= worst.min() + 1e-12)
    return float(between[[best[0], best[-1]]].mean())


# --- the classifier -------------------------------------------------------------------------------

# Logistic regression of the author's passages against others'. The posts and the other authors are
# divided into folds; each fold's weights are fitted without its posts and authors, and score only
# passages outside their training data. All folds are fitted together.
# Shapes: N passages, F features, K folds.


def _classify(kinds: Sequence[FeatureCounts]) -> AuthorClassification:
    """Fit the classifier and judge held-out posts, samples and other authors."""
    own, real, written, theirs = (kind.ngrams for kind in kinds)
    known = np.concatenate([own, theirs])
    standard = StandardScaler(known)
    features = standard(known)
    is_author = np.arange(len(known)) < len(own)
    fold = np.concatenate([folds(kinds[0].sources), folds(kinds[3].sources)])
    weights = fit(features, is_author, fold)
    # Judge each known passage by the fold fitted without it, new ones by all folds.
    unseen = scores(features, weights)[np.arange(len(known)), fold]
    real_K, written_K = (scores(standard(rows), weights) for rows in (real, written))
    away, away_fold = unseen[~is_author], fold[~is_author]
    threshold = _threshold(unseen[is_author], away)
    of_real, of_written, of_others = (kind.sources for kind in kinds[1:])
    against = real_K[:, away_fold]
    area = ((against > away) + 0.5 * (against == away)).mean()  # over all pairs; a half for ties
    return AuthorClassification(
        held_out_auc=Estimate(float(area), len(real)),
        held_out=share((real_K > threshold).mean(axis=1), of_real),
        samples=share((written_K > threshold).mean(axis=1), of_written),
        others=share((away > threshold).astype(float), of_others),
    )


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
    step = 1 / (0.25 * _largest(rows_NF, weights_NK.max(axis=1)) + _PENALTY)

    def gradient(at_FK: Array) -> Array:
        margins_NK = signs_N1 * (rows_NF @ at_FK)
        pull_NK = -signs_N1 * weights_NK / (1 + np.exp(np.minimum(margins_NK, 80)))
        down_FK: Array = rows_NF.T @ pull_NK + _PENALTY * at_FK
        down_FK[-1] -= _PENALTY * at_FK[-1]
        return down_FK

    at_FK: Array = np.zeros((rows_NF.shape[1], weights_NK.shape[1]), np.float32)
    ahead_FK, momentum_K = at_FK, np.ones(weights_NK.shape[1], np.float32)
    enough = 0.0
    for _ in range(_STEPS):
        down_FK = gradient(ahead_FK)
        size = float(np.linalg.norm(down_FK))
        enough = enough or _SMALL_GRADIENT * size
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
