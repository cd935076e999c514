"""Texts cut into passages of equal length, and the style of each as counts.

Short texts repeat themselves less and contain fewer rare words, so figures of a paragraph and of an
essay differ even for the same author.

Style is counted in frequent words and in character n-grams of 3 to 5 characters that run across
word boundaries: they capture endings, function words and the words around commas. Typography is not
style, so the kinds of quotes and dashes, italics, digits and line breaks are normalized first.
(Quotation marks are removed: they would separate novels from essays, and little else.)
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ownwords.core.text import Hashes, count_words, hash_words

_SENTENCE = re.compile(r"[.!?…][\"'”’»)\]]*\s++(?=\W{0,40}[^\W\da-z_])|[。！？]")
_SIZES = (3, 4, 5)

_DASH = re.compile(r"\s*(?:[—–―‒]|-{2,}|(?<=\s)-(?=\s))\s*")
_QUOTE = re.compile(r"[\"“”„«»*_`´]|(?<!\w)'|'(?!\w)")
_OTHER = re.compile(r"[^\w\s.,;:!?()'-]")
_DIGITS = re.compile(r"\d+")
_DOTS = re.compile(r"…|\.(?:\s?\.)+")

_MULTIPLIER = np.uint32(0x01000193)
_MIXER = np.uint32(0x9E3779B1)


@dataclass(frozen=True, slots=True, eq=False)
class TextPassage:
    """A passage of a fixed number of words; `source` is the number of its text.

    Each passage joined from short texts has its own source number; no text is in two of these.
    """

    text: str
    hashes: Hashes  # of its words, in order
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


def evenly(items: Sequence[TextPassage], limit: int) -> list[TextPassage]:
    """Return at most `limit` items, evenly spaced."""
    if len(items) <= limit:
        return list(items)
    return [items[i * len(items) // limit] for i in range(limit)]


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
        yield TextPassage(text[int(starts[first]) : end], hashes[first:last], source)


# --- style ----------------------------------------------------------------------------------------


def plain(text: str) -> str:
    """Normalize a text: case-folded, with uniform dashes, dots, digits and spaces."""
    text = text.casefold().replace("’", "'").replace("‘", "'")
    text = _DASH.sub(" - ", _DOTS.sub("...", text))
    text = _DIGITS.sub("0", _OTHER.sub(" ", _QUOTE.sub("", text)))
    return " ".join(text.split())


def character_ngrams(plain_text: str, buckets: int) -> npt.NDArray[np.int64]:
    """Count the hashed character n-grams per bucket; `buckets` is a power of two."""
    codes = np.frombuffer(f" {plain_text} ".encode("utf-32-le", "surrogatepass"), np.uint32)
    shift = np.uint32(32 - (buckets.bit_length() - 1))
    counts = np.zeros(buckets, np.int64)
    for size in _SIZES:
        if len(codes) < size:
            break
        value = np.full(len(codes) - size + 1, size, np.uint32)
        for i in range(size):
            value = (value ^ codes[i : len(codes) - size + 1 + i]) * _MULTIPLIER
        value = (value ^ (value >> np.uint32(15))) * _MIXER
        counts += np.bincount(value >> shift, minlength=buckets)
    return counts


def word_counts(hashes: Hashes, vocabulary: Hashes) -> npt.NDArray[np.int64]:
    """Count how often each word of a vocabulary occurs among the words of a text."""
    order = np.argsort(vocabulary)
    known = vocabulary[order]
    at = np.minimum(np.searchsorted(known, hashes), len(known) - 1)
    counts = np.zeros(len(vocabulary), np.int64)
    counts[order] = np.bincount(at[known[at] == hashes], minlength=len(known))
    return counts


def hashes_of(words: Sequence[str]) -> Hashes:
    """Hash words the same way as the words of a passage."""
    hashes = hash_words(" ".join(words)).hashes
    if len(hashes) != len(words):
        raise ValueError("each text must be one word")
    return hashes
