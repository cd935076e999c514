"""Muon's step of many matrices in one call of the C++ library, each by one thread from its gradient
to its update, in bfloat16. The plain twin is in muon.py.

Shapes: N matrices, R rows, C columns.
"""

import ctypes
from collections.abc import Sequence

import torch
from torch import Tensor

from ownwords.models import fused


class _Momentum(ctypes.Structure):
    """`Momentum` of muon.cpp."""

    _fields_ = (
        ("update", ctypes.c_void_p),
        ("momentum", ctypes.c_void_p),
        ("rows", ctypes.c_int64),
        ("columns", ctypes.c_int64),
    )


def is_supported(rows: int, columns: int) -> bool:
    """Whether the library takes matrices of this shape, and is the faster way."""
    return fused.isa() >= fused.FAST_BF16 and rows % fused.TILE == columns % fused.TILE == 0


@torch.no_grad()
def update_(
    updates: Sequence[Tensor],
    momenta: Sequence[Tensor],
    *,
    factor: float,
    momentum: float,
    rounds: int,
) -> None:
    """Gradients become orthogonal updates, and momenta what they are after them.

    Both are contiguous float32 stacks, [N, R, C]; `factor` multiplies the gradients.
    """
    found = [
        _Momentum(update_RC.data_ptr(), mean_RC.data_ptr(), *update_RC.shape)
        for update_NRC, mean_NRC in zip(updates, momenta, strict=True)
        for update_RC, mean_RC in zip(update_NRC, mean_NRC, strict=True)
    ]
    each = (_Momentum * len(found))(*found)
    fused.library()["muon"](ctypes.addressof(each), len(found), factor, momentum, rounds)
