"""The copy guard: generated text never repeats a long passage of the training texts.

Two guarantees hold for every sampling method, even if the passage begins in the prompt:

- tokens: never `longest` or more consecutive tokens of a document;
- text: never `words` or more consecutive words of a document, regardless of ASCII case, of the
  punctuation and spaces between them, and of the tokenization.

The last word of a prompt belongs to the prompt. A token of n words, which a few tokenizers have,
can exceed the limit by n - 1 words. In scripts without spaces between words only the token
guarantee holds. Runs do not extend across documents or special tokens.

Ordinary writing is hardly affected: none of 37 columns by one author repeats 9 words of another
column, and in a novelist's 2.9 million words, runs of 10 words recur once in 46,000 words. So
`words` defaults to 10, and `longest` to the average number of tokens in 12 words of the texts.

The index stores a hash of each run and the tokens that must not follow it. The texts cannot be read
from it, but a passage almost as long as the guard permits suffices to recover the rest of its
document. About 2 in 10,000 lookups are false positives, each of which bans one token needlessly.

Shapes: N tokens or words of a document, V vocabulary.
"""

import json
import math
import re
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt

from ownwords.core.errors import ConfigError
from ownwords.core.validation import Meta, decode
from ownwords.models.safetensors_header import encode_header, read_header
from ownwords.models.untrusted_files import ModelError
from ownwords.tokenizers.text import TokenizerError
from ownwords.tokenizers.tokenizer import Tokenizer

Numbers = npt.NDArray[np.uint64]
Array = npt.NDArray[Any]

WORDS = 10
FORMAT = 1

_MOST = 10_000  # words or tokens per run
_LONGER = 1.2  # factor on the average tokens of `words` words, because words differ in length
# More than 20 bytes per word indicate a script without spaces; then `longest` is 24 tokens.
_UNDIVIDED, _UNDIVIDED_LONGEST = 20, 24

_DTYPES = {"U8": np.uint8, "U16": np.uint16, "U32": np.uint32, "I32": np.int32}
_CODES = {np.dtype(dtype): code for code, dtype in _DTYPES.items()}
_TABLE = ("offsets", "marks", "values")
# The dtypes of the arrays in an index file.
_ARRAYS = {
    **{f"{name}.offsets": (np.uint32,) for name in ("tokens", "words", "pieces", "nodes")},
    **{f"{name}.marks": (np.uint16,) for name in ("tokens", "words")},
    **{f"{name}.values": (np.uint16, np.uint32) for name in ("tokens", "words")},
    "pieces.breaks": (np.uint8,),
    "pieces.bytes": (np.uint8,),
    "nodes.parents": (np.int32,),
    "nodes.ids": (np.uint32,),
}

FACTOR = 0x9E3779B97F4A7C15
_MIX_1, _MIX_2 = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB  # of splitmix64
_FNV, _FNV_PRIME = 0xCBF29CE484222325, 0x100000001B3
MASK = (1 << 64) - 1
# A table stores part of a hash: the first bits select the bucket, 16 more (the mark) the entry.
MAX_BITS, _MARK_BITS, _VALUE_BITS = 24, 16, 24
_IN_A_BUCKET = 8

# What separates words in a lower-case text: all ASCII except letters and digits, and general,
# Latin-1 and CJK punctuation in UTF-8. Later bytes never change a gap.
_GAP = re.compile(
    rb"(?:[^0-9a-z\x80-\xff]|(?:\xe2[\x80\x81]|\xe3\x80)(?:[\x80-\xbf]|(?!\Z))|\xc2[\xa0-\xbf])+"
)
# Bytes at the end of a text that may be the beginning of such punctuation.
_INCOMPLETE = re.compile(rb"(?:\xe2[\x80\x81]|\xe3\x80|[\xc2\xe2\xe3])\Z")
_CONTINUING = bytes(range(0x80, 0xC0))  # UTF-8 continuation bytes


@dataclass(frozen=True)
class _About:
    """The parameters of an index file."""

    longest: Annotated[int, Meta(ge=2, le=_MOST)]
    words: Annotated[int, Meta(ge=2, le=_MOST)]
    vocabulary: Annotated[int, Meta(ge=0, le=1 << 24)]
    fingerprint: str
    format: Annotated[int, Meta(ge=FORMAT, le=FORMAT)] = FORMAT


