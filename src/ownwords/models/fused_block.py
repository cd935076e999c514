"""A whole transformer block in one call of the C++ library, with all products in bfloat16.

PyTorch starts some forty operations for a block and its way back, each of which writes to memory
what the next one reads. For a small model that is most of its time. Here a block is one operation,
where it computes in bfloat16 (autocast, or bfloat16 weights) and is made of plain layers; where it
is not (an adapter, quantised weights, a cache, odd sizes) `ready` finds no weights for it, and the
block does as it always does.

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

# As in block.h.
WEIGHT_NAMES = (
    *("attention_norm", "attention_norm_bias"),
    *("query", "key", "value", "query_bias", "key_bias", "value_bias", "query_norm", "key_norm"),
    *("output", "output_bias", "mlp_norm", "mlp_norm_bias"),
    *("gate", "up", "up_bias", "down", "down_bias"),
)
_QUERY, _KEY, _QUERY_BIAS = map(WEIGHT_NAMES.index, ("query", "key", "query_bias"))
_OUTPUT, _DOWN = map(WEIGHT_NAMES.index, ("output", "down"))
_KINDS = {torch.float32: 0, torch.bfloat16: 1}


class _BlockArgs(ctypes.Structure):
    """`Block` of block.h."""

    _fields_ = [
        *((name, ctypes.c_int64) for name in ("kind", "batch", "tokens", "width", "queries")),
        *((name, ctypes.c_int64) for name in ("keys", "head", "hidden", "centred", "gelu")),
        *((name, ctypes.c_int64) for name in ("period", "first_step")),
        ("seed", ctypes.c_uint64),
        *((name, ctypes.c_float) for name in ("dropout", "norm_eps", "norm_offset")),
        *((name, ctypes.c_float) for name in ("head_eps", "head_offset", "scale")),
        ("weights", ctypes.c_void_p * len(WEIGHT_NAMES)),
        ("slopes", ctypes.c_void_p * len(WEIGHT_NAMES)),
        *((name, ctypes.c_void_p) for name in ("cosine", "sine", "first", "x", "dy")),
        *((name, ctypes.c_void_p) for name in ("y", "dx", "kept", "work")),
        *((name, ctypes.c_int64) for name in ("kept_bytes", "forward_bytes", "backward_bytes")),
    ]


@dataclass(slots=True)
class BlockModules:
    """What a block is made of. `joined`: query, key and value, or one layer that makes all three.

    `head_norms`: of queries and keys; `gate`: None where the MLP has none.
    """

    attention_norm: nn.Module
    joined: Sequence[nn.Module]
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

    def layers(self) -> Iterator[nn.Module]:
        yield from self.joined
        yield from (self.output, self.up, self.down)
        if self.gate is not None:
            yield self.gate

    def weights(self) -> list[Tensor | None]:
        """In the order of `_WEIGHTS`."""
        query, key, value = (*self.joined, None, None)[:3]
        query_norm, key_norm = self.head_norms or (None, None)
        found = [_weight(self.attention_norm), _bias(self.attention_norm)]
        found += [_weight(query), _weight(key), _weight(value)]
        found += [_bias(query), _bias(key), _bias(value), _weight(query_norm), _weight(key_norm)]
        found += [_weight(self.output), _bias(self.output)]
        found += [_weight(self.mlp_norm), _bias(self.mlp_norm), _weight(self.gate)]
        found += [_weight(self.up), _bias(self.up), _weight(self.down), _bias(self.down)]
        return found


def llama_modules(
    attention_norm: RMSNorm, attention: Attention, mlp_norm: RMSNorm, mlp: GatedMLP
) -> BlockModules | None:
    """The parts of a block of the Llama kind; None for an activation that is not known here."""
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
    parts: BlockModules | None,
    x_BTC: Tensor,
    sight: AttentionMask,
    angles: Angles | None,
    dropout: float,
) -> Tensor | None:
    """What the block makes of x; None where it has to be computed layer by layer.

    `dropout` is the share of what the block adds that is left out. Which numbers these are follows
    from one that is drawn from PyTorch's random state, whatever the threads.
    """
    weights = fusable_weights(parts, x_BTC, sight) if parts is not None else None
    if parts is None or weights is None:
        return None
    seed = int(torch.randint(2**63 - 1, ())) if dropout else 0
    made: Tensor = _Whole.apply(  # type: ignore[no-untyped-call]
        x_BTC, parts, sight.first_BT, angles, dropout, seed, *weights
    )
    return made


def fusable_weights(
    parts: BlockModules, x_BTC: Tensor, sight: AttentionMask
) -> Sequence[Tensor | None] | None:
    """The weights in the order of `_WEIGHTS`, if the library takes the block, and is faster."""
    # `reads` first: torch.compile is not to trace how the library is found.
    if (
        not fused.supports_attention(x_BTC)
        or not fused.is_supported(x_BTC)
        or fused.isa() < fused.FAST_BF16
    ):
        return None
    if (
        x_BTC.numel() == 0
        or sight.view is not None
        or not (sight.causal or sight.first_BT is not None)
    ):
        return None
    mixed = torch.is_autocast_enabled("cpu")
    dtype = torch.float32 if mixed else torch.bfloat16
    if x_BTC.dtype != dtype or (mixed and torch.get_autocast_dtype("cpu") != torch.bfloat16):
        return None
    if any(type(layer) is not nn.Linear for layer in parts.layers()):
        return None
    weights = parts.weights()
    learns = torch.is_grad_enabled()
    for each in weights:
        if each is None:
            continue
        if each.dtype != dtype or not each.is_contiguous() or (learns and not each.requires_grad):
            return None
        if each.dim() == 2 and any(side % fused.TILE for side in each.shape):
            return None
    return None if parts.head_dim % fused.TILE else weights


def _weight(layer: nn.Module | None) -> Tensor | None:
    return None if layer is None else layer.weight  # type: ignore[return-value]


def _bias(layer: nn.Module | None) -> Tensor | None:
    return getattr(layer, "bias", None)


def _described(
    x_BTC: Tensor,
    parts: BlockModules,
    first_BT: Tensor | None,
    angles: Angles | None,
    dropout: float,
    seed: int,
    weights: Sequence[Tensor | None],
) -> _BlockArgs:
    B, T, C = x_BTC.shape
    output, down = weights[_OUTPUT], weights[_DOWN]
    assert output is not None
    assert down is not None
    norms = parts.head_norms
    made = _BlockArgs(
        kind=_KINDS[x_BTC.dtype],
        batch=B,
        tokens=T,
        width=C,
        queries=output.shape[1] // parts.head_dim,
        keys=parts.kv_heads,
        head=parts.head_dim,
        hidden=down.shape[1],
        centred=isinstance(parts.attention_norm, nn.LayerNorm),
        gelu=parts.gelu,
        first_step=0 if first_BT is None or first_BT.shape[0] == 1 else T,
        seed=seed,
        dropout=dropout,
        norm_eps=parts.attention_norm.eps,
        norm_offset=getattr(parts.attention_norm, "offset", 0.0),
        head_eps=norms[0].eps if norms else 0.0,
        head_offset=norms[0].offset if norms else 0.0,
        scale=parts.scale,
        first=None if first_BT is None else first_BT.data_ptr(),
        x=x_BTC.data_ptr(),
    )
    if angles is not None:
        made.period = angles[0].shape[0] * angles[0].shape[-2]
        made.cosine, made.sine = (each.data_ptr() for each in angles)
    _point(made.weights, weights, made)
    fused.library()["block_sizes"](ctypes.addressof(made))
    return made


def _point(to: Any, tensors: Sequence[Tensor | None], described: _BlockArgs) -> None:  # noqa: ANN401
    """Write down where the tensors are; of a joined one where each of its three parts is."""
    for i, tensor in enumerate(tensors):
        if tensor is not None:
            to[i] = tensor.data_ptr()
    if tensors[_KEY] is not None:
        return
    for query in (_QUERY, _QUERY_BIAS):
        joined = tensors[query]
        if joined is None:
            continue
        head_bytes = joined.stride(0) * joined.element_size() * described.head
        to[query + 1] = to[query] + described.queries * head_bytes
        to[query + 2] = to[query + 1] + described.keys * head_bytes


class _Scratch(threading.local):
    """What a call works in and leaves behind: one for all blocks of a thread.

    Each with its own would leave holes in memory between what it keeps for the way back: a quarter
    of a gigabyte with 12 blocks of width 768. It lives as long as somebody keeps what `of` gave.
    """

    _last: weakref.ref[Tensor] | None = None

    def of(self, size: int) -> Tensor:
        """Memory of so many bytes or more."""
        last = self._last() if self._last is not None else None
        if last is None or last.numel() < size:
            last = torch.empty(size, dtype=torch.uint8)
            self._last = weakref.ref(last)
        return last


_scratch = _Scratch()
_Context = Any  # autograd's own context has no public type


class _Whole(torch.autograd.Function):
    """Both ways of a block; the library reads one description of it twice."""

    @staticmethod
    def forward(
        ctx: _Context,
        x_BTC: Tensor,
        parts: BlockModules,
        first_BT: Tensor | None,
        angles: Angles | None,
        dropout: float,
        seed: int,
        *weights: Tensor | None,
    ) -> Tensor:
        x_BTC = x_BTC.contiguous()
        described = _described(x_BTC, parts, first_BT, angles, dropout, seed, weights)
        returns = any(ctx.needs_input_grad)
        work_bytes = max(described.forward_bytes, described.backward_bytes if returns else 0)
        # Before what is kept: it lies then where the step before had it.
        ctx.work = work = _scratch.of(work_bytes)
        kept = torch.empty(described.kept_bytes, dtype=torch.uint8)
        made_BTC = torch.empty_like(x_BTC)
        described.kept, described.work = kept.data_ptr(), work.data_ptr()
        described.y = made_BTC.data_ptr()
        fused.library()["block"](ctypes.addressof(described))
        ctx.described = described
        # All that the addresses lead to; weights changed meanwhile are found out.
        ctx.save_for_backward(x_BTC, kept, first_BT, *(angles or (None, None)), *weights)
        return made_BTC

    @staticmethod
    @once_differentiable
    def backward(ctx: _Context, grad_BTC: Tensor) -> tuple[Tensor | None, ...]:
        x_BTC, kept, first_BT, *rest = ctx.saved_tensors
        angles, weights = rest[:2], rest[2:]
        described: _BlockArgs = ctx.described
        grad_BTC = grad_BTC.contiguous()
        slopes = [None if each is None else torch.empty_like(each) for each in weights]
        work = _scratch.of(described.backward_bytes)
        made_BTC = torch.empty_like(x_BTC)
        # What was kept may have been let go meanwhile, and made or gathered again elsewhere.
        described.x, described.kept, described.work = (
            each.data_ptr() for each in (x_BTC, kept, work)
        )
        if first_BT is not None:
            described.first = first_BT.data_ptr()
        if angles[0] is not None:
            described.cosine, described.sine = (each.data_ptr() for each in angles)
        _point(described.weights, weights, described)
        described.dy, described.dx = grad_BTC.data_ptr(), made_BTC.data_ptr()
        _point(described.slopes, slopes, described)
        fused.library()["block_back"](ctypes.addressof(described))
        return made_BTC, None, None, None, None, None, *slopes
