"""The interface of an engine: token ids in, logits of the next token out.

Two engines implement it and pass the same contract tests: the native one (CPU, no PyTorch) and the
PyTorch one (any device). An engine has no tokenizer and does no sampling.

Shapes: R rows of the inputs, N positions, V vocabulary.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from ownwords.core.errors import OwnwordsError
from ownwords.models.untrusted_files import ModelError

# "stored": the format of the files.
WeightFormat = Literal["stored", "f32", "bf16", "int8"]

Logits = npt.NDArray[np.float32]
RowInputs = Mapping[int, Sequence[int]]  # by row, the ids to append to it


class EngineCache(Protocol):
    """The KV cache of several texts, one per row, each up to a fixed number of tokens."""

    def cached_length(self, row: int) -> int:
        """Return the number of tokens cached in the row."""

    def forward(self, inputs: RowInputs, *, all_positions: bool = False) -> Logits:
        """Append ids to some rows in one batch and return next-token logits.

        They are the logits after the last id of each row, [R, V], or with `all_positions` after
        every id, [N, V], in the order of the inputs. Raises OwnwordsError for unknown rows, invalid
        ids or too many ids, before it changes the cache.
        """

    def truncate(self, row: int, length: int) -> None:
        """Drop all but the first `length` tokens of the row."""

    def copy_prefix(self, source: int, row: int, length: int) -> None:
        """Set the row to the first `length` tokens of another row."""

    def close(self) -> None:
        """Release the memory; the cache is unusable afterwards."""


class Engine(Protocol):
    """A loaded model that computes logits."""

    name: str  # for display: "native int8, AVX-512"
    vocabulary: int
    context: int
    weights: WeightFormat

    def cache(self, rows: int, length: int) -> EngineCache:
        """Create a cache for `rows` texts of up to `length` tokens, at most the context."""


def check_token_ids(ids: Sequence[int], vocabulary: int) -> None:
    """Raise OwnwordsError for an id outside the vocabulary."""
    lowest, highest = min(ids), max(ids)
    if lowest < 0 or highest >= vocabulary:
        raise OwnwordsError(
            f"id {lowest if lowest < 0 else highest} is not in the vocabulary"
            f" ({vocabulary} tokens)",
            hint="use the tokenizer that belongs to this model",
        )


def check_cache_size(rows: int, length: int, engine: Engine) -> None:
    """Raise OwnwordsError for a cache without rows or beyond the context."""
    if rows < 1:
        raise OwnwordsError(f"a cache needs at least one row, not {rows}")
    if not 1 <= length <= engine.context:
        raise OwnwordsError(
            f"cannot create a cache of {length} tokens: the context is {engine.context}"
        )


def check_weight_format(weights: WeightFormat, folder: Path) -> None:
    """Raise ModelError when weights that are stored in int8 are requested in another format."""
    if weights not in ("stored", "int8"):
        raise ModelError(
            f"{folder} holds int8 weights and cannot be loaded as {weights}",
            hint="load them as stored, or load the model they were quantized from",
        )


def not_finite_error(name: str, folder: Path) -> ModelError:
    """Return the error for a tensor that contains NaN or infinity."""
    return ModelError(
        f"{folder}: {name!r} holds numbers that are not finite",
        hint="its training diverged or the file is damaged: download or train it again",
    )
