"""The endless order of a text's tokens in training: a new one every epoch, nothing left out.

An epoch is all documents end to end, shuffled, its first one begun somewhere within, what stands
before that place coming last. Epochs follow one another without a gap, and all this is cut into
rows of equal length: no token is dropped or repeated, and where rows begin is new each time even if
there is only one document, whose length the rows divide. The rows that begin in an epoch are then
dealt out in an order of their own, so that one batch does not hold neighbours.

Everything follows from the seed and a row's number: any row can be had without those before it.

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
    """How one epoch is laid out; none of its pieces is empty."""

    ends_S: Int64s  # where each piece ends in the epoch
    shifts_S: Int64s  # from there to where it ends in the shards
    order: Int64s | None  # in which the rows that begin in the epoch are dealt out; None: in theirs


class TokenStream:
    """The rows of some shards, numbered from 0 without end."""

    def __init__(
        self, shards: Shards, *, context: int, seed: int, shuffle: bool, rows: int, name: str
    ) -> None:
        """`rows` are as many as are asked for together; `name` makes two streams differ."""
        self.tokens = shards.tokens
        if self.tokens < context + 1:
            raise CorpusError(
                f"there are {self.tokens:,} tokens to train on, and a row of {context:,} needs"
                f" {context + 1:,}",
                hint=f"add texts, or train with a context of at most {max(1, self.tokens - 1):,}",
            )
        self._shards, self._context = shards, context
        self._shuffle, self._name = shuffle, f"{name}/{seed}"
        # Those that one batch reaches into, and a few more: the next batches begin there.
        epochs = rows * context // self.tokens + 4
        self._epoch = lru_cache(maxsize=epochs)(self._epoch_layout)

    def read(self, rows: range, ids_RT1: Int64s, pieces_RT1: npt.NDArray[np.int32]) -> None:
        """Fill in rows and the token after each; `pieces_RT1` numbers the documents in a row."""
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

    def targets(self, rows: range) -> int:
        """How many tokens of these rows are followed by one of their own piece."""
        counted = len(rows) * self._context
        for row in rows:
            for epoch, at, end in self._stretches(self.position(row), self._context):
                first, last = np.searchsorted(epoch.ends_S, (at, end), side="right").tolist()
                counted -= last - first
        return counted

    def position(self, row: int) -> int:
        """Where in the stream a row begins."""
        e = row * self._context // self.tokens
        order = self._epoch(e).order
        if order is not None:
            first = self._first(e)
            row = first + int(order[row - first])
        return row * self._context

    def _first(self, e: int) -> int:
        """The first row that begins in an epoch."""
        return -(-e * self.tokens // self._context)

    def _stretches(self, position: int, count: int) -> Iterator[tuple[EpochLayout, int, int]]:
        """So many tokens as stretches of epochs, each from where to where in its epoch."""
        while count:
            e, at = divmod(position, self.tokens)
            end = min(self.tokens, at + count)
            yield self._epoch(e), at, end
            position, count = position + end - at, count - (end - at)

    def _epoch_layout(self, e: int) -> EpochLayout:
        begins, ends = self._shards.offsets_D1[:-1], self._shards.offsets_D1[1:]
        kept = np.flatnonzero(ends > begins)
        order = None
        if self._shuffle:
            kept = kept[self._shuffled(f"documents/{e}", len(kept))]
        begins, ends = begins[kept], ends[kept]
        if self._shuffle:
            order = self._shuffled(f"rows/{e}", self._first(e + 1) - self._first(e))
            # The first document is begun within, and what precedes that place ends the epoch.
            skipped = int(self._draws(f"offset/{e}", 1)[0] % np.uint64(ends[0] - begins[0]))
            if skipped:
                begins = np.concatenate([begins, begins[:1]])
                ends = np.concatenate([ends, begins[:1] + skipped])
                begins[0] += skipped
        ends_S = np.cumsum(ends - begins)
        return EpochLayout(ends_S, ends - ends_S, order)

    def _shuffled(self, what: str, count: int) -> Int64s:
        # Not `Generator.permutation`, which another version of numpy may do in another way.
        return np.argsort(self._draws(what, count), kind="stable")

    def _draws(self, what: str, count: int) -> npt.NDArray[np.uint64]:
        return random_bits(f"{self._name}/{what}", count)


def random_bits(key: str, count: int, *, skip: int = 0) -> npt.NDArray[np.uint64]:
    """The random numbers that belong to a key, after so many times four: the same everywhere."""
    return np.random.Philox(key=int(digest(key), 16), counter=skip).random_raw(count)
