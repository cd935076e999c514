"""A whole transformer block in one call of the C++ library.

PyTorch runs about 40 operations for a block and its backward pass, and each writes to memory what
the next one reads; in a small model that takes most of the time. Here a block of plain layers is
one operation, with or without LoRA adapters. With a cache, dropout in an adapter or unsupported
sizes, `fusable_weights` returns None, and the block runs layer by layer.

The gradients of frozen weights are not computed. Every call packs the weights again, into memory
shared by all blocks, because packed copies of all blocks would double the memory of the weights.

Shapes: B batch, T tokens, C width, I inputs, O outputs, R rank of an adapter.
"""

import ctypes
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from ownwords.models import fused
from ownwords.models.fused import pool
from ownwords.models.layers import Angles, AttentionMask, LoraLinear, ResidualBlock, gelu_tanh
from ownwords.native.bindings import interface

_BlockArgs: Any = interface().structs["BlockArgs"]
_ROLES = {name: interface().constants[f"ROLE_{name}"] for name in interface().names("ROLE_")}


class BlockWeights(NamedTuple):
    """A block's weights by role, and the dtype of its products with them."""

    by_role: dict[str, Tensor]
    product_dtype: torch.dtype


def products_of(block: ResidualBlock) -> tuple[Sequence[nn.Module], ...]:
    """Return the linear layers of each product, in the order of Product in api.h."""
    attention, mlp = block.attention, block.mlp
    up = (mlp.up,) if mlp.gate is None else (mlp.gate, mlp.up)
    return attention.projections, (attention.output,), up, (mlp.down,)


def weights_of(block: ResidualBlock) -> dict[str, Tensor]:
    """Return a block's weights and biases by the names of Role in api.h, without adapters."""
    attention, mlp = block.attention, block.mlp
    modules = {
        "ATTENTION_NORM": block.attention_norm,
        **dict(zip(("QUERY", "KEY", "VALUE"), map(_base, attention.projections), strict=False)),
        "QUERY_NORM": attention.query_norm,
        "KEY_NORM": attention.key_norm,
        "OUTPUT": _base(attention.output),
        "ATTENTION_OUTPUT_NORM": block.attention_output_norm,
        "MLP_NORM": block.mlp_norm,
        "GATE": _base(mlp.gate),
        "UP": _base(mlp.up),
        "DOWN": _base(mlp.down),
        "MLP_OUTPUT_NORM": block.mlp_output_norm,
    }
    weights: dict[str, Tensor] = {}
    for role, module in modules.items():
        if module is not None:
            weights[role] = module.weight
            if (bias := getattr(module, "bias", None)) is not None:
                weights[f"{role}_BIAS"] = bias
    return weights


def _is_plain(block: ResidualBlock) -> bool:
    """Whether the layers are plain nn.Linear, with or without an adapter."""
    layers = [layer for product in products_of(block) for layer in product]
    adapters = [layer for layer in layers if type(layer) is LoraLinear]
    return (
        all(type(_base(layer)) is nn.Linear for layer in layers)
        and not any(each.active_dropout for each in adapters)
        and block.attention.head_dim % fused.TILE == 0
    )


def _base(layer: nn.Module | None) -> Any:  # noqa: ANN401 - an nn.Linear, if the block is plain
    return layer.base if type(layer) is LoraLinear else layer