class CopyGuard:
    """An index of the tokens that must not come next; see `build` and `load`."""

    def __init__(self, about: _About, arrays: Mapping[str, Array]) -> None:
        self.about, self.longest, self.words = about, about.longest, about.words
        self.arrays = arrays
        self.after_tokens = Table(*(arrays[f"tokens.{name}"] for name in _TABLE))
        self.after_words = Table(*(arrays[f"words.{name}"] for name in _TABLE))
        # Indexing a memoryview takes a third of the time of indexing an array.
        self.hashes: memoryview[int] = mixed_all(np.arange(about.vocabulary)).data
        self.breaks: memoryview[int] = arrays["pieces.breaks"].data
        self.offsets: memoryview[int] = arrays["pieces.offsets"].data
        self.bytes: memoryview[int] = arrays["pieces.bytes"].data

    def banned(self, history: Sequence[int]) -> list[int]:
        """Return the ids that must not follow this history, which includes the prompt."""
        return GuardedText(self).append(history)

    def to_bytes(self) -> bytes:
        about = np.frombuffer(json.dumps(asdict(self.about)).encode(), np.uint8)
        arrays = {**self.arrays, "about": about}
        # The arrays with the widest items come first, so that every array is aligned.
        names = sorted(arrays, key=lambda name: (-arrays[name].itemsize, name))
        header = encode_header([(n, _CODES[arrays[n].dtype], arrays[n].shape) for n in names], {})
        return b"".join([header, *(arrays[name].tobytes() for name in names)])

    def beginning(self, node: int, is_open: bool) -> list[int]:
        """Return the ids of all tokens that could begin a word, given its longest prefix's node.

        `is_open`: the previous word may continue, so only tokens that begin with a gap count.
        """
        parents, offsets, ids = (
            self.arrays[name] for name in ("nodes.parents", "nodes.offsets", "nodes.ids")
        )
        token_ids: list[int] = []
        while 0 <= node < len(parents):
            begin, end = offsets[2 * node], offsets[2 * node + (1 if is_open else 2)]
            token_ids += ids[begin:end].tolist()
            node = min(int(parents[node]), node - 1)
        return token_ids


class GuardedText:
    """A growing text under a guard: holds the hashes of its last tokens and words."""

    def __init__(self, guard: CopyGuard) -> None:
        self._guard = guard
        self._run = guard.longest - 1
        self._tokens: deque[int] = deque([0] * self._run, self._run)
        self._length = self._token_key = 0
        self._leaving = pow(FACTOR, self._run, 1 << 64)  # the weight of the token that leaves
        self._words: deque[int] = deque(maxlen=guard.words - 1)  # words before the last gap
        self._tail = b""  # the text after the last gap

    def append(self, ids: Sequence[int]) -> list[int]:
        """Add tokens to the text; return the ids that must not follow."""
        guard, tokens, key = self._guard, self._tokens, self._token_key
        pieces: list[bytes | memoryview[int]] = [self._tail]
        for token in ids:
            is_known = 0 <= token < guard.about.vocabulary
            hash_ = guard.hashes[token] if is_known else 0
            # A polynomial of the hashes of the last tokens, as `contexts` computes it.
            key = key * FACTOR + hash_ - tokens[0] * self._leaving & MASK
            tokens.append(hash_)
            if is_known and not guard.breaks[token]:
                pieces.append(guard.bytes[guard.offsets[token] : guard.offsets[token + 1]])
            else:
                self._words.clear()
                pieces.clear()
        self._token_key = key
        self._length += len(ids)
        banned = set(guard.after_tokens.find(key)) if self._length >= self._run else set()
        *words, self._tail = _GAP.split(b"".join(pieces).lower())
        self._words.extend(map(hash_of, filter(None, words)))
        open_word = _INCOMPLETE.sub(b"", self._tail)
        context = [*self._words, hash_of(open_word)] if open_word else [*self._words]
        if len(context) >= guard.words - 1:
            key = 0
            for word in context[1 - guard.words :]:
                key = key * FACTOR + word & MASK
            for node in guard.after_words.find(key):
                banned.update(guard.beginning(node, bool(open_word) and open_word == self._tail))
        return sorted(banned)


