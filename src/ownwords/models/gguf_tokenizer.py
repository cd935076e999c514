"""A tokenizer inside a GGUF file: from tokenizer.json to llama.cpp's metadata, and back.

Two kinds are known. "gpt2" is byte-level BPE: tokens written in GPT-2's letters for bytes, merges,
and a name for the split that comes before. "llama" is sentencepiece's BPE: tokens with a score for
each, bytes as <0x00>, spaces as U+2581; its merges follow from the scores.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ownwords.models.gguf_format import Numbers, Value
from ownwords.models.safely import ModelError, parse_object, shown

_ENGLISH = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
_ENGLISH_FOLDED = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_GPT2_SPLIT = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_QWEN2_SPLIT = r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}" + _REST
_LLAMA3_SPLIT = r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}" + _REST
# The splits that llama.cpp computes as we do, by its names for them; the first pattern of each is
# written when a tokenizer is read back. The folded spellings differ in one thing: to them, the
# long s (U+017F) after an apostrophe is an s. llama.cpp's own converter passes over that too.
PRE_TOKENIZERS: Mapping[str, tuple[str, ...]] = {
    "gpt-2": (_GPT2_SPLIT,),
    "qwen2": (_ENGLISH + _QWEN2_SPLIT, _ENGLISH_FOLDED + _QWEN2_SPLIT),
    "llama-bpe": (_ENGLISH + _LLAMA3_SPLIT, _ENGLISH_FOLDED + _LLAMA3_SPLIT),
}
# Whether a word that is a token is taken whole, without merging. llama.cpp decides by the name of
# the split, and to a vocabulary that was trained it makes no difference.
_IGNORE_MERGES = "ownwords.tokenizer.ignore_merges"
# Special tokens that llama.cpp takes for text's own, whatever the file says of them.
_SEEN_IN_TEXT = {"<|start|>", "<|message|>", "<|channel|>", "<|constrain|>"}
# Names in files from elsewhere for the same splits.
_SYNONYMS = {"gpt2": "gpt-2", "llama3": "llama-bpe", "llama-v3": "llama-bpe", "qwen3": "qwen2"}

_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED, _BYTE = range(1, 7)
_SPACE = "\u2581"
_BYTE_TOKEN = re.compile(r"<0x[0-9A-F]{2}>")
_LONGEST_TOKEN = 128  # characters; every way to divide a token is looked at
_CONFIG, _TOKENIZER, _TEMPLATE = (
    "tokenizer_config.json",
    "tokenizer.json",
    "chat_template.jinja",
)
_ROLES = {"bos": "bos_token", "eos": "eos_token", "unknown": "unk_token", "padding": "pad_token"}


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
        raise ModelError(f"{_TOKENIZER} is not laid out as tokenizers are") from error


def _metadata_of(
    files: Mapping[str, bytes], rows: int, generation: Mapping[str, object]
) -> tuple[dict[str, Value], list[str]]:
    parsed: Mapping[str, Any] = parse_object(files[_TOKENIZER], _TOKENIZER)
    settings: Mapping[str, Any]
    settings = parse_object(files[_CONFIG], _CONFIG) if _CONFIG in files else {}
    model = parsed.get("model")
    if not isinstance(model, dict) or not isinstance(model.get("vocab"), dict):
        raise ModelError(f"{_TOKENIZER} holds no vocabulary of the kind that GGUF can hold")
    tokens, types = _tokens(model, parsed.get("added_tokens") or (), rows)
    notes: list[str] = []
    if model.get("byte_fallback"):
        found = _sentencepiece(parsed, model, tokens, types, notes)
    else:
        found = _byte_level(parsed, model, tokens, types, notes)
    ids = {token: number for number, token in enumerate(tokens)}
    special = _special_ids(settings, generation, ids)
    if seen := _SEEN_IN_TEXT & ids.keys():
        notes.append(f"llama.cpp takes {shown(seen)} for the token even where a text only says it")
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
    parsed: Mapping[str, Any] = parse_object(files[_TOKENIZER], _TOKENIZER)
    settings = parse_object(files[_CONFIG], _CONFIG) if _CONFIG in files else {}
    return _adds_start(parsed, settings)


def _tokens(
    model: Mapping[str, Any], added: Iterable[Mapping[str, Any]], rows: int
) -> tuple[list[str], list[int]]:
    """Every id's token and its type."""
    by_id = {number: (token, _NORMAL) for token, number in model["vocab"].items()}
    for each in added:
        kind = _CONTROL if each.get("special") else _USER_DEFINED
        by_id[each["id"]] = (each["content"], kind)
    if by_id and not 0 <= max(by_id) < rows:
        raise ModelError(f"the tokenizer has the id {max(by_id):,}, and the model {rows:,} rows")
    unknown = model.get("unk_token")
    tokens, types = [], []
    for number in range(rows):
        token, kind = by_id.get(number, (f"[PAD{number}]", _UNUSED))
        if model.get("byte_fallback") and _BYTE_TOKEN.fullmatch(token):
            kind = _BYTE
        tokens.append(token)
        types.append(_UNKNOWN if token == unknown else kind)
    if len(set(tokens)) < len(tokens):
        twice = {token for token, count in Counter(tokens).items() if count > 1}
        raise ModelError(f"the tokenizer gives two ids to {shown(twice)}")
    return tokens, types


