"""Compact features of a document, so that 10,000 can be compared without their texts in memory."""

import builtins
import re
from collections import Counter
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from typing import Final, get_args

import msgspec
import numpy as np
import numpy.typing as npt

from ownwords.archive.document import OWN_KINDS, Document, SegmentKind
from ownwords.core.text import (
    LETTERS,
    Hashes,
    Offsets,
    TextChunk,
    WordHashes,
    count_words,
    distinct,
    hash_chunks,
    join_chunks,
    shingles,
)
from ownwords.language.words import in_all_languages, language, word_set

# ---- the language

MIN_LANGUAGE_WORDS: Final = 25  # shorter texts are not identified
_LANGUAGE_CHARACTERS = 6_000
_MIN_LANGUAGE_SHARE = 0.1  # minimum share of the text's words in a language's list
_LANGUAGE_MARGIN = 1.4  # minimum ratio to the next language's share
_NOT_LATIN: Final = re.compile(r"[\u0370-\uffff]")  # such as the letters of:


@cache
def _frequent_words() -> dict[str, frozenset[str]]:
    """Return the most frequent words of each language, by its English name."""
    words = in_all_languages("common").items()
    return {language(code)["name"]: word_set(text) for code, text in words}


@cache
def _scripts() -> dict[str, re.Pattern[str]]:
    """Return the letters that only one of the languages has, by its English name."""
    scripts = in_all_languages("letters").items()
    return {language(code)["name"]: re.compile(f"[{letters}]") for code, letters in scripts}


def identify_language(text: str) -> str:
    """Return the English name of a text's language; empty if unknown or if it is too short."""
    sample = text[:_LANGUAGE_CHARACTERS]
    runs = LETTERS.findall(sample)
    letters = sum(map(len, runs))
    if letters >= MIN_LANGUAGE_WORDS and len(_NOT_LATIN.findall(sample)) > letters / 4:
        for name, script in _scripts().items():
            if len(script.findall(sample)) > letters / 4:
                return name
    words = [run.lower() for run in runs]
    if len(words) < MIN_LANGUAGE_WORDS:
        return ""
    times = Counter(words)
    shares = sorted(
        (sum(map(times.__getitem__, frequent & times.keys())) / len(words), name)
        for name, frequent in _frequent_words().items()
    )
    (second, _), (best, name) = shares[-2:]
    return name if best >= max(_MIN_LANGUAGE_SHARE, _LANGUAGE_MARGIN * second) else ""


# ---- the features

# Kinds that are compared to find duplicates: the author's words and quotes.
SHARED_KINDS: frozenset[SegmentKind] = OWN_KINDS | {"quote"}

SKETCH_FEW = 64  # minimum sketch size, if the text has that many shingles
SKETCH_MANY = 2048  # maximum sketch size
SKETCH_LEVEL = 5  # default sampling: one shingle in 2 ** 5, within these limits
MIN_STYLE_WORDS = 400  # texts with fewer own words have no style features: they are not judged
TRIGRAMS = 512  # hash buckets of character 3-grams


@dataclass(frozen=True, slots=True, eq=False)
class Features:
    """The features of one document; `encode_features` and `decode_features` round-trip exactly.

    `bytes` is the length of the own words in UTF-8. `exact` is a digest of the shared text (own
    and quoted words), ignoring case, punctuation and spacing. `sketch` holds the sorted hashes
    below 2 ** (64 - `level`) of its 5-word shingles: an unbiased sample at any length, so two
    sketches can be compared at the coarser of their levels, even a 200-word note with a
    60,000-word dump. `style` counts hashed character 3-grams of the own words; a text with
    fewer than `MIN_STYLE_WORDS` of them has none.
    """

    words: dict[SegmentKind, int]
    bytes: int
    exact: builtins.bytes
    level: int
    sketch: Hashes
    style: npt.NDArray[np.float32]
    language: str = ""  # English name of the own words' language; empty if unknown

    @property
    def own_words(self) -> int:
        return sum(n for kind, n in self.words.items() if kind in OWN_KINDS)

    @property
    def shared_words(self) -> int:
        return sum(n for kind, n in self.words.items() if kind in SHARED_KINDS)

    @property
    def all_words(self) -> int:
        return sum(self.words.values())


