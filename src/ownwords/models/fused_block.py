"""A whole transformer block in one call of the C++ library, with all products in bfloat16.

PyTorch runs about forty operations for a block and its backward pass, each writing to memory what
the next one reads; for a small model that takes most of the time. Here a block is one operation if
it computes in bfloat16 (autocast, or bfloat16 weights) and consists of plain layers.
Otherwise (an adapter, quantized weights, a cache, odd sizes) `fusable_weights` returns None, and
the block runs layer by layer.

Shapes: B batch, T tokens, C width.
"""

import ctypes
import threading
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from ownwords.models import fused
from ownwords.models.layers import Attention, AttentionMask, GatedMLP, RMSNorm, gelu_tanh
from ownwords.models.rope import Angles
from ownwords.native.bindings import interface

_BlockArgs: Any = interface().structs["BlockArgs"]
_ROLES = {
    key.removeprefix("ROLE_"): value
    for key, value in interface().constants.items()
    if key.startswith("ROLE_")
}


@dataclass(slots=True)
class BlockModules:
    """The modules of a block; `qkv` holds query, key and value, or one layer for all three.

    `head_norms` are the norms of queries and keys; `gate` is None if the MLP has no gate.
    """

    attention_norm: nn.Module
    qkv: Sequence[nn.Module]
    head_norms: tuple[RMSNorm, RMSNorm] | None
    output: nn.Module
    mlp_norm: nn.Module
    gate: nn.Module | None
    up: nn.Module
    down: nn.Module
    kv_heads: int
    head_dim: int
    scale: float
    gelu: bool

    def linears(self) -> Iterator[nn.Module]:
        """Yield the layers that must be plain nn.Linear."""
        yield from self.qkv
        yield from (self.output, self.up, self.down)
        if self.gate is not None:
            yield self.gate

    def weights(self) -> dict[str, Tensor]:
        """The weights and biases by the names of Role in api.h."""
        modules = {
            "ATTENTION_NORM": self.attention_norm,
            **dict(zip(("QUERY", "KEY", "VALUE"), self.qkv, strict=False)),
            **dict(zip(("QUERY_NORM", "KEY_NORM"), self.head_norms or (), strict=False)),
            **{"OUTPUT": self.output, "MLP_NORM": self.mlp_norm},
            **{"GATE": self.gate, "UP": self.up, "DOWN": self.down},
        }
        weights: dict[str, Tensor] = {}
        for role, module in modules.items():
            if module is not None:
                weights[role] = module.weight  # type: ignore[assignment]
                if (bias := getattr(module, "bias", None)) is not None:
                    weights[f"{role}_BIAS"] = bias
        return weights


def llama_modules(
    attention_norm: RMSNorm, attention: Attention, mlp_norm: RMSNorm, mlp: GatedMLP
) -> BlockModules | None:
    """The modules of a Llama-style block; None if the library lacks its activation."""
    if mlp.activation not in (F.silu, gelu_tanh):
        return None
    norms = (attention.query_norm, attention.key_norm)
    return BlockModules(
        attention_norm,
        (attention.query, attention.key, attention.value),
        None if norms[0] is None or norms[1] is None else (norms[0], norms[1]),
        attention.output,
        mlp_norm,
        mlp.gate,
        mlp.up,
        mlp.down,
        kv_heads=attention.sizes[1] // attention.head_dim,
        head_dim=attention.head_dim,
        scale=attention.scale,
        gelu=mlp.activation is gelu_tanh,
    )


def forward(
    modules: BlockModules | None,
    x_BTC: Tensor,
    mask: AttentionMask,
    angles: Angles | None,
    dropout: float,
) -> Tensor | None:
    """The block's output, or None if it must be computed layer by layer.

    Dropout depends on a seed drawn from PyTorch's random state, not on the number of threads.
    """
    weights = None if modules is None else fusable_weights(modules, x_BTC, mask)
    if modules is None or weights is None:
        return None
    seed = int(torch.randint(2**63 - 1, ())) if dropout else 0
    roles = [_ROLES[name] for name in weights]
    y_BTC: Tensor = _BlockFunction.apply(  # type: ignore[no-untyped-call]
        x_BTC, modules, mask.first_BT, angles, dropout, seed, roles, *weights.values()
    )
    return y_BTC


def fusable_weights(
    modules: BlockModules, x_BTC: Tensor, mask: AttentionMask
) -> dict[str, Tensor] | None:
    """The weights by role if the library supports the block and is faster, else None."""
    # supports_attention comes first, so that torch.compile does not trace the library's loading.
    if not (
        fused.supports_attention(x_BTC) and fused.is_supported(x_BTC) and fused.has_fast_bf16()
    ):
        return None
    if x_BTC.numel() == 0 or not mask.suits_fused:
        return None
    autocast = torch.is_autocast_enabled("cpu")
    dtype = torch.float32 if autocast else torch.bfloat16
    if x_BTC.dtype != dtype or (autocast and torch.get_autocast_dtype("cpu") != torch.bfloat16):
        return None
    if any(type(layer) is not nn.Linear for layer in modules.linears()):
        return None
    weights = modules.weights()
    with_grad = torch.is_grad_enabled()
    for weight in weights.values():
        if weight.dtype != dtype or not weight.is_contiguous():
            return None
        if with_grad and not weight.requires_grad:
            return None
        if weight.dim() == 2 and any(side % fused.TILE for side in weight.shape):
            return None
    return None if modules.head_dim % fused.TILE else weights


