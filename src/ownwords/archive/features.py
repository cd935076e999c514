"""Compact features of a document, so that 10,000 can be compared without holding their texts."""

import builtins
import json
import struct
import sys
from dataclasses import dataclass
from hashlib import blake2b
from typing import cast

import numpy as np
import numpy.typing as npt

from ownwords.archive import pii
from ownwords.archive.document import OWN_KINDS, Document, SegmentKind
from ownwords.archive.language_id import identify_language
from ownwords.archive.word_hashes import (
    SPACE,
    Hashes,
    Offsets,
    TextChunk,
    WordHashes,
    count_words,
    hash_chunks,
    hash_words,
    shingles,
)

# Kinds in which duplicates are sought: the author's words and quotes.
SHARED_KINDS: frozenset[SegmentKind] = OWN_KINDS | {"quote"}

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
    for piece in hash_chunks(text):
        chunks.append(piece.words)
        digest.update(piece.plain.tobytes())
        if len(piece.plain) and piece.plain[-1] != SPACE:
            # End each chunk with a space, so that chunk boundaries do not change the digest.
            digest.update(np.uint32(SPACE).tobytes())
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
    piece: TextChunk, own: npt.NDArray[np.bool_], bounds: Offsets
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
        if not size:  # most posts are short and share the empty arrays
            arrays.append(empty)
            continue
        array = np.frombuffer(data, dtype=kind, count=size, offset=place)
        place += array.nbytes
        arrays.append(array.astype(empty.dtype))  # a view would keep `data` alive
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
