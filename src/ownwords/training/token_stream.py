"""The endless stream of training rows: every token once per epoch, in a new order each epoch.

An epoch is all documents end to end, shuffled; the first starts at a random token, and the tokens
before that one come last. Epochs follow one another without a gap, and the stream is cut into rows
of equal length: no token is dropped or repeated, and rows start elsewhere in each epoch, even with
a single document. The rows that start in an epoch are shuffled too, so that a batch has no
neighbouring rows.

Every row depends on the seed and its number only, so it can be read without the rows before it.

Shapes: R rows, T1 the tokens of a row and the one after it, N tokens and S pieces of an epoch.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from ownwords.core.errors import CorpusError
from ownwords.core.fingerprint import digest
from ownwords.training.shards import Shards

Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True)
class EpochLayout:
    """The layout of one epoch as pieces of documents, none of them empty."""

    ends_S: Int64s  # the end of each piece in the epoch
    shifts_S: Int64s  # the offset from a piece's end in the epoch to its end in the shards
    order: Int64s | None  # of the rows that start in the epoch; None: unshuffled


class TokenStream:
    """The endless rows of shards, numbered from 0."""

    def __init__(
        self, shards: Shards, *, context: int, seed: int, shuffle: bool, rows: int, name: str
    ) -> None:
        """`rows` is the batch size; `name` distinguishes two streams of one seed."""
        self.tokens = shards.tokens
        if self.tokens < context + 1:
            raise CorpusError(
                f"there are {self.tokens:,} tokens to train on, but a row of {context:,} needs"
                f" {context + 1:,}",
                hint=f"add texts, or train with a context of at most {max(1, self.tokens - 1):,}",
            )
        self._shards, self._context = shards, context
        self._shuffle, self._name = shuffle, f"{name}/{seed}"
        # The epochs of one batch, and a few more for the next.
        epochs = rows * context // self.tokens + 4
        self._epoch = lru_cache(maxsize=epochs)(self._epoch_layout)

    def read(self, rows: range, ids_RT1: Int64s, pieces_RT1: npt.NDArray[np.int32]) -> None:
        """Read rows, each with the token after it, and each token's document number in its row."""
        for row, ids_T1, pieces_T1 in zip(rows, ids_RT1, pieces_RT1, strict=True):
            filled = number = 0
            for epoch, at, end in self._stretches(self.position(row), len(ids_T1)):
                here = slice(filled, filled + end - at)
                filled = here.stop
                first, last = np.searchsorted(epoch.ends_S, (at, end - 1), side="right").tolist()
                if first == last:
                    shift = int(epoch.shifts_S[first])
                    ids_T1[here] = self._shards.ids[at + shift : end + shift]
                    pieces_T1[here] = number
                else:
                    pieces = slice(first, last + 1)
                    ends = np.minimum(epoch.ends_S[pieces], end)
                    lengths = np.diff(ends, prepend=at)
                    shifts = np.repeat(epoch.shifts_S[pieces], lengths)
                    ids_T1[here] = self._shards.ids[np.arange(at, end) + shifts]
                    pieces_T1[here] = np.repeat(np.arange(len(lengths)) + number, lengths)
                number += last - first + 1

    def targets(self, rows: range, row_start: int | None = None) -> int:
        """The number of tokens in these rows whose next token is of the same document.

        Where rows begin with a token of their own, their first counts only if it is this token.
        """
        counted = 0
        for row in rows:
            position = self.position(row)
            skip = int(row_start is not None and self._token(position) != row_start)
            counted += self._context - skip
            for epoch, at, end in self._stretches(position + skip, self._context - skip):
                first, last = np.searchsorted(epoch.ends_S, (at, end), side="right").tolist()
                counted -= last - first
        return counted

    def position(self, row: int) -> int:
        """The position in the stream at which a row starts."""
        e = row * self._context // self.tokens
        order = self._epoch(e).order
        if order is not None:
            first = self._first(e)
            row = first + int(order[row - first])
        return row * self._context

    def _token(self, position: int) -> int:
        """The token at a position in the stream."""
        ((epoch, at, _),) = self._stretches(position, 1)
        piece = int(np.searchsorted(epoch.ends_S, at, side="right"))
        return int(self._shards.ids[at + epoch.shifts_S[piece]])

    def _first(self, e: int) -> int:
        """The first row that starts in an epoch."""
        return -(-e * self.tokens // self._context)

    def _stretches(self, position: int, count: int) -> Iterator[tuple[EpochLayout, int, int]]:
        """Split a range of the stream into (epoch, start, end), one for each epoch it touches."""
        while count:
            e, at = divmod(position, self.tokens)
            end = min(self.tokens, at + count)
            yield self._epoch(e), at, end
            position, count = position + end - at, count - (end - at)

    def _epoch_layout(self, e: int) -> EpochLayout:
        begins, ends = self._shards.offsets_D1[:-1], self._shards.offsets_D1[1:]
        documents = np.flatnonzero(ends > begins)
        order = None
        if self._shuffle:
            documents = documents[self._shuffled(f"documents/{e}", len(documents))]
        begins, ends = begins[documents], ends[documents]
        if self._shuffle:
            order = self._shuffled(f"rows/{e}", self._first(e + 1) - self._first(e))
            # The first document starts at a random token; what precedes it ends the epoch.
            skipped = int(self._draws(f"offset/{e}", 1)[0] % np.uint64(ends[0] - begins[0]))
            if skipped:
                begins = np.concatenate([begins, begins[:1]])
                ends = np.concatenate([ends, begins[:1] + skipped])
                begins[0] += skipped
        ends_S = np.cumsum(ends - begins)
        return EpochLayout(ends_S, ends - ends_S, order)

    def _shuffled(self, what: str, count: int) -> Int64s:
        # `Generator.permutation` may differ between versions of numpy.
        return np.argsort(self._draws(what, count), kind="stable")

    def _draws(self, what: str, count: int) -> npt.NDArray[np.uint64]:
        return random_bits(f"{self._name}/{what}", count)


def random_bits(key: str, count: int, *, skip: int = 0) -> npt.NDArray[np.uint64]:
    """Random numbers that depend on the key only, after the first 4 * `skip` of them."""
    return np.random.Philox(key=int(digest(key), 16), counter=skip).random_raw(count)
