"""Compact features of a document, so that 10,000 can be compared without holding their texts.

Words. A word is a run of letters, digits and combining marks in any script; an apostrophe between
two of them belongs to the word, a hyphen separates two words. In Chinese and Japanese, which put no
spaces between words, every ideograph and kana counts as one. (Thai, Lao, Khmer and Burmese also
write without spaces; there a stretch between two spaces counts as one word, which is too few.)

Tokenisation is vectorised in numpy over code points: each word becomes a 64-bit hash (a polynomial
in its case-folded letters), and all features are built on those hashes.
"""

import builtins
import json
import struct
import sys
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from typing import NamedTuple, cast

import numpy as np
import numpy.typing as npt

from ownwords.archive import pii
from ownwords.archive.document import OWN_KINDS, Document, SegmentKind
from ownwords.archive.language_id import identify_language

Hashes = npt.NDArray[np.uint64]
Offsets = npt.NDArray[np.int64]

# Kinds in which duplicates are sought: the author's words and quotes.
SHARED_KINDS: frozenset[SegmentKind] = OWN_KINDS | {"quote"}

SHINGLE = 5  # words
SKETCH_FEW = 64  # minimum sketch size, if the text has that many shingles
SKETCH_MANY = 2048  # maximum sketch size
SKETCH_LEVEL = 5  # default sampling: one shingle in 2 ** 5, within these limits
VOCABULARY = 1000  # number of most frequent distinct words kept for style
NAMED = 100  # number of these kept as text for display
MIN_STYLE_WORDS = 400  # texts with fewer own words have no style features: they are not judged
TRIGRAMS = 512  # hash buckets of character 3-grams
MAX_STYLE_WORDS = 0xFFFF  # style counts of longer texts are scaled down to this length

_NO_SKETCH = np.zeros(0, np.uint64)
_NO_VOCABULARY = np.zeros(0, np.uint32)
_NO_COUNTS = np.zeros(0, np.uint16)
_NO_STYLE = np.zeros(0, np.float32)
_EMPTY: tuple[npt.NDArray[np.generic], ...] = (
    _NO_SKETCH,
    _NO_VOCABULARY,
    _NO_COUNTS,
    _NO_STYLE,
)

_PIECE = 1 << 18  # characters hashed at once, which bounds memory
_MULTIPLIER = 0x9E3779B97F4A7C15
_INVERSE = pow(_MULTIPLIER, -1, 1 << 64)
_SEPARATOR, _LETTER, _ALONE, _JOINER = 0, 1, 2, 3
_SPACE = 0x20


@dataclass(frozen=True, slots=True, eq=False)
class Features:
    """The features of one document; `encode_features` and `decode_features` round-trip exactly.

    `bytes` is the length of the own words in UTF-8. `exact` is a digest of the shared text (own
    and quoted words), ignoring case, punctuation and spacing. `sketch` holds the sorted hashes
    below 2 ** (64 - `level`) of its 5-word shingles: an unbiased sample at any length, so two
    sketches can be compared at the coarser of their levels, even a 200-word note with a
    60,000-word dump. `vocabulary` and `counts` are the hashes (upper halves, ascending) and counts
    of the most frequent own words, `named` the most frequent of these as text, separated by
    spaces; `style` counts hashed character 3-grams. Counts refer to a text of `style_words` words:
    all own words, or scaled to 65,535. A text with fewer than `MIN_STYLE_WORDS` own words has
    none of these four.
    """

    words: dict[SegmentKind, int]
    bytes: int
    exact: builtins.bytes
    level: int
    sketch: Hashes
    style_words: int
    vocabulary: npt.NDArray[np.uint32]
    counts: npt.NDArray[np.uint16]
    named: str
    style: npt.NDArray[np.float32]
    private: pii.PiiMatches
    language: str = ""  # English name of the own words' language; empty if unknown

    @property
    def own_words(self) -> int:
        return sum(n for kind, n in self.words.items() if kind in OWN_KINDS)

    @property
    def all_words(self) -> int:
        return sum(self.words.values())


