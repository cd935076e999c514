"""The words and sentences of a text, in any script.

A word is a run of letters, digits and combining marks in any script; an apostrophe between
two of them belongs to the word, a hyphen separates two words. In Chinese and Japanese, which put no
spaces between words, every ideograph and kana counts as one. (Thai, Lao, Khmer and Burmese also
write without spaces; there a stretch between two spaces counts as one word, which is too few.)

Words are found by numpy over code points: each becomes a 64-bit hash, a polynomial in its
case-folded letters.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

Hashes = npt.NDArray[np.uint64]
Offsets = npt.NDArray[np.int64]

LETTERS = re.compile(r"[^\W\d_]+")
SHINGLE = 5  # words

_PIECE = 1 << 18  # characters hashed at once, which bounds memory
_MULTIPLIER = 0x9E3779B97F4A7C15
_INVERSE = pow(_MULTIPLIER, -1, 1 << 64)
_SEPARATOR, _LETTER, _ALONE, _JOINER = 0, 1, 2, 3
SPACE = 0x20


class WordHashes(NamedTuple):
    """The words of a text as parallel arrays: hashes, start offsets and end offsets."""

    hashes: Hashes
    starts: Offsets
    ends: Offsets


class TextChunk(NamedTuple):
    """The words of a part of a text, and their letters."""

    words: WordHashes
    plain: npt.NDArray[np.uint32]  # case-folded code points of the words, separated by one space
    places: Offsets  # text offset of each code point


@cache
def _tables() -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint32]]:
    """Tables for the Basic Multilingual Plane: character class; case-folded form, 0 for none."""
    kinds = np.zeros(1 << 16, np.uint8)
    folded = np.arange(1 << 16, dtype=np.uint32)
    for code in range(1 << 16):
        char = chr(code)
        if unicodedata.category(char)[0] in "LNM":
            kinds[code] = _LETTER
            other = char.casefold()
            if other != char and len(other) == 1:
                folded[code] = ord(other)
    for first, last in ((0x2E80, 0x2FDF), (0x3005, 0x3007), (0x3041, 0x30FF), (0x31F0, 0x31FF)):
        kinds[first : last + 1][kinds[first : last + 1] == _LETTER] = _ALONE
    kinds[0x3400:0xA000] = _ALONE
    kinds[0xF900:0xFB00] = _ALONE
    kinds[[0x27, 0x2019]] = _JOINER
    folded[0x2019] = 0x27
    folded[kinds == _SEPARATOR] = 0
    return kinds, folded


@cache
def _powers() -> tuple[Hashes, Hashes]:
    up = np.full(_PIECE, _MULTIPLIER, np.uint64)
    down = np.full(_PIECE, _INVERSE, np.uint64)
    return np.cumprod(up, dtype=np.uint64), np.cumprod(down, dtype=np.uint64)


def _classes(codes: npt.NDArray[np.uint32]) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint32]]:
    kinds, folded = _tables()
    if not len(codes) or codes.max() < 1 << 16:
        places = codes.astype(np.intp)  # once: numpy would convert them for each table
        return kinds[places], folded[places]
    low = np.where(codes < 1 << 16, codes, 0)
    result, plain = kinds[low], folded[low]
    high = codes >= 1 << 16
    plain[high] = codes[high]
    result[high] = _LETTER
    result[(codes >= 0x20000) & (codes < 0x40000)] = _ALONE
    # Musical symbols; playing cards to emoji; tags and variation selectors.
    picture = ((codes >= 0x1D000) & (codes < 0x1D400)) | ((codes >= 0x1F000) & (codes < 0x20000))
    result[picture | (codes >= 0x40000)] = _SEPARATOR
    plain[result == _SEPARATOR] = 0
    return result, plain


def _splitmix64(values: Hashes) -> Hashes:
    """Apply the splitmix64 finaliser: every output bit depends on every input bit."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def _hash_chunk(text: str, offset: int) -> TextChunk:
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")
    kinds, folded = _classes(codes)
    alone = kinds == _ALONE
    inside = (kinds == _LETTER) | alone
    joiners = np.flatnonzero(kinds == _JOINER)
    if len(joiners):
        folded[joiners] = 0
        joiners = joiners[(joiners > 0) & (joiners < len(codes) - 1)]
        joiners = joiners[inside[joiners - 1] & inside[joiners + 1]]
        folded[joiners] = 0x27
        inside[joiners] = True
    begins = inside.copy()
    begins[1:] &= ~inside[:-1]
    if alone.any():
        begins |= alone
        begins[1:] |= inside[1:] & alone[:-1]
    starts = np.flatnonzero(begins)
    if not len(starts):
        nothing = np.zeros(0, np.int64)
        return TextChunk(WordHashes(np.zeros(0, np.uint64), nothing, nothing), codes[:0], nothing)
    # A word ends where a separator or the next word begins.
    over = np.empty(len(codes), bool)
    over[-1] = True
    over[:-1] = ~inside[1:] | begins[1:]
    ends = np.flatnonzero(inside & over) + 1
    up, down = _powers()
    hashes = _splitmix64(np.add.reduceat(folded * up[: len(codes)], starts) * down[starts])
    inside[1:] |= inside[:-1]  # include the character after each word
    places = np.flatnonzero(inside)
    plain = np.maximum(folded[places], np.uint32(SPACE))
    return TextChunk(WordHashes(hashes, starts + offset, ends + offset), plain, places + offset)


