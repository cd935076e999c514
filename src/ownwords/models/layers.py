"""The parts that every family is made of: norm, attention, gated MLP, embedding.

Shapes: B batch, T tokens of this call, S keys they may look at, C width, H heads, K key/value
heads, D dimensions of a head, F hidden width of the MLP, V vocabulary.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ownwords.models import fused
from ownwords.models.kv_cache import KVCacheView
from ownwords.models.rope import Angles, apply_rope


class RMSNorm(nn.Module):
    """Divide by the root of the mean square, then scale; computed in float32 at least.

    With `offset` 1 the stored weight is the scale's distance from one (Gemma).
    """

    def __init__(self, width: int, eps: float, offset: float = 0.0) -> None:
        super().__init__()
        self.eps = eps
        self.offset = offset
        self.weight = nn.Parameter(torch.empty(width))

    def forward(self, x: Tensor) -> Tensor:
        if fused.is_supported(x, self.weight):
            return fused.rms_norm(x, self.weight, self.eps, self.offset)
        precise = torch.promote_types(x.dtype, torch.float32)
        wide = x.to(precise)
        scale = self.weight.to(precise)
        if self.offset:
            scale = scale + self.offset
        normed = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.eps)
        return (normed * scale).to(x.dtype)


class ResidualBlock(nn.Module):
    """A block: its parts read what came in, and what they make is added to it.

    `dropout` is the share of that which training leaves out.
    """

    dropout = 0.0

    @property
    def share_dropped(self) -> float:
        """The share that is left out now."""
        return self.dropout if self.training else 0.0

    def add(self, x_BTC: Tensor, made_BTC: Tensor) -> Tensor:
        """What came in and what was made of it, in training less what dropout takes."""
        return x_BTC + F.dropout(made_BTC, self.share_dropped, self.training)


class Embedding(nn.Embedding):
    """A vector for each token or place; turned around it is the head of a model with a tied one."""

    def reset_parameters(self) -> None:
        """Leave them unfilled: on "meta" PyTorch would import its compiler, seconds and 70 MB."""

    def as_head(self, hidden_BTC: Tensor) -> Tensor:
        return F.linear(hidden_BTC, self.weight)


@dataclass(frozen=True)
class AttentionMask:
    """What the tokens of one call may look at, in all layers that share a window."""

    mask: Tensor | None  # [B or 1, 1, T, S], True where a token may look; None: no mask is needed
    causal: bool = False  # instead of a mask: each token looks at itself and what precedes it
    view: KVCacheView | None = None  # where earlier keys and values are kept, if any are
    first_BT: Tensor | None = None  # instead of a mask: from this token to itself

    def attention_mask(self, tokens: int) -> Tensor | None:
        """The mask, made of `first_BT` where that says it."""
        if self.first_BT is None:
            return self.mask
        row_T = torch.arange(tokens, device=self.first_BT.device)
        return ((row_T <= row_T[:, None]) & (row_T >= self.first_BT[:, :, None]))[:, None]


def attend(
    query_BHTD: Tensor,
    key_BKSD: Tensor,
    value_BKSD: Tensor,
    sight: AttentionMask,
    scale: float,
) -> Tensor:
    """Softmax attention, heads joined: [B, T, H * D]."""
    B, H, T, D = query_BHTD.shape
    shared = H // key_BKSD.shape[1]
    if shared > 1 and T > 1:
        # PyTorch's CPU kernel is fused only for equal heads; at T = 1 copying would cost more.
        key_BKSD = key_BKSD.repeat_interleave(shared, dim=1)
        value_BKSD = value_BKSD.repeat_interleave(shared, dim=1)
    out_BHTD = F.scaled_dot_product_attention(
        query_BHTD,
        key_BKSD,
        value_BKSD,
        attn_mask=sight.attention_mask(T),
        is_causal=sight.causal and T > 1,
        scale=scale,
        enable_gqa=shared > 1 and T == 1,
    )
    return out_BHTD.transpose(1, 2).reshape(B, T, H * D)


def fused_linear(x_BTC: Tensor, *layers: nn.Module) -> tuple[Tensor, ...]:
    """What each of these makes of the same input; in training all in one, by one product.

    Joining the matrices costs a copy of them, little beside a product of thousands of tokens, and
    is saved again: the gradient of the input is then one product too, not a sum of several.
    """
    plain = [layer for layer in layers if type(layer) is nn.Linear and layer.bias is None]
    many = x_BTC.shape[0] * x_BTC.shape[1] >= x_BTC.shape[2]
    if len(plain) < len(layers) or not (torch.is_grad_enabled() and many):
        return tuple(layer(x_BTC) for layer in layers)
    joined = torch.cat([weight for layer in plain for weight in layer.parameters()])
    return (F.linear(x_BTC, joined),)


def split_heads(x_BTC: Tensor, head_dim: int) -> Tensor:
    """[B, T, H * D] -> [B, H, T, D]."""
    batch, tokens, _ = x_BTC.shape
    return x_BTC.view(batch, tokens, -1, head_dim).transpose(1, 2)


class Attention(nn.Module):
    """Grouped-query attention with rotary positions, and norms on queries and keys if given."""

    query_norm: RMSNorm | None
    key_norm: RMSNorm | None

    def __init__(
        self,
        layer: int,
        *,
        width: int,
        heads: int,
        kv_heads: int,
        head_dim: int,
        scale: float | None = None,
        head_norm: Callable[[], RMSNorm] | None = None,
    ) -> None:
        super().__init__()
        self.layer = layer
        self.head_dim = head_dim
        self.scale = head_dim**-0.5 if scale is None else scale
        self.sizes = [heads * head_dim, kv_heads * head_dim, kv_heads * head_dim]
        self.query = nn.Linear(width, heads * head_dim, bias=False)
        self.key = nn.Linear(width, kv_heads * head_dim, bias=False)
        self.value = nn.Linear(width, kv_heads * head_dim, bias=False)
        self.output = nn.Linear(heads * head_dim, width, bias=False)
        self.query_norm = head_norm() if head_norm else None
        self.key_norm = head_norm() if head_norm else None

    def forward(self, x_BTC: Tensor, angles: Angles, sight: AttentionMask) -> Tensor:
        parts = fused_linear(x_BTC, self.query, self.key, self.value)
        plain = sight.view is None and (sight.causal or sight.first_BT is not None)
        if plain and fused.supports_attention(x_BTC) and fused.is_supported(*parts):
            made_BTX = torch.cat(parts, dim=-1) if len(parts) > 1 else parts[0]
            return self._fused(made_BTX, angles, sight)
        if len(parts) == 1:
            parts = torch.split(parts[0], self.sizes, dim=-1)
        query_BHTD, key_BKTD, value_BKTD = (split_heads(made, self.head_dim) for made in parts)
        if self.query_norm is not None and self.key_norm is not None:
            query_BHTD = self.query_norm(query_BHTD)
            key_BKTD = self.key_norm(key_BKTD)
        query_BHTD = apply_rope(query_BHTD, angles)
        key_BKTD = apply_rope(key_BKTD, angles)
        if sight.view is not None:
            key_BKTD, value_BKTD = sight.view.extend(self.layer, key_BKTD, value_BKTD)
        out_BTC: Tensor = self.output(
            attend(query_BHTD, key_BKTD, value_BKTD, sight, self.scale),
        )
        return out_BTC

    def _fused(self, made_BTX: Tensor, angles: Angles, sight: AttentionMask) -> Tensor:
        made_BTXD = made_BTX.view(*made_BTX.shape[:2], -1, self.head_dim)
        norms, eps, offset = None, 0.0, 0.0
        if self.query_norm is not None and self.key_norm is not None:
            norms = (self.query_norm.weight, self.key_norm.weight)
            eps, offset = self.query_norm.eps, self.query_norm.offset
        kv_heads = self.sizes[1] // self.head_dim
        made_BTXD = fused.norm_and_rope(made_BTXD, norms, angles, kv_heads, eps, offset)
        out_BTC: Tensor = self.output(
            fused.attention(made_BTXD, kv_heads, sight.first_BT, self.scale)
        )
        return out_BTC


class GatedMLP(nn.Module):
    """down(activation(gate(x)) * up(x)): SwiGLU with silu, GeGLU with gelu."""

    def __init__(self, width: int, hidden: int, activation: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.activation = activation
        self.gate = nn.Linear(width, hidden, bias=False)
        self.up = nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x_BTC: Tensor) -> Tensor:
        parts = fused_linear(x_BTC, self.gate, self.up)
        if fused.is_supported(*parts) and self.activation in (F.silu, gelu_tanh):
            both = parts[0] if len(parts) == 1 else torch.cat(parts, dim=-1)
            hidden_BTF = fused.gated_activation(both, gelu=self.activation is gelu_tanh)
        else:
            gate_BTF, up_BTF = parts[0].chunk(2, dim=-1) if len(parts) == 1 else parts
            hidden_BTF = self.activation(gate_BTF) * up_BTF
        out_BTC: Tensor = self.down(hidden_BTF)
        return out_BTC


def gelu_tanh(x: Tensor) -> Tensor:
    """The tanh approximation of gelu, which GPT-2 and Gemma were trained with."""
    return fused.gelu(x) if fused.is_supported(x) else F.gelu(x, approximate="tanh")
