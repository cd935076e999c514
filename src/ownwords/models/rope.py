"""Rotary positions: each pair of a head's dimensions turns by an angle that grows with position.

Shapes: B batch, T tokens, H heads, D dimensions of a head.
"""

import math
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from ownwords.models.fields import Fields

Angles = tuple[Tensor, Tensor]  # cos_B1TD and sin_B1TD


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


class Rotary:
    """The angles of one base. No module: casting a model must not round its frequencies."""

    def __init__(self, head_dim: int, base: float, scaling: RopeScaling | None = None) -> None:
        # float32 and this order of operations, as every other implementation has it: at position
        # 100,000 the last bit of a frequency is worth a hundredth of a radian.
        steps = torch.arange(0, head_dim, 2, dtype=torch.float32, device="cpu") / head_dim
        self.frequencies = _scaled(1.0 / (base**steps), scaling)

    def angles(self, positions_BT: Tensor, dtype: torch.dtype) -> Angles:
        """cos and sin for every position, [B, 1, T, D]: the second half repeats the first."""
        if self.frequencies.device != positions_BT.device:
            self.frequencies = self.frequencies.to(positions_BT.device)
        half = positions_BT[:, None, :, None].to(torch.float32) * self.frequencies
        turn_B1TD = torch.cat((half, half), dim=-1)
        return turn_B1TD.cos().to(dtype), turn_B1TD.sin().to(dtype)


def rotate(x_BHTD: Tensor, angles: Angles) -> Tensor:
    """Turn dimension d together with dimension d + D/2, as Hugging Face's weights expect."""
    cos, sin = angles
    first, second = x_BHTD.chunk(2, dim=-1)
    return x_BHTD * cos + torch.cat((-second, first), dim=-1) * sin


def _scaled(frequencies: Tensor, scaling: RopeScaling | None) -> Tensor:
    if scaling is None or scaling.kind == "dynamic":
        return frequencies
    if scaling.kind == "linear":
        return frequencies / scaling.factor
    # llama3: turns made over the original context decide. Many: kept; few: divided; between: mixed.
    turns = scaling.original_context / (2 * math.pi / frequencies)
    low, high = scaling.low_freq_factor, scaling.high_freq_factor
    kept = ((turns - low) / (high - low)).clamp(0.0, 1.0)
    return (1 - kept) * frequencies / scaling.factor + kept * frequencies
