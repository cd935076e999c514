"""Each layer against its definition, written out."""

import itertools
import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from families import TINY, some_ids, tiny
from ownwords.models import decoder, layers
from ownwords.models.configs.config import RopeScaling
from ownwords.models.layers import AttentionMask, RMSNorm, RotaryEmbedding, apply_rope, attend
from ownwords.models.llama import Llama


def _random(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=dtype)


@pytest.mark.parametrize("offset", [0.0, 1.0])
def test_rms_norm_is_its_definition(offset: float) -> None:
    norm = RMSNorm(12, eps=1e-3, offset=offset).double()
    with torch.no_grad():
        norm.weight.copy_(_random(12))
    x = _random(3, 5, 12)
    expected = x / (x.square().mean(-1, keepdim=True) + 1e-3).sqrt() * (norm.weight + offset)
    torch.testing.assert_close(norm(x), expected)


def _written_out(query: Tensor, key: Tensor, value: Tensor, allowed: Tensor) -> Tensor:
    shared = query.shape[1] // key.shape[1]
    heads = []
    for head in range(query.shape[1]):
        scores = query[:, head] @ key[:, head // shared].transpose(1, 2) * 0.3
        heads.append(scores.masked_fill(~allowed, -math.inf).softmax(-1) @ value[:, head // shared])
    return torch.cat(heads, dim=-1)


@pytest.mark.parametrize("kv_heads", [6, 3, 1])
@pytest.mark.parametrize("tokens", [1, 4])
def test_attention_is_its_definition(kv_heads: int, tokens: int) -> None:
    query, key = _random(2, 6, tokens, 8), _random(2, kv_heads, tokens, 8)
    value = _random(2, kv_heads, tokens, 8) + 1
    allowed = torch.ones(tokens, tokens, dtype=torch.bool).tril()
    expected = _written_out(query, key, value, allowed)
    torch.testing.assert_close(
        attend(query, key, value, AttentionMask(None, causal=True), 0.3), expected
    )
    masked = AttentionMask(allowed[None, None])
    torch.testing.assert_close(attend(query, key, value, masked, 0.3), expected)


def test_a_single_query_sees_all_its_keys() -> None:
    query, key, value = _random(2, 4, 1, 8), _random(2, 2, 9, 8), _random(2, 2, 9, 8)
    no_mask = torch.ones(1, 9, dtype=torch.bool)
    expected = _written_out(query, key, value, no_mask)
    torch.testing.assert_close(attend(query, key, value, AttentionMask(None), 0.3), expected)


def test_rotation_keeps_lengths_and_shows_only_distances() -> None:
    rotary = RotaryEmbedding(10, 100.0)
    query, key = _random(1, 1, 1, 10), _random(1, 1, 1, 10)

    def turned(x: Tensor, position: int) -> Tensor:
        return apply_rope(x, rotary.angles(torch.tensor([[position]]), torch.float64))

    torch.testing.assert_close(turned(query, 29).norm(), query.norm(), rtol=1e-6, atol=0)
    near = (turned(query, 5) * turned(key, 2)).sum()
    far = (turned(query, 45) * turned(key, 42)).sum()
    torch.testing.assert_close(near, far, rtol=1e-5, atol=1e-6)
    assert not torch.allclose(near, (turned(query, 5) * turned(key, 3)).sum())


def test_rotation_turns_pairs_by_their_own_frequency() -> None:
    rotary = RotaryEmbedding(4, 100.0)
    x = torch.tensor([1.0, 2.0, 3.0, 4.0]).reshape(1, 1, 1, 4)
    rotated = apply_rope(x, rotary.angles(torch.tensor([[3]]), torch.float32)).flatten().tolist()
    fast, slow = 3 * 1.0, 3 * 100.0**-0.5
    expected = [
        math.cos(fast) - 3 * math.sin(fast),
        2 * math.cos(slow) - 4 * math.sin(slow),
        3 * math.cos(fast) + math.sin(fast),
        4 * math.cos(slow) + 2 * math.sin(slow),
    ]
    assert rotated == pytest.approx(expected, rel=1e-5)


def test_llama3_scaling_keeps_high_frequencies_and_divides_low_ones() -> None:
    scaling = RopeScaling(kind="llama3", factor=8.0, original_context=8192)
    plain = RotaryEmbedding(128, 500_000.0).frequencies
    scaled = RotaryEmbedding(128, 500_000.0, scaling).frequencies
    turns = 8192 * plain / (2 * math.pi)
    fast, slow = turns > 4, turns < 1
    torch.testing.assert_close(scaled[fast], plain[fast])
    torch.testing.assert_close(scaled[slow], plain[slow] / 8)
    between = ~fast & ~slow
    assert between.any()
    assert ((scaled < plain) & (scaled > plain / 8))[between].all()


@pytest.mark.parametrize("name", [name for name in TINY if name != "gpt2"])
def test_casting_a_model_does_not_round_its_frequencies(name: str) -> None:
    model = tiny(name)
    assert isinstance(model, Llama)
    before = [rotary.frequencies.clone() for rotary in model.rotaries]
    model.to(torch.bfloat16)
    assert all(map(torch.equal, (rotary.frequencies for rotary in model.rotaries), before))


def _varlen_written_out(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    borders: Tensor,
    _borders_of_keys: Tensor,
    _longest: int,
    _longest_of_keys: int,
    *,
    scale: float,
    window_size: tuple[int, int],
    enable_gqa: bool,
) -> Tensor:
    """As `varlen_attn`, document by document; it runs on CUDA only."""
    assert enable_gqa == (query.shape[1] > key.shape[1]) and window_size[1] == 0
    outputs = []
    for first, end in itertools.pairwise(borders.tolist()):
        place = torch.arange(end - first)
        before = place[:, None] - place
        allowed = (before >= 0) & ((before <= window_size[0]) | (window_size[0] < 0))
        q, k, v = (x[first:end].float().transpose(0, 1)[None] for x in (query, key, value))
        out = F.scaled_dot_product_attention(
            q, k, v, attn_mask=allowed, scale=scale, enable_gqa=enable_gqa
        )
        outputs.append(out[0].transpose(0, 1))
    assert end == len(query)
    return torch.cat(outputs).to(query.dtype)


@pytest.mark.parametrize("name", TINY)
def test_packed_documents_need_no_mask_on_cuda(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny(name, torch.bfloat16)
    documents_BT = torch.tensor([[0] * 9 + [1] * 7 + [2] * 4, [0] * 20])
    ids_BT = some_ids(2, 20)

    def hidden() -> Tensor:
        with torch.no_grad():
            hidden_BTC: Tensor = model(ids_BT, documents_BT=documents_BT, max_documents=4)
            return hidden_BTC.float()

    expected = hidden()
    monkeypatch.setattr(decoder, "supports_varlen", lambda _: True)
    monkeypatch.setattr(layers, "varlen_attn", _varlen_written_out)
    close = (hidden() - expected).norm() / expected.norm()
    assert 0 < close < 0.05
