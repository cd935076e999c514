"""What a text says again: runs of words that came before in it, and loops.

A loop says at once what was just said, as many words as it has or more: "and so on and so on and so
on". A run may come back anywhere.
"""

from dataclasses import dataclass

import numpy as np

from ownwords.archive.features import hash_words, shingles

RUN = 4  # words: so long a run comes twice in a page of real text, but not often
LEAST_LOOP = 4  # words said again, from which on it is no figure of speech

_LONGEST_UNIT = 60  # words of what is said over and over


@dataclass(frozen=True, slots=True)
class Loop:
    """The longest stretch that says again at once what was just said: words beyond the first."""

    words: int = 0
    text: str = ""  # from the first time on


@dataclass(frozen=True, slots=True)
class Repetition:
    """What was found in a text."""

    words: int
    runs: int
    repeated: int  # runs that came before
    looped: int  # words in loops, beyond the first time
    longest: Loop


def repetition(text: str) -> Repetition:
    """Look for what comes again in a text; letters' case and punctuation make nothing new."""
    hashes, starts, ends = hash_words(text)
    runs = shingles(hashes, RUN)
    looped = np.zeros(len(hashes), bool)
    longest = Loop()
    for unit in range(1, min(_LONGEST_UNIT, len(hashes) // 2) + 1):
        same = np.zeros(len(hashes) - unit + 2, np.int8)
        same[1:-1] = hashes[unit:] == hashes[:-unit]
        edges = np.diff(same)
        first, after = np.flatnonzero(edges > 0), np.flatnonzero(edges < 0)
        for begin, end in zip(first.tolist(), after.tolist(), strict=True):
            if end - begin < max(unit, LEAST_LOOP):
                continue
            looped[begin + unit : end + unit] = True
            if end - begin > longest.words:
                said = text[starts[begin] : ends[end + unit - 1]]
                longest = Loop(end - begin, " ".join(said.split()))
    repeated = len(runs) - len(np.unique(runs))
    return Repetition(len(hashes), len(runs), repeated, int(looped.sum()), longest)
