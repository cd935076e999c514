"""Converts a tokenizer between tokenizer.json and the metadata of a GGUF file.

Two kinds are supported. "gpt2" is byte-level BPE with a named pre-tokenizer; its tokens are written
in GPT-2's printable alphabet for bytes. "llama" is sentencepiece BPE with byte tokens like <0x00>
and spaces as U+2581; token scores give the merge order.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ownwords.models.gguf.container import Numbers, Value
from ownwords.models.untrusted_files import ModelError, parse_json, preview
from ownwords.tokenizers.tokenizer_json import (
    CONFIG,
    PATTERN,
    PATTERNS,
    TOKENIZER,
    SpecialTokensConfig,
    added_token,
    bpe_model,
    merge_pair,
    steps_of,
    write,
)

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
_BYTE_TOKEN = re.compile(r"<0x[0-9A-F]{2}>")
_ROLES = {"bos": "bos_token", "eos": "eos_token", "unknown": "unk_token", "padding": "pad_token"}

_BY_FAMILY = {family: pattern for pattern, family in PATTERNS.items()}
_GPT2_SPLIT, _DIGITS = _BY_FAMILY["GPT-2"], r"\p{N}"
# The patterns of the pre-tokenizers that llama.cpp computes as we do, by llama.cpp's names. The
# first variant is used when a GGUF tokenizer is read back. The case-folded variants differ only in
# that the long s (U+017F) after an apostrophe counts as an s; llama.cpp's own converter ignores
# that difference too.
PRE_TOKENIZERS: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "gpt-2": ((_GPT2_SPLIT,),),
    "qwen2": ((_BY_FAMILY["Qwen 2 and 3"],),),
    "llama-bpe": ((PATTERN,), (_BY_FAMILY["Llama 3"],)),
    "smollm": ((_DIGITS, _GPT2_SPLIT),),
}
# Other names of the same pre-tokenizers in GGUF files.
_SYNONYMS = {"gpt2": "gpt-2", "llama3": "llama-bpe", "llama-v3": "llama-bpe", "qwen3": "qwen2"}
# Whether a word that is itself a token skips merging. llama.cpp decides this by the pre-tokenizer's
# name; it makes no difference for a vocabulary trained here.
_IGNORE_MERGES = "ownwords.tokenizer.ignore_merges"


def metadata_of(
    files: Mapping[str, bytes], rows: int, generation: Mapping[str, object]
) -> tuple[dict[str, Value], list[str]]:
    """Return the GGUF metadata of a valid tokenizer, and notes on what llama.cpp does differently.

    `rows` is the model's vocabulary size; ids that the tokenizer lacks become unused tokens.
    Raises ModelError for a tokenizer that llama.cpp does not support.
    """
    parsed: dict[str, Any] = parse_json(files[TOKENIZER], TOKENIZER)
    model = parsed["model"]
    tokens, types = _tokens_of(model, parsed.get("added_tokens") or (), rows)
    notes: list[str] = []
    if model.get("byte_fallback"):
        metadata = _sentencepiece_metadata(parsed, tokens, types, notes)
    else:
        metadata = _byte_level_metadata(parsed, notes)
    metadata |= {
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": np.array(types, dtype="<i4"),
    }
    special = _special_ids(
        files, generation, {token: number for number, token in enumerate(tokens)}
    )
    if "bos" not in special or "eos" not in special:
        notes.append(
            "the tokenizer names no token for the start or end of a text: llama.cpp will guess one"
        )
    metadata |= {f"tokenizer.ggml.{role}_token_id": number for role, number in special.items()}
    roles = SpecialTokensConfig.read(files, parsed)
    metadata["tokenizer.ggml.add_bos_token"] = roles.adds_start and "bos" in special
    metadata["tokenizer.ggml.add_eos_token"] = False
    if roles.template:
        metadata["tokenizer.chat_template"] = roles.template
    return metadata, notes


def _tokens_of(
    model: Mapping[str, Any], added: Iterable[Mapping[str, Any]], rows: int
) -> tuple[list[str], list[int]]:
    """Return the token text and the token type of every id below `rows`."""
    by_id = {number: (token, NORMAL) for token, number in model["vocab"].items()}
    for token in added:
        kind = CONTROL if token.get("special") else USER_DEFINED
        by_id[token["id"]] = (token["content"], kind)
    if max(by_id) >= rows:
        raise ModelError(f"the tokenizer has the id {max(by_id):,}, and the model {rows:,} rows")
    tokens, types = [], []
    for number in range(rows):
        token, kind = by_id.get(number, (f"[PAD{number}]", UNUSED))
        if model.get("byte_fallback") and _BYTE_TOKEN.fullmatch(token):
            kind = BYTE
        tokens.append(token)
        types.append(UNKNOWN if token == model.get("unk_token") else kind)
    if len(set(tokens)) < len(tokens):
        repeated = {token for token, count in Counter(tokens).items() if count > 1}
        raise ModelError(f"the tokenizer gives two ids to {preview(repeated)}")
    return tokens, types


def _special_ids(
    files: Mapping[str, bytes], generation: Mapping[str, Any], ids: Mapping[str, int]
) -> dict[str, int]:
    settings: dict[str, Any] = parse_json(files[CONFIG], CONFIG) if CONFIG in files else {}
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


def files_of(metadata: Mapping[str, Value]) -> dict[str, bytes]:
    """Rebuild a tokenizer's files from GGUF metadata; ModelError if unsupported."""
    tokens = metadata.get("tokenizer.ggml.tokens")
    if not isinstance(tokens, list) or len(set(tokens)) != len(tokens):
        raise ModelError("the GGUF file has no list of tokens, or one with repetitions")
    types = _numbers(metadata, "token_type", len(tokens), NORMAL).astype(np.int64).tolist()
    special = _role_ids(metadata, len(tokens))
    kind = str(metadata.get("tokenizer.ggml.model"))
    if kind == "gpt2":
        in_model, is_added = {NORMAL, UNKNOWN, BYTE}, {CONTROL, USER_DEFINED}
        parts = _byte_level_parts(metadata)
    elif kind == "llama":
        # sentencepiece also merges user-defined tokens, such as Gemma's runs of tabs.
        in_model, is_added = {NORMAL, UNKNOWN, BYTE, USER_DEFINED}, {CONTROL, USER_DEFINED, UNKNOWN}
        unknown = tokens[special["unknown"]] if "unknown" in special else None
        runs = _space_runs(tokens, types)
        tokens = [runs.get(number, token) for number, token in enumerate(tokens)]
        parts = _sentencepiece_parts(metadata, tokens, types, unknown)
        types = [NORMAL if number in runs else kind for number, kind in enumerate(types)]
    else:
        raise ModelError(
            f"the GGUF file's tokenizer is of the kind {kind[:60]!a}",
            hint="supported: gpt2, llama",
        )
    last = max((number for number in range(len(tokens)) if types[number] in in_model), default=-1)
    # Readers append special tokens that are not in the vocabulary after its last id, so a special
    # token with a lower id than the last must be in it.
    parts["model"]["vocab"] = {
        token: number
        for number, token in enumerate(tokens)
        if types[number] in in_model or (number < last and types[number] in (CONTROL, USER_DEFINED))
    }
    default = kind == "llama" or str(metadata.get("tokenizer.ggml.pre")).startswith("llama")
    begins = metadata.get("tokenizer.ggml.add_bos_token", default) is True
    parts["post_processor"] = None
    if begins and "bos" in special:
        parts["post_processor"] = _starting_with(tokens[special["bos"]], special["bos"])
    added = [
        added_token(number, token, special=types[number] != USER_DEFINED)
        for number, token in enumerate(tokens)
        if types[number] in is_added
    ]
    tokenizer = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added}
    template = metadata.get("tokenizer.chat_template")
    config = SpecialTokensConfig(
        template=template if isinstance(template, str) else None, adds_start=begins
    ).config()
    config |= {name: tokens[special[role]] for role, name in _ROLES.items() if role in special}
    return {TOKENIZER: write({**tokenizer, **parts}), CONFIG: write(config)}


