"""RoPE settings of a config: base, scaling and frequencies; does not import torch."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from ownwords.models.configs.config import Count, Positive, check_supported, hf_value

_KINDS = ("default", "linear", "dynamic", "llama3")


@dataclass(frozen=True, kw_only=True)
class RopeScaling:
    """The scaling of RoPE frequencies that extends a model to longer contexts.

    "linear" divides every frequency; "llama3" only the low ones, by bands of wavelength. "dynamic"
    changes nothing within the context, and longer texts are refused anyway.
    """

    kind: str  # "linear" | "dynamic" | "llama3"
    factor: float
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_context: int = 8192

    @classmethod
    def from_hf(cls, table: Mapping[str, Any] | None, context: int) -> Self | None:
        """The scaling from `rope_scaling`, or from `rope_parameters`, its newer name."""
        if table is None:
            return None
        where = "rope_scaling in config.json"
        name = "type" if table.get("rope_type") is None else "rope_type"
        check_supported(table, {"partial_rotary_factor": (1.0,), name: _KINDS}, where)
        kind = table.get(name)
        if kind is None or kind == "default":
            return None
        factor = hf_value(table, "factor", Positive, where=where)
        if kind != "llama3":
            return cls(kind=str(kind), factor=factor)
        return cls(
            kind="llama3",
            factor=factor,
            low_freq_factor=hf_value(table, "low_freq_factor", Positive, where=where),
            high_freq_factor=hf_value(table, "high_freq_factor", Positive, where=where),
            original_context=hf_value(
                table, "original_max_position_embeddings", Count, context, where
            ),
        )

    def to_hf(self) -> dict[str, object]:
        table: dict[str, object] = {"rope_type": self.kind, "factor": self.factor}
        if self.kind == "llama3":
            table["low_freq_factor"] = self.low_freq_factor
            table["high_freq_factor"] = self.high_freq_factor
            table["original_max_position_embeddings"] = self.original_context
        return table


def read_rope(
    data: Mapping[str, Any], table: Mapping[str, Any] | None, context: int, base: float
) -> tuple[float, RopeScaling | None]:
    """The RoPE base and scaling; the base is next to the table or, in newer files, in it."""
    base = hf_value(data, "rope_theta", Positive, base)
    if table is not None:
        base = hf_value(table, "rope_theta", Positive, base, "rope_parameters in config.json")
    return base, RopeScaling.from_hf(table, context)


def frequencies(
    head_dim: int, base: float, scaling: RopeScaling | None = None
) -> npt.NDArray[np.float32]:
    """The RoPE frequency of each pair of a head's dimensions, in radians per position: [D / 2].

    `models.rope` computes the same, except for the last bit of some: PyTorch rounds differently.
    """
    steps = np.arange(0, head_dim, 2, dtype=np.float32) / np.float32(head_dim)
    powers = np.power(base, steps.astype(np.float64)).astype(np.float32)
    plain: npt.NDArray[np.float32] = np.float32(1) / powers
    if scaling is None or scaling.kind == "dynamic":
        return plain
    if scaling.kind == "linear":
        return plain / np.float32(scaling.factor)
    # llama3: frequencies with many turns over the original context are kept, those with few are
    # divided by the factor, and those in between are interpolated.
    turns = np.float32(scaling.original_context) / (np.float32(2 * math.pi) / plain)
    low, high = scaling.low_freq_factor, scaling.high_freq_factor
    share = np.clip((turns - np.float32(low)) / np.float32(high - low), 0, 1, dtype=np.float32)
    scaled: npt.NDArray[np.float32] = (1 - share) * plain / np.float32(scaling.factor)
    scaled += share * plain
    return scaled
