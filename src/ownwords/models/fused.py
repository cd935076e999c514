"""Steps of training that PyTorch takes in many passes, each in one pass of the C++ library.

Every function here has a plain twin in layers.py, rope.py or loss.py, which stays the reference
and does all the work where `ready` says no: another device or type, no library, torch.compile.

Shapes: B batch, T tokens, N tokens of all rows, C width, F hidden width, H heads, K key/value
heads, X all heads (H + 2 K), D dimensions of a head.
"""

import ctypes
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ownwords.native import bindings
from ownwords.native.bindings import NativeLibrary

MAX_TOKENS = 1024  # a block of scores, and each head's keys and values, then stay in the cache
# The library's isa from which bfloat16 is multiplied faster than float32, and what the sides of
# matrices must be multiples of for it to do so.
FAST_BF16 = 5
TILE = 32
_DTYPES = {torch.float32: 0, torch.bfloat16: 1}


@cache
def _load() -> NativeLibrary | None:
    found = bindings.load_library()
    if found is not None:
        for path in (Path(torch.__file__).parent / "lib").glob("libtorch_cpu.*"):
            found.use_threads_of(ctypes.CDLL(str(path)))
    return found


def library() -> NativeLibrary:
    """The library, where `ready` or `reads` said that there is one."""
    found = _load()
    assert found is not None
    return found


def isa() -> int:
    """That of the library's instructions; -1 where there is none."""
    found = _load()
    return -1 if found is None else found.level


def is_supported(*tensors: Tensor) -> bool:
    """Whether the library can take these."""
    return (
        not torch.compiler.is_compiling()
        and all(
            one.device.type == "cpu" and one.dtype in _DTYPES and type(one) is not _Fake
            for one in tensors
        )
        and _load() is not None
    )


def supports_attention(ids_BT: Tensor) -> bool:
    """Whether attention over these tokens needs no mask, only the first token each may see."""
    return (
        ids_BT.device.type == "cpu"
        and ids_BT.shape[1] <= MAX_TOKENS
        and not torch.compiler.is_compiling()
        and _load() is not None
    )


def rms_norm(x: Tensor, weight_C: Tensor, eps: float, offset: float) -> Tensor:
    """RMSNorm over the last dimension."""
    made: Tensor = _Norm.apply(x, weight_C, eps, offset)  # type: ignore[no-untyped-call]
    return made


def gated_activation(both: Tensor, gelu: bool) -> Tensor:
    """activation(gate) * up, where the last dimension is gate and up side by side."""
    made: Tensor = _Gate.apply(both, gelu)  # type: ignore[no-untyped-call]
    return made


def gelu(x: Tensor) -> Tensor:
    """The tanh approximation of gelu."""
    made: Tensor = _Gelu.apply(x)  # type: ignore[no-untyped-call]
    return made


def norm_and_rope(
    x_BTXD: Tensor,
    norms: tuple[Tensor, Tensor] | None,
    angles: tuple[Tensor, Tensor],
    kv_heads: int,
    eps: float,
    offset: float,
) -> Tensor:
    """Queries and keys normed, if there are norms, and turned; values as they are."""
    half = x_BTXD.shape[-1] // 2
    cos, sin = (part[..., :half].float().contiguous() for part in angles)
    query_norm, key_norm = norms or (None, None)
    made: Tensor = _Heads.apply(  # type: ignore[no-untyped-call]
        x_BTXD, query_norm, key_norm, cos, sin, kv_heads, eps, offset
    )
    return made


def attention(x_BTXD: Tensor, kv_heads: int, first_BT: Tensor | None, scale: float) -> Tensor:
    """Causal attention, [B, T, H * D]: each token sees those from `first_BT` to itself."""
    made: Tensor = _Attention.apply(  # type: ignore[no-untyped-call]
        x_BTXD, kv_heads, first_BT, scale
    )
    return made