def hash_chunks(text: str) -> Iterator[TextChunk]:
    """Yield the words of a text in parts of bounded size, cut between words."""
    offset = 0
    while offset < len(text):
        end = min(offset + _PIECE, len(text))
        if end < len(text):
            cut = max(text.rfind(" ", offset, end), text.rfind("\n", offset, end))
            end = cut + 1 if cut > offset else end
        yield _hash_chunk(text[offset:end], offset)
        offset = end


def hash_words(text: str) -> WordHashes:
    """Hash the words of a text in order, with their offsets."""
    return join_chunks([piece.words for piece in hash_chunks(text)])


def join_chunks(chunks: Sequence[WordHashes]) -> WordHashes:
    """Return the words of consecutive parts of a text as those of one."""
    if len(chunks) == 1:
        return chunks[0]
    if not chunks:
        nothing = np.zeros(0, np.int64)
        return WordHashes(np.zeros(0, np.uint64), nothing, nothing)
    hashes, starts, ends = (np.concatenate(part) for part in zip(*chunks, strict=True))
    return WordHashes(hashes, starts, ends)


def count_words(text: str) -> int:
    """Return the number of words in a text, in any script."""
    return sum(len(piece.words.hashes) for piece in hash_chunks(text))


def distinct(hashes: Hashes) -> Hashes:
    """Return the sorted distinct hashes, many times faster than np.unique."""
    hashes = np.sort(hashes)
    is_first = np.ones(len(hashes), bool)
    is_first[1:] = hashes[1:] != hashes[:-1]
    return hashes[is_first]


def shingles(hashes: Hashes, length: int = SHINGLE) -> Hashes:
    """Return the hash of every run of `length` words, in order; empty for a shorter text."""
    n = len(hashes) - length + 1
    if n <= 0:
        return np.zeros(0, np.uint64)
    total = np.zeros(n, np.uint64)
    for i in range(length):
        total = total * np.uint64(_MULTIPLIER) + hashes[i : i + n]
    return _splitmix64(total)


# --- sentences ------------------------------------------------------------------------------------

Span = tuple[int, int]

