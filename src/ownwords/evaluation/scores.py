"""Scores: nats and bytes of each document, and bits per byte with intervals."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ownwords.evaluation.intervals import Interval, ratio_interval


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

    def interval(self) -> Interval | None:
        """The interval of bits per byte; None with too few documents.

        Whole documents are independent; tokens of one document are not.
        """
        return self._interval([document.nats for document in self.documents])

    def advantage(self, other: "Score") -> Interval | None:
        """Interval of the difference in bits per byte by which this is better than `other`.

        Document by document, so the difficulty of a document cancels out.
        """
        if [document.bytes for document in self.documents] != [
            document.bytes for document in other.documents
        ]:
            raise ValueError("scores of different documents cannot be compared")
        pairs = zip(self.documents, other.documents, strict=True)
        return self._interval([theirs.nats - ours.nats for ours, theirs in pairs])

    def _interval(self, nats: Sequence[float]) -> Interval | None:
        bits = [each / math.log(2) for each in nats]
        return ratio_interval(bits, [document.bytes for document in self.documents])
