"""Converts a tokenizer between tokenizer.json and the metadata of a GGUF file."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from ownwords.models.gguf import byte_level, sentencepiece
from ownwords.models.gguf.container import Value
from ownwords.models.gguf.vocabulary import (
    BYTE,
    CONFIG,
    CONTROL,
    NORMAL,
    TEMPLATE,
    TOKENIZER,
    UNKNOWN,
    USER_DEFINED,
    as_json,
    numbers_of,
    starting_with,
    steps_of,
    token_id,
    tokens_of,
)
from ownwords.models.untrusted_files import ModelError, parse_json, preview

_ROLES = {"bos": "bos_token", "eos": "eos_token", "unknown": "unk_token", "padding": "pad_token"}
# Tokens that llama.cpp parses as special in any text, whatever type the file gives them.
_PARSED_IN_TEXT = {"<|start|>", "<|message|>", "<|channel|>", "<|constrain|>"}


def metadata_of(
    files: Mapping[str, bytes], rows: int, generation: Mapping[str, object]
) -> tuple[dict[str, Value], list[str]]:
    """The GGUF metadata of a tokenizer, and notes on what llama.cpp does differently.

    `rows` is the model's vocabulary size; ids that the tokenizer lacks become unused tokens.
    Raises ModelError for a tokenizer that llama.cpp does not support.
    """
    try:
        return _metadata_of(files, rows, generation)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise ModelError(f"{TOKENIZER} does not have the layout of a tokenizer") from error


def _metadata_of(
    files: Mapping[str, bytes], rows: int, generation: Mapping[str, object]
) -> tuple[dict[str, Value], list[str]]:
    parsed: Mapping[str, Any] = parse_json(files[TOKENIZER], TOKENIZER)
    settings: Mapping[str, Any]
    settings = parse_json(files[CONFIG], CONFIG) if CONFIG in files else {}
    model = parsed.get("model")
    if not isinstance(model, dict) or not isinstance(model.get("vocab"), dict):
        raise ModelError(f"{TOKENIZER} has no vocabulary that GGUF can hold")
    tokens, types = tokens_of(model, parsed.get("added_tokens") or (), rows)
    notes: list[str] = []
    if model.get("byte_fallback"):
        metadata = sentencepiece.metadata_of(parsed, model, tokens, types, notes)
    else:
        metadata = byte_level.metadata_of(parsed, model, tokens, types, notes)
    ids = {token: number for number, token in enumerate(tokens)}
    special = _special_ids(settings, generation, ids)
    if parsed_tokens := _PARSED_IN_TEXT & ids.keys():
        notes.append(f"llama.cpp reads {preview(parsed_tokens)} in any text as the special token")
    if "bos" not in special or "eos" not in special:
        notes.append(
            "the tokenizer names no token for the start or the end of a text: llama.cpp will guess"
        )
    metadata |= {f"tokenizer.ggml.{role}_token_id": number for role, number in special.items()}
    metadata["tokenizer.ggml.add_bos_token"] = _adds_start(parsed, settings) and "bos" in special
    metadata["tokenizer.ggml.add_eos_token"] = False
    if template := _template(files, settings):
        metadata["tokenizer.chat_template"] = template
    return metadata, notes


def _special_ids(
    settings: Mapping[str, Any], generation: Mapping[str, Any], ids: Mapping[str, int]
) -> dict[str, int]:
    special: dict[str, int] = {}
    for role, name in _ROLES.items():
        entry = settings.get(name)
        token = entry.get("content") if isinstance(entry, dict) else entry
        if isinstance(token, str) and token in ids:
            special[role] = ids[token]
    for role in ("bos", "eos"):
        value = generation.get(f"{role}_token_id")
        values = value if isinstance(value, list) else [value]
        numbers = [number for number in values if type(number) is int and 0 <= number < len(ids)]
        if numbers:
            special.setdefault(role, numbers[0])
        others = [number for number in numbers if number != special.get("eos")]
        if role == "eos" and others:
            special["eot"] = others[0]
    return special


def _adds_start(parsed: Mapping[str, Any], settings: Mapping[str, Any]) -> bool:
    steps = steps_of(parsed.get("post_processor"), "processors")
    begins = any("SpecialToken" in (step.get("single") or [{}])[0] for step in steps)
    return begins or settings.get("add_bos_token") is True


def _template(files: Mapping[str, bytes], settings: Mapping[str, Any]) -> str:
    if TEMPLATE in files:
        return files[TEMPLATE].decode("utf-8", "replace")
    template = settings.get("chat_template")
    if isinstance(template, list):
        template = {entry.get("name"): entry.get("template") for entry in template}.get("default")
    return template if isinstance(template, str) else ""


def files_of(metadata: Mapping[str, Value]) -> dict[str, bytes]:
    """Rebuild a tokenizer's files from GGUF metadata; ModelError if unsupported."""
    tokens = metadata.get("tokenizer.ggml.tokens")
    if not isinstance(tokens, list) or len(set(tokens)) != len(tokens):
        raise ModelError("the GGUF file has no list of tokens, or one with repetitions")
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
        runs = sentencepiece.space_runs(tokens, types)
        tokens = [runs.get(number, token) for number, token in enumerate(tokens)]
        parts = sentencepiece.parts_of(metadata, tokens, types, unknown)
        types = [NORMAL if number in runs else kind for number, kind in enumerate(types)]
    else:
        raise ModelError(
            f"the GGUF file's tokenizer is of the kind {str(kind)[:60]!a}",
            hint="supported: gpt2, llama",
        )
    # llama.cpp's defaults.
    default = kind == "llama" or str(metadata.get("tokenizer.ggml.pre")).startswith("llama")
    begins = metadata.get("tokenizer.ggml.add_bos_token", default) is True
    # sentencepiece also merges user-defined tokens, such as Gemma's runs of tabs.
    in_model = (NORMAL, UNKNOWN, BYTE, USER_DEFINED) if kind == "llama" else (NORMAL, UNKNOWN, BYTE)
    last = max((number for number in range(len(tokens)) if types[number] in in_model), default=-1)
    # Readers append special tokens that are not in the vocabulary after its last id, so a special
    # token with a lower id than the last must be in it.
    parts["model"]["vocab"] = {
        token: number
        for number, token in enumerate(tokens)
        if types[number] in in_model or (number < last and types[number] in (CONTROL, USER_DEFINED))
    }
    if begins and "bos" in special:
        parts["post_processor"] = starting_with(tokens[special["bos"]], special["bos"])
    is_added = (CONTROL, USER_DEFINED, UNKNOWN) if kind == "llama" else (CONTROL, USER_DEFINED)
    added = [
        _added(token, number, types[number])
        for number, token in enumerate(tokens)
        if types[number] in is_added
    ]
    tokenizer = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added}
    settings: dict[str, object] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "add_bos_token": begins,
        "add_eos_token": False,
        "clean_up_tokenization_spaces": False,
    }
    settings |= {name: tokens[special[role]] for role, name in _ROLES.items() if role in special}
    template = metadata.get("tokenizer.chat_template")
    if isinstance(template, str):
        settings["chat_template"] = template
    return {TOKENIZER: as_json({**tokenizer, **parts}), CONFIG: as_json(settings)}


def _added(token: str, number: int, kind: int) -> dict[str, object]:
    """An entry of added_tokens: a token that is matched before a text is split."""
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
    """The start and end token ids under generation_config.json's names."""
    tokens = metadata.get("tokenizer.ggml.tokens")
    count = len(tokens) if isinstance(tokens, list) else 0
    ids: dict[str, object] = {
        f"{role}_token_id": token_id(metadata, role, count)
        for role in ("bos", "eos")
        if f"tokenizer.ggml.{role}_token_id" in metadata
    }
    if "tokenizer.ggml.eot_token_id" in metadata and "eos_token_id" in ids:
        ids["eos_token_id"] = [ids["eos_token_id"], token_id(metadata, "eot", count)]
    return ids
