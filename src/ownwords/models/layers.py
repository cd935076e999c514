"""Layers shared by the model families: RMSNorm, RoPE, attention, gated MLP, embedding, LoRA.

Shapes: B batch, T tokens in this call, S keys they may attend to, C width, H heads, K key/value
heads, D dimensions per head, F hidden width of the MLP, V vocabulary; R rank of an adapter, I
inputs, O outputs.
"""

import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ownwords.models.configs.config import ModelConfig, RopeScaling, scale_frequencies
from ownwords.models.kv_cache import KVCacheView

Angles = tuple[Tensor, Tensor]  # cos_B1TD and sin_B1TD

varlen_attn: Any  # attention within packed documents without a mask, on CUDA
try:
    from torch.nn.attention.varlen import varlen_attn

    # Older versions of PyTorch lack some of these parameters.
    HAS_VARLEN = {"enable_gqa", "scale", "window_size"} <= inspect.signature(
        varlen_attn
    ).parameters.keys()
except ImportError:
    HAS_VARLEN = False


class RotaryEmbedding:
    """RoPE with one base; not an nn.Module, because casting a model must not round frequencies."""

    def __init__(self, head_dim: int, base: float, scaling: RopeScaling | None = None) -> None:
        # The same order of operations in float32 as other implementations: at position 100,000 the
        # last bit of a frequency changes the angle by a hundredth of a radian.
        steps = torch.arange(0, head_dim, 2, dtype=torch.float32, device="cpu") / head_dim
        self.frequencies: Tensor = scale_frequencies(1.0 / (base**steps), scaling)

    def angles(self, positions_BT: Tensor, dtype: torch.dtype) -> Angles:
        """Return cos and sin, [B, 1, T, D]; the second half of D repeats the first."""
        if self.frequencies.device != positions_BT.device:
            self.frequencies = self.frequencies.to(positions_BT.device)
        half = positions_BT[:, None, :, None].to(torch.float32) * self.frequencies
        turn_B1TD = torch.cat((half, half), dim=-1)
        return turn_B1TD.cos().to(dtype), turn_B1TD.sin().to(dtype)


class _Rotation(torch.autograd.Function):
    """Launches three kernels forward and three backward, where autograd would launch twelve."""

    @staticmethod
    def forward(ctx: Any, x_BHTD: Tensor, cos: Tensor, sin: Tensor) -> Tensor:  # noqa: ANN401
        ctx.save_for_backward(cos, sin)
        return _rotated(x_BHTD, cos, sin, 1)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        cos, sin = ctx.saved_tensors
        return _rotated(grads[0], cos, sin, -1), None, None


def _rotated(x_BHTD: Tensor, cos: Tensor, sin: Tensor, sign: int) -> Tensor:
    out_BHTD, half = x_BHTD * cos, x_BHTD.shape[-1] // 2
    sin = sin[..., :half]
    out_BHTD[..., :half].addcmul_(x_BHTD[..., half:], sin, value=-sign)
    out_BHTD[..., half:].addcmul_(x_BHTD[..., :half], sin, value=sign)
    return out_BHTD


def apply_rope(x_BHTD: Tensor, angles: Angles) -> Tensor:
    """Rotate the pairs of dimensions (d, d + D/2), as Hugging Face's weights expect."""
    rotated_BHTD: Tensor = _Rotation.apply(x_BHTD, *angles)  # type: ignore[no-untyped-call]
    return rotated_BHTD


class RMSNorm(nn.Module):
    """RMSNorm: divide by the root mean square, then scale; computed in at least float32.

    The scale is `weight + offset`; Gemma uses an offset of 1.
    """

    def __init__(self, width: int, eps: float, offset: float = 0.0) -> None:
        super().__init__()
        self.eps = eps
        self.offset = offset
        self.weight = nn.Parameter(torch.empty(width))

    def forward(self, x: Tensor) -> Tensor:
        scale: Tensor = self.weight
        dtype = torch.promote_types(x.dtype, self.weight.dtype)
        if self.offset:
            dtype = torch.promote_types(dtype, torch.float32)
            scale = scale.to(dtype) + self.offset
        return F.rms_norm(x.to(dtype), scale.shape, scale.to(dtype), self.eps).to(x.dtype)


class ResidualBlock(nn.Module):
    """A transformer block: attention and MLP, each added to the residual stream with dropout."""

    attention_norm: Any
    attention: Any
    attention_output_norm: RMSNorm | None
    mlp_norm: Any
    mlp: Any
    mlp_output_norm: RMSNorm | None
    dropout = 0.0

    @property
    def active_dropout(self) -> float:
        """`dropout` while training, else 0."""
        return self.dropout if self.training else 0.0

    def add(self, x_BTC: Tensor, output_BTC: Tensor) -> Tensor:
        """Add a part's output to the residual stream, with dropout."""
        return x_BTC + F.dropout(output_BTC, self.active_dropout, self.training)