class WordHashes(NamedTuple):
    """The words of a text as parallel arrays: hashes, start offsets and end offsets."""

    hashes: Hashes
    starts: Offsets
    ends: Offsets


class _TextChunk(NamedTuple):
    words: WordHashes
    plain: npt.NDArray[np.uint32]  # case-folded code points of the words, separated by one space
    places: Offsets  # text offset of each code point


@cache
def _tables() -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint32]]:
    """Lookup tables for the Basic Multilingual Plane: character class and case-folded form."""
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
    return kinds, folded


@cache
def _powers() -> tuple[Hashes, Hashes]:
    up = np.full(_PIECE, _MULTIPLIER, np.uint64)
    down = np.full(_PIECE, _INVERSE, np.uint64)
    return np.cumprod(up, dtype=np.uint64), np.cumprod(down, dtype=np.uint64)


def _classes(codes: npt.NDArray[np.uint32]) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint32]]:
    kinds, folded = _tables()
    if not len(codes) or codes.max() < 1 << 16:
        return kinds[codes], folded[codes]
    low = np.where(codes < 1 << 16, codes, 0)
    result, plain = kinds[low], folded[low]
    high = codes >= 1 << 16
    plain[high] = codes[high]
    result[high] = _LETTER
    result[(codes >= 0x20000) & (codes < 0x40000)] = _ALONE
    # Musical symbols; playing cards to emoji; tags and variation selectors.
    picture = ((codes >= 0x1D000) & (codes < 0x1D400)) | ((codes >= 0x1F000) & (codes < 0x20000))
    result[picture | (codes >= 0x40000)] = _SEPARATOR
    return result, plain