def cross_entropy_(
    logits_NV: Tensor, targets_N: Tensor, weights_N: Tensor, z_weight: float, slope: bool
) -> float:
    """The weighted sum of the rows' losses; with `slope` that of the logits takes their place."""
    total = ctypes.c_double(0.0)
    library()["entropy"](
        _DTYPES[logits_NV.dtype],
        logits_NV.data_ptr(),
        targets_N.data_ptr(),
        weights_N.data_ptr(),
        ctypes.addressof(total),
        *logits_NV.shape,
        z_weight,
        int(slope),
    )
    return total.value


def adamw_(
    weight: Tensor,
    gradient: Tensor,
    first: Tensor,
    second: Tensor,
    *,
    step: int,
    rate: float,
    betas: tuple[float, float],
    eps: float,
    decay: float,
    scale: float = 1.0,
    narrow: Tensor | None = None,
) -> None:
    """One step of AdamW in one pass; `step` counts from 1, `scale` multiplies the gradient.

    `weight` and the moments are float32, the gradient float32 or bfloat16, all contiguous;
    `narrow` is a bfloat16 copy of the weight, written too.
    """
    library()["adamw"](
        _DTYPES[gradient.dtype],
        weight.data_ptr(),
        None if narrow is None else narrow.data_ptr(),
        gradient.data_ptr(),
        first.data_ptr(),
        second.data_ptr(),
        weight.numel(),
        scale,
        rate,
        *betas,
        eps,
        decay,
        *(1 - beta**step for beta in betas),
    )


def _addresses(norms: Sequence[Tensor]) -> Sequence[int | None]:
    """Of the two norms, if there are two."""
    return [norm.data_ptr() for norm in norms] or [None, None]


_Context = Any  # autograd's own context has no public type
_Fake = torch._subclasses.FakeTensor


