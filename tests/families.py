"""Tiny models of every family, with odd shapes, for the tests."""

from collections.abc import Sequence

import torch

from ownwords.inference.engine import EngineCache, Logits
from ownwords.models.configs.config import ModelConfig, RopeScaling
from ownwords.models.configs.gpt2 import GPT2Config
from ownwords.models.configs.llama import Gemma3Config, LlamaConfig, Qwen2Config, Qwen3Config
from ownwords.models.decoder import CausalLM, build

# Tensors this small are slower with more threads, much slower when the cores are busy.
torch.set_num_threads(1)

TINY: dict[str, ModelConfig] = {
    "gpt2": GPT2Config(vocabulary=97, context=64, width=30, layers=2, heads=3),
    "llama": LlamaConfig(
        vocabulary=97,
        context=64,
        width=24,
        layers=2,
        heads=6,
        kv_heads=2,
        hidden=40,
        rope_scaling=RopeScaling(kind="llama3", factor=8.0, original_context=16),
    ),
    "qwen2": Qwen2Config(
        vocabulary=97, context=64, width=24, layers=2, heads=4, kv_heads=2, hidden=36
    ),
    "qwen3": Qwen3Config(
        vocabulary=97, context=64, width=20, layers=2, heads=4, kv_heads=2, head_dim=6, hidden=36
    ),
    "gemma3": Gemma3Config(
        vocabulary=97,
        context=64,
        width=20,
        layers=7,
        heads=4,
        kv_heads=1,
        head_dim=6,
        hidden=28,
        window=5,
        query_scalar=9,
        softcap=4.0,
    ),
}


# Of sides that the library's blocks are made for: see models/fused_block.py.
EVEN = Qwen3Config(
    vocabulary=97, context=64, width=64, layers=2, heads=2, kv_heads=1, head_dim=32, hidden=96
)


def tiny(name: str, dtype: torch.dtype = torch.float32) -> CausalLM:
    """A model in which every part matters: nothing is zero, no norm is the identity."""
    model = build(TINY[name], dtype=dtype)
    model.init_weights(7)
    generator = torch.Generator().manual_seed(11)
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            spread = 0.05 if key.startswith("embedding") else 0.3
            parameter.add_(spread * torch.randn(parameter.shape, generator=generator).to(dtype))
    return model


def some_ids(rows: int, tokens: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(0, 97, (rows, tokens), generator=torch.Generator().manual_seed(seed))


def read(
    cache: EngineCache,
    rows: Sequence[int],
    texts: Sequence[Sequence[int]],
    *,
    every: bool = False,
) -> Logits:
    """The logits after the last ids of each text, or after every id."""
    return cache.forward(dict(zip(rows, texts, strict=True)), all_positions=every)