# Abbreviations: the period does not end a sentence before a name, number or lower-case letter.
_TITLES = (
    "mr mrs ms dr st prof rev hon gen col capt lt sgt maj gov sen messrs mme mlle hr fr sr sra mt"
)
_SHORTENED = (
    "no nos vol vols fig figs ch chap sec art pp ed etc vs viz cf eg ie al jr inc ltd co corp dept"
    " est approx ca p eds op cit ft am pm jan feb mar apr jun jul aug sep sept oct nov dec"
)
_BEFORE_NAMES, ABBREVIATIONS = (frozenset(words.split()) for words in (_TITLES, _SHORTENED))
_ROMAN = re.compile(r"[ivxlc]+")
# The lookbehind keeps a long run of dots from being tried again from each of them.
END_MARK: Final = re.compile(
    r"""(?<![.!?…؟۔।])(?:[.!?…]|[؟۔।])+['"”’“»«)\]*_]*(?=\s|$)|[。！？]+[」』”’）]*"""
)
_END = re.compile(rf"{END_MARK.pattern}|\n+")
_WRAP = re.compile(r"^(?![#>|`~])(.{40,})\n(?![ \t]*(?:$|[#>|`~]|[-*+] |\d+[.)] ))", re.MULTILINE)
_BEFORE = re.compile(r"[\w.'’]*$")
_MAX_ABBREVIATION = 40  # characters; longer words are not abbreviations
_FOLLOWING = re.compile(r"""\s*["'“”„«»‘’(\[*_]*(.?)""", re.DOTALL)
# The period after the day of a German date does not end a sentence.
_MONTH = re.compile(
    r"\s+(?:(?:Januar|Februar|März|Mai|Juni|Juli|Oktober|Dezember)\b"
    r"|(?:April|August|September|November)\s+(?:19|20)\d\d\b)"  # English months, too
)
_ABBREVIATED = re.compile(r"\b([^\W\d_]+)\.\s+(?=([^\W\d_]))")


def sentences(text: str, abbreviations: frozenset[str] = ABBREVIATIONS) -> list[Span]:
    """Return the spans of the sentences, without surrounding space; a newline ends a sentence."""
    spans: list[Span] = []
    start = 0
    for mark in _END.finditer(text):
        if mark[0][0] == "\n" or mark.end() == len(text) or _ends(text, mark, abbreviations):
            spans += stripped(text, start, mark.end())
            start = mark.end()
    return spans + list(stripped(text, start, len(text)))


def unwrapped(text: str) -> str:
    """Replace each newline within a paragraph of hard-wrapped text by a space."""
    return _WRAP.sub(r"\1 ", text)


def abbreviations_of(texts: Iterable[str]) -> frozenset[str]:
    """Return the usual abbreviations, and those before lower-case letters in these texts."""
    within: Counter[str] = Counter()
    for text in texts:
        for match in _ABBREVIATED.finditer(text):
            within[match[1].casefold()] += 1 if match[2].islower() else -1
    return ABBREVIATIONS | {word for word, more in within.items() if more >= 2}


def stripped(text: str, begin: int, end: int) -> Iterator[Span]:
    """Return the span without the space at its ends; nothing if it is all space."""
    part = text[begin:end]
    if inner := part.strip():
        begin += len(part) - len(part.lstrip())
        yield begin, begin + len(inner)


def _ends(text: str, mark: re.Match[str], abbreviations: frozenset[str]) -> bool:
    match = _FOLLOWING.match(text, mark.end())
    following = match[1] if match else ""
    if mark[0] != ".":
        return not following.islower()  # "What!" he cried; and so on ... until the end.
    before = _BEFORE.search(text[max(0, mark.start() - _MAX_ABBREVIATION) : mark.start()])
    word = before[0].casefold() if before else ""
    if "." in word or word in abbreviations or _ROMAN.fullmatch(word):
        return not (following.islower() or following.isdigit())
    if word.isdecimal() and len(word) <= 2 and _MONTH.match(text, mark.end()):
        return False
    is_initial = len(word) == 1 and word.isalpha()
    return not (is_initial or word in _BEFORE_NAMES)
