"""Reads, checks, writes and fingerprints tokenizer.json and tokenizer_config.json.

Every part of a tokenizer.json and its settings must be listed here. An unknown part could lose
text, be random (dropout), or take unbounded time or memory (a regular expression, a replacement
that grows), so it is refused by name.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from ownwords.core.fingerprint import digest
from ownwords.tokenizers.text import TokenizerError, encode_utf8

TOKENIZER, CONFIG = "tokenizer.json", "tokenizer_config.json"
# Other tools store the chat template and the names of special tokens in files of their own.
TEMPLATE, SPECIAL_MAP = "chat_template.jinja", "special_tokens_map.json"
FILES = (TOKENIZER, CONFIG, TEMPLATE, SPECIAL_MAP)

LARGEST = 64 << 20  # twice the largest known tokenizer.json, of 262,144 tokens

Json = dict[str, object]


def _alphabet() -> dict[int, str]:
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {byte: chr(byte) for byte in printable} | {
        byte: chr(256 + n) for n, byte in enumerate(others)
    }


# GPT-2's bytes_to_unicode: a printable character for every byte, as tokenizer.json writes them.
LETTER_OF = _alphabet()
BYTE_OF = {letter: byte for byte, letter in LETTER_OF.items()}


def write(document: Mapping[str, object]) -> bytes:
    """Encode compact JSON as UTF-8, without unnecessary escapes."""
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode("utf-8")


def read(name: str, data: bytes) -> Json:
    """Parse a JSON object; TokenizerError if it is too large, damaged, too deep or no object."""
    if len(data) > LARGEST:
        raise TokenizerError(f"{name} has {len(data) >> 20} MB; at most {LARGEST >> 20} are read")
    try:
        return msgspec.json.decode(data, type=dict[str, object])
    except (ValueError, RecursionError) as error:
        raise TokenizerError(
            f"{name} is not a JSON object: {str(error)[:200]}",
            hint="the file is damaged or cut off; copy it again",
        ) from None


def fingerprint(document: Mapping[str, object]) -> str:
    """Return a hash of everything that determines a text's ids, independent of the layout."""
    kept = {
        part: _plain(document.get(part))
        for part in ("added_tokens", "normalizer", "pre_tokenizer", "model")
    }
    return digest(json.dumps(kept, sort_keys=True, ensure_ascii=True))


def _plain(value: object) -> object:
    """Drop the entries that equal their defaults (null, false, ""), and write merges as pairs."""
    if isinstance(value, dict):
        return {
            name: list(map(merge_pair, entry))
            if name == "merges" and isinstance(entry, list)
            else _plain(entry)
            for name, entry in value.items()
            if entry is not None and entry is not False and entry != ""
        }
    if isinstance(value, list):
        return [_plain(entry) for entry in value]
    return value


def bpe_model(
    vocabulary: Mapping[str, int],
    merges: Sequence[Sequence[str]],
    *,
    unknown: str | None = None,
    byte_fallback: bool = False,
    ignore_merges: bool = False,
) -> Json:
    """Return the `model` of a BPE's tokenizer.json."""
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": unknown,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": byte_fallback,
        "byte_fallback": byte_fallback,
        "ignore_merges": ignore_merges,
        "vocab": vocabulary,
        "merges": merges,
    }


def added_token(number: int, content: str, *, special: bool = True) -> Json:
    """Return an entry of `added_tokens`: a token that is matched before a text is split."""
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"id": number, "content": content, **flags, "special": special}


def merge_pair(entry: object) -> tuple[str, str]:
    """Return the two tokens of a merge, written as "left right" or as a pair."""
    pair = entry.split(" ") if isinstance(entry, str) else entry
    if not isinstance(pair, list) or len(pair) != 2:
        raise TokenizerError(f"{TOKENIZER} has the merge {str(entry)[:60]!r}, which is not a pair")
    return pair[0], pair[1]