def _splitmix64(values: Hashes) -> Hashes:
    """The splitmix64 finaliser: every output bit depends on every input bit."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def _hash_chunk(text: str, offset: int) -> _TextChunk:
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")
    kinds, folded = _classes(codes)
    inside = (kinds == _LETTER) | (kinds == _ALONE)
    before = np.zeros(len(codes) + 1, bool)  # before[i + 1]: character i belongs to a word
    before[1:] = inside
    joiners = np.flatnonzero(kinds == _JOINER)
    if len(joiners):
        joiners = joiners[(joiners > 0) & (joiners < len(codes) - 1)]
        joiners = joiners[inside[joiners - 1] & inside[joiners + 1]]
        before[joiners + 1] = True
        inside = before[1:].copy()
    begins = inside & ~before[:-1]
    alone = kinds == _ALONE
    if alone.any():
        begins |= alone
        begins[1:] |= inside[1:] & alone[:-1]
    starts = np.flatnonzero(begins)
    if not len(starts):
        nothing = np.zeros(0, np.int64)
        return _TextChunk(WordHashes(np.zeros(0, np.uint64), nothing, nothing), codes[:0], nothing)
    # A word ends where a separator or the next word begins.
    over = np.empty(len(codes), bool)
    over[-1] = True
    over[:-1] = ~inside[1:] | begins[1:]
    ends = np.flatnonzero(inside & over) + 1
    up, down = _powers()
    value = folded.astype(np.uint64)
    value *= up[: len(codes)]
    value *= inside
    hashes = _splitmix64(np.add.reduceat(value, starts) * down[starts])
    places = np.flatnonzero(inside | before[:-1])
    plain = folded[places]
    plain[~inside[places]] = _SPACE
    return _TextChunk(WordHashes(hashes, starts + offset, ends + offset), plain, places + offset)


def _hash_chunks(text: str) -> Iterator[_TextChunk]:
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
    chunks = [piece.words for piece in _hash_chunks(text)]
    if len(chunks) == 1:
        return chunks[0]
    if not chunks:
        nothing = np.zeros(0, np.int64)
        return WordHashes(np.zeros(0, np.uint64), nothing, nothing)
    hashes, starts, ends = (np.concatenate(part) for part in zip(*chunks, strict=True))
    return WordHashes(hashes, starts, ends)


def count_words(text: str) -> int:
    """The number of words in a text, in any script."""
    return sum(len(piece.words.hashes) for piece in _hash_chunks(text))


def shingles(hashes: Hashes, length: int = SHINGLE) -> Hashes:
    """The hash of every run of `length` words, in order; empty for a shorter text."""
    n = len(hashes) - length + 1
    if n <= 0:
        return np.zeros(0, np.uint64)
    total = np.zeros(n, np.uint64)
    for i in range(length):
        total = total * np.uint64(_MULTIPLIER) + hashes[i : i + n]
    return _splitmix64(total)


def _sketch(hashes: Hashes) -> tuple[int, Hashes]:
    kept_hashes = shingles(hashes)
    # At this level the sketch is almost surely still full, so hashes above it need no sorting.
    level = min(SKETCH_LEVEL, max(0, (len(kept_hashes) // (8 * SKETCH_FEW)).bit_length() - 1))
    likely = (
        _sorted_unique(kept_hashes[kept_hashes < np.uint64(1 << (64 - level))])
        if level
        else kept_hashes
    )
    if level and len(likely) >= SKETCH_FEW:
        kept_hashes = likely
    else:
        level, kept_hashes = 0, _sorted_unique(kept_hashes)
    while level < SKETCH_LEVEL and sketch_size(kept_hashes, level + 1) >= SKETCH_FEW:
        level += 1
    while sketch_size(kept_hashes, level) > SKETCH_MANY:
        level += 1
    return level, kept_hashes[: sketch_size(kept_hashes, level)].copy()


def _sorted_unique(values: Hashes) -> Hashes:
    """The distinct values, sorted; faster on small arrays than `np.unique`, which hashes first."""
    values = np.sort(values)
    if len(values) > 1:
        values = values[np.concatenate(([True], values[1:] != values[:-1]))]
    return values


def sketch_size(sketch: Hashes, level: int) -> int:
    """The number of a sketch's sorted hashes that remain at a coarser level."""
    return int(np.searchsorted(sketch, np.uint64((1 << (64 - level)) - 1), side="right"))


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
    digest = blake2b(digest_size=16)
    trigrams = np.zeros(TRIGRAMS, np.int64)
    chunks: list[WordHashes] = []
    for piece in _hash_chunks(text):
        chunks.append(piece.words)
        digest.update(piece.plain.tobytes())
        if len(piece.plain) and piece.plain[-1] != _SPACE:
            # End each chunk with a space, so that chunk boundaries do not change the digest.
            digest.update(np.uint32(_SPACE).tobytes())
        trigrams += _trigrams(piece, own, bounds)
    words = chunks[0] if len(chunks) == 1 else _joined(chunks)
    segment_of = np.searchsorted(bounds, words.starts, side="right")
    for segment, n in zip(shared, np.bincount(segment_of, minlength=len(shared)), strict=True):
        counts[segment.kind] = counts.get(segment.kind, 0) + int(n)
    level, sketch = _sketch(words.hashes)
    mine = words if own.all() else WordHashes(*(part[own[segment_of]] for part in words))
    total = len(mine.hashes)
    scale = min(1.0, MAX_STYLE_WORDS / total) if total else 1.0
    vocabulary, times, named, style = _NO_VOCABULARY, _NO_COUNTS, "", _NO_STYLE
    if total >= MIN_STYLE_WORDS:
        vocabulary, times, named = _vocabulary(mine, text, scale)
        style = (trigrams * scale).astype(np.float32)
    return Features(
        words=counts,
        bytes=len(document.text(OWN_KINDS).encode("utf-8", "surrogatepass")),
        exact=digest.digest(),
        level=level,
        sketch=sketch,
        style_words=min(total, MAX_STYLE_WORDS),
        vocabulary=vocabulary,
        counts=times,
        named=named,
        style=style,
        private=pii.find_pii(text),
        language=identify_language("\n".join(s.text for s in shared if s.kind in OWN_KINDS)),
    )


def _joined(chunks: list[WordHashes]) -> WordHashes:
    if not chunks:
        return hash_words("")
    hashes, starts, ends = (np.concatenate(part) for part in zip(*chunks, strict=True))
    return WordHashes(hashes, starts, ends)


