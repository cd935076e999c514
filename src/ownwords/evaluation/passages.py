"""Cuts texts into passages of equal length, so that style and fluency can be compared.

A short text repeats itself less and shows a rarer word once or not at all, so figures of a
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
    """Cut all texts into consecutive passages of `words` words.

    Shorter texts are joined. The rest at the end of a text is left out.
    """
    cut_passages: list[TextPassage] = []
    short: list[str] = []
    for source, text in enumerate(texts):
        cut = list(_cut(text, words, source))
        cut_passages += cut
        if not cut:
            short.append(text)
    joined = _cut("\n\n".join(short), words, 0)
    return cut_passages + [
        TextPassage(passage.text, passage.hashes, len(texts) + number)
        for number, passage in enumerate(joined)
    ]


def evenly(items: Sequence[TextPassage], most: int) -> list[TextPassage]:
    """At most so many items, evenly spaced."""
    if len(items) <= most:
        return list(items)
    return [items[i * len(items) // most] for i in range(most)]


def openings(text: str, words: int) -> list[str]:
    """Cut a text into stretches of so many words, each from the beginning of a line.

    In far longer lines it begins with a sentence. A text, or the rest of one, of half as many
    words is a stretch as well.
    """
    _, starts, _ = hash_words(text)
    stretches: list[str] = []
    begin = 0
    while True:
        first = int(starts.searchsorted(begin))
        if len(starts) - first < max(1, words / 2):
            return stretches
        last = first + words
        end = int(starts[last]) if last < len(starts) else len(text)
        stretches.append(text[begin:end].strip())
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
