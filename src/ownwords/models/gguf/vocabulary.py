"""Helpers for both tokenizer kinds: token lists, ids, merges and parts of tokenizer.json."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from ownwords.models.gguf.container import Numbers, Value
from ownwords.models.untrusted_files import ModelError, preview

CONFIG, TOKENIZER, TEMPLATE = "tokenizer_config.json", "tokenizer.json", "chat_template.jinja"
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
_BYTE_TOKEN = re.compile(r"<0x[0-9A-F]{2}>")


def tokens_of(
    model: Mapping[str, Any], added: Iterable[Mapping[str, Any]], rows: int
) -> tuple[list[str], list[int]]:
    """The token text and the token type of every id below `rows`."""
    by_id = {number: (token, NORMAL) for token, number in model["vocab"].items()}
    for token in added:
        kind = CONTROL if token.get("special") else USER_DEFINED
        by_id[token["id"]] = (token["content"], kind)
    if by_id and not 0 <= max(by_id) < rows:
        raise ModelError(f"the tokenizer has the id {max(by_id):,}, and the model {rows:,} rows")
    unknown = model.get("unk_token")
    tokens, types = [], []
    for number in range(rows):
        token, kind = by_id.get(number, (f"[PAD{number}]", UNUSED))
        if model.get("byte_fallback") and _BYTE_TOKEN.fullmatch(token):
            kind = BYTE
        tokens.append(token)
        types.append(UNKNOWN if token == unknown else kind)
    if len(set(tokens)) < len(tokens):
        repeated = {token for token, count in Counter(tokens).items() if count > 1}
        raise ModelError(f"the tokenizer gives two ids to {preview(repeated)}")
    return tokens, types


def token_id(metadata: Mapping[str, Value], role: str, count: int) -> int:
    """The token id of a role such as bos; ModelError unless it is below `count`."""
    value = metadata[f"tokenizer.ggml.{role}_token_id"]
    if type(value) is not int or not 0 <= value < count:
        raise ModelError(f"the GGUF file's {role}_token_id is none of its {count:,} tokens")
    return value


def numbers_of(
    metadata: Mapping[str, Value], name: str, count: int, default: int | None = None
) -> Numbers:
    """An array with one finite number per token; ModelError for anything else."""
    value = metadata.get(f"tokenizer.ggml.{name}")
    if value is None and default is not None:
        return np.full(count, default)
    if not isinstance(value, np.ndarray) or len(value) != count or not np.isfinite(value).all():
        raise ModelError(f"the GGUF file's tokenizer.ggml.{name} is not a number for each token")
    return value


def steps_of(part: Mapping[str, Any] | None, inner: str) -> list[Mapping[str, Any]]:
    """The steps of a part such as the normalizer, which may be None, one step or a Sequence."""
    if part is None:
        return []
    return list(part.get(inner, []) if part.get("type") == "Sequence" else [part])


def merge(entry: object) -> tuple[str, str]:
    """The two tokens of a merge, written as "left right" or as a pair."""
    pair = entry.split(" ") if isinstance(entry, str) else entry
    if not isinstance(pair, list) or len(pair) != 2:
        raise ModelError(f"{TOKENIZER} has the merge {str(entry)[:60]!r}, which is not a pair")
    return pair[0], pair[1]


def bpe(
    merges: list[list[str]],
    *,
    unknown: str | None = None,
    byte_fallback: bool = False,
    ignore_merges: bool = False,
) -> dict[str, Any]:
    """The BPE model of a tokenizer.json, with an empty vocabulary."""
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": unknown,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": byte_fallback,
        "byte_fallback": byte_fallback,
        "ignore_merges": ignore_merges,
        "vocab": {},
        "merges": merges,
    }


def starting_with(token: str, number: int) -> dict[str, Any]:
    """The post-processor that puts a token before every text."""
    start = {"SpecialToken": {"id": token, "type_id": 0}}
    first = {"Sequence": {"id": "A", "type_id": 0}}
    second = {"Sequence": {"id": "B", "type_id": 1}}
    return {
        "type": "TemplateProcessing",
        "single": [start, first],
        "pair": [start, first, {"SpecialToken": {"id": token, "type_id": 1}}, second],
        "special_tokens": {token: {"id": token, "ids": [number], "tokens": [token]}},
    }


def as_json(value: Mapping[str, object]) -> bytes:
    """Encode a tokenizer file as compact JSON in UTF-8."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8")