class Embedding(nn.Embedding):
    """A table of token or position vectors."""

    def reset_parameters(self) -> None:
        """Do nothing: on "meta", PyTorch's version would import its compiler (seconds, 70 MB)."""


@dataclass(frozen=True)
class AttentionMask:
    """The attention mask of one forward pass, for all layers with the same window.

    At most one of `dense`, `causal` and `first_BT` is set; without any, every token sees all keys.
    """

    dense: Tensor | None  # [B or 1, 1, T, S], True where a token may attend
    causal: bool = False  # each token attends to itself and all tokens before it
    view: KVCacheView | None = None  # the KV cache, if there is one
    first_BT: Tensor | None = None  # each token attends from this index up to itself
    # The same for `varlen_attn`: the start of each document in the concatenated rows, the window.
    borders: Tensor | None = None
    window: int | None = None

    @property
    def suits_fused(self) -> bool:
        """Whether the fused blocks in C++ support this mask: no cache and no dense mask."""
        return self.view is None and (self.causal or self.first_BT is not None)

    @cached_property
    def as_dense(self) -> Tensor | None:
        """Return the dense mask [B or 1, 1, T, S], or None; computed from `first_BT` if given."""
        if self.first_BT is None:
            return self.dense
        row_T = torch.arange(self.first_BT.shape[-1], device=self.first_BT.device)
        return ((row_T <= row_T[:, None]) & (row_T >= self.first_BT[:, :, None]))[:, None]


def attend(
    query_BHTD: Tensor,
    key_BKSD: Tensor,
    value_BKSD: Tensor,
    mask: AttentionMask,
    scale: float,
) -> Tensor:
    """Return scaled dot-product attention with the heads concatenated: [B, T, H * D]."""
    B, H, T, D = query_BHTD.shape
    K = key_BKSD.shape[1]
    if mask.borders is not None and query_BHTD.element_size() == 2:
        query, key, value = (
            x.transpose(1, 2).flatten(0, 1) for x in (query_BHTD, key_BKSD, value_BKSD)
        )
        out: Tensor = varlen_attn(
            *(query, key, value, mask.borders, mask.borders, T, T),
            scale=scale,
            window_size=(-1 if mask.window is None else mask.window - 1, 0),
            enable_gqa=K < H,
        )
        return out.view(B, T, H * D)
    dense, shared = mask.as_dense, H // K
    if T == 1:  # the query heads that share a key head take the token dimension
        query_BHTD = query_BHTD.reshape(B, K, shared, D)
    elif shared > 1 and (dense is not None or query_BHTD.device.type == "cpu"):
        # Only flash attention on a GPU shares keys among heads, and it takes no dense mask.
        key_BKSD = key_BKSD.repeat_interleave(shared, dim=1)
        value_BKSD = value_BKSD.repeat_interleave(shared, dim=1)
    out_BHTD = F.scaled_dot_product_attention(
        query_BHTD,
        key_BKSD,
        value_BKSD,
        attn_mask=dense,
        is_causal=mask.causal and T > 1,
        scale=scale,
        enable_gqa=query_BHTD.shape[1] > key_BKSD.shape[1],
    )
    if T == 1:
        return out_BHTD.reshape(B, 1, H * D)
    return out_BHTD.transpose(1, 2).reshape(B, T, H * D)


def supports_varlen(ids_BT: Tensor) -> bool:
    """Whether the device of these tokens has attention within documents without a mask."""
    return HAS_VARLEN and ids_BT.device.type == "cuda"


def computing_dtype(x: Tensor) -> torch.dtype:
    """Return the dtype of matrix products with `x`: that of autocast, if it is enabled."""
    kind = x.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype


def fused_linear(x_BTC: Tensor, *layers: nn.Module) -> tuple[Tensor, ...]:
    """Return the outputs of several linear layers for one input; in training, one joined output.

    With gradients, enough tokens and no biases, the weights are concatenated for a single matrix
    product. The copy costs less than it saves: the gradient of the input is a single product too.
    Layers with adapters are joined by `join_adapters`.
    """
    if isinstance(layers[0], LoraLinear) and layers[0].joined is not None:
        return (layers[0](x_BTC),)
    plain = [x for x in layers if type(x) is nn.Linear and x.bias is None]
    many = x_BTC.shape[0] * x_BTC.shape[1] >= x_BTC.shape[2]
    if len(plain) < len(layers) or not (torch.is_grad_enabled() and many):
        return tuple(layer(x_BTC) for layer in layers)
    return (F.linear(x_BTC, torch.cat([w for layer in plain for w in layer.parameters()])),)