def _block_args(
    x_BTC: Tensor,
    modules: BlockModules,
    first_BT: Tensor | None,
    angles: Angles | None,
    dropout: float,
    seed: int,
) -> Any:  # noqa: ANN401 - a structure of ctypes
    B, T, C = x_BTC.shape
    norms = modules.head_norms
    return _BlockArgs(
        dtype=fused.DTYPES[x_BTC.dtype],
        batch=B,
        tokens=T,
        width=C,
        query_heads=_inputs(modules.output) // modules.head_dim,
        kv_heads=modules.kv_heads,
        head_dim=modules.head_dim,
        hidden=_inputs(modules.down),
        layer_norm=isinstance(modules.attention_norm, nn.LayerNorm),
        gelu=modules.gelu,
        rope_period=angles[0].shape[0] * angles[0].shape[-2] if angles is not None else 0,
        first_stride=fused.first_stride(first_BT),
        dropout_seed=seed,
        dropout=dropout,
        norm_eps=modules.attention_norm.eps,
        norm_offset=getattr(modules.attention_norm, "offset", 0.0),
        head_eps=norms[0].eps if norms else 0.0,
        head_offset=norms[0].offset if norms else 0.0,
        scale=modules.scale,
    )


def _inputs(linear: nn.Module) -> int:
    assert isinstance(linear, nn.Linear)
    return linear.in_features


def _set_pointers(
    args: Any,  # noqa: ANN401
    field: str,
    roles: Sequence[int],
    tensors: Sequence[Tensor],
) -> None:
    """Point args.weights or args.grads to the tensors, and to the three parts of a joined qkv."""
    pointers = getattr(args, field)
    for role, tensor in zip(roles, tensors, strict=True):
        pointers[role] = tensor.data_ptr()
    if _ROLES["KEY"] in roles:
        return
    for name in ("QUERY", "QUERY_BIAS"):
        if (query := _ROLES[name]) in roles:
            qkv = tensors[roles.index(query)]
            head_bytes = qkv.stride(0) * qkv.element_size() * args.head_dim
            pointers[query + 1] = pointers[query] + args.query_heads * head_bytes
            pointers[query + 2] = pointers[query + 1] + args.kv_heads * head_bytes


class _Scratch(threading.local):
    """Scratch memory that all blocks of a thread share.

    Separate buffers would leave holes between the saved activations: 0.25 GB with 12 blocks of
    width 768. The memory is freed when the last reference to the tensor from `of` is gone.
    """

    _last: weakref.ref[Tensor] | None = None

    def of(self, size: int) -> Tensor:
        """A buffer of at least `size` bytes, reused if possible."""
        last = self._last() if self._last is not None else None
        if last is None or last.numel() < size:
            last = torch.empty(size, dtype=torch.uint8)
            self._last = weakref.ref(last)
        return last


_scratch = _Scratch()
_Context = Any  # autograd's own context has no public type


class _BlockFunction(torch.autograd.Function):
    """Forward and backward pass of a block, which share one BlockArgs."""

    @staticmethod
    def forward(
        ctx: _Context,
        x_BTC: Tensor,
        modules: BlockModules,
        first_BT: Tensor | None,
        angles: Angles | None,
        dropout: float,
        seed: int,
        roles: Sequence[int],
        *weights: Tensor,
    ) -> Tensor:
        x_BTC = x_BTC.contiguous()
        args = _block_args(x_BTC, modules, first_BT, angles, dropout, seed)
        _set_pointers(args, "weights", roles, weights)
        if angles is not None:
            args.cos, args.sin = (each.data_ptr() for each in angles)
        fused.library().block_sizes(ctypes.addressof(args))
        with_grad = any(ctx.needs_input_grad)
        # Allocate scratch before `saved`, which then gets the same memory as in the last step.
        scratch = _scratch.of(
            max(args.forward_scratch_bytes, args.backward_scratch_bytes if with_grad else 0)
        )
        saved = torch.empty(args.saved_bytes, dtype=torch.uint8)
        y_BTC = torch.empty_like(x_BTC)
        args.y = y_BTC.data_ptr()
        _set_inputs(args, x_BTC, saved, scratch, first_BT, angles)
        fused.library().block_forward(ctypes.addressof(args))
        ctx.args, ctx.roles, ctx.scratch = args, roles, scratch
        # Save everything args points to; autograd detects weights modified before backward.
        ctx.save_for_backward(x_BTC, saved, first_BT, *(angles or (None, None)), *weights)
        return y_BTC

    @staticmethod
    @once_differentiable
    def backward(ctx: _Context, dy_BTC: Tensor) -> tuple[Tensor | None, ...]:
        x_BTC, saved, first_BT, cos, sin, *weights = ctx.saved_tensors
        args, roles, dy_BTC = ctx.args, ctx.roles, dy_BTC.contiguous()
        grads = [torch.empty_like(weight) for weight in weights]
        scratch = _scratch.of(args.backward_scratch_bytes)
        dx_BTC = torch.empty_like(x_BTC)
        # Saved tensors may have moved: checkpointing recomputes them, FSDP gathers them anew.
        _set_inputs(args, x_BTC, saved, scratch, first_BT, None if cos is None else (cos, sin))
        _set_pointers(args, "weights", roles, weights)
        _set_pointers(args, "grads", roles, grads)
        args.dy, args.dx = dy_BTC.data_ptr(), dx_BTC.data_ptr()
        fused.library().block_backward(ctypes.addressof(args))
        return dx_BTC, None, None, None, None, None, None, *grads


def _set_inputs(
    args: Any,  # noqa: ANN401
    x_BTC: Tensor,
    saved: Tensor,
    scratch: Tensor,
    first_BT: Tensor | None,
    angles: Angles | None,
) -> None:
    args.x, args.saved, args.scratch = (each.data_ptr() for each in (x_BTC, saved, scratch))
    args.first_token = None if first_BT is None else first_BT.data_ptr()
    if angles is not None:
        args.cos, args.sin = (each.data_ptr() for each in angles)
