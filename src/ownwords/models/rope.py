"""Rotary position embeddings (RoPE): rotate pairs of dimensions by angles that grow with position.

Shapes: B batch, T tokens, H heads, D dimensions of a head.
"""

import math

import torch
from torch import Tensor

from ownwords.models.configs.rope_scaling import RopeScaling

Angles = tuple[Tensor, Tensor]  # cos_B1TD and sin_B1TD


class RotaryEmbedding:
    """RoPE with one base; no nn.Module, since casting a model must not round the frequencies."""

    def __init__(self, head_dim: int, base: float, scaling: RopeScaling | None = None) -> None:
        # float32 in this order of operations, as in other implementations: at position 100,000 the
        # last bit of a frequency makes a hundredth of a radian.
        steps = torch.arange(0, head_dim, 2, dtype=torch.float32, device="cpu") / head_dim
        self.frequencies = _scaled(1.0 / (base**steps), scaling)

    def angles(self, positions_BT: Tensor, dtype: torch.dtype) -> Angles:
        """cos and sin of the angles, [B, 1, T, D]; the second half of D repeats the first."""
        if self.frequencies.device != positions_BT.device:
            self.frequencies = self.frequencies.to(positions_BT.device)
        half = positions_BT[:, None, :, None].to(torch.float32) * self.frequencies
        turn_B1TD = torch.cat((half, half), dim=-1)
        return turn_B1TD.cos().to(dtype), turn_B1TD.sin().to(dtype)


def apply_rope(x_BHTD: Tensor, angles: Angles) -> Tensor:
    """Rotate the pairs of dimensions (d, d + D/2), as Hugging Face's weights expect."""
    cos, sin = angles
    first, second = x_BHTD.chunk(2, dim=-1)
    return x_BHTD * cos + torch.cat((-second, first), dim=-1) * sin


def _scaled(frequencies: Tensor, scaling: RopeScaling | None) -> Tensor:
    if scaling is None or scaling.kind == "dynamic":
        return frequencies
    if scaling.kind == "linear":
        return frequencies / scaling.factor
    # llama3: frequencies with many turns over the original context are kept, those with few are
    # divided by the factor, and those in between are interpolated.
    turns = scaling.original_context / (2 * math.pi / frequencies)
    low, high = scaling.low_freq_factor, scaling.high_freq_factor
    kept = ((turns - low) / (high - low)).clamp(0.0, 1.0)
    return (1 - kept) * frequencies / scaling.factor + kept * frequencies
