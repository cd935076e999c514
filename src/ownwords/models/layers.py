"""The parts that every family is made of: norm, attention, gated MLP, embedding.

Shapes: B batch, T tokens of this call, S keys they may look at, C width, H heads, K key/value
heads, D dimensions of a head, F hidden width of the MLP, V vocabulary.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ownwords.models.cache import View
from ownwords.models.rope import Angles, rotate


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
        precise = torch.promote_types(x.dtype, torch.float32)
        wide = x.to(precise)
        scale = self.weight.to(precise)
        if self.offset:
            scale = scale + self.offset
        normed = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.eps)
        return (normed * scale).to(x.dtype)


class Embedding(nn.Embedding):
    """A vector for each token; turned around it is the head of a model whose head is tied."""

    def as_head(self, hidden_BTC: Tensor) -> Tensor:
        return F.linear(hidden_BTC, self.weight)


@dataclass(frozen=True)
class Sight:
    """What the tokens of one call may look at, in all layers that share a window."""

    mask: Tensor | None  # [B or 1, 1, T, S], True where a token may look; None: no mask is needed
    causal: bool = False  # instead of a mask: each token looks at itself and what precedes it
    view: View | None = None  # where earlier keys and values are kept, if any are


def attend(
    query_BHTD: Tensor,
    key_BKSD: Tensor,
    value_BKSD: Tensor,
    sight: Sight,
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
        attn_mask=sight.mask,
        is_causal=sight.causal and T > 1,
        scale=scale,
        enable_gqa=shared > 1 and T == 1,
    )
    return out_BHTD.transpose(1, 2).reshape(B, T, H * D)


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
        self.query = nn.Linear(width, heads * head_dim, bias=False)
        self.key = nn.Linear(width, kv_heads * head_dim, bias=False)
        self.value = nn.Linear(width, kv_heads * head_dim, bias=False)
        self.output = nn.Linear(heads * head_dim, width, bias=False)
        self.query_norm = head_norm() if head_norm else None
        self.key_norm = head_norm() if head_norm else None

    def forward(self, x_BTC: Tensor, angles: Angles, sight: Sight) -> Tensor:
        query_BHTD = split_heads(self.query(x_BTC), self.head_dim)
        key_BKTD = split_heads(self.key(x_BTC), self.head_dim)
        value_BKTD = split_heads(self.value(x_BTC), self.head_dim)
        if self.query_norm is not None and self.key_norm is not None:
            query_BHTD = self.query_norm(query_BHTD)
            key_BKTD = self.key_norm(key_BKTD)
        query_BHTD = rotate(query_BHTD, angles)
        key_BKTD = rotate(key_BKTD, angles)
        if sight.view is not None:
            key_BKTD, value_BKTD = sight.view.extend(self.layer, key_BKTD, value_BKTD)
        out_BTC: Tensor = self.output(
            attend(query_BHTD, key_BKTD, value_BKTD, sight, self.scale),
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
        out_BTC: Tensor = self.down(self.activation(self.gate(x_BTC)) * self.up(x_BTC))
        return out_BTC


def gelu_tanh(x: Tensor) -> Tensor:
    """The tanh approximation of gelu, which GPT-2 and Gemma were trained with."""
    return F.gelu(x, approximate="tanh")
