"""What llama.cpp calls each tensor of a family, and how it wants the weights laid."""

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from ownwords.models.gguf.tensor_types import Floats
from ownwords.models.untrusted_files import ModelError

_GPT2 = {
    "transformer.wte": "token_embd",
    "transformer.wpe": "position_embd",
    "transformer.h.{i}.ln_1": "blk.{i}.attn_norm",
    "transformer.h.{i}.attn.c_attn": "blk.{i}.attn_qkv",
    "transformer.h.{i}.attn.c_proj": "blk.{i}.attn_output",
    "transformer.h.{i}.ln_2": "blk.{i}.ffn_norm",
    "transformer.h.{i}.mlp.c_fc": "blk.{i}.ffn_up",
    "transformer.h.{i}.mlp.c_proj": "blk.{i}.ffn_down",
    "transformer.ln_f": "output_norm",
    "lm_head": "output",
}
_LLAMA = {
    "model.embed_tokens": "token_embd",
    "model.layers.{i}.input_layernorm": "blk.{i}.attn_norm",
    "model.layers.{i}.self_attn.q_proj": "blk.{i}.attn_q",
    "model.layers.{i}.self_attn.k_proj": "blk.{i}.attn_k",
    "model.layers.{i}.self_attn.v_proj": "blk.{i}.attn_v",
    "model.layers.{i}.self_attn.o_proj": "blk.{i}.attn_output",
    "model.layers.{i}.post_attention_layernorm": "blk.{i}.ffn_norm",
    "model.layers.{i}.mlp.gate_proj": "blk.{i}.ffn_gate",
    "model.layers.{i}.mlp.up_proj": "blk.{i}.ffn_up",
    "model.layers.{i}.mlp.down_proj": "blk.{i}.ffn_down",
    "model.norm": "output_norm",
    "lm_head": "output",
}
_QWEN3 = _LLAMA | {
    "model.layers.{i}.self_attn.q_norm": "blk.{i}.attn_q_norm",
    "model.layers.{i}.self_attn.k_norm": "blk.{i}.attn_k_norm",
}
_GEMMA3 = _QWEN3 | {
    "model.layers.{i}.post_attention_layernorm": "blk.{i}.post_attention_norm",
    "model.layers.{i}.pre_feedforward_layernorm": "blk.{i}.ffn_norm",
    "model.layers.{i}.post_feedforward_layernorm": "blk.{i}.post_ffw_norm",
}
# By model_type: Hugging Face's name to llama.cpp's.
_NAMES: Mapping[str, Mapping[str, str]] = {
    "gpt2": _GPT2,
    "llama": _LLAMA,
    "qwen3": _QWEN3,
    "gemma3_text": _GEMMA3,
}


def tensor_name(model_type: str, theirs: str) -> str:
    """A tensor's name in GGUF, from its name in Hugging Face's files."""
    stem, _, kind = theirs.rpartition(".")
    layer = re.search(r"\.(\d+)\.", stem)
    pattern = stem.replace(layer[0], ".{i}.", 1) if layer else stem
    known = _NAMES[model_type].get(pattern)
    if known is None:
        raise ModelError(f"GGUF has no place for the tensor {theirs} of a {model_type} model")
    return f"{known.replace('{i}', layer[1]) if layer else known}.{kind}"


def to_gguf(model_type: str, config: Mapping[str, Any], name: str, values: Floats) -> Floats:
    """The weights as llama.cpp wants them laid, from how Hugging Face's (out, in) are."""
    if heads := _rotated_heads(model_type, config, name):
        # Llama's rotary pairs are (i, i + half) there and (2i, 2i + 1) in llama.cpp.
        return values.reshape(heads, 2, -1, *values.shape[1:]).swapaxes(1, 2).reshape(values.shape)
    if _is_gemma_norm(model_type, name):
        return values + np.float32(1)  # Gemma multiplies by 1 + weight, llama.cpp by the weight
    return values


def from_gguf(model_type: str, config: Mapping[str, Any], name: str, values: Floats) -> Floats:
    """The inverse of `to_gguf`."""
    if heads := _rotated_heads(model_type, config, name):
        return values.reshape(heads, -1, 2, *values.shape[1:]).swapaxes(1, 2).reshape(values.shape)
    if _is_gemma_norm(model_type, name):
        return values - np.float32(1)
    return values


def _rotated_heads(model_type: str, config: Mapping[str, Any], name: str) -> int:
    if model_type == "llama" and ".attn_q." in name:
        return int(config["num_attention_heads"])
    if model_type == "llama" and ".attn_k." in name:
        return int(config["num_key_value_heads"])
    return 0


def _is_gemma_norm(model_type: str, name: str) -> bool:
    return model_type == "gemma3_text" and name.endswith("norm.weight")
