"""Batches for training and evaluation: token ids, targets, document numbers.

Training rows form an endless stream that contains every token once per epoch. An epoch is all
documents, shuffled and concatenated; it starts at a random token of the first document, and the
tokens before that one come last. The stream is cut into rows of equal length without gaps, so no
token is dropped or repeated. The rows that start in an epoch are shuffled too, so that a batch has
no adjacent rows. A row depends only on the seed and its number, so it can be read on its own.

Shapes: B rows, T tokens; T1 is T + 1; R rows of a stream, S pieces of an epoch.
"""

import math
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ownwords.core.errors import ConfigError, CorpusError
from ownwords.core.fingerprint import digest
from ownwords.models.loss import IGNORED
from ownwords.training.settings import DataConfig
from ownwords.training.token_dataset import TokenDataset

_DEPTH = 4  # batches that are ready or in preparation

Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True)
class EpochLayout:
    """The layout of one epoch as non-empty pieces of documents."""

    ends_S: Int64s  # the end of each piece in the epoch
    shifts_S: Int64s  # the offset from a piece's end in the epoch to its end in the dataset
    order: Int64s  # of the rows that start in the epoch


class TokenStream:
    """The endless rows of a dataset, numbered from 0."""

    def __init__(
        self, dataset: TokenDataset, *, context: int, seed: int, rows: int, name: str
    ) -> None:
        """`rows` is the batch size; `name` distinguishes two streams of one seed."""
        self.tokens = dataset.tokens
        if self.tokens < context + 1:
            raise CorpusError(
                f"there are {self.tokens:,} tokens to train on, but a row of {context:,} needs"
                f" {context + 1:,}",
                hint=f"add texts, or train with a context of at most {max(1, self.tokens - 1):,}",
            )
        self._dataset, self._context = dataset, context
        self._name = f"{name}/{seed}"
        # Enough epochs for one batch, and a few more for the next.
        epochs = rows * context // self.tokens + 4
        self._epoch = lru_cache(maxsize=epochs)(self._epoch_layout)

    def read(
        self,
        rows: range,
        ids_RT1: Int64s,
        pieces_RT1: npt.NDArray[np.int32],
        learned_RT1: npt.NDArray[np.bool_],
    ) -> None:
        """Read rows, each with the token after it, into the arrays.

        `pieces_RT1` gets each token's document number in its row, `learned_RT1` whether it is
        learned.
        """
        for row, ids_T1, pieces_T1, learned_T1 in zip(
            rows, ids_RT1, pieces_RT1, learned_RT1, strict=True
        ):
            filled = number = 0
            for epoch, at, end in self._stretches(self.position(row), len(ids_T1)):
                here = slice(filled, filled + end - at)
                filled = here.stop
                first, last = np.searchsorted(epoch.ends_S, (at, end - 1), side="right").tolist()
                pieces = slice(first, last + 1)
                lengths = np.diff(np.minimum(epoch.ends_S[pieces], end), prepend=at)
                shifts = np.repeat(epoch.shifts_S[pieces], lengths)
                places = np.arange(at, end) + shifts
                ids_T1[here] = self._dataset.ids[places]
                learned_T1[here] = self._dataset.learned(places)
                pieces_T1[here] = np.repeat(np.arange(len(lengths)) + number, lengths)
                number += len(lengths)

    def position(self, row: int) -> int:
        """The position in the stream at which a row starts."""
        e = row * self._context // self.tokens
        first = self._first(e)
        return (first + int(self._epoch(e).order[row - first])) * self._context

    def _first(self, e: int) -> int:
        """The first row that starts in an epoch."""
        return -(-e * self.tokens // self._context)

    def _stretches(self, position: int, count: int) -> Iterator[tuple[EpochLayout, int, int]]:
        """Split a range of the stream into (epoch, start, end), one per epoch."""
        while count:
            e, at = divmod(position, self.tokens)
            end = min(self.tokens, at + count)
            yield self._epoch(e), at, end
            position, count = position + end - at, count - (end - at)

    def _epoch_layout(self, e: int) -> EpochLayout:
        begins, ends = self._dataset.offsets_D1[:-1], self._dataset.offsets_D1[1:]
        documents = np.flatnonzero(ends > begins)
        documents = documents[self._shuffled(f"documents/{e}", len(documents))]
        begins, ends = begins[documents], ends[documents]
        order = self._shuffled(f"rows/{e}", self._first(e + 1) - self._first(e))
        # The first document starts at a random token; the tokens before it end the epoch.
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
        return np.random.Philox(key=int(digest(f"{self._name}/{what}"), 16)).random_raw(count)


@dataclass(frozen=True, eq=False)
class Batch:
    """Rows of a batch."""

    ids_BT: Tensor  # int64
    targets_BT: Tensor  # int64; -100 where there is no loss
    documents_BT: Tensor | None  # int32, the number of each token's document; None: no mask needed
    counts_B: tuple[int, ...]  # the number of targets in the loss, per row
    weights_BT: Tensor | None = None  # float32, of each target; None: all 1
    max_documents: int = 1  # maximum per row; a power of two, so that few shapes occur

    @property
    def tokens(self) -> int:
        return sum(self.counts_B)

    def part(self, rows: slice) -> "Batch":
        return replace(self._changed(lambda tensor: tensor[rows]), counts_B=self.counts_B[rows])

    def to(self, device: torch.device | str) -> "Batch":
        """Return the batch on a device; the host waits unless the batch is in pinned memory.

        MPS would copy pageable memory later, when the host may have overwritten it.
        """
        return self._changed(lambda tensor: tensor.to(device, non_blocking=tensor.is_pinned()))

    def copy_(self, batch: "Batch") -> None:
        """Copy another batch of the same `form` into this one."""
        for place, tensor in zip(self._tensors, batch._tensors, strict=True):
            place.copy_(tensor, non_blocking=tensor.is_pinned())

    @property
    def form(self) -> tuple[object, ...]:
        """The shapes and flags on which the kernels of a step depend."""
        optional = self.documents_BT is None, self.weights_BT is None
        return *self.ids_BT.shape, *optional, self.max_documents

    @property
    def _tensors(self) -> list[Tensor]:
        every = self.ids_BT, self.targets_BT, self.documents_BT, self.weights_BT
        return [tensor for tensor in every if tensor is not None]

    def pinned(self) -> "Batch":
        return self._changed(Tensor.pin_memory)

    def _changed(self, change: Callable[[Tensor], Tensor]) -> "Batch":
        return Batch(
            change(self.ids_BT),
            change(self.targets_BT),
            None if self.documents_BT is None else change(self.documents_BT),
            self.counts_B,
            None if self.weights_BT is None else change(self.weights_BT),
            self.max_documents,
        )


class Batches:
    """The batches of a run; each depends on its step number, not on earlier batches."""

    def __init__(
        self,
        dataset: TokenDataset,
        *,
        rows: int,
        context: int,
        seed: int,
        config: DataConfig,
        replay: TokenDataset | None = None,
        rank: int = 0,
        world: int = 1,
    ) -> None:
        """`rows` is the size of the whole batch; each of `world` processes gets its share of it.

        The shares of all ranks together are the batch of a single process.
        """
        if rows < world:
            raise ConfigError(
                f"a batch of {rows} rows cannot be shared among {world} processes",
                hint=f"set train.batch_size to {world} or more, or start fewer processes",
            )
        self.dataset, self.rows, self.context, self.config = dataset, rows, context, config
        self._low, self._high = rank * rows // world, (rank + 1) * rows // world
        self._own = TokenStream(dataset, context=context, seed=seed, rows=rows, name="own")
        # Use the decimal value as written: 0.1 * 30 must be exactly 3.
        self._share = Fraction(repr(float(config.replay)))
        self._base: TokenStream | None = None
        if config.replay:
            if replay is None:
                raise CorpusError(
                    "data.replay needs text of the base model, and there is none",
                    hint="set data.replay=0",
                )
            self._base = TokenStream(replay, context=context, seed=seed, rows=rows, name="base")

    def batch(self, step: int) -> Batch:
        """The rows of a step that belong to this rank."""
        own, base = self._rows(step, self._low, self._high)
        shape = (len(own) + len(base), self.context + 1)
        ids_BT1: npt.NDArray[np.int64] = np.empty(shape, np.int64)
        documents_BT1: npt.NDArray[np.int32] = np.empty(shape, np.int32)
        learned_BT1: npt.NDArray[np.bool_] = np.empty(shape, np.bool_)
        for stream, rows, part in (
            (self._own, own, slice(len(own))),
            (self._base, base, slice(len(own), None)),
        ):
            if stream is not None:
                stream.read(rows, ids_BT1[part], documents_BT1[part], learned_BT1[part])
        ids_BT = ids_BT1[:, :-1].copy()
        counted_BT = (documents_BT1[:, 1:] == documents_BT1[:, :-1]) & learned_BT1[:, 1:]
        if self.dataset.row_start is not None:
            # A row that starts in the middle of a text must not teach how texts begin.
            counted_BT[:, 0] &= ids_BT[:, 0] == self.dataset.row_start
            ids_BT[:, 0] = self.dataset.row_start
        batch = _batch(ids_BT, ids_BT1, counted_BT, documents_BT1)
        if self.config.opening_weight == 1:
            return batch
        weights_BT = _opening_weights(
            ids_BT1[:, :-1] == self.dataset.start, self.config.opening_weight
        )
        return replace(batch, weights_BT=torch.from_numpy(weights_BT))

    def _rows(self, step: int, low: int, high: int) -> tuple[range, range]:
        """Rows `low` to `high` of a step, as row numbers in the texts' and in the base's stream."""
        before = int(step * self.rows * self._share)
        after = int((step + 1) * self.rows * self._share)
        border = self.rows - (after - before)  # the base's rows come last
        own, base = step * self.rows - before, before - border
        return (
            range(own + min(low, border), own + min(high, border)),
            range(base + max(low, border), base + max(high, border)),
        )


def sequential_batches(dataset: TokenDataset, *, rows: int, context: int) -> Iterator[Batch]:
    """Batches that contain every token once, in order, for evaluation; the last rows are padded.

    All batches have the same shape. A dataset without tokens gives no batch.
    """
    ends_D = dataset.offsets_D1[1:]
    size = rows * context

    def in_rows(flat: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return np.lib.stride_tricks.sliding_window_view(flat, context + 1)[::context]

    for begin in range(0, dataset.tokens, size):
        places = np.arange(begin, begin + size + 1)
        there = places < dataset.tokens
        ids = np.zeros(size + 1, np.int64)
        ids[there] = dataset.ids[begin : begin + size + 1]
        there[there] = dataset.learned(places[there])
        ids_BT1, learned_BT1 = in_rows(ids), in_rows(there)
        # The padding is a document of its own, numbered after the last.
        documents_BT1 = in_rows(np.searchsorted(ends_D, places, side="right"))
        counted_BT = (documents_BT1[:, 1:] == documents_BT1[:, :-1]) & learned_BT1[:, 1:]
        ids_BT = ids_BT1[:, :-1].copy()
        if dataset.row_start is not None:
            ids_BT[:, 0] = dataset.row_start
        yield _batch(ids_BT, ids_BT1, counted_BT, documents_BT1)


def _batch(
    ids_BT: npt.NDArray[np.int64],
    ids_BT1: npt.NDArray[np.int64],
    counted_BT: npt.NDArray[np.bool_],
    documents_BT1: npt.NDArray[Any],
) -> Batch:
    counts_B = tuple(counted_BT.sum(axis=1).tolist())
    documents_BT, most = None, 1
    # Document numbers never decrease along a row: if its ends are equal, it is one document.
    if between := int((documents_BT1[:, -2] - documents_BT1[:, 0]).max()):
        most = 1 << between.bit_length()
        numbers_BT = documents_BT1[:, :-1] - documents_BT1[:, :1]
        documents_BT = torch.from_numpy(numbers_BT.astype(np.int32))
    return Batch(
        torch.from_numpy(ids_BT),
        torch.from_numpy(np.where(counted_BT, ids_BT1[:, 1:], IGNORED)),
        documents_BT,
        counts_B,
        max_documents=most,
    )


def _opening_weights(starts_BT: npt.NDArray[np.bool_], weight: float) -> npt.NDArray[np.float32]:
    """Return the weight of each target: weight / n for the n-th after a start, at least 1."""
    weights_BT = np.ones(starts_BT.shape, np.float32)
    for n in range(1, math.ceil(weight)):
        here_BT = weights_BT[:, n - 1 :]
        starting_BT = starts_BT[:, : here_BT.shape[1]]
        np.maximum(here_BT, weight / n, out=here_BT, where=starting_BT)
    return weights_BT


def prefetched(batches: Batches, start: int, stop: int, *, pinned: bool) -> Generator[Batch]:
    """Yield the batches of the steps; a thread prepares them while the device computes.

    Close the iterator after use. An error in the thread is raised at its step.
    """

    def prepare(step: int) -> Batch:
        batch = batches.batch(step)
        return batch.pinned() if pinned else batch

    steps = iter(range(start, stop))
    executor = ThreadPoolExecutor(1, "batches")
    try:
        ahead = deque(executor.submit(prepare, step) for step in islice(steps, _DEPTH))
        while ahead:
            yield ahead.popleft().result()
            ahead.extend(executor.submit(prepare, step) for step in islice(steps, 1))
    finally:
        executor.shutdown(cancel_futures=True)
