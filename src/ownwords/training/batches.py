"""Batches for training and evaluation: token ids, targets, document numbers.

Shapes: B rows, T tokens, V vocabulary; T1 is T + 1.
"""

import json
import math
import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ownwords.core.errors import ConfigError, CorpusError
from ownwords.core.fingerprint import digest
from ownwords.models.loss import IGNORED
from ownwords.training.settings import DataConfig
from ownwords.training.shards import Shards
from ownwords.training.token_stream import TokenStream


@dataclass(frozen=True, eq=False)
class Batch:
    """Rows of a batch. `tokens` is the number of targets in the loss; the others are -100."""

    ids_BT: Tensor  # int64
    targets_BT: Tensor  # int64
    documents_BT: Tensor | None  # int32, the number of each token's document; None: no mask needed
    tokens: int
    counts_B: tuple[int, ...] = ()  # `tokens` of each row
    weights_BT: Tensor | None = None  # float32, of each target in the loss; None: all 1

    def part(self, rows: slice) -> "Batch":
        """The batch that consists of these rows only."""
        targets_BT = self.targets_BT[rows]
        counts_B = self.counts_B[rows]
        return Batch(
            self.ids_BT[rows],
            targets_BT,
            None if self.documents_BT is None else self.documents_BT[rows],
            sum(counts_B) if self.counts_B else int((targets_BT != IGNORED).sum()),
            counts_B,
            None if self.weights_BT is None else self.weights_BT[rows],
        )

    def to(self, device: torch.device | str) -> "Batch":
        """The batch on a device; the host does not wait if the batch is in pinned memory.

        From pageable memory it must: MPS would read what the host has written there since.
        """
        return self._moved(lambda tensor: tensor.to(device, non_blocking=tensor.is_pinned()))

    def pinned(self) -> "Batch":
        """The batch in pinned memory."""
        return self._moved(Tensor.pin_memory)

    def _moved(self, move: Callable[[Tensor], Tensor]) -> "Batch":
        return Batch(
            move(self.ids_BT),
            move(self.targets_BT),
            None if self.documents_BT is None else move(self.documents_BT),
            self.tokens,
            self.counts_B,
            None if self.weights_BT is None else move(self.weights_BT),
        )


class Batches:
    """The batches of a run: a function of the step number, not of earlier batches."""

    def __init__(
        self,
        shards: Shards,
        *,
        rows: int,
        context: int,
        seed: int,
        config: DataConfig,
        replay: Shards | None = None,
        rank: int = 0,
        world: int = 1,
    ) -> None:
        """`rows` is the size of the whole batch; each of `world` processes gets its share of it.

        The shares of all ranks together are the batch of a single process.
        """
        for name, number in (("batch_size", rows), ("sequence_length", context)):
            if number < 1:
                raise ConfigError(f"train.{name} ({number}) must be at least 1")
        if rows < world:
            raise ConfigError(
                f"a batch of {rows} rows cannot be shared among {world} processes",
                hint=f"set train.batch_size to {world} or more, or start fewer processes",
            )
        self.shards, self.rows, self.context, self.config = shards, rows, context, config
        self._low, self._high = rank * rows // world, (rank + 1) * rows // world
        self._own = TokenStream(
            shards, context=context, seed=seed, shuffle=config.shuffle, rows=rows, name="own"
        )
        # The decimal value as written: 0.1 * 30 must be exactly 3.
        self._share = Fraction(repr(float(config.replay)))
        self._base: TokenStream | None = None
        settings = asdict(config)
        if config.opening_weight == 1:  # runs from before this setting keep their key
            del settings["opening_weight"]
        key: list[object] = [shards.key, rows, context, seed, settings]
        if config.replay:
            replay = _checked_replay(replay, shards)
            self._base = TokenStream(
                replay, context=context, seed=seed, shuffle=config.shuffle, rows=rows, name="base"
            )
            key.append(replay.key)
        self.key = digest(json.dumps(key, sort_keys=True))

    def batch(self, step: int) -> Batch:
        """The rows of a step that belong to this rank."""
        own, base = self._rows(step, self._low, self._high)
        count = len(own) + len(base)
        ids_BT1: npt.NDArray[np.int64] = np.empty((count, self.context + 1), np.int64)
        documents_BT1: npt.NDArray[np.int32] = np.empty((count, self.context + 1), np.int32)
        self._own.read(own, ids_BT1[: len(own)], documents_BT1[: len(own)])
        if self._base is not None:
            self._base.read(base, ids_BT1[len(own) :], documents_BT1[len(own) :])
        ids_BT = ids_BT1[:, :-1].copy()
        counted_BT = documents_BT1[:, 1:] == documents_BT1[:, :-1]
        if self.shards.row_start is not None:
            # What follows the start token in the middle of a text is no beginning to learn.
            counted_BT[:, 0] &= ids_BT[:, 0] == self.shards.row_start
            ids_BT[:, 0] = self.shards.row_start
        batch = _batch(ids_BT, ids_BT1, counted_BT, documents_BT1, self.config.document_masking)
        if self.config.opening_weight == 1:
            return batch
        weights_BT = _opening_weights(
            ids_BT1[:, :-1] == self.shards.document_start, self.config.opening_weight
        )
        return replace(batch, weights_BT=torch.from_numpy(weights_BT))

    def total(self, step: int) -> int:
        """The number of targets in the loss of a step, over all ranks."""
        own, base = self._rows(step, 0, self.rows)
        start = self.shards.row_start
        of_base = self._base.targets(base, start) if self._base else 0
        return self._own.targets(own, start) + of_base

    def _rows(self, step: int, low: int, high: int) -> tuple[range, range]:
        """Rows `low` to `high` of a step, as row numbers in the own and in the base's stream."""
        before = int(step * self.rows * self._share)
        after = int((step + 1) * self.rows * self._share)
        border = self.rows - (after - before)  # the base's rows come last
        own, base = step * self.rows - before, before - border
        return (
            range(own + min(low, border), own + min(high, border)),
            range(base + max(low, border), base + max(high, border)),
        )