def _byte_level(
    parsed: Mapping[str, Any],
    model: Mapping[str, Any],
    tokens: list[str],
    types: list[int],
    notes: list[str],
) -> dict[str, Value]:
    normalizers = [each.get("type") for each in _steps(parsed.get("normalizer"), "normalizers")]
    if normalizers and set(normalizers) != {"NFC"}:
        raise ModelError(f"llama.cpp has no normalizer {shown(list(map(str, normalizers)))}")
    if normalizers:
        notes.append("llama.cpp does not compose letters (NFC) before it splits, as we do")
    split = _split(_steps(parsed.get("pre_tokenizer"), "pretokenizers"))
    pre = next((name for name, known in PRE_TOKENIZERS.items() if split in known), None)
    merges = [_merge(each) for each in model.get("merges") or ()]
    if pre is None and merges:
        raise ModelError(
            f"llama.cpp knows no pre-tokenizer that splits by {split!r:.200}",
            hint="export it with --to hf",
        )
    return {
        "tokenizer.ggml.model": "gpt2",
        # Without merges every byte stands alone, however the text is split.
        "tokenizer.ggml.pre": pre or "gpt-2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": np.array(types, dtype="<i4"),
        "tokenizer.ggml.merges": [f"{left} {right}" for left, right in merges],
        _IGNORE_MERGES: bool(model.get("ignore_merges")),
    }


def _steps(said: Mapping[str, Any] | None, inner: str) -> list[Mapping[str, Any]]:
    """A normalizer or pre-tokenizer as its steps, whether it is one or a sequence."""
    if said is None:
        return []
    steps = said.get(inner, []) if said.get("type") == "Sequence" else [said]
    return list(steps)


def _split(steps: Sequence[Mapping[str, Any]]) -> str | None:
    """The pattern that byte-level pieces are split by; None if they are not split at all."""
    kinds = [step.get("type") for step in steps]
    if not kinds or kinds[-1] != "ByteLevel" or kinds[:-1] not in ([], ["Split"]):
        raise ModelError(
            f"llama.cpp knows no pre-tokenizer {shown(list(map(str, kinds)))}",
            hint="export it with --to hf",
        )
    last = steps[-1]
    if last.get("add_prefix_space"):
        raise ModelError("llama.cpp does not put a space before a text, and this tokenizer does")
    splits = [_GPT2_SPLIT] if last.get("use_regex", True) else []
    if len(steps) > 1:
        pattern = steps[0].get("pattern") or {}
        plain = steps[0].get("behavior") == "Isolated" and not steps[0].get("invert")
        splits.append(str(pattern.get("Regex")) if plain else "")
    return splits[0] if len(splits) == 1 else None if not splits else ""


def _merge(said: object) -> tuple[str, str]:
    pair = said.split(" ") if isinstance(said, str) else said
    if not isinstance(pair, list) or len(pair) != 2:
        raise ModelError(f"{_TOKENIZER} has the merge {str(said)[:60]!r}, which is not of two")
    return pair[0], pair[1]


