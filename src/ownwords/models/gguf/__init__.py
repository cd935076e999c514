"""GGUF, the file format of llama.cpp: a model and its tokenizer in one file.

`saving` writes a model in memory, one tensor at a time; `reading` converts files of the same
families to model directories. Both use `container` (the file format), `metadata` (llama.cpp's keys)
and `tokenizer`. Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md.
"""
