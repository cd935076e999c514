"""Distributed training with DDP; with a single process nothing here has any effect.

`torchrun` starts the processes and gives each its rank; `init_distributed` connects them. Each
process has the whole model, computes its own rows of every batch, and averages gradients with the
others. Rows differ in their number of targets, so the loop scales its loss by `world.size / tokens
of the whole batch`. docs/scale-out.md lists the commands.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from inspect import signature
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ownwords.core.errors import ConfigError

T = TypeVar("T")

# Flags and counts go over gloo from CPU memory: reading them from a GPU would stall it.
_BACKENDS = {"cpu": "gloo", "cuda": "cpu:gloo,cuda:nccl", "xpu": "cpu:gloo,xpu:xccl"}
# One process may prepare the base while the others wait for it.
_TIMEOUT = timedelta(minutes=30)


@dataclass(frozen=True)
class World:
    """The processes of a run, as seen by one of them. All processes must call each method.

    With one process each method returns its argument.
    """

    rank: int = 0
    size: int = 1
    local_rank: int = 0  # the rank among the processes of this machine

    @property
    def is_first(self) -> bool:
        """Whether this process writes files and shows progress."""
        return self.rank == 0

    def sum(self, x: Tensor) -> Tensor:
        """The sum over all processes. Pass counts as float64 or int64."""
        if self.size == 1:
            return x
        total = x.detach().clone()
        dist.all_reduce(total)
        return total

    def barrier(self) -> None:
        """Wait until all processes have called this."""
        self.min(0)

    def min(self, number: int) -> int:
        """The smallest of all processes' numbers."""
        if self.size == 1:
            return number
        value = torch.tensor(number)
        dist.all_reduce(value, dist.ReduceOp.MIN)
        return int(value)

    def broadcast(self, value: T) -> T:
        """The first process's value."""
        if self.size == 1:
            return value
        values = [value]
        dist.broadcast_object_list(values, 0)
        return values[0]

    @contextmanager
    def in_rank_order(self) -> Iterator[None]:
        """Run the block in the first process, then in one on each other machine, then in the rest.

        Later processes find what the earlier ones cached, whether or not they share a disk.
        """
        turn = 0 if self.is_first else 1 if self.local_rank == 0 else 2
        for _ in range(turn):
            self.barrier()
        yield
        for _ in range(turn, 2):
            self.barrier()

    def wrap(self, task: nn.Module) -> nn.Module:
        """The module to call instead of `task`, a module whose `forward` returns the loss.

        DDP synchronises when it is called. All processes start from the first process's weights.
        """
        if self.size == 1:
            return task
        from torch.nn.parallel import DistributedDataParallel  # noqa: PLC0415

        # Buffers never change. Newer versions of PyTorch renamed the option.
        is_new = "forward_sync_buffers" in signature(DistributedDataParallel).parameters
        option = "forward_sync_buffers" if is_new else "broadcast_buffers"
        options: dict[str, Any] = {option: False, "gradient_as_bucket_view": True}
        return DistributedDataParallel(task, **options)

    def gradient_sync(self, wrapped: nn.Module, now: bool) -> AbstractContextManager[object]:
        """Run forward and backward of a micro-batch; exchange gradients only if `now`."""
        if now or self.size == 1:
            return nullcontext()
        return wrapped.no_sync()  # type: ignore[operator, no-any-return]

    def share(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The first process's tensors, in CPU memory; those of the others are ignored."""
        if self.size == 1:
            return dict(tensors)
        empty = {name: (tensor.shape, tensor.dtype) for name, tensor in tensors.items()}
        shared: dict[str, Tensor] = {}
        for name, (shape, dtype) in self.broadcast(empty).items():
            shared[name] = tensors[name].cpu() if self.is_first else torch.empty(shape, dtype=dtype)
            dist.broadcast(shared[name], 0)
        return shared

    def close(self) -> None:
        """Leave the process group at the end; otherwise the others report a missing process."""
        if self.size > 1 and dist.is_initialized():
            dist.destroy_process_group()


SINGLE_PROCESS = World()


def init_distributed(device: torch.device) -> World:
    """Join the other processes that `torchrun` started; SINGLE_PROCESS if there are none.

    With CUDA or XPU the current device becomes the one whose index is this process's local rank.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) == 1 or "RANK" not in os.environ:
        return SINGLE_PROCESS
    if not dist.is_available() or device.type not in _BACKENDS:
        raise ConfigError(
            f"several processes cannot train together on {device.type} with this PyTorch",
            hint="start one process, without torchrun",
        )
    from torch._C._distributed_c10d import PrefixStore  # noqa: PLC0415
    from torch.distributed.rendezvous import rendezvous  # noqa: PLC0415

    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    accelerator: Any = getattr(torch, device.type)
    if device.type != "cpu":
        if local_rank >= accelerator.device_count():
            raise ConfigError(
                f"there is no device for process {local_rank} of this machine: it has "
                f"{accelerator.device_count()}",
                hint="start as many processes as there are devices: torchrun --nproc-per-node gpu",
            )
        accelerator.set_device(local_rank)
    store, rank, size = next(rendezvous("env://", timeout=_TIMEOUT))
    if os.environ.get("GROUP_WORLD_SIZE") == "1":
        # After a restart torchrun's store still has the addresses of dead processes, and readers
        # would wait for them forever. On several machines the restart counts differ, so torchrun
        # must make a new store (docs/scale-out.md).
        store = PrefixStore(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"), store)
    dist.init_process_group(
        _BACKENDS[device.type], store=store, rank=rank, world_size=size, timeout=_TIMEOUT
    )
    return World(rank, size, local_rank)
