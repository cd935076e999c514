"""Passages of equal length: style and fluency of texts can be compared in no others.

A short text shows a rarer word once or not at all, and repeats itself less; so figures of a
paragraph and of an essay differ whoever wrote them.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ownwords.archive.features import Hashes, hash_words

_SENTENCE = re.compile(r"[.!?…][\"'”’»)\]]*\s+(?=\W*[^\W\da-z_])|[。！？]")


@dataclass(frozen=True, slots=True, eq=False)
class TextPassage:
    """A stretch of exactly so many words; `source` is the number of the text it is from.

    A passage of several short texts has a source of its own.
    """

    text: str
    hashes: Hashes  # of its words, in order
    source: int


def passages(texts: Sequence[str], words: int) -> list[TextPassage]:
    """All texts in passages of `words` words, one behind the other from the beginning of each.

    Texts shorter than that are joined with one another. What is left over at an end is left out.
    """
    found: list[TextPassage] = []
    short: list[str] = []
    for source, text in enumerate(texts):
        cut = list(_cut(text, words, source))
        found += cut
        if not cut:
            short.append(text)
    joined = _cut("\n\n".join(short), words, 0)
    return found + [
        TextPassage(one.text, one.hashes, len(texts) + number) for number, one in enumerate(joined)
    ]


def evenly(items: Sequence[TextPassage], most: int) -> list[TextPassage]:
    """So many of them at most, as far apart as can be."""
    if len(items) <= most:
        return list(items)
    return [items[i * len(items) // most] for i in range(most)]


def openings(text: str, words: int) -> list[str]:
    """A text in stretches of so many words, each from the beginning of a line on.

    Where a line is far longer than that, from the beginning of a sentence. A text, or a rest of it,
    of half as many words is a stretch as well: it is what a short sample is beside a long one.
    """
    _, starts, _ = hash_words(text)
    found: list[str] = []
    begin = 0
    while True:
        first = int(starts.searchsorted(begin))
        if len(starts) - first < max(1, words / 2):
            return found
        last = first + words
        end = int(starts[last]) if last < len(starts) else len(text)
        found.append(text[begin:end].strip())
        near = int(starts[min(last + words // 2, len(starts) - 1)])
        begin = _beginning(text, end, near)


def _beginning(text: str, after: int, near: int) -> int:
    """Where the next line begins; the next sentence, if that is not near; or else the end."""
    line = text.find("\n", after)
    if 0 <= line <= near:
        return line + 1
    sentence = _SENTENCE.search(text, after)
    if sentence:
        return sentence.end()
    return line + 1 if line >= 0 else len(text)


def _cut(text: str, words: int, source: int) -> Iterator[TextPassage]:
    hashes, starts, _ = hash_words(text)
    for first in range(0, len(hashes) - words + 1, words):
        last = first + words
        end = int(starts[last]) if last < len(starts) else len(text)
        yield TextPassage(text[int(starts[first]) : end], hashes[first:last], source)
