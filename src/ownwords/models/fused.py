"""Fused C++ layers for training on the CPU: one pass over memory where PyTorch needs several.

Every function has a reference implementation in layers.py, loss.py or optim.py, which is used if
`is_supported` is False: on another device, with another dtype, or without the library.

Shapes: B batch, T tokens, N tokens of all rows, C width, V vocabulary.
"""

import ctypes
import math
import mmap
import sys
import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache

import torch
from torch import Tensor

from ownwords.core import hardware
from ownwords.native import bindings
from ownwords.native.bindings import NativeLibrary, interface

TILE = 32  # the sides of matrices must be multiples of this
DTYPES = {torch.float32: 0, torch.bfloat16: 1}  # as api.h numbers them
PRODUCT_DTYPES = {**DTYPES, torch.int16: interface().constants["PRODUCTS_INT16"]}
_PART = 2**18  # numbers that one thread sums
_in_int16: ContextVar[bool] = ContextVar("int16_products", default=False)


class MemoryPool:
    """Large buffers, each returned to the pool when the last tensor that uses it is gone.

    On the C heap, the saved activations of a step would leave holes between smaller tensors, which
    would double the memory. Mapping new buffers in each step would zero their pages every time.
    """

    def __init__(self) -> None:
        self._free: list[mmap.mmap] = []
        self._lock = threading.Lock()

    def allocate(self, size: int) -> Tensor:
        return self._tensor(self._unused(size) or self._map(size), size)

    def borrow(self, size: int) -> Tensor:
        """Like `allocate`, but memory from the system goes back to it instead of into the pool."""
        memory = self._unused(size)
        return self._tensor(memory, size) if memory else torch.empty(size, dtype=torch.uint8)

    def release(self) -> None:
        with self._lock:
            self._free.clear()

    def _tensor(self, memory: mmap.mmap, size: int) -> Tensor:
        view = memoryview(memory)
        # PyTorch holds a reference to the view until the tensor's memory is no longer used.
        weakref.finalize(view, self._free.append, memory).atexit = False
        return torch.frombuffer(view, dtype=torch.uint8, count=size)

    def _unused(self, size: int) -> mmap.mmap | None:
        """Take the smallest unused buffer that suffices."""
        with self._lock:
            # Tensors may be deleted at any time, so other threads may append to the list meanwhile.
            for memory in sorted(self._free, key=len):
                if len(memory) >= size:
                    self._free.remove(memory)
                    return memory
        return None

    def _map(self, size: int) -> mmap.mmap:
        """Map a new buffer in place of an unused smaller one, so that their number is bounded."""
        with self._lock:
            if self._free:
                self._free.remove(max(self._free, key=len))
        if sys.platform == "win32":
            return mmap.mmap(-1, max(size, 1))
        return mmap.mmap(-1, max(size, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


pool = MemoryPool()


@cache
def find_library() -> NativeLibrary | None:
    """Load the library, with its threads; None if it is unavailable."""
    native = bindings.load_library()
    if native is not None:
        # PyTorch respects OMP_NUM_THREADS, but not a container's quota.
        native.set_threads(min(torch.get_num_threads(), hardware.threads(hardware.read_cpu())))
    return native


def library() -> NativeLibrary:
    """Return the library; call only if `is_supported` or `runs_blocks` returned True."""
    native = find_library()
    assert native is not None
    return native


def has_fast_bf16() -> bool:
    """Whether the library multiplies bfloat16 faster than float32, as measured."""
    native = find_library()
    return native is not None and native.has_fast_bf16() == 1


@contextmanager
def int16_products() -> Iterator[None]:
    """Multiply with frozen weights in int16, forward and backward, if the library supports it.

    Inputs and weights keep about 11 bits, with one scale per row: see simd/int16_rows.h. All other
    products are in float32.
    """
    token = _in_int16.set(True)
    try:
        yield
    finally:
        _in_int16.reset(token)


def keeps_bf16(weight: Tensor) -> bool:
    """Whether a weight is in bfloat16 and the library computes with it as it is."""
    if weight.dtype != torch.bfloat16 or weight.device.type != "cpu":
        return False
    native = find_library()
    return native is not None and native.keeps_bf16


def product_dtype(wanted: torch.dtype, *, is_frozen: bool = False) -> torch.dtype:
    """Return the dtype of products: float32 even if `wanted` is bfloat16, where that is slower."""
    if is_frozen and _in_int16.get():
        return torch.int16
    return torch.bfloat16 if wanted == torch.bfloat16 and has_fast_bf16() else torch.float32


def is_supported(*tensors: Tensor) -> bool:
    """Whether the library is available and supports these tensors' device and dtype."""
    return (
        all(
            tensor.device.type == "cpu" and tensor.dtype in DTYPES and type(tensor) is not _Fake
            for tensor in tensors
        )
        and find_library() is not None
    )


def runs_blocks(ids_BT: Tensor) -> bool:
    """Whether whole blocks can run on this device; they need `first_BT` instead of a mask."""
    return ids_BT.device.type == "cpu" and find_library() is not None


def supports_head_loss(hidden_NC: Tensor, head_VC: Tensor, dtype: torch.dtype) -> bool:
    """Whether `head_loss` supports these tensors, with products of this dtype."""
    return (
        dtype in DTYPES
        and len(hidden_NC) > 0
        and is_supported(hidden_NC, head_VC)
        and hidden_NC.dtype == head_VC.dtype
        and head_VC.is_contiguous()
        and head_VC.shape[1] % TILE == 0
    )


def head_loss(
    hidden_NC: Tensor,
    head_VC: Tensor,
    targets_N: Tensor,
    weights_N: Tensor,
    dtype: torch.dtype,
    chunk_rows: int,
    needs_grad: tuple[bool, bool],
) -> tuple[float, Tensor | None, Tensor | None]:
    """Return the weighted sum of the losses, and its gradients for hidden states and head.

    `dtype` is the wanted dtype of products, see `product_dtype`. With more than `chunk_rows` rows
    the head's gradient is float32.
    """
    hidden_NC, targets_N, weights_N = (x.contiguous() for x in (hidden_NC, targets_N, weights_N))
    (N, C), V = hidden_NC.shape, head_VC.shape[0]
    head_dtype = head_VC.dtype if chunk_rows >= N else torch.float32
    hidden_grad_NC = torch.empty_like(hidden_NC) if needs_grad[0] else None
    head_grad_VC = torch.empty_like(head_VC, dtype=head_dtype) if needs_grad[1] else None
    total = ctypes.c_double(0.0)
    products = product_dtype(dtype, is_frozen=not needs_grad[1])
    args = interface().structs["HeadLossArgs"](
        *(DTYPES[hidden_NC.dtype], PRODUCT_DTYPES[products], N, C, V, chunk_rows),
        *_pointers(hidden_NC, head_VC, targets_N, weights_N, ctypes.addressof(total)),
        *_pointers(hidden_grad_NC, head_grad_VC),
    )
    library().head_loss_size(ctypes.addressof(args))
    buffer = pool.borrow(args.scratch_bytes)
    args.scratch = buffer.data_ptr()
    library().head_loss(ctypes.addressof(args))
    return total.value, hidden_grad_NC, head_grad_VC


def adamw_(
    weight: Tensor,
    gradient: Tensor,
    mean: Tensor,
    square: Tensor,
    *,
    step: int,
    learning_rate: float,
    betas: tuple[float, float],
    eps: float,
    weight_decay: float,
    scale: float = 1.0,
    bf16_copy: Tensor | None = None,
) -> None:
    """Make one AdamW step in one pass over memory.

    `step` counts from 1; `scale` multiplies the gradient.

    `weight` and the moments are float32, the gradient float32 or bfloat16, all contiguous.
    `bf16_copy`, if given, receives the new weight in bfloat16.
    """
    library().adamw(
        DTYPES[gradient.dtype],
        *_pointers(weight, bf16_copy, gradient, mean, square),
        *(weight.numel(), scale, learning_rate, *betas, eps, weight_decay),
        *(1 - beta**step for beta in betas),
    )


def norm(tensors: Sequence[Tensor]) -> Tensor:
    """Return the norm of all numbers in contiguous tensors of one dtype."""
    part = interface().structs["TensorPart"]
    parts = [
        part(each.data_ptr() + at * each.element_size(), min(_PART, each.numel() - at))
        for each in tensors
        for at in range(0, each.numel(), _PART)
    ]
    total = ctypes.c_double(0.0)
    array = (part * len(parts))(*parts)
    library().square_sum(DTYPES[tensors[0].dtype], array, len(parts), ctypes.addressof(total))
    return torch.tensor(math.sqrt(total.value), dtype=torch.float32)


def _pointers(*arguments: object) -> list[object]:
    return [each.data_ptr() if isinstance(each, Tensor) else each for each in arguments]


_Fake = torch._subclasses.FakeTensor


def first_stride(first_BT: Tensor | None) -> int:
    """Return the stride between rows of `first_BT`: 0 if it is None or has one row for all."""
    return 0 if first_BT is None or first_BT.shape[0] == 1 else first_BT.shape[1]
