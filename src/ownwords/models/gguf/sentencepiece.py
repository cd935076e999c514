"""The tokenizer kind "llama": sentencepiece BPE, whose merge order is given by token scores.

Byte tokens are written like <0x00>, spaces as U+2581.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ownwords.models.gguf.container import Numbers, Value
from ownwords.models.gguf.vocabulary import NORMAL, USER_DEFINED, bpe, merge, numbers_of, steps_of
from ownwords.models.untrusted_files import ModelError, preview

_SPACE = "\u2581"
_LONGEST_TOKEN = 128  # characters; `_merges_by_score` tries every split of a token


def metadata_of(
    parsed: Mapping[str, Any],
    model: Mapping[str, Any],
    tokens: list[str],
    types: list[int],
    notes: list[str],
) -> dict[str, Value]:
    """The GGUF metadata of this tokenizer; appends differences in llama.cpp to `notes`."""
    merges = [merge(each) for each in model.get("merges") or ()]
    ranks: dict[str, int] = {}
    for rank, (left, right) in enumerate(merges):
        ranks.setdefault(left + right, rank)
    scores = np.array([-float(ranks.get(token, len(merges))) for token in tokens], dtype="<f4")
    if set(merges) != set(_merges_by_score(tokens, types, scores)):
        notes.append(
            "the tokenizer lacks some merges that sentencepiece would have: llama.cpp may split"
            " some words differently"
        )
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.pre": "default",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": scores,
        "tokenizer.ggml.token_type": np.array(types, dtype="<i4"),
        "tokenizer.ggml.add_space_prefix": _adds_space(parsed),
    }


def parts_of(
    metadata: Mapping[str, Value], tokens: list[str], types: list[int], unknown: str | None
) -> dict[str, Any]:
    """The parts of tokenizer.json, without the vocabulary, from GGUF metadata."""
    if max(map(len, tokens), default=0) > _LONGEST_TOKEN:
        raise ModelError(f"the GGUF file has a token of over {_LONGEST_TOKEN:,} letters")
    scores = numbers_of(metadata, "scores", len(tokens))
    prefixed = metadata.get("tokenizer.ggml.add_space_prefix", True) is True
    spaces = {"type": "Replace", "pattern": {"String": " "}, "content": _SPACE}
    normalizer: dict[str, Any] = spaces
    decoders: list[dict[str, Any]] = [
        {"type": "Replace", "pattern": {"String": _SPACE}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
    ]
    if prefixed:
        prepend = {"type": "Prepend", "prepend": _SPACE}
        normalizer = {"type": "Sequence", "normalizers": [prepend, spaces]}
        decoders.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    merges = [list(pair) for pair in _merges_by_score(tokens, types, scores)]
    return {
        "normalizer": normalizer,
        "pre_tokenizer": None,
        "post_processor": None,
        "decoder": {"type": "Sequence", "decoders": decoders},
        "model": bpe(merges, unknown=unknown, byte_fallback=True),
    }


def space_runs(tokens: Sequence[str], types: Sequence[int]) -> dict[int, str]:
    """The user-defined tokens that are runs of spaces, as Gemma has them, written in U+2581.

    A tokenizer.json gets such runs by merging, since its texts have no other spaces.
    """
    runs = {
        number: _SPACE * len(token)
        for number, token in enumerate(tokens)
        if types[number] == USER_DEFINED and token and not token.strip(" ")
    }
    others = set(tokens) if runs else set()
    return {number: run for number, run in runs.items() if run not in others}


def _adds_space(parsed: Mapping[str, Any]) -> bool:
    normalizers = steps_of(parsed.get("normalizer"), "normalizers")
    before = steps_of(parsed.get("pre_tokenizer"), "pretokenizers")
    for step in normalizers:
        if step.get("type") not in ("Prepend", "Replace"):
            raise ModelError(f"llama.cpp has no normalizer {preview([str(step.get('type'))])}")
    for step in before:
        if step.get("type") not in ("Metaspace", "Split"):
            raise ModelError(f"llama.cpp knows no pre-tokenizer {preview([str(step.get('type'))])}")
    return any(step.get("type") == "Prepend" for step in normalizers) or any(
        step.get("type") == "Metaspace" and step.get("prepend_scheme", "always") != "never"
        for step in before
    )


def _merges_by_score(
    tokens: Sequence[str], types: Sequence[int], scores: Numbers
) -> list[tuple[str, str]]:
    """Every pair of tokens that joins to a token, the one with the best score first.

    User-defined tokens come before all others, whatever their score: sentencepiece looks for them
    before it merges. Of the pairs of one token, the one with the longest left part comes first, as
    in transformers.
    """
    ids = {
        token: number
        for number, token in enumerate(tokens)
        if types[number] in (NORMAL, USER_DEFINED)
    }
    numbers = np.fromiter(ids.values(), np.int64, len(ids))
    has_score = np.asarray(types)[numbers] == NORMAL
    order = np.lexsort((numbers, np.where(has_score, -scores[numbers], 0), has_score))
    merges = []
    for number in numbers[order].tolist():
        token = tokens[number]
        pairs = ((token[:cut], token[cut:]) for cut in range(len(token) - 1, 0, -1))
        merges += [(left, right) for left, right in pairs if left in ids and right in ids]
    return merges
