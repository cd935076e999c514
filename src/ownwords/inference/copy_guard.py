"""The copy guard: generated text never repeats a long passage of the training texts.

Two guarantees hold for every sampling method, also where the passage begins in the prompt:

- tokens: never `longest` or more consecutive tokens of a document;
- text: never `words` or more consecutive words of a document, regardless of ASCII case, of the
  punctuation and spaces between them, and of the tokenization.

The word in which a prompt ends belongs to the prompt. A token that contains n words, as a few
tokenizers have, can exceed the limit by n - 1 words. For scripts without spaces between words only
the token guarantee holds. Runs do not extend across documents or special tokens.

Ordinary writing is not affected: none of 37 columns by one author repeats 9 words of another, and
in 2.9 million words by a novelist 10 consecutive words recur once in 46,000. So `words` defaults to
10, and `longest` to the number of tokens that 12 words of the indexed texts take on average.

The index stores a hash of each run and the tokens that must not follow it. The texts cannot be read
from it, but given a passage almost as long as the guard permits, the rest of its document can be
recovered. About 2 of 10,000 lookups are false positives, each of which bans one token needlessly.

Shapes: N tokens or words of a document, V vocabulary.
"""

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ownwords.core.errors import ConfigError
from ownwords.core.workspace import writing_atomically
from ownwords.inference.ngram_index import (
    FACTOR,
    MASK,
    MAX_BITS,
    Array,
    Numbers,
    PrefixTrie,
    Table,
    contexts,
    hash_of,
    mixed,
    mixed_all,
    mixed_id,
    offsets_of,
    spaced,
    words_of,
)
from ownwords.models.safetensors_header import encode_header, read_header
from ownwords.models.untrusted_files import ModelError
from ownwords.tokenizers.text import TokenizerError
from ownwords.tokenizers.tokenizer import Tokenizer

WORDS = 10
FORMAT = 1

_MOST = 10_000  # words or tokens of a run
_LONGER = 1.2  # factor on the average tokens of `words` words, as words differ in length
# A mean of more than 20 bytes per word indicates a script without spaces between words; then
# `longest` is 24 tokens.
_UNDIVIDED, _UNDIVIDED_LONGEST = 20, 24

_DTYPES = {"U8": np.uint8, "U16": np.uint16, "U32": np.uint32, "I32": np.int32}
_CODES = {np.dtype(dtype): code for code, dtype in _DTYPES.items()}
_TABLE = ("offsets", "marks", "values")


