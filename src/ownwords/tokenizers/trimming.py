"""Removes tokens from a BPE tokenizer without changing how texts of the remaining ones are split.

BPE builds each token of a text by merges inside that token's own characters, so a token's
derivation is the same alone as within any text. With all tokens and merges on the derivations of
the kept tokens, the merge that BPE chooses at each step on a text of kept tokens is still there,
and still the first (Sennrich et al. 2016, https://arxiv.org/abs/1508.07909). Other texts are split
into shorter tokens, in the end into bytes.
"""

import re
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any

from ownwords.tokenizers.text import TokenizerError
from ownwords.tokenizers.tokenizer_json import BYTE_OF, merge_pair

Document = Mapping[str, Any]

_BLANK = "\u2581"  # what sentencepiece writes for a space
_BYTE_TOKEN = re.compile(r"<0x[0-9A-F]{2}>")
# Special tokens that a model reserves and has never seen: <unused7>, <|reserved_special_token_7|>.
_RESERVED = re.compile(r"<[|]?(unused|reserved|extra|dummy|placeholder)[\w-]*[|]?>")


def derivation(token: str, ranks: Mapping[tuple[str, str], int]) -> list[str]:
    """Return the tokens that BPE passes through while it builds `token`, its characters first."""
    symbols = list(token)
    passed = list(symbols)
    never = len(ranks)
    while len(symbols) > 1:
        rank, at = min((ranks.get(pair, never), i) for i, pair in enumerate(pairwise(symbols)))
        if rank == never:
            break
        symbols[at : at + 2] = [symbols[at] + symbols[at + 1]]
        passed.append(symbols[at])
    return passed


def trim(document: Document, ids: Iterable[int]) -> tuple[dict[str, Any], list[int]]:
    """Return a tokenizer.json of the tokens `ids` and those they need, and each new id's old one.

    Bytes and special tokens stay too, except reserved ones. Tokens that are matched before a text
    is split (HTML tags, image markers) are removed like any other, so that a model of prose does
    not write them. TokenizerError for a tokenizer that is not BPE.
    """
    model = document.get("model")
    if not isinstance(model, dict) or not isinstance(model.get("vocab"), dict):
        raise TokenizerError("only the vocabulary of a BPE tokenizer can be trimmed")
    vocabulary: dict[str, int] = model["vocab"]
    merges = [merge_pair(entry) for entry in model.get("merges") or ()]
    ranks = {pair: rank for rank, pair in enumerate(merges)}
    added = {entry["id"]: entry for entry in document.get("added_tokens") or ()}
    names = {number: name for name, number in vocabulary.items()}
    is_needed = _is_byte if model.get("byte_fallback") else BYTE_OF.__contains__
    keep = {number for name, number in vocabulary.items() if is_needed(name)}
    keep |= {number for number, entry in added.items() if _is_special(entry)}
    if model.get("unk_token") in vocabulary:
        keep.add(vocabulary[model["unk_token"]])
    for number in {*ids, *keep}:
        keep.add(number)
        parts = derivation(names[number], ranks) if number in names else ()
        keep.update(vocabulary[part] for part in parts if part in vocabulary)
    old_ids = sorted(keep)
    new_ids = {old: new for new, old in enumerate(old_ids)}
    kept = {name: new_ids[number] for name, number in vocabulary.items() if number in new_ids}
    trimmed: dict[str, Any] = {
        **document,
        "added_tokens": [
            {**entry, "id": new_ids[number]} for number, entry in added.items() if number in new_ids
        ],
        "post_processor": _renumbered(document.get("post_processor"), new_ids),
        "model": {
            **model,
            "vocab": kept,
            "merges": [
                list(pair)
                for pair in merges
                if pair[0] in kept and pair[1] in kept and "".join(pair) in kept
            ],
        },
    }
    return trimmed, old_ids


def _is_byte(token: str) -> bool:
    """Whether a token is a byte, or a character that stands for itself or for a space.

    The bytes of U+2581 would decode to that character, not to the space that it stands for.
    """
    return _BYTE_TOKEN.fullmatch(token) is not None or (
        len(token) == 1 and (token.isascii() or token == _BLANK)
    )


def _is_special(entry: Document) -> bool:
    return entry.get("special") is True and _RESERVED.fullmatch(entry["content"]) is None


def _renumbered(part: Any, new_ids: Mapping[int, int]) -> Any:  # noqa: ANN401 - any JSON value
    """Return a post-processor with new ids, without those of removed tokens."""
    if isinstance(part, list):
        return [_renumbered(each, new_ids) for each in part]
    if not isinstance(part, dict):
        return part
    return {
        name: [new_ids[number] for number in value if number in new_ids]
        if name == "ids"
        else _renumbered(value, new_ids)
        for name, value in part.items()
    }