def _sentencepiece(
    parsed: Mapping[str, Any],
    model: Mapping[str, Any],
    tokens: list[str],
    types: list[int],
    notes: list[str],
) -> dict[str, Value]:
    merges = [_merge(each) for each in model.get("merges") or ()]
    ranks: dict[str, int] = {}
    for rank, (left, right) in enumerate(merges):
        ranks.setdefault(left + right, rank)
    scores = np.array([-float(ranks.get(token, len(merges))) for token in tokens], dtype="<f4")
    if set(merges) != set(_merges_by_score(tokens, types, scores)):
        notes.append(
            "the merges are not all those that its tokens allow, as sentencepiece's would be:"
            " llama.cpp may divide some words otherwise"
        )
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.pre": "default",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": scores,
        "tokenizer.ggml.token_type": np.array(types, dtype="<i4"),
        "tokenizer.ggml.add_space_prefix": _adds_space(parsed),
    }


def _adds_space(parsed: Mapping[str, Any]) -> bool:
    normalizers = _steps(parsed.get("normalizer"), "normalizers")
    before = _steps(parsed.get("pre_tokenizer"), "pretokenizers")
    for step in normalizers:
        if step.get("type") not in ("Prepend", "Replace"):
            raise ModelError(f"llama.cpp has no normalizer {shown([str(step.get('type'))])}")
    for step in before:
        if step.get("type") not in ("Metaspace", "Split"):
            raise ModelError(f"llama.cpp knows no pre-tokenizer {shown([str(step.get('type'))])}")
    return any(step.get("type") == "Prepend" for step in normalizers) or any(
        step.get("type") == "Metaspace" and step.get("prepend_scheme", "always") != "never"
        for step in before
    )


def _merges_by_score(
    tokens: Sequence[str], types: Sequence[int], scores: Numbers
) -> list[tuple[str, str]]:
    """Every way to make one token of two others, the best token first."""
    ids = {
        token: number
        for number, token in enumerate(tokens)
        if types[number] in (_NORMAL, _USER_DEFINED)
    }
    merges = []
    for token, number in ids.items():
        pairs = ((token[:cut], token[cut:]) for cut in range(1, len(token)))
        merges += [
            (-float(scores[number]), ids[left], ids[right])
            for left, right in pairs
            if left in ids and right in ids
        ]
    return [(tokens[left], tokens[right]) for _, left, right in sorted(merges)]


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
    steps = _steps(parsed.get("post_processor"), "processors")
    templates = [step for step in steps if step.get("type") == "TemplateProcessing"]
    if templates:
        single = templates[0].get("single") or [{}]
        return "SpecialToken" in single[0]
    return settings.get("add_bos_token") is True