def split_heads(x_BTC: Tensor, head_dim: int) -> Tensor:
    """Reshape [B, T, H * D] to [B, H, T, D]."""
    batch, tokens, _ = x_BTC.shape
    return x_BTC.view(batch, tokens, -1, head_dim).transpose(1, 2)


class Attention(nn.Module):
    """Grouped-query attention with RoPE; `head_norm` adds norms on queries and keys.

    `biases` adds biases to queries, keys and values.
    """

    def __init__(
        self,
        layer: int,
        config: ModelConfig,
        head_norm: Callable[[], RMSNorm] | None = None,
        *,
        biases: bool = False,
    ) -> None:
        super().__init__()
        self.layer = layer
        self.heads, self.kv_heads, self.head_dim = config.heads, config.kv_heads, config.head_dim
        self.scale = config.attention_scale
        self.query = nn.Linear(config.width, config.q_width, bias=biases)
        self.key = nn.Linear(config.width, config.kv_width, bias=biases)
        self.value = nn.Linear(config.width, config.kv_width, bias=biases)
        self.output = nn.Linear(config.q_width, config.width, bias=False)
        self.query_norm = head_norm() if head_norm else None
        self.key_norm = head_norm() if head_norm else None

    @property
    def projections(self) -> tuple[nn.Module, ...]:
        return self.query, self.key, self.value

    def forward(self, x_BTC: Tensor, angles: Angles, mask: AttentionMask) -> Tensor:
        parts = fused_linear(x_BTC, self.query, self.key, self.value)
        heads, kv_heads = self.heads, self.kv_heads
        *rotated, value_BKTD = (split_heads(part, self.head_dim) for part in parts)
        if not rotated:  # joined: queries and keys are rotated together
            sizes = [heads, kv_heads] if self.query_norm else [heads + kv_heads]
            *rotated, value_BKTD = torch.split(value_BKTD, [*sizes, kv_heads], dim=1)
        if self.query_norm is not None and self.key_norm is not None:
            rotated = [self.query_norm(rotated[0]), self.key_norm(rotated[1])]
        rotated = [apply_rope(each_BHTD, angles) for each_BHTD in rotated]
        if len(rotated) == 1:
            rotated = [*torch.split(rotated[0], [heads, kv_heads], dim=1)]
        query_BHTD, key_BKTD = rotated
        if mask.view is not None:
            key_BKTD, value_BKTD = mask.view.extend(self.layer, key_BKTD, value_BKTD)
        out_BTC: Tensor = self.output(attend(query_BHTD, key_BKTD, value_BKTD, mask, self.scale))
        return out_BTC


class GatedMLP(nn.Module):
    """Compute down(activation(gate(x)) * up(x)): SwiGLU with silu, GeGLU with gelu."""

    def __init__(self, width: int, hidden: int, activation: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.activation = activation
        self.gate = nn.Linear(width, hidden, bias=False)
        self.up = nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x_BTC: Tensor) -> Tensor:
        parts = fused_linear(x_BTC, self.gate, self.up)
        gate_BTF, up_BTF = parts[0].chunk(2, dim=-1) if len(parts) == 1 else parts
        out_BTC: Tensor = self.down(self.activation(gate_BTF) * up_BTF)
        return out_BTC


def gelu_tanh(x: Tensor) -> Tensor:
    """Return the tanh approximation of GELU, as used by GPT-2 and Gemma."""
    return F.gelu(x, approximate="tanh")


class LoraLinear(nn.Module):
    """A frozen linear layer with its trainable pair of matrices, `down` and `up`."""

    def __init__(
        self,
        base: nn.Linear,
        rank: int,
        scale: float,
        dropout: float,
        seed: int,
    ) -> None:
        super().__init__()
        outputs, inputs = base.weight.shape
        device = base.weight.device
        self.base, self.scale, self.dropout = base, scale, dropout
        self.merged = False
        # The product that `join_adapters` makes of this layer and those joined with it.
        self.joined: JoinedLora | None = None
        source = torch.Generator().manual_seed(seed)
        bound = 1 / math.sqrt(inputs)
        down_RI = torch.empty(rank, inputs).uniform_(-bound, bound, generator=source)
        # Float32 regardless of the layer's type: small updates would be lost in bfloat16.
        self.down = nn.Parameter(down_RI.to(device))
        self.up = nn.Parameter(torch.zeros(outputs, rank, device=device))

    @property
    def rank(self) -> int:
        return self.down.shape[0]

    @property
    def active_dropout(self) -> float:
        """`dropout` while the adapter is trained, else 0."""
        return self.dropout if self.training and not self.merged else 0.0

    def forward(self, x: Tensor) -> Tensor:
        if self.joined is not None:
            return self.joined(x)
        y: Tensor = self.base(x)
        if self.merged:
            return y
        kept = F.dropout(x, self.dropout, self.training).to(self.down.dtype)
        beside = F.linear(F.linear(kept, self.down), self.up)
        return y + (self.scale * beside).to(y.dtype)

    def delta(self) -> Tensor:
        """Return the float32 matrix [O, I] that the adapter adds to the layer's weight."""
        return self.scale * (self.up.detach().float() @ self.down.detach().float())


