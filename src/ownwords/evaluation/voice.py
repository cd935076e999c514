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

from ownwords.evaluation import classifier
from ownwords.evaluation.intervals import Estimate, Vector, median, share
from ownwords.evaluation.lexicon import is_in_the_language
from ownwords.evaluation.passages import TextPassage, evenly, passages
from ownwords.evaluation.reference_authors import FeatureCounts, ReferenceAuthors
from ownwords.evaluation.stylometry import hashes_of, word_counts

LENGTHS = (250, 500, 1000)  # words of a passage, without reference authors
DELTA_WORDS = 150  # number of most frequent words, the same as in the corpus report

_ENOUGH = 12  # passages of each kind required to use a longer passage length
_ENOUGH_JOINED = 5  # the same for Burrows' Delta
_FEWEST = 8  # training passages required for a meaningful mean
_MOST = 600  # passages of one kind: more would not change a figure


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
    # Share of other authors' passages nearer to the training posts than the median passage.
    nearer_than_held_out: float | None
    nearer_than_samples: float | None


@dataclass(frozen=True, slots=True)
class AuthorClassification:
    """How the classifier judges each kind of passage.

    An area under the ROC curve (`_auc`) is the probability that the classifier scores a passage of
    the first kind above one of the second: 0.5 by chance. It has no interval.
    """

    held_out_auc: Estimate  # held-out posts over other authors
    samples_auc: Estimate  # samples over other authors
    real_auc: Estimate  # held-out posts over samples: 0.5 if they cannot be distinguished
    held_out_taken: Estimate  # share of held-out passages classified as the author's
    samples_taken: Estimate
    others_taken: Estimate

    @property
    def halfway(self) -> float:
        """The share between that of held-out passages and that of other authors'."""
        return (self.held_out_taken.value + self.others_taken.value) / 2


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
    letters: AuthorClassification | None = None
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
    texts = (training, held_out, samples)
    reason = "" if others else "There are no other authors to compare with."
    if others and not is_in_the_language(training, others.vocabulary.words):
        others = None
        reason = (
            "The other authors wrote in English, but these posts are in another language: they were"
            " compared with each other only."
        )
    lengths = sorted(others.lengths if others else LENGTHS, reverse=True)
    length = next((words for words in lengths if _has_enough(texts, words)), lengths[-1])
    joined = next((words for words in lengths if _has_enough_joined(texts, words)), lengths[-1])
    own, real, written = kinds = _cut(texts, length)
    measured = Voice(length, len(own), len(real), len(written), reason=_too_little(kinds, length))
    if measured.reason:
        return measured
    posts = len({passage.source for passage in own})
    if others and posts < classifier.FOLDS:
        reason = (
            f"There are too few training posts for a classifier: {posts} ({classifier.FOLDS}"
            " needed)."
        )
    measured = replace(measured, delta=_delta(_cut(texts, joined), others, joined), reason=reason)
    if others is None or posts < classifier.FOLDS:
        return measured
    theirs = others.passages(length)
    counted = [*(others.vocabulary.count(kind) for kind in kinds), theirs]
    return replace(
        measured,
        others=len(theirs),
        authors=len(others.authors),
        letters=_classify(counted),
    )


def _cut(texts: Sequence[Sequence[str]], length: int) -> list[list[TextPassage]]:
    return [evenly(passages(kind, length), _MOST) for kind in texts]


def _has_enough(texts: Sequence[Sequence[str]], length: int) -> bool:
    """Whether every kind has enough passages, without those joined from several samples."""
    kinds = _cut(texts, length)
    unjoined = sum(passage.source < len(texts[-1]) for passage in kinds[-1])
    return unjoined >= _ENOUGH and all(len(kind) >= _ENOUGH for kind in kinds)


def _has_enough_joined(texts: Sequence[Sequence[str]], length: int) -> bool:
    own, *rest = _cut(texts, length)
    return len(own) >= _FEWEST and all(len(kind) >= _ENOUGH_JOINED for kind in rest)