@dataclass(frozen=True)
class SpecialTokensConfig:
    """Start token, end token and chat template from tokenizer_config.json and related files."""

    start: str | None = None
    end: str | None = None
    template: str | None = None
    adds_start: bool = False  # before every text, as the model was trained

    @classmethod
    def read(cls, files: Mapping[str, bytes], document: Json) -> "SpecialTokensConfig":
        config = read(CONFIG, files[CONFIG]) if CONFIG in files else {}
        named = read(SPECIAL_MAP, files[SPECIAL_MAP]) if SPECIAL_MAP in files else {}
        template = config.get("chat_template")
        if TEMPLATE in files:
            template = files[TEMPLATE].decode("utf-8", "replace")
        if isinstance(template, list):  # several named templates: take the default
            by_name = {str(each["name"]): each["template"] for each in template if _is_named(each)}
            template = by_name.get("default")
        start, end = (_content(name, config, named) for name in ("bos_token", "eos_token"))
        texts: list[Any] = [start, end, template]
        if wrong := [text for text in texts if not isinstance(text, str | None)]:
            raise TokenizerError(
                f"{CONFIG}: {str(wrong[0])[:50]!r} is neither a token nor a chat template"
            )
        begins = begins_with_token(document.get("post_processor"))
        adds_start = begins or config.get("add_bos_token") is True
        return cls(texts[0], texts[1], texts[2], adds_start)

    def config(self) -> Json:
        """Return a tokenizer_config.json that makes transformers use tokenizer.json unchanged."""
        config = {"bos_token": self.start, "eos_token": self.end, "chat_template": self.template}
        return {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "clean_up_tokenization_spaces": False,
            "add_bos_token": self.adds_start,
            "add_eos_token": False,
            **{name: value for name, value in config.items() if value is not None},
        }


def begins_with_token(processor: object) -> bool:
    """Whether a post-processor puts a token before every text."""
    match processor:
        case {"type": "Sequence", "processors": list(steps)}:
            return any(map(begins_with_token, steps))
        case {"type": "TemplateProcessing", "single": [{"SpecialToken": _}, *_]}:
            return True
    return False


def _is_named(entry: object) -> bool:
    return isinstance(entry, dict) and entry.keys() >= {"name", "template"}


def _content(name: str, *places: Json) -> object:
    value = next((place[name] for place in places if place.get(name) is not None), None)
    # With its flags it is an AddedToken.
    return value.get("content") if isinstance(value, dict) else value


# GPT-4's split in Llama 3's version, written without case folding, because regex engines differ
# there ('ſ folds to 's); llama.cpp calls it `llama-bpe`. Its look-ahead joins the last blank
# before a word to that word.
PATTERN = (
    r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_TAIL = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_UPPER, _LOWER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}"
PATTERNS = {
    PATTERN: "ownwords",
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+": "GPT-2",
    _CONTRACTIONS
    + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
    + _TAIL: "Llama 3",
    _CONTRACTIONS
    + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
    + _TAIL: "Qwen 2 and 3",
    _CONTRACTIONS
    + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|"
    + _TAIL: "Qwen 3.5",
    rf"[^\r\n\p{{L}}\p{{N}}]?[{_UPPER}]*[{_LOWER}]+{_CONTRACTIONS}?"
    rf"|[^\r\n\p{{L}}\p{{N}}]?[{_UPPER}]+[{_LOWER}]*{_CONTRACTIONS}?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + _TAIL: "GPT-4o",
}

_BLANK = "▁"  # what sentencepiece writes for a space
_FALLBACK = re.compile(r"<0x([0-9A-F]{2})>")
_MAX_TOKENS = 1 << 20
_REPLACEMENT = "\ufffd"
# A vocabulary that was learned from text may lack bytes that the text did not have (SmolLM2 has no
# U+0004), but not these.
_NEEDED = frozenset(b"\t\n" + bytes(range(0x20, 0x7F)) + _REPLACEMENT.encode())

# For each part of the file: the key of the list in a Sequence, and the allowed steps with the
# settings that each requires.
_STEPS: Mapping[str, tuple[str, Mapping[str, Json]]] = {
    "normalizer": (
        "normalizers",
        {
            "NFC": {},
            "Prepend": {"prepend": _BLANK},
            "Replace": {"pattern": {"String": " "}, "content": _BLANK},
        },
    ),
    "pre_tokenizer": (
        "pretokenizers",
        {
            "ByteLevel": {"add_prefix_space": False},
            "Split": {},  # by one of `PATTERNS`, or at spaces
            "Metaspace": {"replacement": _BLANK},
            "Digits": {},
        },
    ),
    "decoder": (
        "decoders",
        {
            "ByteLevel": {},
            "Metaspace": {"replacement": _BLANK},
            "Replace": {"pattern": {"String": _BLANK}, "content": " "},
            "ByteFallback": {},
            "Fuse": {},
            "Strip": {"content": " ", "stop": 0},
        },
    ),
    "post_processor": ("processors", {"ByteLevel": {}, "TemplateProcessing": {}}),
}


