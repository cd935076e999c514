"""A tensor that is split over processes (FSDP2's DTensor), and the piece of it that lies here.

All of these give a tensor that is not split back as it is.
"""

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor

if dist.is_available():
    from torch.distributed.tensor import DTensor, Partial, Replicate


def is_split(tensor: Tensor) -> bool:
    """Whether only a piece of it lies here."""
    return dist.is_available() and isinstance(tensor, DTensor)


def piece(tensor: Tensor) -> Tensor:
    """What lies here; it shares its memory with the whole."""
    return tensor.to_local() if dist.is_available() and isinstance(tensor, DTensor) else tensor


def assembled(tensor: Tensor) -> Tensor:
    """The whole, gathered from all processes."""
    return tensor.full_tensor() if dist.is_available() and isinstance(tensor, DTensor) else tensor


def piece_of(whole: Tensor, like: Tensor) -> Tensor:
    """The piece of a whole that is the same in all processes, split as `like` is."""
    if not (dist.is_available() and isinstance(like, DTensor)):
        return whole
    mesh = like.device_mesh
    copies = DTensor.from_local(whole, mesh, [Replicate()] * mesh.ndim, run_check=False)
    local: Tensor = copies.redistribute(placements=like.placements).to_local()
    return local


def joined(here: Tensor, like: Tensor) -> Tensor:
    """Pieces, one in each process, as the one tensor that they are."""
    if not (dist.is_available() and isinstance(like, DTensor)):
        return here
    return DTensor.from_local(
        here,
        like.device_mesh,
        like.placements,
        run_check=False,
        shape=like.shape,
        stride=like.stride(),
    )


def norm_over(norms: Sequence[Tensor], like: Tensor) -> Tensor:
    """The norm of everything whose pieces have these norms, `like` saying how it is split."""
    square = torch.stack(list(norms)).square().sum()
    if dist.is_available() and isinstance(like, DTensor):
        mesh = like.device_mesh
        square = DTensor.from_local(square, mesh, [Partial()] * mesh.ndim, run_check=False)
        square = assembled(square)
    return square.sqrt()
