"""How fast rotary positions turn, and how that was stretched, as a config says it."""

import math
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from ownwords.models.configs.fields import Fields


@dataclass(frozen=True, kw_only=True)
class RopeScaling:
    """How a model trained on short texts had its angles stretched for longer ones.

    "linear" divides every angle; "llama3" only the slow ones, by bands of wavelength. "dynamic"
    changes nothing within the context, and longer texts are refused anyway.
    """

    kind: str  # "linear" | "dynamic" | "llama3"
    factor: float
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_context: int = 8192

    @classmethod
    def from_hf(cls, fields: Fields | None, context: int) -> Self | None:
        """From the table `rope_scaling` (or `rope_parameters`, its newer name)."""
        if fields is None:
            return None
        fields.only("partial_rotary_factor", 1.0)
        name = "type" if fields.data.get("rope_type") is None else "rope_type"
        fields.only(name, "default", "linear", "dynamic", "llama3")
        kind = fields.data.get(name)
        if kind is None or kind == "default":
            return None
        factor = fields.number("factor")
        if kind != "llama3":
            return cls(kind=str(kind), factor=factor)
        return cls(
            kind="llama3",
            factor=factor,
            low_freq_factor=fields.number("low_freq_factor"),
            high_freq_factor=fields.number("high_freq_factor"),
            original_context=fields.integer("original_max_position_embeddings", context),
        )

    def to_hf(self) -> dict[str, object]:
        table: dict[str, object] = {"rope_type": self.kind, "factor": self.factor}
        if self.kind == "llama3":
            table["low_freq_factor"] = self.low_freq_factor
            table["high_freq_factor"] = self.high_freq_factor
            table["original_max_position_embeddings"] = self.original_context
        return table


def frequencies(
    head_dim: int, base: float, scaling: RopeScaling | None = None
) -> npt.NDArray[np.float32]:
    """The angle that each pair of a head's dimensions turns by from one position to the next.

    As `models.rope` has it, but for the last bit of some: PyTorch's powers round otherwise.
    """
    steps = np.arange(0, head_dim, 2, dtype=np.float32) / np.float32(head_dim)
    powers = np.power(base, steps.astype(np.float64)).astype(np.float32)
    turning: npt.NDArray[np.float32] = np.float32(1) / powers
    if scaling is None or scaling.kind == "dynamic":
        return turning
    if scaling.kind == "linear":
        return turning / np.float32(scaling.factor)
    # llama3: turns made over the original context decide. Many: kept; few: divided; between: mixed.
    turns = np.float32(scaling.original_context) / (np.float32(2 * math.pi) / turning)
    low, high = scaling.low_freq_factor, scaling.high_freq_factor
    kept = np.clip((turns - np.float32(low)) / np.float32(high - low), 0, 1, dtype=np.float32)
    turning = (1 - kept) * turning / np.float32(scaling.factor) + kept * turning
    return turning
