"""Tokenizers: byte-level BPE, raw bytes, imported tokenizer.json files, and chat templates."""
