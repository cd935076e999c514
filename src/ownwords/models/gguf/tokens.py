"""The list of tokens in a GGUF file: what each id is, and the numbers that go with it."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from ownwords.models.gguf.container import Numbers, Value
from ownwords.models.untrusted_files import ModelError, preview

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
_BYTE_TOKEN = re.compile(r"<0x[0-9A-F]{2}>")


def tokens_of(
    model: Mapping[str, Any], added: Iterable[Mapping[str, Any]], rows: int
) -> tuple[list[str], list[int]]:
    """Every id's token and its type."""
    by_id = {number: (token, NORMAL) for token, number in model["vocab"].items()}
    for each in added:
        kind = CONTROL if each.get("special") else USER_DEFINED
        by_id[each["id"]] = (each["content"], kind)
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
        twice = {token for token, count in Counter(tokens).items() if count > 1}
        raise ModelError(f"the tokenizer gives two ids to {preview(twice)}")
    return tokens, types


def token_id(metadata: Mapping[str, Value], role: str, count: int) -> int:
    """The id that the metadata gives a role, such as bos; ModelError unless it is a token."""
    value = metadata[f"tokenizer.ggml.{role}_token_id"]
    if type(value) is not int or not 0 <= value < count:
        raise ModelError(f"the GGUF file's {role}_token_id is none of its {count:,} tokens")
    return value


def numbers_of(
    metadata: Mapping[str, Value], name: str, count: int, default: int | None = None
) -> Numbers:
    """A finite number for each of `count` tokens; ModelError where the metadata has others."""
    value = metadata.get(f"tokenizer.ggml.{name}")
    if value is None and default is not None:
        return np.full(count, default)
    if not isinstance(value, np.ndarray) or len(value) != count or not np.isfinite(value).all():
        raise ModelError(f"the GGUF file's tokenizer.ggml.{name} is not a number for each token")
    return value