class CopyGuard:
    """An index of the tokens that must not come next, from `build` or `load`."""

    def __init__(self, header: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
        self.longest: int = header["longest"]
        self.words: int = header["words"]
        self.vocabulary: int = header["vocabulary"]
        self.fingerprint: str = header["fingerprint"]
        self.arrays = arrays
        self._tokens = Table(*(arrays[f"tokens.{name}"] for name in _TABLE))
        self._words = Table(*(arrays[f"words.{name}"] for name in _TABLE))
        self._pieces: dict[int, bytes] = {}  # those read before: reading takes longer

    def banned(self, history: Sequence[int]) -> list[int]:
        """Return the ids that must not follow this history, which includes the prompt."""
        banned_ids: set[int] = set()
        run = self.longest - 1
        if len(history) >= run:
            key = 0
            for i in history[len(history) - run :]:
                key = key * FACTOR + mixed_id(i) & MASK
            banned_ids.update(self._tokens.find(mixed(key)))
        run = self.words - 1
        words, is_open = self._last_words(history)
        if len(words) >= run:
            key = 0
            for word in words[-run:]:
                key = key * FACTOR + hash_of(word) & MASK
            for node in self._words.find(mixed(key)):
                banned_ids.update(self._beginning(node, is_open))
        return sorted(banned_ids)

    def save(self, path: Path) -> None:
        """Write the index atomically."""
        with writing_atomically(path) as file:
            for block in self.blocks():
                file.write(block)

    def blocks(self) -> Iterator[bytes]:
        """Yield the contents of the index file in consecutive blocks."""
        header = {
            "format": FORMAT,
            "longest": self.longest,
            "words": self.words,
            "vocabulary": self.vocabulary,
            "fingerprint": self.fingerprint,
        }
        about = np.frombuffer(json.dumps(header).encode(), np.uint8)
        arrays = {**self.arrays, "about": about}
        # Widest item size first, so that every array is aligned.
        names = sorted(arrays, key=lambda name: (-arrays[name].itemsize, name))
        yield encode_header([(n, _CODES[arrays[n].dtype], arrays[n].shape) for n in names], {})
        for name in names:
            yield arrays[name].tobytes()

    def _last_words(self, history: Sequence[int]) -> tuple[list[bytes], bool]:
        """Return the last words of the text, and whether the last one may continue.

        At least `self.words` of them, if the text has so many.
        """
        pieces, count = self._pieces, 2 * self.words
        while True:
            parts: list[bytes] = []
            is_whole = count >= len(history)
            for i in history[max(0, len(history) - count) :]:
                piece = pieces[i] if i in pieces else self._read_piece(i)
                if piece is None:
                    parts.clear()
                    is_whole = True
                else:
                    parts.append(piece)
            tail = spaced(b"".join(parts))
            words = words_of(tail)
            # One word more than needed, since the first may be cut off.
            if is_whole or len(words) >= self.words:
                return words, bool(words) and tail.endswith(words[-1])
            count *= 2

    def _read_piece(self, token: int) -> bytes | None:
        """Return the bytes of a token; None if it has no text."""
        if not 0 <= token < self.vocabulary or self.arrays["pieces.breaks"][token]:
            return None
        begin, end = self.arrays["pieces.offsets"][token : token + 2]
        piece = self._pieces[token] = self.arrays["pieces.bytes"][begin:end].tobytes()
        return piece

    def _beginning(self, node: int, is_open: bool) -> list[int]:
        """Return the ids of all tokens that could begin a word, given its longest prefix's node.

        `is_open`: the previous word may continue, so only tokens with a gap before the word count.
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
            raise ConfigError(f"{name} should be from 2 to {_MOST:,}, and is {number}")
    pieces = _pieces(tokenizer)
    nodes = PrefixTrie(pieces)
    breaks_V = np.array([piece is None for piece in pieces], np.uint8)
    types: dict[bytes, int] = {}
    runs: list[tuple[Array, Array]] = []  # token ids and word numbers of each stretch of text
    for document in documents:
        for ids in _stretches(np.asarray(document, np.int32), breaks_V):
            text = b"".join(pieces[i] or b"" for i in ids.tolist())
            words_ = words_of(spaced(text))
            numbers = [types.setdefault(word, len(types)) for word in words_]
            runs.append((ids, np.array(numbers, np.int32)))
    if longest is None:
        longest = _default_longest(words, runs, types)
    hashes_T = np.array([hash_of(word) for word in types], np.uint64)
    nodes_T = np.array([nodes.of(word) for word in types], np.int32)
    of_tokens = [(contexts(mixed_all(ids), longest), ids[longest - 1 :]) for ids, _ in runs]
    of_words = [(contexts(hashes_T[n], words), nodes_T[n[words - 1 :]]) for _, n in runs]
    arrays = {
        **_named("tokens", _table(of_tokens)),
        **_named("words", _table(of_words)),
        **nodes.arrays(),
        "pieces.offsets": offsets_of([len(piece or b"") for piece in pieces]),
        "pieces.bytes": np.frombuffer(b"".join(piece or b"" for piece in pieces), np.uint8),
        "pieces.breaks": breaks_V,
    }
    header = {
        "longest": longest,
        "words": words,
        "vocabulary": len(pieces),
        "fingerprint": tokenizer.fingerprint(),
    }
    return CopyGuard(header, arrays)


def load(path: Path, fingerprint: str | None = None) -> CopyGuard:
    """Memory-map an index that `save` wrote.

    Raises ModelError if it is damaged or was made with a tokenizer of another fingerprint.
    """
    arrays = {}
    header = read_header(path)
    mapped = np.memmap(path, np.uint8, "r").view(np.ndarray)
    for name, stored in header.items():
        dtype = np.dtype(_DTYPES.get(stored.dtype, np.uint8))
        if stored.dtype not in _DTYPES or len(stored.shape) != 1 or stored.start % dtype.itemsize:
            raise _damaged(path, f"{name} is {stored.dtype} {list(stored.shape)}")
        arrays[name] = mapped[stored.start : stored.start + stored.nbytes].view(dtype)
    try:
        header = json.loads(arrays.pop("about", np.empty(0, np.uint8)).tobytes())
        version = header["format"]
        if version != FORMAT:
            raise ModelError(
                f"{path} has format {version!r:.40}, and this version of ownwords reads {FORMAT}",
                hint="upgrade ownwords",
            )
        _check(header, arrays)
        guard = CopyGuard(header, arrays)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise _damaged(path, f"{type(error).__name__}: {error}"[:120]) from error
    if fingerprint is not None and guard.fingerprint != fingerprint:
        raise ModelError(
            f"{path} was made with another tokenizer than the model's, so it would not work",
            hint="copy the model's folder whole, or make the model again",
        )
    return guard


def _check(header: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
    """Raise ValueError if the arrays do not fit together; their values are checked at each use."""
    for name, least, most in (
        ("longest", 2, _MOST),
        ("words", 2, _MOST),
        ("vocabulary", 0, 1 << 24),
    ):
        if type(header[name]) is not int or not least <= header[name] <= most:
            raise ValueError(f"{name} is {header[name]!r:.40}")
    if type(header["fingerprint"]) is not str:
        raise ValueError(f"the fingerprint is {header['fingerprint']!r:.40}")
    for name in ("tokens", "words"):
        offsets, marks, values = (arrays[f"{name}.{part}"] for part in _TABLE)
        buckets = len(offsets) - 1
        if buckets < 1 or buckets & (buckets - 1) or buckets > 1 << MAX_BITS:
            raise ValueError(f"{name} have {buckets} parts")
        if len(marks) != len(values) or values.dtype not in (np.uint16, np.uint32):
            raise ValueError(f"{name} have {len(marks)} hashes and {len(values)} values")
        if offsets.dtype != np.uint32 or marks.dtype != np.uint16:
            raise ValueError(f"{name} are of other types")
    sizes = {
        "pieces.offsets": (np.uint32, header["vocabulary"] + 1),
        "pieces.breaks": (np.uint8, header["vocabulary"]),
        "pieces.bytes": (np.uint8, None),
        "nodes.parents": (np.int32, None),
        "nodes.offsets": (np.uint32, 2 * len(arrays["nodes.parents"]) + 1),
        "nodes.ids": (np.uint32, None),
    }
    for name, (dtype, size) in sizes.items():
        # Every token belongs to at most one prefix.
        too_many = name.startswith("nodes") and len(arrays[name]) > 2 * header["vocabulary"] + 1
        if arrays[name].dtype != dtype or size not in (None, len(arrays[name])) or too_many:
            raise ValueError(f"{name} has {len(arrays[name])} of {arrays[name].dtype}")


def _pieces(tokenizer: Tokenizer) -> list[bytes | None]:
    """Bytes of each token; None for tokens without text."""
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
    """Split a document at tokens without text."""
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


def _table(parts: Sequence[tuple[Numbers, Array]]) -> Table:
    keys = np.concatenate([keys for keys, _ in parts] or [np.zeros(0, np.uint64)])
    values = np.concatenate([values for _, values in parts] or [np.zeros(0, np.int32)])
    return Table.build(keys[values >= 0], values[values >= 0])


def _named(name: str, table: Table) -> dict[str, Array]:
    return {f"{name}.{part}": array for part, array in zip(_TABLE, table.arrays, strict=True)}


def _damaged(path: Path, seen: str) -> ModelError:
    return ModelError(
        f"{path} is damaged or not a copy guard: {seen}",
        hint="copy the model's folder again, or delete this file to write without a guard",
    )
