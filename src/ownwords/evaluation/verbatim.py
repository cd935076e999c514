"""Passages of one text that stand word for word in others."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

_Numbers = npt.NDArray[np.uint64]

_MOST_PAIRS = 5_000  # of places in one document that are looked at: a text of one letter has more
_ENDS = ",.;:!?)]}…”’"  # of what stood before: no passage begins with them
_WORD = re.compile(r"\S+")


@dataclass(frozen=True, slots=True)
class VerbatimMatch:
    """A passage that stands in the generated text and in a document, character for character."""

    text: str
    document: str  # its name; empty where nothing is shared

    @property
    def words(self) -> int:
        return len(self.text.split())


@dataclass(frozen=True, slots=True)
class SharedPassage:
    """A passage of whole words, `text[start:end]`, that stands in that document from `at` on."""

    start: int
    end: int
    document: str
    at: int


def longest_run(written: str, training: Sequence[str], names: Sequence[str] = ()) -> VerbatimMatch:
    """The longest passage of `written` that stands in a training document, and in which."""
    ours = _Text(written)
    best, where = 0, -1
    for number, document in enumerate(training):
        theirs = _Text(document)
        if not ours.shares(theirs, best + 1):
            continue
        # A shared run holds shared runs of every shorter length: double, then halve the gap.
        low, high = best + 1, 2 * (best + 1)
        while ours.shares(theirs, high):
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if ours.shares(theirs, middle) else (low, middle)
        best, where = low, number
    if where < 0:
        return VerbatimMatch("", "")
    at = ours.first_shared(_Text(training[where]), best)
    passage = written[at : at + best]
    if passage not in training[where]:  # two runs of one hash, of which nobody has seen any
        return VerbatimMatch("", "")
    return VerbatimMatch(passage, names[where] if names else str(where))


def shared_passages(
    written: str, documents: Iterable[tuple[str, str]], words: int, least: int = 20
) -> list[SharedPassage]:
    """All passages of so many words or more that stand in a document, in the order of the text.

    `documents` are names and texts. A passage is as long as it can be, and of whole words; shorter
    than `least` characters it is none. Of two that overlap the longer is kept, of equals the first.
    """
    ours = _Text(written)
    found: dict[tuple[int, int], SharedPassage] = {}
    for name, document in documents:
        for start, at, length in _matches(ours, written, document, least):
            whole = _of_whole_words(written, document, start, at, length)
            if whole is None or whole in found:
                continue
            begin, end = whole
            if len(_WORD.findall(written, begin, end)) >= words:
                found[whole] = SharedPassage(begin, end, name, at + begin - start)
    kept: list[SharedPassage] = []
    for one in sorted(found.values(), key=lambda each: each.start - each.end):
        if all(one.end <= other.start or other.end <= one.start for other in kept):
            kept.append(one)
    return sorted(kept, key=lambda each: each.start)


def _matches(
    ours: "_Text", written: str, document: str, least: int
) -> Iterator[tuple[int, int, int]]:
    """(place in the text, place in the document, length) of runs that go no further either way."""
    mine = ours.hashes(least)
    theirs = _Text(document).hashes(least)
    if not len(mine) or not len(theirs):
        return
    order = np.argsort(mine, kind="stable")
    ordered = mine[order]
    first = np.searchsorted(ordered, theirs, side="left")
    last = np.searchsorted(ordered, theirs, side="right")
    pairs = 0
    for at in np.flatnonzero(last > first).tolist():
        for start in order[first[at] : last[at]].tolist():
            pairs += 1
            if pairs > _MOST_PAIRS:
                return
            if start and at and written[start - 1] == document[at - 1]:
                continue  # begins earlier, and was found there
            length = _common(written, start, document, at)
            if length >= least:  # or only the hashes are the same
                yield start, at, length


def _common(one: str, start: int, other: str, at: int) -> int:
    """How far two texts are the same from there on."""

    def same(begin: int, end: int) -> bool:
        return one[start + begin : start + end] == other[at + begin : at + end]

    most, step = min(len(one) - start, len(other) - at), 64
    low = 0
    while low < most and same(low, high := min(low + step, most)):
        low, step = high, 2 * step
    high = min(low + step, most)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if same(low, middle) else (low, middle - 1)
    return low


def _of_whole_words(
    written: str, document: str, start: int, at: int, length: int
) -> tuple[int, int] | None:
    """The part of a run that begins and ends with a word, in both texts."""
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
    """Whether a word goes on over that place."""
    return 0 < at < len(text) and text[at - 1].isalnum() and text[at].isalnum()


class _Text:
    """Characters with a hash of every run of any length at hand.

    sum(c[i] * base**i) over a run, divided by base**start, does not depend on where the run lies;
    modulo 2**64 an odd base has an inverse.
    """

    _BASE = 0x9E3779B97F4A7C15
    _INVERSE = pow(_BASE, -1, 1 << 64)

    def __init__(self, text: str) -> None:
        codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
        mixed = (codes.astype(np.uint64) + np.uint64(1)) * np.uint64(0xBF58476D1CE4E5B9)
        mixed ^= mixed >> np.uint64(31)
        self.length = len(codes)
        self._inverse = _powers(self._INVERSE, self.length)
        sums = np.cumsum(mixed * _powers(self._BASE, self.length), dtype=np.uint64)
        self._sums = np.concatenate((np.zeros(1, np.uint64), sums))
        self._sorted: tuple[int, _Numbers] = (0, np.zeros(0, np.uint64))

    def hashes(self, length: int) -> _Numbers:
        count = self.length - length + 1
        if count < 1:
            return np.zeros(0, np.uint64)
        return (self._sums[length:] - self._sums[:count]) * self._inverse[:count]

    def shares(self, other: "_Text", length: int) -> bool:
        """Whether a run of that length stands in both."""
        if self._sorted[0] != length:
            self._sorted = length, np.unique(self.hashes(length))
        mine, others = self._sorted[1], other.hashes(length)
        if not len(mine) or not len(others):
            return False
        at = np.minimum(np.searchsorted(mine, others), len(mine) - 1)
        return bool((mine[at] == others).any())

    def first_shared(self, other: "_Text", length: int) -> int:
        """Where the first such run begins in this text."""
        return int(np.isin(self.hashes(length), other.hashes(length)).argmax())


def _powers(base: int, count: int) -> _Numbers:
    factors = np.full(count, base, np.uint64)
    factors[:1] = 1
    return np.cumprod(factors, dtype=np.uint64)
