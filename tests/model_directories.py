"""Tiny model directories for the tests: one config a family, and the smallest tokenizer."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ownwords.inference.engine import Engine
from ownwords.inference.model import load_engine
from ownwords.models import bundle, directory, registry
from ownwords.models.decoder import CausalLM, build
from ownwords.models.safetensors_header import TensorInfo, encode_header, read_header

VOCABULARY = 97

_LLAMA: dict[str, object] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 16,
    "intermediate_size": 40,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "hidden_act": "silu",
}
CONFIGS: Mapping[str, Mapping[str, object]] = {
    "gpt2": {
        "model_type": "gpt2",
        "vocab_size": VOCABULARY,
        "n_positions": 128,
        "n_embd": 24,
        "n_layer": 2,
        "n_head": 3,
        "layer_norm_epsilon": 1e-5,
        "activation_function": "gelu_new",
        "tie_word_embeddings": True,
    },
    "llama": {**_LLAMA, "model_type": "llama", "head_dim": 4},
    "qwen2": {**_LLAMA, "model_type": "qwen2", "tie_word_embeddings": True},
    "qwen3": {**_LLAMA, "model_type": "qwen3", "head_dim": 8, "tie_word_embeddings": True},
    "gemma3_text": {
        **_LLAMA,
        "model_type": "gemma3_text",
        "head_dim": 8,
        "hidden_activation": "gelu_pytorch_tanh",
        "rope_local_base_freq": 10000.0,
        "rope_theta": 1000000.0,
        "query_pre_attn_scalar": 8,
        "sliding_window": 32,
        "layer_types": ["sliding_attention", "full_attention"],
        "tie_word_embeddings": True,
        "rms_norm_eps": 1e-6,
    },
}


def model(family: str, seed: int = 1, **changed: object) -> CausalLM:
    """A model of a tiny config, its weights drawn from the seed."""
    model_made = build(registry.config_from_json({**CONFIGS[family], **changed}))
    model_made.init_weights(seed)
    return model_made


class Letters:
    """A tokenizer of single characters, with the files of a byte-level BPE without merges."""

    start: int | None = 0
    end: int | None = 0

    def __init__(self, size: int = VOCABULARY, first: int = 0x21) -> None:
        self.vocabulary_size = size
        self._tokens = {"<|text|>": 0} | {chr(first + n): n for n in range(1, size)}

    def files(self) -> dict[str, bytes]:
        tokenizer = {
            "version": "1.0",
            "added_tokens": [{"id": 0, "content": "<|text|>", "special": True}],
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False},
            "model": {"type": "BPE", "vocab": self._tokens, "merges": []},
        }
        settings: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast"}
        return {
            "tokenizer.json": json.dumps(tokenizer).encode(),
            "tokenizer_config.json": json.dumps(settings).encode(),
        }

    def fingerprint(self) -> str:
        return hashlib.sha256(json.dumps(self._tokens).encode()).hexdigest()[:16]


def write(folder: Path, family: str = "qwen3", seed: int = 1, **changed: object) -> CausalLM:
    """Save a tiny model; `changed` are fields of its config.json."""
    model_made = model(family, seed, **changed)
    bundle.save(folder, model_made, Letters())
    return model_made


def open_engine(folder: Path, **options: Any) -> Engine:  # noqa: ANN401 - of `load_engine`
    return load_engine(folder, directory.read(folder).config, **options)


def shard(folder: Path, shard_bytes: int | None) -> None:
    """Split the weights of a directory into files of limited size, or one tensor each."""
    path = folder / "model.safetensors"
    if shard_bytes is None or not path.exists():
        return
    shards: list[list[TensorInfo]] = [[]]
    for tensor in read_header(path).values():
        if shards[-1] and sum(tensor.nbytes for tensor in shards[-1]) + tensor.nbytes > shard_bytes:
            shards.append([])
        shards[-1].append(tensor)
    data = path.read_bytes()
    places: dict[str, str] = {}
    for number, tensors in enumerate(shards, 1):
        name = f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        header = encode_header(
            [(tensor.name, tensor.dtype, tensor.shape) for tensor in tensors], {}
        )
        parts = [data[tensor.start : tensor.start + tensor.nbytes] for tensor in tensors]
        (folder / name).write_bytes(header + b"".join(parts))
        places |= {tensor.name: name for tensor in tensors}
    index = {"metadata": {"total_size": len(data)}, "weight_map": places}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
    path.unlink()


def edit(path: Path, **changed: object) -> None:
    """Change fields of a JSON file; None removes one."""
    config = json.loads(path.read_bytes()) | changed
    present = {name: value for name, value in config.items() if value is not None}
    path.write_text(json.dumps(present), encoding="utf-8")
