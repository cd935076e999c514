"""A tokenizer inside a GGUF file: from tokenizer.json to llama.cpp's metadata, and back."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from ownwords.models.gguf import byte_level, sentencepiece
from ownwords.models.gguf.container import Value
from ownwords.models.gguf.tokenizer_json import (
    CONFIG,
    TEMPLATE,
    TOKENIZER,
    as_json,
    starting_with,
    steps_of,
)
from ownwords.models.gguf.tokens import (
    BYTE,
    CONTROL,
    NORMAL,
    UNKNOWN,
    USER_DEFINED,
    numbers_of,
    token_id,
    tokens_of,
)
from ownwords.models.untrusted_files import ModelError, parse_json, preview

_ROLES = {"bos": "bos_token", "eos": "eos_token", "unknown": "unk_token", "padding": "pad_token"}
# Special tokens that llama.cpp takes for text's own, whatever the file says of them.
_SEEN_IN_TEXT = {"<|start|>", "<|message|>", "<|channel|>", "<|constrain|>"}


def metadata_of(
    files: Mapping[str, bytes], rows: int, generation: Mapping[str, object]
) -> tuple[dict[str, Value], list[str]]:
    """The tokenizer's metadata, and notes on what llama.cpp does otherwise.

    `rows` is how many tokens the model knows; those that the tokenizer lacks are filled in as
    unused. ModelError for a tokenizer that llama.cpp cannot do.
    """
    try:
        return _metadata_of(files, rows, generation)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise ModelError(f"{TOKENIZER} is not laid out as tokenizers are") from error


def _metadata_of(
    files: Mapping[str, bytes], rows: int, generation: Mapping[str, object]
) -> tuple[dict[str, Value], list[str]]:
    parsed: Mapping[str, Any] = parse_json(files[TOKENIZER], TOKENIZER)
    settings: Mapping[str, Any]
    settings = parse_json(files[CONFIG], CONFIG) if CONFIG in files else {}
    model = parsed.get("model")
    if not isinstance(model, dict) or not isinstance(model.get("vocab"), dict):
        raise ModelError(f"{TOKENIZER} holds no vocabulary of the kind that GGUF can hold")
    tokens, types = tokens_of(model, parsed.get("added_tokens") or (), rows)
    notes: list[str] = []
    if model.get("byte_fallback"):
        found = sentencepiece.metadata_of(parsed, model, tokens, types, notes)
    else:
        found = byte_level.metadata_of(parsed, model, tokens, types, notes)
    ids = {token: number for number, token in enumerate(tokens)}
    special = _special_ids(settings, generation, ids)
    if seen := _SEEN_IN_TEXT & ids.keys():
        notes.append(
            f"llama.cpp takes {preview(seen)} for the token even where a text only says it"
        )
    if "bos" not in special or "eos" not in special:
        notes.append("the tokenizer names no start or no end of a text, and llama.cpp will guess")
    found |= {f"tokenizer.ggml.{role}_token_id": number for role, number in special.items()}
    found["tokenizer.ggml.add_bos_token"] = _adds_start(parsed, settings) and "bos" in special
    found["tokenizer.ggml.add_eos_token"] = False
    if template := _template(files, settings):
        found["tokenizer.chat_template"] = template
    return found, notes


def adds_start(files: Mapping[str, bytes]) -> bool:
    """Whether the tokenizer begins every text with its start token by itself."""
    parsed: Mapping[str, Any] = parse_json(files[TOKENIZER], TOKENIZER)
    settings = parse_json(files[CONFIG], CONFIG) if CONFIG in files else {}
    return _adds_start(parsed, settings)


def _special_ids(
    settings: Mapping[str, Any], generation: Mapping[str, Any], ids: Mapping[str, int]
) -> dict[str, int]:
    found: dict[str, int] = {}
    for role, name in _ROLES.items():
        said = settings.get(name)
        token = said.get("content") if isinstance(said, dict) else said
        if isinstance(token, str) and token in ids:
            found[role] = ids[token]
    for role in ("bos", "eos"):
        said = generation.get(f"{role}_token_id")
        numbers = [each for each in _listed(said) if type(each) is int and 0 <= each < len(ids)]
        if numbers:
            found.setdefault(role, numbers[0])
        others = [each for each in numbers if each != found.get("eos")]
        if role == "eos" and others:
            found["eot"] = others[0]
    return found


def _listed(value: object) -> list[object]:
    return value if isinstance(value, list) else [value]


def _adds_start(parsed: Mapping[str, Any], settings: Mapping[str, Any]) -> bool:
    processors = steps_of(parsed.get("post_processor"), "processors")
    templates = [step for step in processors if step.get("type") == "TemplateProcessing"]
    if templates:
        single = templates[0].get("single") or [{}]
        return "SpecialToken" in single[0]
    return settings.get("add_bos_token") is True


def _template(files: Mapping[str, bytes], settings: Mapping[str, Any]) -> str:
    if TEMPLATE in files:
        return files[TEMPLATE].decode("utf-8", "replace")
    said = settings.get("chat_template")
    if isinstance(said, list):
        named = {each.get("name"): each.get("template") for each in said}
        said = named.get("default")
    return said if isinstance(said, str) else ""


def files_of(metadata: Mapping[str, Value]) -> dict[str, bytes]:
    """The tokenizer's files, from a GGUF file's metadata; ModelError for what we cannot do."""
    tokens = metadata.get("tokenizer.ggml.tokens")
    if not isinstance(tokens, list) or len(set(tokens)) != len(tokens):
        raise ModelError("the GGUF file has no list of tokens, or one that repeats itself")
    types = (
        numbers_of(metadata, "token_type", len(tokens), default=NORMAL).astype(np.int64).tolist()
    )
    special = {
        role: token_id(metadata, role, len(tokens))
        for role in (*_ROLES, "eot")
        if f"tokenizer.ggml.{role}_token_id" in metadata
    }
    kind = metadata.get("tokenizer.ggml.model")
    if kind == "gpt2":
        parts = byte_level.parts_of(metadata)
    elif kind == "llama":
        unknown = tokens[special["unknown"]] if "unknown" in special else None
        parts = sentencepiece.parts_of(metadata, tokens, types, unknown)
    else:
        raise ModelError(
            f"the GGUF file's tokenizer is of the kind {str(kind)[:60]!a}",
            hint="kinds read here: gpt2, llama",
        )
    adds_start = metadata.get("tokenizer.ggml.add_bos_token", kind == "llama") is True
    # sentencepiece merges tokens that its user defined, too: Gemma's runs of tabs.
    in_model = (NORMAL, UNKNOWN, BYTE, USER_DEFINED) if kind == "llama" else (NORMAL, UNKNOWN, BYTE)
    last = max((number for number in range(len(tokens)) if types[number] in in_model), default=-1)
    # Readers number a special token that the model lacks after all others: one that stands before
    # the last of them must be among them.
    parts["model"]["vocab"] = {
        token: number
        for number, token in enumerate(tokens)
        if types[number] in in_model or (number < last and types[number] in (CONTROL, USER_DEFINED))
    }
    if adds_start and "bos" in special:
        parts["post_processor"] = starting_with(tokens[special["bos"]], special["bos"])
    apart = (CONTROL, USER_DEFINED, UNKNOWN) if kind == "llama" else (CONTROL, USER_DEFINED)
    added = [
        _added(token, number, types[number])
        for number, token in enumerate(tokens)
        if types[number] in apart
    ]
    tokenizer = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added}
    settings: dict[str, object] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "add_bos_token": adds_start,
        "add_eos_token": False,
        "clean_up_tokenization_spaces": False,
    }
    settings |= {name: tokens[special[role]] for role, name in _ROLES.items() if role in special}
    template = metadata.get("tokenizer.chat_template")
    if isinstance(template, str):
        settings["chat_template"] = template
    return {TOKENIZER: as_json({**tokenizer, **parts}), CONFIG: as_json(settings)}


def _added(token: str, number: int, kind: int) -> dict[str, object]:
    """A token that is found in a text before it is split."""
    return {
        "id": number,
        "content": token,
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
        "special": kind != USER_DEFINED,
    }


def special_ids(metadata: Mapping[str, Value]) -> dict[str, object]:
    """What generation_config.json says of start and end."""
    tokens = metadata.get("tokenizer.ggml.tokens")
    count = len(tokens) if isinstance(tokens, list) else 0
    found: dict[str, object] = {
        f"{role}_token_id": token_id(metadata, role, count)
        for role in ("bos", "eos")
        if f"tokenizer.ggml.{role}_token_id" in metadata
    }
    if "tokenizer.ggml.eot_token_id" in metadata and "eos_token_id" in found:
        found["eos_token_id"] = [found["eos_token_id"], token_id(metadata, "eot", count)]
    return found
