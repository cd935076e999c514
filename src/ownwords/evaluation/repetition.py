"""Repetition in a text: runs of words that occurred before, and loops.

A loop is an immediate repetition ("and so on and so on and so on"). A run of words may be repeated
anywhere in the text.
"""

from dataclasses import dataclass

import numpy as np

from ownwords.core.text import hash_words, shingles

RUN = 4  # words: runs of this length rarely occur twice in a page of real text
LEAST_LOOP = 4  # repeated words; fewer may be a figure of speech

_LONGEST_UNIT = 60  # longest period of a loop, in words


@dataclass(frozen=True, slots=True)
class Loop:
    """The longest immediate repetition; `words` excludes the first occurrence."""

    words: int = 0
    text: str = ""  # includes the first occurrence


@dataclass(frozen=True, slots=True)
class Repetition:
    """Counts of repetition in a text."""

    words: int
    runs: int
    repeated: int  # runs that occurred before
    looped: int  # words in loops, without the first occurrence
    longest: Loop


def repetition(text: str) -> Repetition:
    """Count repetitions in a text, ignoring case and punctuation."""
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
                repeated_text = text[starts[begin] : ends[end + unit - 1]]
                longest = Loop(end - begin, " ".join(repeated_text.split()))
    repeated = len(runs) - len(np.unique(runs))
    return Repetition(len(hashes), len(runs), repeated, int(looped.sum()), longest)
