"""Texts cut into passages of equal length.

Short texts repeat themselves less and contain fewer rare words, so figures of a paragraph and of an
essay differ even for the same author.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ownwords.core.text import count_words, hash_words

_SENTENCE = re.compile(r"[.!?…][\"'”’»)\]]*\s++(?=\W{0,40}[^\W\da-z_])|[。！？]")


@dataclass(frozen=True, slots=True, eq=False)
class TextPassage:
    """A passage of a fixed number of words; `source` is the number of its text.

    Each passage joined from short texts has its own source number; no text is in two of these.
    """

    text: str
    source: int


def passages(texts: Sequence[str], words: int) -> list[TextPassage]:
    """Cut all texts into consecutive passages of `words` words.

    Shorter texts are joined. Words at the end that do not fill a passage are left out.
    """
    cut_passages: list[TextPassage] = []
    joined: list[TextPassage] = []
    short: list[str] = []
    short_words = 0
    for source, text in enumerate(texts):
        cut = list(_cut(text, words, source))
        cut_passages += cut
        if cut:
            continue
        short.append(text)
        short_words += count_words(text)
        if short_words >= words:
            joined += _cut("\n\n".join(short), words, len(texts) + len(joined))
            short, short_words = [], 0
    return cut_passages + joined


def openings(text: str, words: int) -> list[str]:
    """Cut a text into stretches of `words` words that begin at the start of a line.

    If no line starts soon enough, a stretch begins with a sentence. A text or its rest is also a
    stretch if it has at least half as many words.
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
    """Return where the next line begins, or if that is too far, the next sentence or line."""
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
        yield TextPassage(text[int(starts[first]) : end], source)
