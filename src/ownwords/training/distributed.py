"""Distributed training with DDP or FSDP2; with a single process nothing here has any effect.

`torchrun` starts the processes and gives each its rank; `init_distributed` connects them. Each then
computes its own rows of every batch. DDP keeps the whole model in every process and averages
gradients; FSDP2 keeps a shard of every tensor in each process and assembles a block only while it
computes (https://arxiv.org/abs/2304.11277).

Both average gradients over processes, but training needs the mean over tokens, and some rows have
more targets than others. So the loop's loss is `loss_sum * world.size / tokens of the whole batch`.

docs/scale-out.md lists the commands.
"""

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from inspect import signature
from typing import TYPE_CHECKING, Any, Literal, TypeGuard, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ownwords.core.errors import ConfigError
from ownwords.models.decoder import CausalLM, build

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor

# Modules of torch.distributed are imported where needed: they take half as long as PyTorch.

Mode = Literal["ddp", "fsdp"]
T = TypeVar("T")

# Flags and counts go over gloo from CPU memory: reading them from a GPU would stall it.
_BACKENDS = {"cpu": "gloo", "cuda": "cpu:gloo,cuda:nccl", "xpu": "cpu:gloo,xpu:xccl"}
# One process may tokenize a corpus while the others wait for it.
_TIMEOUT = timedelta(minutes=30)


