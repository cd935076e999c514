"""Scores: nats and bytes of each document, and bits per byte with intervals."""

import math
from dataclasses import dataclass

import numpy as np

RESAMPLES = 2000  # of the documents; more would not change the second digit of an interval


@dataclass(frozen=True, slots=True)
class DocumentScore:
    """Cost of a document, including its end."""

    name: str
    nats: float
    bytes: int  # of its text in UTF-8
    tokens: int  # predicted

    @property
    def bits_per_byte(self) -> float:
        return self.nats / math.log(2) / max(1, self.bytes)


@dataclass(frozen=True, slots=True)
class Interval:
    """Confidence interval: where a figure would lie with other documents of the same kind."""

    low: float
    high: float
    level: float


@dataclass(frozen=True, slots=True)
class Score:
    """The scores of some documents: nats over bytes, so long documents weigh more."""

    documents: tuple[DocumentScore, ...]

    @property
    def nats(self) -> float:
        return math.fsum(document.nats for document in self.documents)

    @property
    def bytes(self) -> int:
        return sum(document.bytes for document in self.documents)

    @property
    def tokens(self) -> int:
        return sum(document.tokens for document in self.documents)

    @property
    def bits_per_byte(self) -> float:
        return self.nats / math.log(2) / max(1, self.bytes)

    def interval(self, level: float = 0.95, seed: int = 1) -> Interval | None:
        """Bootstrap interval of bits per byte; None with fewer than two documents.

        Whole documents are resampled, since tokens of one document are not independent.
        """
        count = len(self.documents)
        if count < 2:
            return None
        bits = _bits(self)
        sizes = np.array([document.bytes for document in self.documents], dtype=np.float64)
        generator = np.random.default_rng(seed)
        drawn = np.empty(RESAMPLES)
        for i in range(RESAMPLES):
            picked = generator.integers(0, count, count)
            drawn[i] = bits[picked].sum() / max(1.0, sizes[picked].sum())
        low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2])
        return Interval(float(low), float(high), level)

    def advantage(self, other: "Score", level: float = 0.95, seed: int = 1) -> Interval | None:
        """Interval of the difference in bits per byte by which this is better than `other`.

        Paired bootstrap: both are resampled together, so the difficulty of a document cancels out.
        """
        if len(self.documents) != len(other.documents):
            raise ValueError("scores of different documents cannot be compared")
        if any(a.bytes != b.bytes for a, b in zip(self.documents, other.documents, strict=True)):
            raise ValueError("scores of different documents cannot be compared")
        gained = (_bits(other) - _bits(self)) * math.log(2)
        pairs = zip(self.documents, gained.tolist(), strict=True)
        return Score(
            tuple(
                DocumentScore(document.name, nats, document.bytes, document.tokens)
                for document, nats in pairs
            )
        ).interval(level, seed)


def _bits(score: Score) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
    return np.array([document.nats for document in score.documents], np.float64) / math.log(2)
