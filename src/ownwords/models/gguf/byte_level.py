"""The tokenizer kind "gpt2": byte-level BPE with a named pre-tokenizer.

Tokens are written in GPT-2's printable alphabet for bytes.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ownwords.models.gguf.container import Value
from ownwords.models.gguf.vocabulary import bpe, merge, steps_of
from ownwords.models.untrusted_files import ModelError, preview

_ENGLISH = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
_ENGLISH_FOLDED = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_GPT2_SPLIT = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_QWEN2_SPLIT = r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}" + _REST
_LLAMA3_SPLIT = r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}" + _REST
# SmolLM: every digit alone, then GPT-2's pattern, as two steps.
_DIGITS_SPLIT = r"\p{N}, then " + _GPT2_SPLIT
# The pre-tokenizers that llama.cpp computes as we do, by its names for them; the first pattern is
# used when a GGUF tokenizer is read back. The case-folded variants differ only in that the long s
# (U+017F) after an apostrophe counts as an s; llama.cpp's own converter ignores that, too.
PRE_TOKENIZERS: Mapping[str, tuple[str, ...]] = {
    "gpt-2": (_GPT2_SPLIT,),
    "qwen2": (_ENGLISH_FOLDED + _QWEN2_SPLIT, _ENGLISH + _QWEN2_SPLIT),
    "llama-bpe": (_ENGLISH + _LLAMA3_SPLIT, _ENGLISH_FOLDED + _LLAMA3_SPLIT),
    "smollm": (_DIGITS_SPLIT,),
}
# Whether a word that is itself a token skips merging. llama.cpp decides this by the pre-tokenizer's
# name; for a trained vocabulary it makes no difference.
_IGNORE_MERGES = "ownwords.tokenizer.ignore_merges"
# Other names for the same pre-tokenizers in GGUF files.
_SYNONYMS = {"gpt2": "gpt-2", "llama3": "llama-bpe", "llama-v3": "llama-bpe", "qwen3": "qwen2"}


def metadata_of(
    parsed: Mapping[str, Any],
    model: Mapping[str, Any],
    tokens: list[str],
    types: list[int],
    notes: list[str],
) -> dict[str, Value]:
    """The GGUF metadata of this tokenizer; appends differences in llama.cpp to `notes`."""
    normalizers = [each.get("type") for each in steps_of(parsed.get("normalizer"), "normalizers")]
    if normalizers and set(normalizers) != {"NFC"}:
        raise ModelError(f"llama.cpp has no normalizer {preview(list(map(str, normalizers)))}")
    if normalizers:
        notes.append(
            "unlike the tokenizer, llama.cpp does not normalise text (NFC) before it splits it"
        )
    split = _split(steps_of(parsed.get("pre_tokenizer"), "pretokenizers"))
    pre = next((name for name, known in PRE_TOKENIZERS.items() if split in known), None)
    merges = [merge(each) for each in model.get("merges") or ()]
    if pre is None and merges:
        raise ModelError(
            f"llama.cpp knows no pre-tokenizer that splits by {split!r:.200}",
            hint="export it with --to hf",
        )
    return {
        "tokenizer.ggml.model": "gpt2",
        # Without merges every byte is its own token, so the split does not matter.
        "tokenizer.ggml.pre": pre or "gpt-2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": np.array(types, dtype="<i4"),
        "tokenizer.ggml.merges": [f"{left} {right}" for left, right in merges],
        _IGNORE_MERGES: bool(model.get("ignore_merges")),
    }


def _split(steps: Sequence[Mapping[str, Any]]) -> str | None:
    """The pre-tokenizer's split pattern, None if it does not split, "" if it is not supported."""
    kinds = [step.get("type") for step in steps]
    if (
        not kinds
        or kinds[-1] != "ByteLevel"
        or kinds[:-1]
        not in (
            [],
            ["Split"],
            ["Digits"],
        )
    ):
        raise ModelError(
            f"llama.cpp knows no pre-tokenizer {preview(list(map(str, kinds)))}",
            hint="export it with --to hf",
        )
    last = steps[-1]
    if last.get("add_prefix_space"):
        raise ModelError("this tokenizer puts a space before every text, and llama.cpp does not")
    splits = [_GPT2_SPLIT] if last.get("use_regex", True) else []
    if kinds[0] == "Digits":
        return _DIGITS_SPLIT if splits and steps[0].get("individual_digits") else ""
    if len(steps) > 1:
        pattern = steps[0].get("pattern") or {}
        plain = steps[0].get("behavior") == "Isolated" and not steps[0].get("invert")
        splits.append(str(pattern.get("Regex")) if plain else "")
    return splits[0] if len(splits) == 1 else None if not splits else ""


def parts_of(metadata: Mapping[str, Value]) -> dict[str, Any]:
    """The parts of tokenizer.json, without the vocabulary, from GGUF metadata."""
    pre = str(metadata.get("tokenizer.ggml.pre", "default"))
    pre = _SYNONYMS.get(pre, pre)
    if pre not in PRE_TOKENIZERS:
        raise ModelError(
            f"the GGUF file names the unknown pre-tokenizer {pre[:60]!a}",
            hint="supported: " + ", ".join(PRE_TOKENIZERS),
        )
    merges = metadata.get("tokenizer.ggml.merges", [])
    if not isinstance(merges, list):
        raise ModelError("the GGUF file's merges are no list of texts")
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    split: dict[str, Any] = {**byte_level, "use_regex": bool(merges)}
    if pre == "smollm" and merges:
        digits = {"type": "Digits", "individual_digits": True}
        split = {"type": "Sequence", "pretokenizers": [digits, split]}
    elif pre != "gpt-2" and merges:
        pattern = {
            "type": "Split",
            "pattern": {"Regex": PRE_TOKENIZERS[pre][0]},
            "behavior": "Isolated",
            "invert": False,
        }
        inner = [pattern, {**byte_level, "use_regex": False}]
        split = {"type": "Sequence", "pretokenizers": inner}
    return {
        "normalizer": None,
        "pre_tokenizer": split,
        "post_processor": None,
        "decoder": {**byte_level, "use_regex": False},
        "model": bpe(
            [list(merge(each)) for each in merges],
            ignore_merges=metadata.get(_IGNORE_MERGES, pre == "llama-bpe") is True,
        ),
    }
