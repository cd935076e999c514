"""N-gram index of texts: word splitting, n-gram hashes, and tables of their continuations.

Shapes: N tokens or words of a document.
"""

import math
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.uint64]
Array = npt.NDArray[Any]

FACTOR = 0x9E3779B97F4A7C15
_FNV, _FNV_PRIME = 0xCBF29CE484222325, 0x100000001B3
MASK = (1 << 64) - 1
# A table stores part of a hash: the first bits select the bucket, 16 more (the mark) the entry.
MAX_BITS, _MARK_BITS, _VALUE_BITS = 24, 16, 24
_IN_A_BUCKET = 8

# UTF-8 of general, Latin-1 and CJK punctuation, which is treated as spaces. At the end of a text,
# where a token may split a character, also its incomplete first bytes.
_PUNCTUATION = re.compile(
    rb"\xe2[\x80\x81][\x80-\xbf]?|\xe3\x80[\x80-\xbf]?|\xc2[\xa0-\xbf]|[\xc2\xe2\xe3]\Z"
)
_CONTINUING = bytes(range(0x80, 0xC0))  # UTF-8 continuation bytes
_WORD = re.compile(rb"[0-9a-z\x80-\xff]+")


class Table:
    """A hash table of continuations: the first hash bits select a bucket, 16 more the entries."""

    def __init__(self, offsets: Array, marks: Array, values: Array) -> None:
        self.arrays = (offsets, marks, values)
        self.bits = (len(offsets) - 1).bit_length() - 1
        # Reading an item of a memoryview takes a third of the time of an array's.
        self._offsets: memoryview[int] = offsets.data
        self._marks: memoryview[int] = marks.data
        self._values: memoryview[int] = values.data

    @classmethod
    def build(cls, keys_N: Numbers, values_N: Array) -> "Table":
        """Build a table from pairs of a hash and its continuation, without duplicate pairs."""
        bits = max(0, math.ceil(math.log2(max(1, len(keys_N)) / _IN_A_BUCKET)))
        bits = min(bits, MAX_BITS)
        shift = np.uint64(64 - _MARK_BITS - bits)
        # Sort instead of np.unique, which hashes first: these numbers share their low bits.
        entries = (keys_N >> shift << np.uint64(_VALUE_BITS)) | values_N.astype(np.uint64)
        entries.sort()
        entries = entries[np.diff(entries, prepend=~entries[:1]) != 0]
        heads = entries >> np.uint64(_VALUE_BITS)
        buckets = np.arange((1 << bits) + 1, dtype=np.uint64) << np.uint64(_MARK_BITS)
        values = entries & np.uint64((1 << _VALUE_BITS) - 1)
        wide = bool(len(values)) and int(values.max()) >= 1 << 16
        return cls(
            np.searchsorted(heads, buckets).astype(np.uint32),
            (heads & np.uint64((1 << _MARK_BITS) - 1)).astype(np.uint16),
            values.astype(np.uint32 if wide else np.uint16),
        )

    def find(self, key: int) -> list[int]:
        """Return the continuations of this hash."""
        bucket = key >> (64 - self.bits)
        mark = key >> (64 - _MARK_BITS - self.bits) & ((1 << _MARK_BITS) - 1)
        begin, end = self._offsets[bucket], min(self._offsets[bucket + 1], len(self._marks))
        marks, values = self._marks, self._values
        return [values[i] for i in range(begin, end) if marks[i] == mark]


class PrefixTrie:
    """A trie of word prefixes, with the tokens that begin a word with each."""

    def __init__(self, pieces: Sequence[bytes | None]) -> None:
        groups: dict[bytes, tuple[list[int], list[int]]] = {}
        for i, piece in enumerate(pieces):
            # A token can begin with the last byte of a punctuation mark, such as that in "it’s".
            text = (piece or b"").lstrip(_CONTINUING)
            if first := _WORD.search(spaced(text)):
                at_once = first.start() == 0 and text == piece
                groups.setdefault(first[0], ([], []))[at_once].append(i)
        ordered = sorted(groups, key=len)  # parents before children
        self._numbers = {beginning: number for number, beginning in enumerate(ordered)}
        self._longest = len(ordered[-1]) if ordered else 0
        self._parents = [self.of(beginning, len(beginning) - 1) for beginning in ordered]
        self._lists = [ids for beginning in ordered for ids in groups[beginning]]

    def of(self, word: bytes, most: int | None = None) -> int:
        """Return the node of a word's longest prefix of at most `most` bytes, or -1."""
        for size in range(min(len(word) if most is None else most, self._longest), 0, -1):
            if (number := self._numbers.get(word[:size])) is not None:
                return number
        return -1

    def arrays(self) -> dict[str, Array]:
        """Return arrays of each node's parent and two id lists: with and without a gap before."""
        return {
            "nodes.parents": np.array(self._parents, np.int32),
            "nodes.offsets": offsets_of([len(ids) for ids in self._lists]),
            "nodes.ids": np.array([i for ids in self._lists for i in ids], np.uint32),
        }


def spaced(text: bytes) -> bytes:
    """Lower-case ASCII letters and turn punctuation beyond ASCII into spaces."""
    return _PUNCTUATION.sub(b" ", text.lower())


def words_of(text: bytes) -> list[bytes]:
    """Return the words of a text normalized by `spaced`."""
    words: list[bytes] = _WORD.findall(text)
    return words


def contexts(hashes_N: Numbers, run: int) -> Numbers:
    """Hash the `run - 1` items before each position from `run - 1` on."""
    count = max(0, len(hashes_N) - run + 1)
    keys = np.zeros(count, np.uint64)
    for i in range(run - 1):
        keys = keys * np.uint64(FACTOR) + hashes_N[i : i + count]
    return mixed_all(keys)


@lru_cache(1 << 16)
def hash_of(word: bytes) -> int:
    """Hash a word: FNV-1a, then splitmix64."""
    hash_ = _FNV
    for byte in word:
        hash_ = (hash_ ^ byte) * _FNV_PRIME & MASK
    return mixed(hash_)


def mixed(number: int) -> int:
    """Mix the bits of a 64-bit number (splitmix64)."""
    number = number + FACTOR & MASK
    number = (number ^ number >> 30) * 0xBF58476D1CE4E5B9 & MASK
    number = (number ^ number >> 27) * 0x94D049BB133111EB & MASK
    return number ^ number >> 31


mixed_id = lru_cache(1 << 16)(mixed)  # for token ids, which come again and again


def mixed_all(numbers_N: Array) -> Numbers:
    """Mix the bits of many numbers."""
    numbers = numbers_N.astype(np.uint64) + np.uint64(FACTOR)
    numbers = (numbers ^ numbers >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ numbers >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    mixed_numbers: Numbers = numbers ^ numbers >> np.uint64(31)
    return mixed_numbers


def offsets_of(sizes: Sequence[int]) -> Array:
    """Return the offsets of consecutive parts of these sizes, and the end."""
    return np.concatenate(([0], np.cumsum(sizes))).astype(np.uint32)
