"""GGUF, the file format of llama.cpp: a model and its tokenizer in one file.

Written from a model in memory, one tensor at a time; read for the same families. `saving` and
`loading` use `container` (the format), `tensor_types` (of weights), `metadata` (llama.cpp's keys)
and `tokenizer` with its two kinds, `byte_level` and `sentencepiece`.
https://github.com/ggml-org/ggml/blob/master/docs/gguf.md describes the format.
"""

from ownwords.models.gguf.loading import load
from ownwords.models.gguf.saving import GGUFFile, save

__all__ = ["GGUFFile", "load", "save"]
