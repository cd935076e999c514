"""GGUF, the file that llama.cpp and what is built on it read: a model and its tokenizer in one.

Written without any converter, from a model in memory, one tensor at a time; read back for the same
families and types. The parts: `saving` and `loading`; `format` (the container) and `blocks` (types
of weights); `families`, `rope`, `tensors` and `sampling` (what llama.cpp calls it all); `tokenizer`
with its two kinds, `byte_level` and `sentencepiece`.
https://github.com/ggml-org/ggml/blob/master/docs/gguf.md describes the format.
"""

from ownwords.models.gguf.loading import load
from ownwords.models.gguf.saving import GGUFFile, save

__all__ = ["GGUFFile", "load", "save"]
