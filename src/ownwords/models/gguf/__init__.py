"""GGUF, the file format of llama.cpp: a model and its tokenizer in one file.

`saving` writes a model in memory, one tensor at a time; `loading` reads the same families. Both use
`container` (the file format), `tensor_types` (weight types), `metadata` (llama.cpp's keys) and
`tokenizer` with its two kinds, `byte_level` and `sentencepiece`. The format is described at
https://github.com/ggml-org/ggml/blob/master/docs/gguf.md.
"""

from ownwords.models.gguf.loading import load
from ownwords.models.gguf.saving import GGUFFile, save

__all__ = ["GGUFFile", "load", "save"]