def build(
    documents: Iterable[Array],
    tokenizer: Tokenizer,
    *,
    words: int = WORDS,
    longest: int | None = None,
) -> CopyGuard:
    """Build a guard from documents given as token ids; special tokens separate texts."""
    for name, number in (("words", words), ("longest", longest)):
        if number is not None and not 2 <= number <= _MOST:
            raise ConfigError(f"{name} must be from 2 to {_MOST:,}, not {number}")
    pieces = _pieces(tokenizer)
    nodes = PrefixTrie(pieces)
    breaks_V = np.array([piece is None for piece in pieces], np.uint8)
    types: dict[bytes, int] = {}
    runs: list[tuple[Array, Array]] = []  # token ids and word numbers of each stretch of text
    for document in documents:
        for ids in _stretches(np.asarray(document, np.int32), breaks_V):
            text = b"".join(pieces[i] or b"" for i in ids.tolist())
            words_ = words_of(text)
            numbers = [types.setdefault(word, len(types)) for word in words_]
            runs.append((ids, np.array(numbers, np.int32)))
    if longest is None:
        longest = _default_longest(words, runs, types)
    hashes_T = np.array([hash_of(word) for word in types], np.uint64)
    nodes_T = np.array([nodes.of(word) for word in types], np.int32)
    of_tokens = [(contexts(mixed_all(ids), longest), ids[longest - 1 :]) for ids, _ in runs]
    of_words = [(contexts(hashes_T[n], words), nodes_T[n[words - 1 :]]) for _, n in runs]
    arrays = {
        **_table("tokens", of_tokens),
        **_table("words", of_words),
        **nodes.arrays(),
        "pieces.offsets": offsets_of([len(piece or b"") for piece in pieces]),
        "pieces.bytes": np.frombuffer(b"".join(piece or b"" for piece in pieces), np.uint8),
        "pieces.breaks": breaks_V,
    }
    about = _About(longest, words, len(pieces), tokenizer.fingerprint())
    return CopyGuard(about, arrays)


def load(path: Path, fingerprint: str | None = None) -> CopyGuard:
    """Memory-map an index file.

    Raises ModelError if it is damaged or was made with a tokenizer of another fingerprint.
    """
    try:
        mapped = np.memmap(path, np.uint8, "r").view(np.ndarray)
        arrays = {
            name: mapped[stored.start : stored.start + stored.nbytes].view(_DTYPES[stored.dtype])
            for name, stored in read_header(path).items()
        }
        about = decode(_About, json.loads(arrays.pop("about").tobytes()), complete=True)
        _check_sizes(about, arrays)
        guard = CopyGuard(about, arrays)
    except (ValueError, KeyError, TypeError, RecursionError, ConfigError) as error:
        raise ModelError(
            f"{path} is damaged or not a copy guard of this version: {str(error)[:120]}",
            hint="copy the model's folder again, or delete this file to write without a guard",
        ) from error
    if fingerprint is not None and about.fingerprint != fingerprint:
        raise ModelError(
            f"{path} was made with another tokenizer than the model's, so it would not work",
            hint="copy the model's folder whole, or make the model again",
        )
    return guard


def _check_sizes(about: _About, arrays: Mapping[str, Array]) -> None:
    """Raise ValueError if the arrays do not fit together; their values are checked at each use."""
    for name, dtypes in _ARRAYS.items():
        if arrays[name].dtype not in dtypes:
            raise ValueError(f"{name} has the type {arrays[name].dtype}")
    sizes = {name: len(array) for name, array in arrays.items()}
    buckets = [sizes["tokens.offsets"] - 1, sizes["words.offsets"] - 1]
    nodes, most = sizes["nodes.parents"], 2 * about.vocabulary + 1  # a token has one prefix at most
    fits = [
        *(each > 0 and each & (each - 1) == 0 and each <= 1 << MAX_BITS for each in buckets),
        *(sizes[f"{name}.marks"] == sizes[f"{name}.values"] for name in ("tokens", "words")),
        sizes["pieces.offsets"] == about.vocabulary + 1,
        sizes["pieces.breaks"] == about.vocabulary,
        sizes["nodes.offsets"] == 2 * nodes + 1,
        sizes["nodes.ids"] <= most,
        nodes <= most,
    ]
    if not all(fits):
        raise ValueError(f"its arrays have {sizes}")


def _pieces(tokenizer: Tokenizer) -> list[bytes | None]:
    """Return the bytes of each token; None for tokens without text."""
    special = set(tokenizer.special.values())
    before: list[int] = []  # some tokenizers drop the space at the beginning of a text
    skip = 0
    pieces: list[bytes | None] = []
    for i in range(tokenizer.vocabulary_size):
        try:
            pieces.append(None if i in special else tokenizer.decode_bytes([*before, i])[skip:])
        except TokenizerError:  # a gap in the ids
            pieces.append(None)
            continue
        if not before and i not in special and tokenizer.decode_bytes([i]):
            before, skip = [i], len(tokenizer.decode_bytes([i]))
            pieces[i] = tokenizer.decode_bytes([i, i])[skip:]
    return pieces