@dataclass(frozen=True)
class World:
    """The processes of a run, as seen by one of them. All processes must call each method.

    With one process each method returns its argument.
    """

    rank: int = 0
    size: int = 1
    local_rank: int = 0  # the rank among the processes of this machine
    mode: Mode = "ddp"

    @property
    def is_first(self) -> bool:
        """Whether this process writes files and shows progress."""
        return self.rank == 0

    @property
    def is_sharded(self) -> bool:
        """Whether tensors are sharded, so that no process can use the model alone."""
        return self.size > 1 and self.mode == "fsdp"

    def sum(self, x: Tensor) -> Tensor:
        """The sum over all processes. Counts should come as float64 or int64."""
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

    def rows_per_process(self, rows: int) -> int:
        """The largest number of rows of a batch that any process gets.

        ConfigError if FSDP is used and the shares differ: processes would wait for each other for
        ever.
        """
        if self.is_sharded and rows % self.size:
            raise ConfigError(
                f"{rows} rows cannot be shared equally among {self.size} processes, as FSDP needs",
                hint=f"set train.batch_size to a multiple of {self.size}",
            )
        return -(-rows // self.size)

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

        So the later ones find what the earlier ones cached, whether or not the disk is shared.
        """
        turn = 0 if self.is_first else 1 if self.local_rank == 0 else 2
        for _ in range(turn):
            self.barrier()
        yield
        for _ in range(turn, 2):
            self.barrier()

    def distribute(self, items: Iterable[T]) -> Iterator[tuple[T, bool]]:
        """This process's items, each with whether it counts.

        All processes get the same number of items, because they compute together: at the end the
        last item is repeated, and its copies do not count.
        """
        mine: list[T] = []
        item: T
        for item in items:
            mine.append(item)
            if len(mine) == self.size:
                yield mine[self.rank], True
                mine.clear()
        if mine:
            yield mine[min(self.rank, len(mine) - 1)], self.rank < len(mine)

    def wrap(self, task: nn.Module, blocks: Iterable[nn.Module]) -> nn.Module:
        """The module to call instead of `task`, a module whose `forward` returns the loss.

        The whole loss must be computed in it: DDP and FSDP act when a module is called, and the
        loss needs the full embedding. `blocks` are the modules to assemble one at a time.

        Sharding replaces the parameters by others of the same names, so compile before it and make
        the optimizer after it. All processes start from the first process's weights.
        """
        if self.size == 1:
            return task
        from torch.distributed.device_mesh import init_device_mesh  # noqa: PLC0415
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard  # noqa: PLC0415
        from torch.nn.parallel import DistributedDataParallel  # noqa: PLC0415

        if not self.is_sharded:
            # Buffers never change. Newer versions of PyTorch renamed the option.
            is_new = "forward_sync_buffers" in signature(DistributedDataParallel).parameters
            option = "forward_sync_buffers" if is_new else "broadcast_buffers"
            options: dict[str, Any] = {option: False, "gradient_as_bucket_view": True}
            return DistributedDataParallel(task, **options)
        first, *others = task.parameters()
        kind = (first.dtype, first.requires_grad)
        if any((each.dtype, each.requires_grad) != kind for each in others):
            raise ConfigError(
                "FSDP cannot train only a part of a model, nor tensors of several types",
                hint="train an adapter with DDP: it is small",
            )
        for tensor in (*task.parameters(), *task.buffers()):
            dist.broadcast(tensor.detach(), 0)
        mesh = init_device_mesh(first.device.type, (self.size,))
        # Sum bfloat16 gradients in float32.
        policy = MixedPrecisionPolicy(reduce_dtype=torch.float32)
        for part in (*blocks, task):
            # Reshard the root too, or an evaluation would leave its parameters unsharded.
            fully_shard(part, mesh=mesh, mp_policy=policy, reshard_after_forward=True)
        return task

    @contextmanager
    def gradient_sync(self, wrapped: nn.Module, now: bool) -> Iterator[None]:
        """Run forward and backward of a micro-batch; exchange gradients only if `now`."""
        if self.size == 1:
            yield
            return
        from torch.distributed.fsdp import FSDPModule  # noqa: PLC0415
        from torch.nn.parallel import DistributedDataParallel  # noqa: PLC0415

        if isinstance(wrapped, FSDPModule):
            wrapped.set_requires_gradient_sync(now)
            yield
        elif isinstance(wrapped, DistributedDataParallel) and not now:
            with wrapped.no_sync():
                yield
        else:
            yield

    def gather(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Full tensors in the first process's memory, for a checkpoint; {} in the others."""
        if self.size == 1:
            return dict(tensors)
        full: dict[str, Tensor] = {}
        for name, tensor in tensors.items():
            gathered = full_tensor(tensor.detach())
            if self.is_first:
                full[name] = gathered.cpu()
        return full

    def scatter(self, tensors: Mapping[str, Tensor], model: nn.Module) -> dict[str, Tensor]:
        """The first process's tensors, each sharded like its parameter.

        A tensor belongs to the parameter that its name, or the part after the last "/", names:
        "momentum/final_norm.w". Tensors without a parameter are given to all processes in full.
        The tensors of the other processes are ignored.
        """
        if self.size == 1:
            return dict(tensors)
        parameters = dict(model.named_parameters())
        empty = {name: (tensor.shape, tensor.dtype) for name, tensor in tensors.items()}
        device = next(iter(parameters.values())).device
        scattered: dict[str, Tensor] = {}
        for name, (shape, dtype) in self.broadcast(empty).items():
            full = torch.empty(shape, dtype=dtype, device=device)
            if self.is_first:
                full.copy_(tensors[name].detach())
            dist.broadcast(full, 0)
            like = parameters.get(name.rpartition("/")[2])
            if like is not None and full.shape == like.shape:
                full = as_sharded(local_like(full, like), like)
            scattered[name] = full
        return scattered

    def unsharded(self, model: CausalLM) -> CausalLM:
        """A model with these weights that the first process can use alone.

        This is the model itself if it is not sharded, else a copy in CPU memory; the other
        processes get a copy without weights, on the meta device.
        """
        if not self.is_sharded:
            return model
        full = self.gather(dict(model.named_parameters()))
        dtype = next(model.parameters()).dtype
        copy = build(model.config, device="cpu" if self.is_first else "meta", dtype=dtype)
        with torch.no_grad():
            for name, tensor in full.items():
                copy.get_parameter(name).copy_(tensor)
        return copy.eval()

    def close(self) -> None:
        """Leave the process group at the end, or the other processes report a missing one."""
        if self.size > 1 and dist.is_initialized():
            dist.destroy_process_group()


SINGLE_PROCESS = World()


def init_distributed(device: torch.device, mode: Mode = "ddp") -> World:
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
        # After a restart torchrun's store still has the addresses of dead processes, and reading
        # them waits for ever. Between machines the restart counts differ: there torchrun must make
        # a new store, as docs/scale-out.md says.
        store = PrefixStore(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"), store)
    dist.init_process_group(
        _BACKENDS[device.type], store=store, rank=rank, world_size=size, timeout=_TIMEOUT
    )
    return World(rank, size, local_rank, mode)


# --- sharded tensors (DTensor): the local shard, the full tensor, and back; others are unchanged


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


def copy_shard(place: Tensor, value: Tensor) -> None:
    """Copy a value of the same shape into a tensor, sharded or not."""
    # `scatter` shards by the parameter's name; a full tensor here needs the full value.
    local_shard(place).copy_(local_shard(value) if is_sharded(place) else full_tensor(value))


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
