"""Finds copied passages of a text: their words occur in the same order in other texts.

Words are compared regardless of case and of the punctuation between them. Addresses do not count as
words, so that neither they nor a line of dashes hide a longer copy.
"""

import re
from bisect import bisect
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ownwords.core.text import distinct, hash_words
from ownwords.evaluation.intervals import Estimate

_Numbers = npt.NDArray[np.uint64]

_MAX_PLACES = 50  # occurrences of a run of words in a document that are compared further
_MIN_CHARS = 20  # of a passage: five Chinese characters already count as five words
_ADDRESS = re.compile(r"(?:(?:https?|ftp|file)://|www\.|mailto:)[!-~]+|(?<!\S)\S{1,80}@[!-~]+")
_BASE = 0x9E3779B97F4A7C15  # of the rolling hashes
_SEAM = np.uint64(0xD1B54A32D192ED03)  # between joined texts; no word has this hash


@dataclass(frozen=True, slots=True)
class Extraction:
    """Shares of passages that a model continues word for word from the words before them.

    `held_out` is the rate by chance, on posts the model was not trained on.
    """

    words: int  # in the given prefix, and in its continuation
    training: Estimate
    held_out: Estimate


@dataclass(frozen=True, slots=True)
class SharedPassage:
    """A passage of `words` words, `text[start:end]`, that occurs in `document`."""

    start: int
    end: int
    words: int
    document: str


def longest_copied(texts: Sequence[str], documents: Sequence[str]) -> tuple[str, int, int]:
    """Return the longest passage of any text in a document, its words, and the document's number.

    The passage is empty and the number -1 if nothing is shared.
    """
    ours = _Words(*texts)
    passage, length, where = "", 0, -1
    for number, document in enumerate(documents):
        theirs = _Words(document)
        if not ours.shares(theirs, length + 1):
            continue
        # If a run is shared, shorter ones are too, so double the length, then bisect.
        length, where = length + 1, number
        while ours.shares(theirs, 2 * length):
            length *= 2
        longer = range(length + 1, 2 * length)
        length += bisect(longer, False, key=lambda n: not ours.shares(theirs, n))
        start = int(np.flatnonzero(np.isin(ours.runs(length), theirs.runs(length)))[0])
        passage = ours.text[slice(*ours.span(start, length))]
    return passage, length, where


def shared_passages(
    written: str, documents: Iterable[tuple[str, str]], words: int
) -> list[SharedPassage]:
    """Return all passages of at least `words` words that occur in a document, in text order.

    `documents` are (name, text) pairs. Among overlapping passages the longest is kept, or the first
    of equally long ones.
    """
    ours = _Words(written)
    passages: dict[tuple[int, int], SharedPassage] = {}
    for name, document in documents:
        for start, length in _matches(ours, _Words(document), words):
            begin, end = ours.span(start, length)
            if end - begin >= _MIN_CHARS:
                passages.setdefault((begin, end), SharedPassage(begin, end, length, name))
    longest: list[SharedPassage] = []
    for passage in sorted(passages.values(), key=lambda passage: -passage.words):
        if all(passage.end <= other.start or other.end <= passage.start for other in longest):
            longest.append(passage)
    return sorted(longest, key=lambda passage: passage.start)


def runs_of(text: str, words: int) -> _Numbers:
    """Return a hash of each run of `words` words in a text."""
    return _Words(text).runs(words)


def _matches(ours: "_Words", theirs: "_Words", least: int) -> Iterator[tuple[int, int]]:
    """Yield (first word, number of words) for our runs that occur in the other text."""
    mine, others = ours.runs(least), theirs.runs(least)
    order = np.argsort(others, kind="stable")
    first = np.searchsorted(others, mine, side="left", sorter=order)
    last = np.searchsorted(others, mine, side="right", sorter=order)
    start = 0
    for at in np.flatnonzero(last > first).tolist():
        if at < start:
            continue
        begin, length = at, least
        for place in order[first[at] : min(last[at], first[at] + _MAX_PLACES)].tolist():
            back = _common(ours.hashes[:at][::-1], theirs.hashes[:place][::-1])
            ahead = _common(ours.hashes[at:], theirs.hashes[place:])
            if back + ahead > length:
                begin, length = at - back, back + ahead
        yield begin, length
        start = max(at + 1, begin + length - least + 1)  # longer matches begin after it


def _common(one: _Numbers, other: _Numbers) -> int:
    """Return the length of the common prefix."""
    most = min(len(one), len(other))
    tried = 8
    while tried < most and (one[:tried] == other[:tried]).all():
        tried *= 2
    differ = np.flatnonzero(one[: min(tried, most)] != other[: min(tried, most)])
    return int(differ[0]) if len(differ) else most


class _Words:
    """The words of texts, and polynomial rolling hashes of all runs of them, of any length.

    sum(c[i] * base**i) over a run, divided by base**start, does not depend on where the run begins;
    modulo 2**64 an odd base has an inverse.
    """

    def __init__(self, *texts: str) -> None:
        self.text = "\n".join(texts)
        words = hash_words(_ADDRESS.sub(lambda address: " " * len(address[0]), self.text))
        begins = np.cumsum([len(text) + 1 for text in texts[:-1]], dtype=np.int64)
        seams = np.searchsorted(words.starts, begins)
        self.hashes = np.insert(words.hashes, seams, _SEAM)
        self._starts, self._ends = (np.insert(each, seams, 0) for each in words[1:])
        count = len(self.hashes)
        self._inverse = _powers(pow(_BASE, -1, 1 << 64), count)
        sums = np.cumsum(self.hashes * _powers(_BASE, count), dtype=np.uint64)
        self._sums = np.concatenate((np.zeros(1, np.uint64), sums))
        self._sorted: tuple[int, _Numbers] = (0, np.zeros(0, np.uint64))

    def span(self, first: int, length: int) -> tuple[int, int]:
        """Return the offsets of a run of words in the text."""
        return int(self._starts[first]), int(self._ends[first + length - 1])

    def runs(self, length: int) -> _Numbers:
        """Return the hashes of all runs of `length` words."""
        count = max(0, len(self._sums) - length)
        return (self._sums[length:] - self._sums[:count]) * self._inverse[:count]

    def shares(self, other: "_Words", length: int) -> bool:
        """Return whether the texts have a common run of this length."""
        if self._sorted[0] != length:
            self._sorted = length, distinct(self.runs(length))
        mine, others = self._sorted[1], other.runs(length)
        if not len(mine):
            return False
        at = np.minimum(np.searchsorted(mine, others), len(mine) - 1)
        return bool((mine[at] == others).any())


def _powers(base: int, count: int) -> _Numbers:
    factors = np.full(count, base, np.uint64)
    factors[:1] = 1
    return np.cumprod(factors, dtype=np.uint64)
