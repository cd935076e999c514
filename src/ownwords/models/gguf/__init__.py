"""GGUF, the file format of llama.cpp: a model and its tokenizer in one file.

`saving` writes a model in memory, one tensor at a time; `reading` reads the same families. Both
use `container` (the file format), `metadata` (llama.cpp's keys) and `tokenizer`. The format is
described at https://github.com/ggml-org/ggml/blob/master/docs/gguf.md.
"""

from ownwords.models.gguf.saving import GGUFFile, save

__all__ = ["GGUFFile", "save"]