def _stretches(ids_N: Array, breaks_V: Array) -> list[Array]:
    at = np.flatnonzero(breaks_V[ids_N])
    parts = np.split(ids_N, at)
    return [part for part in (parts[0], *(part[1:] for part in parts[1:])) if len(part)]


def _default_longest(
    words: int, runs: Sequence[tuple[Array, Array]], types: Mapping[bytes, int]
) -> int:
    """Return 1.2 times the mean number of tokens of `words` words, at least `words`.

    24 for scripts without spaces between words, or without any words.
    """
    counts = np.zeros(len(types), np.int64)
    for _, numbers in runs:
        counts += np.bincount(numbers, minlength=len(types))
    total = int(counts.sum())
    if not total:
        return _UNDIVIDED_LONGEST
    if int(counts @ np.array([len(word) for word in types])) > _UNDIVIDED * total:
        return _UNDIVIDED_LONGEST
    tokens = sum(len(ids) for ids, _ in runs)
    return max(words, math.ceil(_LONGER * words * tokens / total))


def _table(name: str, parts: Sequence[tuple[Numbers, Array]]) -> dict[str, Array]:
    """Return the arrays of a table of hashes and continuations; negative values are left out."""
    keys = np.concatenate([keys for keys, _ in parts] or [np.zeros(0, np.uint64)])
    values = np.concatenate([values for _, values in parts] or [np.zeros(0, np.int32)])
    table = Table.build(keys[values >= 0], values[values >= 0])
    return {f"{name}.{part}": array for part, array in zip(_TABLE, table.arrays, strict=True)}


# --- n-grams: words, hashes, and tables of what follows -------------------------------------------


class Table:
    """A hash table of continuations: the first bits select a bucket, the next 16 the entries."""

    def __init__(self, offsets: Array, marks: Array, values: Array) -> None:
        self.arrays = (offsets, marks, values)
        self.bits = (len(offsets) - 1).bit_length() - 1
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
        """Return the continuations of a key that is not mixed yet."""
        key = key + FACTOR & MASK  # `mixed`, inlined: a function call per token would be slow
        key = (key ^ key >> 30) * _MIX_1 & MASK
        key = (key ^ key >> 27) * _MIX_2 & MASK
        key ^= key >> 31
        bucket = key >> (64 - self.bits)
        mark = key >> (64 - _MARK_BITS - self.bits) & ((1 << _MARK_BITS) - 1)
        begin, end = self._offsets[bucket], min(self._offsets[bucket + 1], len(self._marks))
        found, marks = [], self._marks
        for i in range(begin, end):
            if marks[i] == mark:
                found.append(self._values[i])
        return found


class PrefixTrie:
    """A trie of word prefixes, with the tokens that begin a word with each."""

    def __init__(self, pieces: Sequence[bytes | None]) -> None:
        groups: dict[bytes, tuple[list[int], list[int]]] = {}
        for i, piece in enumerate(pieces):
            # A token can begin with the last byte of a punctuation mark, such as the one in "it’s".
            text = (piece or b"").lstrip(_CONTINUING)
            if words := words_of(text):
                at_once = text == piece and not _GAP.match(text.lower())
                groups.setdefault(words[0], ([], []))[at_once].append(i)
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
        """Return arrays: each node's parent, and its token ids with and without a leading gap."""
        return {
            "nodes.parents": np.array(self._parents, np.int32),
            "nodes.offsets": offsets_of([len(ids) for ids in self._lists]),
            "nodes.ids": np.array([i for ids in self._lists for i in ids], np.uint32),
        }


def words_of(text: bytes) -> list[bytes]:
    """Return the words of a text, in lower case."""
    *words, last = _GAP.split(text.lower())
    return [*filter(None, [*words, _INCOMPLETE.sub(b"", last)])]


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
    number = (number ^ number >> 30) * _MIX_1 & MASK
    number = (number ^ number >> 27) * _MIX_2 & MASK
    return number ^ number >> 31


def mixed_all(numbers_N: Array) -> Numbers:
    """Mix the bits of many numbers."""
    numbers = numbers_N.astype(np.uint64) + np.uint64(FACTOR)
    numbers = (numbers ^ numbers >> np.uint64(30)) * np.uint64(_MIX_1)
    numbers = (numbers ^ numbers >> np.uint64(27)) * np.uint64(_MIX_2)
    mixed_numbers: Numbers = numbers ^ numbers >> np.uint64(31)
    return mixed_numbers


def offsets_of(sizes: Sequence[int]) -> Array:
    """Return the offsets of consecutive parts of these sizes, and the end."""
    return np.concatenate(([0], np.cumsum(sizes))).astype(np.uint32)