def special_ids(metadata: Mapping[str, Value], count: int) -> dict[str, object]:
    """Return the start and end token ids under generation_config.json's names."""
    roles = _role_ids(metadata, count)
    ids: dict[str, object] = {
        f"{role}_token_id": roles[role] for role in ("bos", "eos") if role in roles
    }
    if "eot" in roles and "eos" in roles:
        ids["eos_token_id"] = [roles["eos"], roles["eot"]]
    return ids


def _role_ids(metadata: Mapping[str, Value], count: int) -> dict[str, int]:
    """Return the ids of the special tokens by role; ModelError unless they are below `count`."""
    ids: dict[str, int] = {}
    for role in (*_ROLES, "eot"):
        value = metadata.get(f"tokenizer.ggml.{role}_token_id")
        if type(value) is int and 0 <= value < count:
            ids[role] = value
        elif value is not None:
            raise ModelError(f"the GGUF file's {role}_token_id is none of its {count:,} tokens")
    return ids


def _numbers(
    metadata: Mapping[str, Value], name: str, count: int, default: int | None = None
) -> Numbers:
    """Return an array with one finite number per token; ModelError for anything else."""
    value = metadata.get(f"tokenizer.ggml.{name}")
    if value is None and default is not None:
        return np.full(count, default)
    if not isinstance(value, np.ndarray) or len(value) != count or not np.isfinite(value).all():
        raise ModelError(f"the GGUF file's tokenizer.ggml.{name} is not a number for each token")
    return value


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


def _byte_level_metadata(parsed: dict[str, Any], notes: list[str]) -> dict[str, Value]:
    if steps_of(parsed, "normalizer"):
        notes.append(
            "unlike the tokenizer, llama.cpp does not normalise text (NFC) before it splits it"
        )
    model = parsed["model"]
    split = _split(steps_of(parsed, "pre_tokenizer"))
    pre = next((name for name, known in PRE_TOKENIZERS.items() if split in known), None)
    merges = [merge_pair(each) for each in model.get("merges") or ()]
    if pre is None and merges:
        raise ModelError(
            f"llama.cpp knows no pre-tokenizer that splits by {split!r:.200}",
            hint="export it with --to hf",
        )
    return {
        "tokenizer.ggml.model": "gpt2",
        # Without merges every byte is its own token, so the split does not matter.
        "tokenizer.ggml.pre": pre or "gpt-2",
        "tokenizer.ggml.merges": [f"{left} {right}" for left, right in merges],
        _IGNORE_MERGES: bool(model.get("ignore_merges")),
    }