def _too_little(kinds: Sequence[Sequence[TextPassage]], length: int) -> str:
    """Return a sentence if a kind has too few passages, otherwise an empty string."""
    least = (_FEWEST, 1, 1)
    names = ("training posts", "held-out posts", "samples")
    short = [
        f"{len(kind)} in the {name} ({need} needed)"
        for kind, name, need in zip(kinds, names, least, strict=True)
        if len(kind) < need
    ]
    reason = f"There is too little text to compare style: of passages of {length} words there are"
    return f"{reason} {' and '.join(short)}." if short else ""


def _own_vocabulary(own: Sequence[TextPassage]) -> npt.NDArray[np.uint64]:
    """Return hashes of the words in the most passages, for languages without a word list."""
    hashes = np.concatenate([np.unique(passage.hashes) for passage in own])
    distinct, spread = np.unique(hashes, return_counts=True)
    return distinct[np.argsort(-spread, kind="stable")[:DELTA_WORDS]]


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
        nearer_than_held_out=float((away < np.median(real)).mean()) if theirs else None,
        nearer_than_samples=float((away < np.median(written)).mean()) if theirs else None,
    )


def _distribution(values: Vector, sources: Sequence[int]) -> DeltaDistribution:
    low, high = np.quantile(values, [0.25, 0.75])
    return DeltaDistribution(median(values, sources), float(low), float(high))


def _classify(kinds: Sequence[FeatureCounts]) -> AuthorClassification:
    """Fit the classifier and judge held-out posts, samples and other authors."""
    own, real, written, theirs = (kind.letters for kind in kinds)
    known = np.concatenate([own, theirs])
    standard = classifier.StandardScaler(known)
    features = standard(known)
    is_author = np.arange(len(known)) < len(own)
    fold = np.concatenate([classifier.folds(kinds[0].sources), classifier.folds(kinds[3].sources)])
    weights = classifier.fit(features, is_author, fold)
    # Judge each known passage by the fold fitted without it, new ones by all folds.
    unseen = classifier.scores(features, weights)[np.arange(len(known)), fold]
    real_K, written_K = (classifier.scores(standard(rows), weights) for rows in (real, written))
    threshold = _threshold(unseen[is_author], unseen[~is_author])
    away, away_fold = unseen[~is_author], fold[~is_author]
    apart = np.mean([_wins(a, b) for a, b in zip(real_K.T, written_K.T, strict=True)], axis=0)
    of_real, of_written, of_others = (kind.sources for kind in kinds[1:])
    return AuthorClassification(
        held_out_auc=_area(_beats(real_K[:, away_fold], away)),
        samples_auc=_area(_beats(written_K[:, away_fold], away)),
        real_auc=_area(apart),
        held_out_taken=share((real_K > threshold).mean(axis=1), of_real),
        samples_taken=share((written_K > threshold).mean(axis=1), of_written),
        others_taken=share((away > threshold).astype(float), of_others),
    )


def _area(wins_AB: Vector) -> Estimate:
    """The area under the ROC curve: the mean over all pairs of passages."""
    return Estimate(float(wins_AB.mean()), len(wins_AB))


def _wins(ours: Vector, theirs: Vector) -> Vector:
    """Whether the first of each pair is larger; a half for ties."""
    return _beats(np.broadcast_to(ours[:, None], (len(ours), len(theirs))), theirs)


def _beats(ours: Vector, theirs: Vector) -> Vector:
    wins: Vector = (ours > theirs) + 0.5 * (ours == theirs)
    return wins


def _threshold(own: Vector, others: Vector) -> float:
    """Return the threshold with equal error rates for the author's passages and others'."""
    values = np.unique(np.concatenate([own, others]))
    between = (values[:-1] + values[1:]) / 2 if len(values) > 1 else values
    missed = np.searchsorted(np.sort(own), between) / len(own)
    taken = 1 - np.searchsorted(np.sort(others), between) / len(others)
    worst = np.maximum(missed, taken)
    best = np.flatnonzero(worst <= worst.min() + 1e-12)
    return float(between[[best[0], best[-1]]].mean())