def _sketch(hashes: Hashes) -> tuple[int, Hashes]:
    every, level = shingles(hashes), SKETCH_LEVEL
    while len(sketch := distinct(every[every <= _limit(level)])) < SKETCH_FEW and level:
        level -= 1
    while sketch_size(sketch, level) > SKETCH_MANY:
        level += 1
    return level, sketch[: sketch_size(sketch, level)].copy()


def _limit(level: int) -> np.uint64:
    return np.uint64((1 << (64 - level)) - 1)


def sketch_size(sketch: Hashes, level: int) -> int:
    """Return how many of a sketch's sorted hashes remain at a coarser level."""
    return int(np.searchsorted(sketch, _limit(level), side="right"))


def extract_features(document: Document) -> Features:
    """Compute the features of a document."""
    counts: dict[SegmentKind, int] = {}
    shared = [s for s in document.segments if s.kind in SHARED_KINDS]
    for segment in document.segments:
        if segment.kind not in SHARED_KINDS:
            counts[segment.kind] = counts.get(segment.kind, 0) + count_words(segment.text)
    text = "\n\n".join(s.text for s in shared)
    bounds = np.cumsum([len(s.text) + 2 for s in shared], dtype=np.int64)
    own = np.array([s.kind in OWN_KINDS for s in shared], bool)
    trigrams = np.zeros(TRIGRAMS, np.int64)
    chunks: list[WordHashes] = []
    for piece in hash_chunks(text):
        chunks.append(piece.words)
        trigrams += _trigrams(piece, own, bounds)
    words = join_chunks(chunks)
    segment_of = np.searchsorted(bounds, words.starts, side="right")
    for segment, n in zip(shared, np.bincount(segment_of, minlength=len(shared)), strict=True):
        counts[segment.kind] = counts.get(segment.kind, 0) + int(n)
    level, sketch = _sketch(words.hashes)
    has_style = sum(counts.get(kind, 0) for kind in OWN_KINDS) >= MIN_STYLE_WORDS
    return Features(
        words=counts,
        bytes=len(document.text(OWN_KINDS).encode("utf-8", "surrogatepass")),
        exact=blake2b(words.hashes.tobytes(), digest_size=16).digest(),
        level=level,
        sketch=sketch,
        style=(trigrams if has_style else trigrams[:0]).astype(np.float32),
        language=identify_language("\n".join(s.text for s in shared if s.kind in OWN_KINDS)),
    )


def _trigrams(
    piece: TextChunk, own: npt.NDArray[np.bool_], bounds: Offsets
) -> npt.NDArray[np.int64]:
    """Count the character 3-grams in own words by hash bucket, shape (TRIGRAMS,)."""
    if len(piece.plain) < 3:
        return np.zeros(TRIGRAMS, np.int64)
    c = piece.plain
    mixed = (c[:-2] * np.uint32(0x85EBCA6B) + c[1:-1]) * np.uint32(0xC2B2AE35) + c[2:]
    buckets = (mixed * np.uint32(0x9E3779B1)) >> np.uint32(32 - TRIGRAMS.bit_length() + 1)
    if not own.all():
        buckets = buckets[own[np.searchsorted(bounds, piece.places[:-2], side="right")]]
    return np.bincount(buckets, minlength=TRIGRAMS)


def encode_features(features: Features) -> bytes:
    """Serialise features; the arrays are little-endian, as on every supported processor."""
    return msgspec.msgpack.encode(features, enc_hook=lambda array: array.tobytes())


def decode_features(data: bytes) -> Features:
    """Parse the bytes that `encode_features` wrote."""
    return msgspec.msgpack.decode(data, type=Features, dec_hook=_array)


def _array(type_: object, data: bytes) -> npt.NDArray[np.generic]:
    return np.frombuffer(data, get_args(get_args(type_)[1])[0])
