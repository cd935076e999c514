"""Converts weights between Hugging Face's layout and llama.cpp's."""

import numpy as np

from ownwords.models.configs.config import ModelConfig
from ownwords.models.gguf.tensor_types import Floats


def to_gguf(config: ModelConfig, name: str, values: Floats) -> Floats:
    """Convert a weight from Hugging Face's layout (out, in) to llama.cpp's."""
    if heads := _interleaved_heads(config, name):
        # Llama's rotary pairs are (i, i + half) in Hugging Face and (2i, 2i + 1) in llama.cpp.
        return values.reshape(heads, 2, -1, *values.shape[1:]).swapaxes(1, 2).reshape(values.shape)
    if config.NORM_OFFSET and name.endswith("norm.weight"):
        return values + np.float32(config.NORM_OFFSET)  # llama.cpp multiplies by the weight alone
    return values


def from_gguf(config: ModelConfig, name: str, values: Floats) -> Floats:
    """The inverse of `to_gguf`."""
    if heads := _interleaved_heads(config, name):
        return values.reshape(heads, -1, 2, *values.shape[1:]).swapaxes(1, 2).reshape(values.shape)
    if config.NORM_OFFSET and name.endswith("norm.weight"):
        return values - np.float32(config.NORM_OFFSET)
    return values


def _interleaved_heads(config: ModelConfig, name: str) -> int:
    if config.GGUF_INTERLEAVED_ROPE and ".attn_q." in name:
        return config.heads
    if config.GGUF_INTERLEAVED_ROPE and ".attn_k." in name:
        return config.kv_heads
    return 0