@dataclass(frozen=True)
class JoinedLora:
    """A block's layers with adapters as one matrix product, for one forward and backward pass.

    `down_RI` and `up_OR` get the gradient; R is the sum of the ranks, `up_OR` includes the scale.
    """

    weight_OI: Tensor  # with the adapters added
    down_RI: Tensor
    up_OR: Tensor
    bias_O: Tensor | None

    def __call__(self, x_BTI: Tensor) -> Tensor:
        x_BTI = x_BTI.to(self.weight_OI.dtype)
        y_BTO: Tensor = _LoraProduct.apply(  # type: ignore[no-untyped-call]
            x_BTI, self.weight_OI, self.down_RI, self.up_OR, self.bias_O
        )
        return y_BTO


class _LoraProduct(torch.autograd.Function):
    """A product with the summed weight; the gradient goes to the adapter's two matrices.

    It is computed from the gradient of the summed weight, or from x and dy multiplied by the
    adapter, whichever takes fewer multiplications (RunLoRA, arXiv 2312.03415).
    """

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401
        x_BTI: Tensor,
        weight_OI: Tensor,
        down_RI: Tensor,
        up_OR: Tensor,
        bias_O: Tensor | None,
    ) -> Tensor:
        ctx.save_for_backward(x_BTI, weight_OI, down_RI, up_OR)
        return F.linear(x_BTI, weight_OI, bias_O)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        x_BTI, weight_OI, down_RI, up_OR = ctx.saved_tensors
        (outputs, inputs), rank, dx_BTI = weight_OI.shape, len(down_RI), None
        dy_NO, x_NI = grads[0].reshape(-1, outputs), x_BTI.reshape(-1, inputs)
        if ctx.needs_input_grad[0]:
            dx_BTI = (dy_NO @ weight_OI).view_as(x_BTI)
        count = len(x_NI)
        if outputs * inputs * (count + 2 * rank) < 2 * count * rank * (outputs + inputs):
            dweight_OI = dy_NO.T @ x_NI
            return dx_BTI, None, up_OR.T @ dweight_OI, dweight_OI @ down_RI.T, None
        return dx_BTI, None, (dy_NO @ up_OR).T @ x_NI, dy_NO.T @ (x_NI @ down_RI.T), None


def join_adapters(groups: Sequence[Sequence[Sequence[LoraLinear]]], dtype: torch.dtype) -> None:
    """Join the layers of each product into one, with their adapters added to their weights.

    A group holds the layers of one product (queries, keys and values, or gate and up) in each
    block. The sums of all blocks are computed together, in a few kernels per step instead of nine
    per layer, and rounded to `dtype` once.
    """
    for group in groups:
        layers = [layer for product in group for layer in product]
        blocks, parts = len(group), len(group[0])
        rank, ups, first = layers[0].rank, [], 0
        down_LRI = torch.cat([layer.down for layer in layers]).view(blocks, parts * rank, -1)
        for same in zip(*group, strict=True):  # the layers of one name
            up_LOR = torch.cat([each.up for each in same]).view(blocks, -1, rank)
            # A layer's outputs depend only on its own ranks.
            ups.append(F.pad(up_LOR, (first, (parts - 1) * rank - first)))
            first += rank
        up_LOR = torch.cat(ups, dim=1) if parts > 1 else ups[0]
        down_LRI, up_LOR = down_LRI.to(dtype), (layers[0].scale * up_LOR).to(dtype)
        with torch.no_grad():
            weight_LOI = torch.cat([layer.base.weight for layer in layers])
            weight_LOI = weight_LOI.view(blocks, -1, weight_LOI.shape[1])
            wide = weight_LOI.dtype
            weight_LOI.baddbmm_(up_LOR.to(wide), down_LRI.to(wide))
            weight_LOI = weight_LOI.to(dtype)
        views = (each.unbind() for each in (weight_LOI, down_LRI, up_LOR))
        for product, weight_OI, down_RI, up_OR in zip(group, *views, strict=True):
            biases = [layer.base.bias for layer in product]
            bias_O = biases[0] if len(biases) == 1 or biases[0] is None else torch.cat(biases)
            bias_O = None if bias_O is None else bias_O.to(dtype)
            product[0].joined = JoinedLora(weight_OI, down_RI, up_OR, bias_O)
