"""Voice: how often samples, held-out posts and other authors are taken for the author.

The measure is LambdaG (`style`). It shows how close samples come to real held-out posts, and how
much closer than samples of the base before training.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ownwords.evaluation.intervals import Estimate, Vector, share
from ownwords.evaluation.style import (
    FOLDS,
    LENGTHS,
    CrossValidated,
    Pairs,
    ReferenceAuthors,
    about_words,
    cut,
)
from ownwords.language.words import is_in_the_language

Passages = tuple[list[Pairs], list[int]]  # passages, and the source of each

_FREQUENT = 400  # words that identify a language
_MIN_PASSAGES = 12  # of each kind, for the longer passages
_MIN_TRAINING = 8  # training passages


@dataclass(frozen=True, slots=True)
class AuthorClassification:
    """The share of each kind of passage that is taken for the author's."""

    # The probability that a held-out passage scores above one of another author's: the area
    # under the ROC curve, 0.5 by chance. It has no interval.
    held_out_auc: Estimate
    held_out: Estimate
    samples: Estimate
    others: Estimate
    base: Estimate | None = None  # texts by the base before training

    @property
    def halfway(self) -> float:
        """The share halfway between held-out passages and other authors."""
        return (self.held_out.value + self.others.value) / 2


@dataclass(frozen=True, slots=True)
class Voice:
    """The figures of voice; without a `classification` if that is impossible, with the `reason`."""

    passage_words: int = 0  # 0 if there are no other authors in the language
    training: int = 0  # passages
    held_out: int = 0
    samples: int = 0
    others: int = 0
    sources: int = 0  # of the others: blogs, books, handbooks
    classification: AuthorClassification | None = None
    reason: str = ""


def voice(
    training: Sequence[str],
    held_out: Sequence[str],
    samples: Sequence[str],
    base: Sequence[str],
    others: ReferenceAuthors,
) -> Voice:
    """Compare samples and real held-out posts with the training posts and with other authors."""
    if not is_in_the_language(training, others.vocabulary.words[:_FREQUENT]):
        return Voice(
            reason="There are no other authors in the language of these posts, so the voice cannot"
            " be judged."
        )
    vocabulary = others.vocabulary
    texts = [[vocabulary.pairs(text) for text in kind] for kind in (training, held_out, samples)]
    length = next((n for n in LENGTHS if _fewest(texts, n) >= _MIN_PASSAGES), LENGTHS[-1])
    kinds = [cut(kind, length) for kind in texts]
    own, real, written = (len(passages) for passages, _ in kinds)
    words = about_words(length)
    measured = Voice(words, own, real, written)
    if own < _MIN_TRAINING or not real or not written:
        reason = (
            f"There is too little text to compare style: of {words} words each, there are"
            f" {own} passages in your training posts, {real} in your held-out posts and {written}"
            f" in the samples; {_MIN_TRAINING}, 1 and 1 are needed."
        )
        return replace(measured, reason=reason)
    if len(training) < FOLDS:
        reason = f"There are too few training posts for a comparison: {len(training)}."
        return replace(measured, reason=reason)
    by_base = cut([vocabulary.pairs(text) for text in base], length)
    return replace(
        measured,
        others=len(others.passages) * (LENGTHS[0] // length),
        sources=len(others.sources),
        classification=_classify(texts[0], kinds[1:], by_base, others, length),
    )


def _fewest(texts: Sequence[Sequence[Pairs]], length: int) -> int:
    return min(sum(map(len, kind)) // length for kind in texts)


def _classify(
    posts: Sequence[Pairs],
    kinds: Sequence[Passages],
    base: Passages,
    others: ReferenceAuthors,
    length: int,
) -> AuthorClassification:
    """Classify training posts by models not fitted on them; new passages by all folds' models."""
    known = CrossValidated(posts, others.passages, others.source_of, others.vocabulary.size, length)
    own = np.array([row.mean() for fold in known.own for row in fold])
    away = [np.array([row.mean() for row in fold]) for fold in known.others]
    threshold = _threshold(own, np.concatenate(away))

    def scores(passages: Sequence[Pairs]) -> Vector:  # [N, FOLDS]
        rows = [[model.score(passage) for model in known.models] for passage in passages]
        return np.array(rows).reshape(-1, FOLDS)

    def taken(scores_NK: Vector, sources: Sequence[int]) -> Estimate:
        return share((scores_NK > threshold).mean(axis=1), sources)

    (real, of_real), (written, of_written) = kinds
    real_NK = scores(real)
    pairs = [(real_NK[:, k, None], away[k]) for k in range(FOLDS)]
    ranked = [((a > b) + 0.5 * (a == b)).mean() for a, b in pairs]
    sizes = [len(fold) for fold in away]
    return AuthorClassification(
        held_out_auc=Estimate(float(np.average(ranked, weights=sizes)), len(real)),
        held_out=taken(real_NK, of_real),
        samples=taken(scores(written), of_written),
        others=share(
            (np.concatenate(away) > threshold).astype(float),
            [source for fold in known.others_sources for source in fold],
        ),
        base=taken(scores(base[0]), base[1]) if base[0] else None,
    )


def _threshold(own: Vector, others: Vector) -> float:
    """Return the threshold with equal error rates for the author's passages and others'."""
    values = np.unique(np.concatenate([own, others]))
    between = (values[:-1] + values[1:]) / 2 if len(values) > 1 else values
    missed = np.searchsorted(np.sort(own), between) / len(own)
    mistaken = 1 - np.searchsorted(np.sort(others), between) / len(others)
    worst = np.maximum(missed, mistaken)
    best = np.flatnonzero(worst <= worst.min() + 1e-12)
    return float(between[[best[0], best[-1]]].mean())
