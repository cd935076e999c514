"""What a model copies: passages of a text that occur word for word in others."""

import re
from bisect import bisect
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ownwords.core.text import distinct
from ownwords.evaluation.intervals import Estimate

_Numbers = npt.NDArray[np.uint64]

_MAX_PAIRS = 5_000  # candidate pairs per document; degenerate texts of one letter have more
_ENDS = ",.;:!?)]}…”’"  # end of the preceding sentence or clause: no passage begins with them
_PUNCTUATION = " \n\t.,;:!?…—–-"  # stripped from both ends of a copied passage
_SEPARATOR = "\x00"  # between texts that are joined for one search; occurs in none of them
_WORD = re.compile(r"\S+")
_BASE = 0x9E3779B97F4A7C15  # of the rolling hashes


@dataclass(frozen=True, slots=True)
class Extraction:
    """Shares of passages that a model continues word for word from the words before them.

    `held_out` is the rate by chance, on posts the model was not trained on.
    """

    words: int  # given, and as many to be continued
    training: Estimate
    held_out: Estimate


@dataclass(frozen=True, slots=True)
class SharedPassage:
    """A passage of whole words, `text[start:end]`, that occurs in `document` at offset `at`."""

    start: int
    end: int
    document: str
    at: int


def longest_copied(texts: Sequence[str], documents: Sequence[str]) -> tuple[str, int]:
    """The longest passage of whole words of any text that occurs in a document, and its number.

    The passage is empty and the number -1 if nothing is shared.
    """
    written = _SEPARATOR.join(texts)
    ours = _RunHashes(written)
    length, where = 0, -1
    for number, document in enumerate(documents):
        theirs = _RunHashes(document)
        if not ours.share(theirs, length + 1):
            continue
        # A shared run contains shared runs of every shorter length: double the length, then bisect.
        length, where = length + 1, number
        while ours.share(theirs, 2 * length):
            length *= 2
        longer = range(length + 1, 2 * length)
        length += bisect(longer, False, key=lambda n: not ours.share(theirs, n))
    for start, at, run in _matches(ours, written, documents[where], length) if length else ():
        span = _of_whole_words(written, documents[where], start, at, run)
        return (written[slice(*span)].strip(_PUNCTUATION) if span else ""), where
    return "", -1


def shared_passages(
    written: str, documents: Iterable[tuple[str, str]], words: int, least: int = 20
) -> list[SharedPassage]:
    """Find all passages of at least `words` words that occur in a document, in text order.

    `documents` are (name, text) pairs. Passages are maximal, of whole words, from common runs of at
    least `least` characters. Of overlapping passages the longer is kept, or the first of equals.
    """
    ours = _RunHashes(written)
    passages: dict[tuple[int, int], SharedPassage] = {}
    for name, document in documents:
        for start, at, length in _matches(ours, written, document, least):
            span = _of_whole_words(written, document, start, at, length)
            if span is None or span in passages:
                continue
            begin, end = span
            if len(_WORD.findall(written, begin, end)) >= words:
                passages[span] = SharedPassage(begin, end, name, at + begin - start)
    longest: list[SharedPassage] = []
    for passage in sorted(passages.values(), key=lambda passage: passage.start - passage.end):
        if all(passage.end <= other.start or other.end <= passage.start for other in longest):
            longest.append(passage)
    return sorted(longest, key=lambda passage: passage.start)


def _matches(
    ours: "_RunHashes", written: str, document: str, least: int
) -> Iterator[tuple[int, int, int]]:
    """Yield (offset in the text, offset in the document, length) of maximal common runs."""
    mine, theirs = ours.of(least), _RunHashes(document).of(least)
    order = np.argsort(mine, kind="stable")
    ordered = mine[order]
    first = np.searchsorted(ordered, theirs, side="left")
    last = np.searchsorted(ordered, theirs, side="right")
    pairs = 0
    for at in np.flatnonzero(last > first).tolist():
        for start in order[first[at] : last[at]].tolist():
            pairs += 1
            if pairs > _MAX_PAIRS:
                return
            if start and at and written[start - 1] == document[at - 1]:
                continue  # not maximal: found at an earlier offset
            most = min(len(written) - start, len(document) - at)
            length = bisect(
                range(1, most + 1),
                False,
                key=lambda n: written[start : start + n] != document[at : at + n],
            )
            if length >= least:  # otherwise a hash collision
                yield start, at, length


def _of_whole_words(
    written: str, document: str, start: int, at: int, length: int
) -> tuple[int, int] | None:
    """Return the (begin, end) of a run's whole words in the text; None without any."""
    begin, end = start, start + length
    if _cuts(written, begin) or _cuts(document, at):
        while begin < end and not written[begin].isspace():
            begin += 1
    while begin < end and (written[begin].isspace() or written[begin] in _ENDS):
        begin += 1
    if _cuts(written, end) or _cuts(document, at + length):
        while end > begin and not written[end - 1].isspace():
            end -= 1
    while end > begin and written[end - 1].isspace():
        end -= 1
    return (begin, end) if begin < end else None


def _cuts(text: str, at: int) -> bool:
    """Whether that offset is within a word."""
    return 0 < at < len(text) and text[at - 1].isalnum() and text[at].isalnum()


class _RunHashes:
    """Polynomial rolling hashes of all runs of a text, for any length.

    sum(c[i] * base**i) over a run, divided by base**start, does not depend on the offset of the
    run; modulo 2**64 an odd base has an inverse.
    """

    def __init__(self, text: str) -> None:
        codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
        mixed = (codes.astype(np.uint64) + np.uint64(1)) * np.uint64(0xBF58476D1CE4E5B9)
        mixed ^= mixed >> np.uint64(31)
        self._inverse = _powers(pow(_BASE, -1, 1 << 64), len(codes))
        sums = np.cumsum(mixed * _powers(_BASE, len(codes)), dtype=np.uint64)
        self._sums = np.concatenate((np.zeros(1, np.uint64), sums))
        self._sorted: tuple[int, _Numbers] = (0, np.zeros(0, np.uint64))

    def of(self, length: int) -> _Numbers:
        """The hash of the run of that length at each offset."""
        count = max(0, len(self._sums) - length)
        return (self._sums[length:] - self._sums[:count]) * self._inverse[:count]

    def share(self, other: "_RunHashes", length: int) -> bool:
        """Whether both texts contain a common run of that length."""
        if self._sorted[0] != length:
            self._sorted = length, distinct(self.of(length))
        mine, others = self._sorted[1], other.of(length)
        if not len(mine):
            return False
        at = np.minimum(np.searchsorted(mine, others), len(mine) - 1)
        return bool((mine[at] == others).any())


def _powers(base: int, count: int) -> _Numbers:
    factors = np.full(count, base, np.uint64)
    factors[:1] = 1
    return np.cumprod(factors, dtype=np.uint64)
