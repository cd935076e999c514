"""The contract of an engine: ids in, scores of what follows out.

Two engines meet it, and the same tests ask it of both: the native one, on the processor and without
PyTorch, and the one of PyTorch, on any device. No engine knows a tokenizer or draws a token.

Shapes: R rows of a cache, N ids asked about, V vocabulary.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from ownwords.core.errors import OwnwordsError
from ownwords.models.quantization_scheme import INT4, INT8, QuantizationScheme
from ownwords.models.untrusted_files import ModelError

# "stored": as the files have them.
WeightFormat = Literal["stored", "f32", "bf16", "int8", "int4"]

# Of the matrices, and of embedding and head: what they are rounded to where they are not yet.
ROUNDED: Mapping[WeightFormat, tuple[QuantizationScheme, QuantizationScheme]] = {
    "int8": (INT8, INT8),
    "int4": (INT4, INT4),
}

Logits = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class LogitRange:
    """The scores that are needed: of the first `among` ids, within `margin` of the highest."""

    margin: float
    among: int


@dataclass(frozen=True, slots=True)
class ForwardInput:
    """What one row of a cache is to read next; with `near`, other scores may come as -inf."""

    row: int
    ids: Sequence[int]
    near: LogitRange | None = None


class Cache(Protocol):
    """What an engine has read of some texts, one a row, each up to `length` tokens."""

    rows: int
    length: int

    def held(self, row: int) -> int:
        """How many tokens of the row have been read."""

    def read(self, feeds: Sequence[ForwardInput], *, every: bool = False) -> Logits:
        """Read on in some rows, all of them at once; each feed has its own number of ids.

        Scores of what follows the last id of each feed, [feeds, V]; with `every` of what follows
        each id, [N, V], feed after feed. OwnwordsError for what `check_feeds` refuses; nothing has
        been read then.
        """

    def cut(self, row: int, length: int) -> None:
        """Forget what the row holds beyond its first `length` tokens."""

    def copy(self, source: int, row: int, length: int) -> None:
        """Let a row begin with the first `length` tokens of another, and hold nothing else."""

    def close(self) -> None:
        """Give its memory back; it cannot be used any more."""


class Engine(Protocol):
    """A model that reads."""

    name: str  # for people: "native int8, AVX-512"
    vocabulary: int
    context: int
    weights: WeightFormat

    def cache(self, rows: int, length: int) -> Cache:
        """Room for so many texts of up to `length` tokens, at most the context."""


def check_feeds(feeds: Sequence[ForwardInput], cache: Cache, engine: Engine) -> None:
    """OwnwordsError for a row that is not there or stands twice, ids that are none, or too many."""
    if not feeds:
        raise OwnwordsError("there is nothing to read: no row was given")
    rows = [feed.row for feed in feeds]
    for feed in feeds:
        check_row(feed.row, cache)
        if len(feed.ids) == 0:
            raise OwnwordsError(f"row {feed.row} was given no ids to read")
        lowest, highest = min(feed.ids), max(feed.ids)
        if lowest < 0 or highest >= engine.vocabulary:
            wrong = highest if highest >= engine.vocabulary else lowest
            raise OwnwordsError(
                f"id {wrong} is not in the vocabulary ({engine.vocabulary} tokens)",
                hint="use the tokenizer that belongs to this model",
            )
        total = cache.held(feed.row) + len(feed.ids)
        if total > cache.length:
            raise OwnwordsError(
                f"a text of {total} tokens does not fit a cache made for {cache.length}",
                hint="ask the engine for a longer one, up to the model's context",
            )
    if len(set(rows)) < len(rows):
        twice = next(row for row in rows if rows.count(row) > 1)
        raise OwnwordsError(f"row {twice} was given twice in one read")


def check_row(row: int, cache: Cache) -> None:
    """OwnwordsError for a row that the cache does not have."""
    if not 0 <= row < cache.rows:
        raise OwnwordsError(f"row {row} is not in a cache of {cache.rows} rows")


def check_cut(row: int, length: int, cache: Cache) -> None:
    """OwnwordsError for what cannot be cut."""
    check_row(row, cache)
    if length < 0:
        raise OwnwordsError(f"a text cannot be cut to {length} tokens")


def check_copy(source: int, row: int, length: int, cache: Cache) -> None:
    """OwnwordsError for what cannot be copied."""
    check_row(source, cache)
    check_row(row, cache)
    if not 0 <= length <= cache.held(source):
        raise OwnwordsError(
            f"{length} tokens of row {source} were asked for, which holds {cache.held(source)}"
        )


def check_cache_size(rows: int, length: int, engine: Engine) -> None:
    """OwnwordsError for a cache that no engine makes."""
    if rows < 1:
        raise OwnwordsError(f"a cache needs at least one row, and {rows} were asked for")
    if not 1 <= length <= engine.context:
        raise OwnwordsError(
            f"a cache of {length} tokens was asked for; the context is {engine.context}"
        )


def check_weight_format(stored: WeightFormat, weights: WeightFormat, folder: Path) -> None:
    """ModelError where rounded weights were asked for in another kind: they are not to be had."""
    if stored in ("int8", "int4") and weights not in ("stored", stored):
        raise ModelError(
            f"{folder} holds {stored} weights, and {weights} was asked for",
            hint="use them as they are stored, or the model that they were made from",
        )


def not_finite_error(name: str, folder: Path) -> ModelError:
    """What is said of a tensor that no text can be made with."""
    return ModelError(
        f"{folder}: {name!r} holds numbers that are not finite",
        hint="its training went wrong, or the file is damaged: get it or make it again",
    )


def closed_cache_error() -> OwnwordsError:
    """What any use of a cache raises after `close`."""
    return OwnwordsError("this cache was closed, and holds nothing any more")
