"""Text to ids and back: byte-level BPE, bytes, imported tokenizers, chat templates."""