def _trigrams(
    piece: _TextChunk, own: npt.NDArray[np.bool_], bounds: Offsets
) -> npt.NDArray[np.int64]:
    """Counts of the character 3-grams in own words by hash bucket, shape (TRIGRAMS,)."""
    if len(piece.plain) < 3:
        return np.zeros(TRIGRAMS, np.int64)
    c = piece.plain
    mixed = (c[:-2] * np.uint32(0x85EBCA6B) + c[1:-1]) * np.uint32(0xC2B2AE35) + c[2:]
    buckets = (mixed * np.uint32(0x9E3779B1)) >> np.uint32(32 - TRIGRAMS.bit_length() + 1)
    if not own.all():
        buckets = buckets[own[np.searchsorted(bounds, piece.places[:-2], side="right")]]
    return np.bincount(buckets, minlength=TRIGRAMS)


def _vocabulary(
    words: WordHashes, text: str, scale: float
) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint16], str]:
    # Sort by hash, then index: the first of each run is the word's first occurrence.
    keyed = words.hashes & np.uint64(0xFFFFFFFF00000000) | np.arange(
        len(words.hashes), dtype=np.uint64
    )
    keyed.sort()
    keys = (keyed >> np.uint64(32)).astype(np.uint32)
    begins = np.flatnonzero(np.concatenate(([True], keys[1:] != keys[:-1])))[: len(keys)]
    times = np.diff(begins, append=len(keys))
    order = np.argsort(-times, kind="stable")[:VOCABULARY]
    first = (keyed[begins[order[:NAMED]]] & np.uint64(0xFFFFFFFF)).astype(np.int64)
    spans = zip(words.starts[first].tolist(), words.ends[first].tolist(), strict=True)
    named = " ".join([text[start:end] for start, end in spans]).lower()
    positions = np.sort(order)
    return (
        keys[begins[positions]],
        np.rint(times[positions] * scale).astype(np.uint16),
        named,
    )


def encode_features(features: Features) -> bytes:
    """Serialise features: the length of a JSON header, the header, the little-endian arrays."""
    header = {
        "words": features.words,
        "bytes": features.bytes,
        "exact": features.exact.hex(),
        "level": features.level,
        "sketch": len(features.sketch),
        "style_words": features.style_words,
        "vocabulary": len(features.vocabulary),
        "named": features.named,
        "style": len(features.style),
        "language": features.language,
        "private": [features.private.emails, features.private.phones, *features.private.examples],
    }
    head = json.dumps(header, ensure_ascii=True).encode("ascii")
    return b"".join(
        (
            struct.pack("<I", len(head)),
            head,
            features.sketch.astype("<u8").tobytes(),
            features.vocabulary.astype("<u4").tobytes(),
            features.counts.astype("<u2").tobytes(),
            features.style.astype("<f4").tobytes(),
        )
    )


def decode_features(data: bytes) -> Features:
    """Parse the bytes that `encode_features` wrote."""
    (length,) = struct.unpack_from("<I", data)
    header = json.loads(data[4 : 4 + length])
    place = 4 + length
    arrays: list[npt.NDArray[np.generic]] = []
    sizes = (header["sketch"], header["vocabulary"], header["vocabulary"], header["style"])
    for kind, size, empty in zip(("<u8", "<u4", "<u2", "<f4"), sizes, _EMPTY, strict=True):
        array = np.frombuffer(data, dtype=kind, count=size, offset=place)
        place += array.nbytes
        # Copy, as a view would keep `data` alive. Most posts are short and share the empty arrays.
        arrays.append(array.astype(array.dtype.newbyteorder("=")) if size else empty)
    emails, phones, *examples = header["private"]
    return Features(
        words=header["words"],
        bytes=header["bytes"],
        exact=bytes.fromhex(header["exact"]),
        level=header["level"],
        sketch=cast("Hashes", arrays[0]),
        style_words=header["style_words"],
        vocabulary=cast("npt.NDArray[np.uint32]", arrays[1]),
        counts=cast("npt.NDArray[np.uint16]", arrays[2]),
        named=header["named"],
        style=cast("npt.NDArray[np.float32]", arrays[3]),
        private=pii.PiiMatches(emails, phones, tuple(examples)),
        language=sys.intern(header["language"]),
    )