def joined_adapters(layers: Sequence[nn.Module]) -> tuple[Tensor, Tensor] | None:
    """Join the adapters of a product's layers: float32 `down` [R, I] and scaled `up` [O, R].

    The rank is the sum of their ranks, rounded up to a multiple of 32. None without adapters.
    """
    adapters = [each for each in layers if type(each) is LoraLinear and not each.merged]
    if not adapters:
        return None
    rank = -(-sum(each.rank for each in adapters) // fused.TILE) * fused.TILE
    down_RI = torch.cat([each.down for each in adapters]).float()
    down_RI = F.pad(down_RI, (0, 0, 0, rank - len(down_RI)))
    parts, first = [], 0
    for layer in layers:
        if layer in adapters:
            up = layer.scale * layer.up.float()
            parts.append(F.pad(up, (first, rank - first - up.shape[1])))
            first += up.shape[1]
        else:
            parts.append(down_RI.new_zeros(_base(layer).out_features, rank))
    return down_RI, torch.cat(parts)


def forward(
    block: ResidualBlock,
    weights: BlockWeights,
    x_BTC: Tensor,
    mask: AttentionMask,
    angles: Angles | None,
) -> Tensor:
    """Return the output of a block, given its `fusable_weights`.

    Dropout depends on a seed drawn from PyTorch's random state, not on the number of threads.
    """
    seed = int(torch.randint(2**63 - 1, ())) if block.active_dropout else 0
    roles = [_ROLES[name] for name in weights.by_role]
    product_dtype = fused.PRODUCT_DTYPES[weights.product_dtype]
    adapters = [joined_adapters(layers) for layers in products_of(block)]
    ranks = [0 if pair is None else len(pair[0]) for pair in adapters]
    pairs = [each for pair in adapters if pair is not None for each in pair]
    y_BTC: Tensor = _BlockFunction.apply(  # type: ignore[no-untyped-call]
        *(x_BTC, block, mask.first_BT, angles, seed, product_dtype, roles, ranks),
        *weights.by_role.values(),
        *pairs,
    )
    return y_BTC


def fusable_weights(
    block: ResidualBlock, x_BTC: Tensor, mask: AttentionMask
) -> BlockWeights | None:
    """Return the block's weights; None if it must be computed layer by layer."""
    if not fused.is_supported(x_BTC):
        return None
    if x_BTC.numel() == 0 or not mask.suits_fused or not _is_plain(block):
        return None
    wanted = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else x_BTC.dtype
    if wanted not in fused.DTYPES:
        return None
    weights = weights_of(block)
    for weight in weights.values():
        if weight.dtype != x_BTC.dtype or not weight.is_contiguous():
            return None
        if weight.dim() == 2 and any(side % fused.TILE for side in weight.shape):
            return None
    is_frozen = not any(each.requires_grad for each in weights.values() if each.dim() == 2)
    # Choose the dtype here: checkpointing recomputes the block outside the contexts that set it.
    return BlockWeights(weights, fused.product_dtype(wanted, is_frozen=is_frozen))


def _block_args(
    x_BTC: Tensor,
    block: ResidualBlock,
    first_BT: Tensor | None,
    angles: Angles | None,
    seed: int,
    product_dtype: int,
) -> Any:  # noqa: ANN401 - a structure of ctypes
    (B, T, C), attention = x_BTC.shape, block.attention
    head_norm = attention.query_norm
    return _BlockArgs(
        dtype=fused.DTYPES[x_BTC.dtype],
        product_dtype=product_dtype,
        batch=B,
        tokens=T,
        width=C,
        query_heads=attention.heads,
        kv_heads=attention.kv_heads,
        head_dim=attention.head_dim,
        hidden=_base(block.mlp.down).in_features,
        layer_norm=isinstance(block.attention_norm, nn.LayerNorm),
        gelu=block.mlp.activation is gelu_tanh,
        rope_period=angles[0].shape[0] * angles[0].shape[-2] if angles is not None else 0,
        first_stride=fused.first_stride(first_BT),
        dropout_seed=seed,
        dropout=block.active_dropout,
        norm_eps=block.attention_norm.eps,
        norm_offset=getattr(block.attention_norm, "offset", 0.0),
        head_eps=head_norm.eps if head_norm is not None else 0.0,
        head_offset=head_norm.offset if head_norm is not None else 0.0,
        scale=attention.scale,
    )


def _set_weights(
    args: Any,  # noqa: ANN401
    field: str,
    roles: Sequence[int],
    tensors: Sequence[Tensor | None],
) -> None:
    """Point args.weights or args.grads to the tensors, and to the three parts of a joined qkv."""
    pointers = getattr(args, field)
    for role, tensor in zip(roles, tensors, strict=True):
        pointers[role] = None if tensor is None else tensor.data_ptr()
    if _ROLES["KEY"] in roles:
        return
    for name in ("QUERY", "QUERY_BIAS"):
        if (query := _ROLES[name]) in roles:
            qkv = tensors[roles.index(query)]
            if qkv is not None:
                head_bytes = qkv.stride(0) * qkv.element_size() * args.head_dim
                pointers[query + 1] = pointers[query] + args.query_heads * head_bytes
                pointers[query + 2] = pointers[query + 1] + args.kv_heads * head_bytes


def _set_adapters(
    args: Any,  # noqa: ANN401
    suffix: str,
    ranks: Sequence[int],
    tensors: Sequence[Tensor | None],
) -> None:
    """Point `down` and `up` of the adapters (with a suffix, their gradients) to the tensors."""
    each = iter(tensors)
    for adapter, rank in zip(args.adapters, ranks, strict=True):
        adapter.rank = rank
        for name in ("down", "up") if rank else ():
            tensor = next(each)
            setattr(adapter, name + suffix, None if tensor is None else tensor.data_ptr())


_Context = Any  # autograd's own context has no public type


class _BlockFunction(torch.autograd.Function):
    """Forward and backward pass of a block, which share one BlockArgs."""

    @staticmethod
    def forward(
        ctx: _Context,
        x_BTC: Tensor,
        block: ResidualBlock,
        first_BT: Tensor | None,
        angles: Angles | None,
        seed: int,
        product_dtype: int,
        roles: Sequence[int],
        ranks: Sequence[int],
        *tensors: Tensor,
    ) -> Tensor:
        x_BTC = x_BTC.contiguous()
        args = _block_args(x_BTC, block, first_BT, angles, seed, product_dtype)
        _set_weights(args, "weights", roles, tensors[: len(roles)])
        _set_adapters(args, "", ranks, tensors[len(roles) :])
        if angles is not None:
            args.cos, args.sin = (each.data_ptr() for each in angles)
        fused.library().block_sizes(ctypes.addressof(args))
        with_grad = any(ctx.needs_input_grad)
        buffer = pool.allocate(
            max(args.forward_scratch_bytes, args.backward_scratch_bytes if with_grad else 0)
        )
        saved = pool.allocate(args.saved_bytes)
        y_BTC = torch.empty_like(x_BTC)
        args.y = y_BTC.data_ptr()
        _set_inputs(args, x_BTC, saved, buffer, first_BT, angles)
        fused.library().block_forward(ctypes.addressof(args))
        ctx.args, ctx.roles, ctx.ranks = args, roles, ranks
        # Save everything args points to; autograd detects weights modified before backward.
        ctx.save_for_backward(x_BTC, saved, first_BT, *(angles or (None, None)), *tensors)
        return y_BTC

    @staticmethod
    @once_differentiable
    def backward(ctx: _Context, dy_BTC: Tensor) -> tuple[Tensor | None, ...]:
        x_BTC, saved, first_BT, cos, sin, *tensors = ctx.saved_tensors
        args, roles, ranks, dy_BTC = ctx.args, ctx.roles, ctx.ranks, dy_BTC.contiguous()
        needed = ctx.needs_input_grad[-len(tensors) :]
        grads = [
            torch.empty_like(each) if need else None
            for each, need in zip(tensors, needed, strict=True)
        ]
        buffer = pool.allocate(args.backward_scratch_bytes)
        dx_BTC = torch.empty_like(x_BTC)
        # Saved tensors may have moved: checkpointing recomputes them.
        _set_inputs(args, x_BTC, saved, buffer, first_BT, None if cos is None else (cos, sin))
        count = len(roles)
        _set_weights(args, "weights", roles, tensors[:count])
        _set_weights(args, "grads", roles, grads[:count])
        _set_adapters(args, "", ranks, tensors[count:])
        _set_adapters(args, "_grad", ranks, grads[count:])
        args.dy, args.dx = dy_BTC.data_ptr(), dx_BTC.data_ptr()
        fused.library().block_backward(ctypes.addressof(args))
        return dx_BTC, *([None] * 7), *grads


def _set_inputs(
    args: Any,  # noqa: ANN401
    x_BTC: Tensor,
    saved: Tensor,
    buffer: Tensor,
    first_BT: Tensor | None,
    angles: Angles | None,
) -> None:
    args.x, args.saved, args.scratch = (each.data_ptr() for each in (x_BTC, saved, buffer))
    args.first_token = None if first_BT is None else first_BT.data_ptr()
    if angles is not None:
        args.cos, args.sin = (each.data_ptr() for each in angles)