class _Norm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: _Context, x: Tensor, weight_C: Tensor, eps: float, offset: float) -> Tensor:
        x, weight = x.contiguous(), weight_C.float()
        made = torch.empty_like(x)
        inverse = torch.empty(x.shape[:-1], dtype=torch.float32)
        library()["norm"](
            _DTYPES[x.dtype],
            x.data_ptr(),
            weight.data_ptr(),
            made.data_ptr(),
            inverse.data_ptr(),
            inverse.numel(),
            x.shape[-1],
            eps,
            offset,
        )
        ctx.save_for_backward(x, weight_C, inverse)
        ctx.offset = offset
        return made

    @staticmethod
    @once_differentiable
    def backward(ctx: _Context, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight_C, inverse = ctx.saved_tensors
        grad, weight = grad.contiguous(), weight_C.float()
        made = torch.empty_like(x)
        dweight_C = torch.empty_like(weight)
        library()["norm_back"](
            _DTYPES[x.dtype],
            x.data_ptr(),
            weight.data_ptr(),
            inverse.data_ptr(),
            grad.data_ptr(),
            made.data_ptr(),
            dweight_C.data_ptr(),
            inverse.numel(),
            x.shape[-1],
            ctx.offset,
        )
        return made, dweight_C.to(weight_C.dtype), None, None


class _Gate(torch.autograd.Function):
    @staticmethod
    def forward(ctx: _Context, both: Tensor, gelu: bool) -> Tensor:
        both = both.contiguous()
        hidden = both.shape[-1] // 2
        made = both.new_empty(*both.shape[:-1], hidden)
        rows = both.numel() // both.shape[-1]
        library()["gate"](
            _DTYPES[both.dtype], int(gelu), both.data_ptr(), made.data_ptr(), rows, hidden
        )
        ctx.save_for_backward(both)
        ctx.gelu = gelu
        return made

    @staticmethod
    @once_differentiable
    def backward(ctx: _Context, grad: Tensor) -> tuple[Tensor | None, ...]:
        (both,) = ctx.saved_tensors
        grad = grad.contiguous()
        made = torch.empty_like(both)
        rows = both.numel() // both.shape[-1]
        library()["gate_back"](
            _DTYPES[both.dtype],
            int(ctx.gelu),
            both.data_ptr(),
            grad.data_ptr(),
            made.data_ptr(),
            rows,
            both.shape[-1] // 2,
        )
        return made, None


class _Gelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx: _Context, x: Tensor) -> Tensor:
        x = x.contiguous()
        made = torch.empty_like(x)
        library()["gelu"](_DTYPES[x.dtype], x.data_ptr(), made.data_ptr(), x.numel())
        ctx.save_for_backward(x)
        return made

    @staticmethod
    @once_differentiable
    def backward(ctx: _Context, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        grad = grad.contiguous()
        made = torch.empty_like(x)
        library()["gelu_back"](
            _DTYPES[x.dtype], x.data_ptr(), grad.data_ptr(), made.data_ptr(), x.numel()
        )
        return made


class _Heads(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: _Context,
        x_BTXD: Tensor,
        query_norm: Tensor | None,
        key_norm: Tensor | None,
        cos: Tensor,
        sin: Tensor,
        kv_heads: int,
        eps: float,
        offset: float,
    ) -> Tensor:
        x_BTXD = x_BTXD.contiguous()
        made = torch.empty_like(x_BTXD)
        B, T, X, D = x_BTXD.shape
        ctx.sizes = (B * T, X - 2 * kv_heads, kv_heads, D, cos.numel() // (D // 2), eps, offset)
        ctx.normed = query_norm is not None
        norms = [] if query_norm is None or key_norm is None else [query_norm, key_norm]
        wide = [norm.float() for norm in norms]
        ctx.save_for_backward(x_BTXD, cos, sin, *norms)
        library()["heads"](
            _DTYPES[x_BTXD.dtype],
            x_BTXD.data_ptr(),
            *_addresses(wide),
            cos.data_ptr(),
            sin.data_ptr(),
            made.data_ptr(),
            *ctx.sizes,
        )
        return made

    @staticmethod
    @once_differentiable
    def backward(ctx: _Context, grad_BTXD: Tensor) -> tuple[Tensor | None, ...]:
        x_BTXD, cos, sin, *norms = ctx.saved_tensors
        grad_BTXD = grad_BTXD.contiguous()
        made = torch.empty_like(x_BTXD)
        dnorms = torch.empty(2, x_BTXD.shape[-1], dtype=torch.float32)
        wide = [norm.float() for norm in norms]
        library()["heads_back"](
            _DTYPES[x_BTXD.dtype],
            x_BTXD.data_ptr(),
            *_addresses(wide),
            cos.data_ptr(),
            sin.data_ptr(),
            grad_BTXD.data_ptr(),
            made.data_ptr(),
            dnorms.data_ptr(),
            *ctx.sizes,
        )
        slopes = [one.to(norm.dtype) for one, norm in zip(dnorms, norms, strict=False)]
        return made, *(slopes or (None, None)), None, None, None, None, None


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: _Context, x_BTXD: Tensor, kv_heads: int, first_BT: Tensor | None, scale: float
    ) -> Tensor:
        x_BTXD = x_BTXD.contiguous()
        B, T, X, D = x_BTXD.shape
        heads = X - 2 * kv_heads
        made = x_BTXD.new_empty(B, T, heads * D)
        log_sums = torch.empty(B, heads, T, dtype=torch.float32)
        if first_BT is not None:
            first_BT = first_BT.to(torch.int32).contiguous()
        alike = first_BT is None or first_BT.shape[0] == 1
        ctx.sizes = (0 if alike else T, B, T, heads, kv_heads, D, scale)
        ctx.save_for_backward(x_BTXD, log_sums, first_BT)
        library()["attention"](
            _DTYPES[x_BTXD.dtype],
            x_BTXD.data_ptr(),
            made.data_ptr(),
            log_sums.data_ptr(),
            None if first_BT is None else first_BT.data_ptr(),
            *ctx.sizes,
        )
        return made

    @staticmethod
    @once_differentiable
    def backward(ctx: _Context, grad: Tensor) -> tuple[Tensor | None, ...]:
        x_BTXD, log_sums, first_BT = ctx.saved_tensors
        grad = grad.contiguous()
        made = torch.empty_like(x_BTXD)
        library()["attention_back"](
            _DTYPES[x_BTXD.dtype],
            x_BTXD.data_ptr(),
            grad.data_ptr(),
            log_sums.data_ptr(),
            made.data_ptr(),
            None if first_BT is None else first_BT.data_ptr(),
            *ctx.sizes,
        )
        return made, None, None, None