def _template(files: Mapping[str, bytes], settings: Mapping[str, Any]) -> str:
    if _TEMPLATE in files:
        return files[_TEMPLATE].decode("utf-8", "replace")
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
    types = _numbers(metadata, "token_type", len(tokens), default=_NORMAL).astype(np.int64).tolist()
    special = {
        role: _token_id(metadata, role, len(tokens))
        for role in (*_ROLES, "eot")
        if f"tokenizer.ggml.{role}_token_id" in metadata
    }
    kind = metadata.get("tokenizer.ggml.model")
    if kind == "gpt2":
        parts = _byte_level_parts(metadata)
    elif kind == "llama":
        unknown = tokens[special["unknown"]] if "unknown" in special else None
        parts = _sentencepiece_parts(metadata, tokens, types, unknown)
    else:
        raise ModelError(
            f"the GGUF file's tokenizer is of the kind {str(kind)[:60]!a}",
            hint="kinds read here: gpt2, llama",
        )
    adds_start = metadata.get("tokenizer.ggml.add_bos_token", kind == "llama") is True
    in_model = (_NORMAL, _UNKNOWN, _BYTE)
    last = max((number for number in range(len(tokens)) if types[number] in in_model), default=-1)
    # Readers number a special token that the model lacks after all others: one that stands before
    # the last of them must be among them.
    parts["model"]["vocab"] = {
        token: number
        for number, token in enumerate(tokens)
        if types[number] in in_model
        or (number < last and types[number] in (_CONTROL, _USER_DEFINED))
    }
    if adds_start and "bos" in special:
        parts["post_processor"] = _starting_with(tokens[special["bos"]], special["bos"])
    added = [
        {
            "id": number,
            "content": token,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": types[number] != _USER_DEFINED,
        }
        for number, token in enumerate(tokens)
        if types[number] in (_CONTROL, _USER_DEFINED)
        or (types[number] == _UNKNOWN and kind == "llama")
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
    return {_TOKENIZER: _json({**tokenizer, **parts}), _CONFIG: _json(settings)}


def special_ids(metadata: Mapping[str, Value]) -> dict[str, object]:
    """What generation_config.json says of start and end."""
    tokens = metadata.get("tokenizer.ggml.tokens")
    count = len(tokens) if isinstance(tokens, list) else 0
    found: dict[str, object] = {
        f"{role}_token_id": _token_id(metadata, role, count)
        for role in ("bos", "eos")
        if f"tokenizer.ggml.{role}_token_id" in metadata
    }
    if "tokenizer.ggml.eot_token_id" in metadata and "eos_token_id" in found:
        found["eos_token_id"] = [found["eos_token_id"], _token_id(metadata, "eot", count)]
    return found


def _token_id(metadata: Mapping[str, Value], role: str, count: int) -> int:
    value = metadata[f"tokenizer.ggml.{role}_token_id"]
    if type(value) is not int or not 0 <= value < count:
        raise ModelError(f"the GGUF file's {role}_token_id is none of its {count:,} tokens")
    return value


def _numbers(
    metadata: Mapping[str, Value], name: str, count: int, default: int | None = None
) -> Numbers:
    value = metadata.get(f"tokenizer.ggml.{name}")
    if value is None and default is not None:
        return np.full(count, default)
    if not isinstance(value, np.ndarray) or len(value) != count or not np.isfinite(value).all():
        raise ModelError(f"the GGUF file's tokenizer.ggml.{name} is not a number for each token")
    return value


def _byte_level_parts(metadata: Mapping[str, Value]) -> dict[str, Any]:
    pre = str(metadata.get("tokenizer.ggml.pre", "default"))
    pre = _SYNONYMS.get(pre, pre)
    if pre not in PRE_TOKENIZERS:
        raise ModelError(
            f"the GGUF file's text is split as {pre[:60]!a} names it, which is not known here",
            hint="splits known here: " + ", ".join(PRE_TOKENIZERS),
        )
    merges = metadata.get("tokenizer.ggml.merges", [])
    if not isinstance(merges, list):
        raise ModelError("the GGUF file's merges are no list of texts")
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    split: dict[str, Any] = {**byte_level, "use_regex": bool(merges)}
    if pre != "gpt-2" and merges:
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
        "model": _bpe(
            [list(_merge(each)) for each in merges],
            ignore_merges=metadata.get(_IGNORE_MERGES, pre == "llama-bpe") is True,
        ),
    }


def _sentencepiece_parts(
    metadata: Mapping[str, Value], tokens: list[str], types: list[int], unknown: str | None
) -> dict[str, Any]:
    if max(map(len, tokens), default=0) > _LONGEST_TOKEN:
        raise ModelError(f"the GGUF file has a token of over {_LONGEST_TOKEN:,} letters")
    scores = _numbers(metadata, "scores", len(tokens))
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
        "model": _bpe(merges, unknown=unknown, byte_fallback=True),
    }


def _bpe(
    merges: list[list[str]],
    *,
    unknown: str | None = None,
    byte_fallback: bool = False,
    ignore_merges: bool = False,
) -> dict[str, Any]:
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


def _starting_with(token: str, number: int) -> dict[str, Any]:
    start = {"SpecialToken": {"id": token, "type_id": 0}}
    first = {"Sequence": {"id": "A", "type_id": 0}}
    second = {"Sequence": {"id": "B", "type_id": 1}}
    return {
        "type": "TemplateProcessing",
        "single": [start, first],
        "pair": [start, first, {"SpecialToken": {"id": token, "type_id": 1}}, second],
        "special_tokens": {token: {"id": token, "ids": [number], "tokens": [token]}},
    }


def _json(value: Mapping[str, object]) -> bytes:
    return json.dumps(value, ensure_ascii=False, indent=2).encode("utf-8") + b"\n"
