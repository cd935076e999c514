"""Rotary positions: each pair of a head's dimensions turns by an angle that grows with position.

Shapes: B batch, T tokens, H heads, D dimensions of a head.
"""

import math

import torch
from torch import Tensor

from ownwords.models.configs.rope_scaling import RopeScaling

Angles = tuple[Tensor, Tensor]  # cos_B1TD and sin_B1TD


class RotaryEmbedding:
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


def apply_rope(x_BHTD: Tensor, angles: Angles) -> Tensor:
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
