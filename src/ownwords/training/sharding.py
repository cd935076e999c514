"""A tensor that is split over processes (FSDP2's DTensor), and the piece of it that lies here.

All of these give a tensor that is not split back as it is.
"""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeGuard

import torch
from torch import Tensor

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor


def is_sharded(tensor: Tensor) -> "TypeGuard[DTensor]":
    """Whether only a piece of it lies here."""
    # Importing that module takes 0.4 seconds, and before it is there no tensor can be split.
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(tensor, module.DTensor)


def local_shard(tensor: Tensor) -> Tensor:
    """What lies here; it shares its memory with the whole."""
    return tensor.to_local() if is_sharded(tensor) else tensor


def full_tensor(tensor: Tensor) -> Tensor:
    """The whole, gathered from all processes."""
    return tensor.full_tensor() if is_sharded(tensor) else tensor


def local_like(whole: Tensor, like: Tensor) -> Tensor:
    """The piece of a whole that is the same in all processes, split as `like` is."""
    if not is_sharded(like):
        return whole
    from torch.distributed.tensor import DTensor, Replicate  # noqa: PLC0415

    mesh = like.device_mesh
    copies = DTensor.from_local(whole, mesh, [Replicate()] * mesh.ndim, run_check=False)
    local: Tensor = copies.redistribute(placements=like.placements).to_local()
    return local


def as_sharded(here: Tensor, like: Tensor) -> Tensor:
    """Pieces, one in each process, as the one tensor that they are."""
    if not is_sharded(like):
        return here
    from torch.distributed.tensor import DTensor  # noqa: PLC0415

    return DTensor.from_local(
        here,
        like.device_mesh,
        like.placements,
        run_check=False,
        shape=like.shape,
        stride=like.stride(),
    )


def global_norm(norms: Sequence[Tensor], like: Tensor) -> Tensor:
    """The norm of everything whose pieces have these norms, `like` saying how it is split."""
    square = torch.stack(list(norms)).square().sum()
    if is_sharded(like):
        from torch.distributed.tensor import DTensor, Partial  # noqa: PLC0415

        mesh = like.device_mesh
        square = DTensor.from_local(square, mesh, [Partial()] * mesh.ndim, run_check=False)
        square = full_tensor(square)
    return square.sqrt()