def _split(steps: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return the patterns that a pre-tokenizer splits by, one after another."""
    patterns: list[str] = []
    for step in steps:
        match step:
            case {"type": "ByteLevel", "use_regex": False}:
                pass
            case {"type": "ByteLevel"}:
                patterns.append(_GPT2_SPLIT)
            case {"type": "Digits", "individual_digits": True}:
                patterns.append(_DIGITS)
            case {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated"}:
                patterns.append(f"all but {regex}" if step.get("invert") else regex)
            case _:
                patterns.append(str(step.get("type")))
    return tuple(patterns)


def _byte_level_parts(metadata: Mapping[str, Value]) -> dict[str, Any]:
    """Return the parts of tokenizer.json, without the vocabulary, from GGUF metadata."""
    pre = str(metadata.get("tokenizer.ggml.pre", "default"))
    pre = _SYNONYMS.get(pre, pre)
    if pre not in PRE_TOKENIZERS:
        raise ModelError(
            f"the GGUF file names the unknown pre-tokenizer {pre[:60]!a}",
            hint="supported: " + ", ".join(PRE_TOKENIZERS),
        )
    merges = metadata.get("tokenizer.ggml.merges", [])
    if not isinstance(merges, list):
        raise ModelError("the GGUF file's merges are not a list of strings")
    patterns = PRE_TOKENIZERS[pre][0] if merges else ()
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    steps: list[dict[str, Any]] = []
    for pattern in patterns:
        if pattern == _DIGITS:
            steps.append({"type": "Digits", "individual_digits": True})
        elif pattern != _GPT2_SPLIT:  # ByteLevel itself splits by this one
            regex = {"pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
            steps.append({"type": "Split", **regex})
    steps.append({**byte_level, "use_regex": _GPT2_SPLIT in patterns})
    return {
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": steps} if steps[1:] else steps[0],
        "decoder": {**byte_level, "use_regex": False},
        "model": bpe_model(
            {},
            [list(merge_pair(each)) for each in merges],
            ignore_merges=metadata.get(_IGNORE_MERGES, pre == "llama-bpe") is True,
        ),
    }


_SPACE = "\u2581"
_LONGEST_TOKEN = 128  # characters; `_merges_by_score` tries every split of a token


def _sentencepiece_metadata(
    parsed: dict[str, Any], tokens: list[str], types: list[int], notes: list[str]
) -> dict[str, Value]:
    steps = steps_of(parsed, "normalizer")
    steps += steps_of(parsed, "pre_tokenizer")
    if others := {step["type"] for step in steps} - {"Prepend", "Replace", "Metaspace", "Split"}:
        raise ModelError(
            f"llama.cpp has no {preview(set(map(str, others)))} for such a tokenizer",
            hint="export it with --to hf",
        )
    merges = [merge_pair(each) for each in parsed["model"].get("merges") or ()]
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
        "tokenizer.ggml.scores": scores,
        "tokenizer.ggml.add_space_prefix": any(
            step["type"] == "Prepend"
            or (step["type"] == "Metaspace" and step.get("prepend_scheme", "always") != "never")
            for step in steps
        ),
    }


def _sentencepiece_parts(
    metadata: Mapping[str, Value], tokens: list[str], types: list[int], unknown: str | None
) -> dict[str, Any]:
    """Return the parts of tokenizer.json, without the vocabulary, from GGUF metadata."""
    if max(map(len, tokens), default=0) > _LONGEST_TOKEN:
        raise ModelError(f"the GGUF file has a token of more than {_LONGEST_TOKEN:,} characters")
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
        "decoder": {"type": "Sequence", "decoders": decoders},
        "model": bpe_model({}, merges, unknown=unknown, byte_fallback=True),
    }


def _space_runs(tokens: Sequence[str], types: Sequence[int]) -> dict[int, str]:
    """Return the user-defined tokens that are runs of spaces, such as Gemma's, as U+2581.

    A tokenizer.json gets such runs by merging, because U+2581 is the only space in its texts.
    """
    runs = {
        number: _SPACE * len(token)
        for number, token in enumerate(tokens)
        if types[number] == USER_DEFINED and token and not token.strip(" ")
    }
    others = set(tokens) if runs else set()
    return {number: run for number, run in runs.items() if run not in others}


def _merges_by_score(
    tokens: Sequence[str], types: Sequence[int], scores: Numbers
) -> list[tuple[str, str]]:
    """Return every pair of tokens that joins to a token, in order of the token's score.

    User-defined tokens come before all others: sentencepiece matches them before it merges. Among
    the pairs of one token, the one with the longest left part comes first, as in transformers.
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
