"""Muon's step for many matrices in one call of the C++ library, in bfloat16.

One thread computes each matrix, from gradient to update. The PyTorch version is in muon.py.

Shapes: N matrices, R rows, C columns.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from ownwords.models import fused
from ownwords.native.bindings import interface


def is_supported(rows: int, columns: int) -> bool:
    """Whether the library supports matrices of this shape, and has fast bfloat16."""
    return fused.has_fast_bf16() and rows % fused.TILE == columns % fused.TILE == 0


@torch.no_grad()
def update_(
    updates: Sequence[Tensor],
    momenta: Sequence[Tensor],
    *,
    factor: float,
    momentum: float,
    newton_schulz_steps: int,
) -> None:
    """Update the momenta, and turn gradients times `factor` into orthogonalized updates in place.

    Both are contiguous float32 stacks, [N, R, C].
    """
    struct = interface().structs["MuonMatrix"]
    matrices = [
        struct(update_RC.data_ptr(), momentum_RC.data_ptr(), *update_RC.shape)
        for update_NRC, momentum_NRC in zip(updates, momenta, strict=True)
        for update_RC, momentum_RC in zip(update_NRC, momentum_NRC, strict=True)
    ]
    array = (struct * len(matrices))(*matrices)
    fused.library().muon(array, len(matrices), factor, momentum, newton_schulz_steps)
