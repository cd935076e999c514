"""Stylometric features of a text as counts: frequent words and character n-grams.

Character n-grams of 3 to 5 characters run across word boundaries: they capture endings, function
words and the words around commas. Typography is not style, so the kinds of quotes and dashes,
italics, digits and line breaks are normalized first. (Quotation marks are removed: they would
separate novels from essays, and little else.)
"""

import re
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ownwords.core.text import Hashes, hash_words

SIZES = (3, 4, 5)

_DASH = re.compile(r"\s*(?:[—–―‒]|-{2,}|(?<=\s)-(?=\s))\s*")
_QUOTE = re.compile(r"[\"“”„«»*_`´]|(?<!\w)'|'(?!\w)")
_OTHER = re.compile(r"[^\w\s.,;:!?()'-]")
_DIGITS = re.compile(r"\d+")
_DOTS = re.compile(r"…|\.(?:\s?\.)+")

_MULTIPLIER = np.uint32(0x01000193)
_MIXER = np.uint32(0x9E3779B1)


def plain(text: str) -> str:
    """Normalize a text: case-folded, with uniform dashes, dots, digits and spaces."""
    text = text.casefold().replace("’", "'").replace("‘", "'")
    text = _DASH.sub(" - ", _DOTS.sub("...", text))
    text = _DIGITS.sub("0", _OTHER.sub(" ", _QUOTE.sub("", text)))
    return " ".join(text.split())


def letter_groups(plain_text: str, buckets: int) -> npt.NDArray[np.int64]:
    """Count the hashed character n-grams per bucket; `buckets` is a power of two."""
    codes = np.frombuffer(f" {plain_text} ".encode("utf-32-le", "surrogatepass"), np.uint32)
    shift = np.uint32(32 - (buckets.bit_length() - 1))
    counts = np.zeros(buckets, np.int64)
    for size in SIZES:
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
        raise ValueError("what is given is not one word each")
    return hashes