def sequential_batches(
    shards: Shards, *, rows: int, context: int, isolate: bool = True
) -> Iterator[Batch]:
    """Batches that contain every token once, in order, for evaluation; the last rows are padded.

    All batches have the same shape. Shards without tokens give no batch.
    """
    ends_D = shards.offsets_D1[1:]
    size = rows * context

    def in_rows(flat: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return np.lib.stride_tricks.sliding_window_view(flat, context + 1)[::context]

    for begin in range(0, shards.tokens, size):
        places = np.arange(begin, begin + size + 1)
        there = places < shards.tokens
        ids = np.zeros(size + 1, np.int64)
        ids[there] = shards.ids[begin : begin + size + 1]
        ids_BT1, there_BT1 = in_rows(ids), in_rows(there)
        # The padding is a document of its own, numbered after the last.
        documents_BT1 = in_rows(np.searchsorted(ends_D, places, side="right"))
        counted_BT = (documents_BT1[:, 1:] == documents_BT1[:, :-1]) & there_BT1[:, 1:]
        ids_BT = ids_BT1[:, :-1].copy()
        if shards.row_start is not None:
            ids_BT[:, 0] = shards.row_start
        yield _batch(ids_BT, ids_BT1, counted_BT, documents_BT1, isolate)


def _batch(
    ids_BT: npt.NDArray[np.int64],
    ids_BT1: npt.NDArray[np.int64],
    counted_BT: npt.NDArray[np.bool_],
    documents_BT1: npt.NDArray[Any],
    isolate: bool,
) -> Batch:
    counts_B = tuple(counted_BT.sum(axis=1).tolist())
    documents_BT = None
    # Document numbers only grow along a row: if the ends are equal, no row needs a mask.
    if isolate and (documents_BT1[:, 0] != documents_BT1[:, -2]).any():
        numbers_BT = documents_BT1[:, :-1] - documents_BT1[:, :1]
        documents_BT = torch.from_numpy(numbers_BT.astype(np.int32))
    return Batch(
        torch.from_numpy(ids_BT),
        torch.from_numpy(np.where(counted_BT, ids_BT1[:, 1:], IGNORED)),
        documents_BT,
        sum(counts_B),
        counts_B,
    )


def _opening_weights(starts_BT: npt.NDArray[np.bool_], weight: float) -> npt.NDArray[np.float32]:
    """The weight of each target: that of the n-th token after a start is weight / n, at least 1."""
    weights_BT = np.ones(starts_BT.shape, np.float32)
    for n in range(1, math.ceil(weight)):
        here_BT = weights_BT[:, n - 1 :]
        starting_BT = starts_BT[:, : here_BT.shape[1]]
        np.maximum(here_BT, weight / n, out=here_BT, where=starting_BT)
    return weights_BT


def _checked_replay(replay: Shards | None, shards: Shards) -> Shards:
    """The base's text; CorpusError if it is missing or was encoded by another tokenizer."""
    if replay is None:
        raise CorpusError(
            "data.replay needs text of the base model, and there is none",
            hint="set data.replay=0, or give text with --replay",
        )
    if replay.tokenizer != shards.tokenizer:
        raise CorpusError(
            "the base's text was encoded with another tokenizer than the text to be learned",
            hint="encode both with the tokenizer of the base model",
        )
    return replay


class Prefetcher:
    """Iterates over steps and their batches, which a thread prepares while the device computes.

    At most `depth` batches are ready or in preparation; for a CUDA device they are in pinned
    memory. `__next__` raises an error of the thread in place of its batch. Close it after use.
    """

    def __init__(
        self,
        batches: Batches,
        start: int,
        stop: int | None = None,
        *,
        depth: int = 4,
        device: torch.device | str = "cpu",
    ) -> None:
        self._batches, self._start, self._stop, self._depth = batches, start, stop, max(1, depth)
        self._pinned = torch.device(device).type == "cuda"
        self._ready: deque[tuple[int, Batch]] = deque()
        self._error: BaseException | None = None
        self._ended = self._closed = False
        self._changed = threading.Condition()
        # A daemon, so that the process can exit without closing it.
        self._thread = threading.Thread(target=self._work, name="batches", daemon=True)
        self._thread.start()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> tuple[int, Batch]:
        with self._changed:
            self._changed.wait_for(lambda: self._ready or self._ended or self._closed)
            if self._ready and not self._closed:
                self._changed.notify_all()
                return self._ready.popleft()
            if self._error is not None and not self._closed:
                raise self._error
        raise StopIteration

    def close(self) -> None:
        """Stop the thread; may be called more than once."""
        with self._changed:
            self._closed = True
            self._ready.clear()
            self._changed.notify_all()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def _work(self) -> None:
        step = self._start
        try:
            while self._stop is None or step < self._stop:
                with self._changed:
                    self._changed.wait_for(lambda: len(self._ready) < self._depth or self._closed)
                    if self._closed:
                        return
                batch = self._batches.batch(step)
                if self._pinned:
                    batch = batch.pinned()
                with self._changed:
                    self._ready.append((step, batch))
                    self._changed.notify_all()
                step += 1
        except BaseException as error:  # raised again by __next__
            self._error = error
        finally:
            with self._changed:
                self._ended = True
                self._changed.notify_all()