def steps_of(document: Json, name: str) -> list[Json]:
    """Return the steps of one part of the file; TokenizerError for an unsupported step."""
    inner, known = _STEPS[name]
    part: Any = document.get(name)
    steps: Any = [] if part is None else [part]
    if isinstance(part, dict) and part.get("type") == "Sequence":
        steps = part.get(inner)
    for step in steps if isinstance(steps, list) else [part]:
        kind = str(step.get("type")) if isinstance(step, dict) else ""
        wrong = [key for key, value in known.get(kind, {}).items() if step.get(key) != value]
        if kind not in known or wrong or (kind == "Split" and not _is_known_split(step)):
            raise TokenizerError(
                f"tokenizer.json has a {name} that is not known here: {str(step)[:200]!a}",
                hint=f"known are {', '.join(known)}, and splits as in"
                f" {', '.join(PATTERNS.values())}",
            )
    return list(steps)


def _is_known_split(step: Json) -> bool:
    pattern = step.get("pattern")
    regex = pattern.get("Regex") if isinstance(pattern, dict) else None
    known = pattern == {"String": " "} or (isinstance(regex, str) and regex in PATTERNS)
    return known and step.get("behavior") != "Removed"


def check_parts(document: Json) -> None:
    """Raise TokenizerError for an unsupported part."""
    for name in _STEPS:
        steps_of(document, name)
    model = document.get("model")
    if not isinstance(model, dict) or model.get("type", "BPE") != "BPE":
        raise TokenizerError(
            "tokenizer.json holds no BPE model",
            hint="known is BPE, with byte-level tokens or byte fallback",
        )
    for setting in ("dropout", "continuing_subword_prefix", "end_of_word_suffix"):
        if model.get(setting):
            raise TokenizerError(
                f"tokenizer.json sets model.{setting}, which is not known here",
                hint="only tokenizers that give one text always the same ids can be used",
            )


def token_table(
    document: Json, vocabulary: Mapping[str, int], added: Mapping[int, str]
) -> tuple[list[bytes | None], bool, bytes]:
    """Return each id's bytes, whether decoding strips a space, and the bytes without an id."""
    decoders = steps_of(document, "decoder")
    splitters = [step["type"] for step in steps_of(document, "pre_tokenizer")]
    is_byte_level = [step["type"] for step in decoders] == ["ByteLevel"]
    falls_back = document["model"].get("byte_fallback") is True  # type: ignore[attr-defined]
    if is_byte_level != ("ByteLevel" in splitters) or not (is_byte_level or falls_back):
        raise TokenizerError(
            "tokenizer.json is neither byte-level nor falls back to bytes",
            hint="such a tokenizer loses every character that it does not know",
        )
    size = 1 + max([*vocabulary.values(), *added], default=0)
    if size > _MAX_TOKENS:
        raise TokenizerError(f"tokenizer.json has the id {size - 1:,}; at most {_MAX_TOKENS:,}")
    if len(set(vocabulary.values())) < len(vocabulary):
        raise TokenizerError("tokenizer.json gives one id to two tokens")
    table: list[bytes | None] = [None] * size
    for token, i in vocabulary.items():
        table[i] = _letters_to_bytes(token) if is_byte_level else _blanks_to_bytes(token)
    missing = bytes(
        byte
        for byte, letter in LETTER_OF.items()
        if (letter if is_byte_level else f"<0x{byte:02X}>") not in vocabulary
    )
    if missing and (not is_byte_level or _NEEDED.intersection(missing)):
        raise TokenizerError(
            f"tokenizer.json lacks {len(missing)} of the 256 tokens for single bytes",
            hint="such a tokenizer loses every character that it does not know",
        )
    for i, name in added.items():
        table[i] = encode_utf8(name)
    strips = any(
        (step["type"] == "Strip" and step.get("start") == 1)
        or (step["type"] == "Metaspace" and step.get("prepend_scheme", "always") != "never")
        for step in decoders
    )
    return table, strips, missing


def _letters_to_bytes(token: str) -> bytes:
    """Return the bytes of a token in GPT-2's alphabet, or its UTF-8 if it has other characters."""
    try:
        return bytes([BYTE_OF[letter] for letter in token])
    except KeyError:
        return encode_utf8(token)


def _blanks_to_bytes(token: str) -> bytes:
    byte = _FALLBACK.fullmatch(token)
    return bytes([int(byte[1], 16)]) if byte else encode_utf8(token.replace(_BLANK, " "))
