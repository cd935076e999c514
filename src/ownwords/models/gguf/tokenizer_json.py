"""tokenizer.json's parts as they are read and written, whichever kind of tokenizer it holds."""

import json
from collections.abc import Mapping
from typing import Any

from ownwords.models.untrusted_files import ModelError

CONFIG, TOKENIZER, TEMPLATE = (
    "tokenizer_config.json",
    "tokenizer.json",
    "chat_template.jinja",
)


def steps_of(said: Mapping[str, Any] | None, inner: str) -> list[Mapping[str, Any]]:
    """A normalizer or pre-tokenizer as its steps, whether it is one or a sequence."""
    if said is None:
        return []
    found = said.get(inner, []) if said.get("type") == "Sequence" else [said]
    return list(found)


def merge(said: object) -> tuple[str, str]:
    """The two tokens of a merge, which is written as a text or as a pair."""
    pair = said.split(" ") if isinstance(said, str) else said
    if not isinstance(pair, list) or len(pair) != 2:
        raise ModelError(f"{TOKENIZER} has the merge {str(said)[:60]!r}, which is not of two")
    return pair[0], pair[1]


def bpe(
    merges: list[list[str]],
    *,
    unknown: str | None = None,
    byte_fallback: bool = False,
    ignore_merges: bool = False,
) -> dict[str, Any]:
    """A BPE model, its vocabulary still to be filled in."""
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
    """The step that puts a token before every text."""
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
    """As the files of a tokenizer are written."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8")
