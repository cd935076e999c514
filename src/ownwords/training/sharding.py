"""Sharded tensors (FSDP2's DTensor): the local shard, the full tensor, and back.

Tensors that are not sharded are returned unchanged.
"""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeGuard

import torch
from torch import Tensor

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor


def is_sharded(tensor: Tensor) -> "TypeGuard[DTensor]":
    """Whether this process has only a shard of the tensor."""
    # Not imported here: it takes 0.4 s, and a tensor can be sharded only if it is loaded already.
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(tensor, module.DTensor)


def local_shard(tensor: Tensor) -> Tensor:
    """The shard of this process, sharing memory with the tensor."""
    return tensor.to_local() if is_sharded(tensor) else tensor


def full_tensor(tensor: Tensor) -> Tensor:
    """The full tensor, gathered from all processes."""
    return tensor.full_tensor() if is_sharded(tensor) else tensor


def local_like(full: Tensor, like: Tensor) -> Tensor:
    """The local shard of a tensor that all processes have in full, sharded like `like`."""
    if not is_sharded(like):
        return full
    from torch.distributed.tensor import DTensor, Replicate  # noqa: PLC0415

    mesh = like.device_mesh
    copies = DTensor.from_local(full, mesh, [Replicate()] * mesh.ndim, run_check=False)
    local: Tensor = copies.redistribute(placements=like.placements).to_local()
    return local


def as_sharded(shard: Tensor, like: Tensor) -> Tensor:
    """One sharded tensor from the shards of all processes, sharded like `like`."""
    if not is_sharded(like):
        return shard
    from torch.distributed.tensor import DTensor  # noqa: PLC0415

    return DTensor.from_local(
        shard,
        like.device_mesh,
        like.placements,
        run_check=False,
        shape=like.shape,
        stride=like.stride(),
    )


def global_norm(norms: Sequence[Tensor], like: Tensor) -> Tensor:
    """The norm over all processes, from the local norms of tensors sharded like `like`."""
    square = torch.stack(list(norms)).square().sum()
    if is_sharded(like):
        from torch.distributed.tensor import DTensor, Partial  # noqa: PLC0415

        mesh = like.device_mesh
        square = DTensor.from_local(square, mesh, [Partial()] * mesh.ndim, run_check=False)
        square = full_tensor(square)
    return square.sqrt()
