"""Reads (within size limits), writes and fingerprints tokenizer.json and tokenizer_config.json."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ownwords.core.fingerprint import digest
from ownwords.tokenizers.text import TokenizerError

TOKENIZER, CONFIG = "tokenizer.json", "tokenizer_config.json"
# Other tools store the chat template and the names of special tokens in files of their own.
TEMPLATE, SPECIAL_MAP = "chat_template.jinja", "special_tokens_map.json"
FILES = (TOKENIZER, CONFIG, TEMPLATE, SPECIAL_MAP)

# The largest known tokenizer.json (262,144 tokens) has 33 MB, 0.6 million brackets and 2 million
# commas. A parsed value takes up to 80 bytes, so a file within these limits stays below 0.5 GB.
LARGEST, MOST_BRACKETS, MOST_COMMAS = 64 << 20, 2_000_000, 4_000_000

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
_AS_LETTERS = {byte: ord(letter) for byte, letter in LETTER_OF.items()}
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


def bytes_to_unicode(data: bytes) -> str:
    """Write bytes in GPT-2's alphabet, as in a byte-level vocabulary."""
    return data.decode("latin-1").translate(_AS_LETTERS)


def unicode_to_bytes(token: str) -> bytes | None:
    """The inverse of `bytes_to_unicode`; None if the token has characters outside the alphabet."""
    try:
        return bytes([BYTE_OF[letter] for letter in token])
    except KeyError:
        return None


def write(document: Mapping[str, object]) -> bytes:
    """Encode compact JSON as UTF-8, without unnecessary escapes."""
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode("utf-8")


def read(name: str, data: bytes) -> Json:
    """Parse a JSON object; data that is too large, damaged, too deep or no object is an error."""
    if len(data) > LARGEST:
        raise TokenizerError(f"{name} has {len(data) >> 20} MB; at most {LARGEST >> 20} are read")
    if data.count(b"[") + data.count(b"{") > MOST_BRACKETS or data.count(b",") > MOST_COMMAS:
        raise TokenizerError(f"{name} holds more values than any tokenizer needs")
    try:
        document = json.loads(data, parse_constant=_refuse)
        if _SURROGATE.search(data):  # the parser accepts lone ones, which cannot be encoded later
            json.dumps(document, ensure_ascii=False).encode("utf-8")
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise TokenizerError(
            f"{name} is not valid JSON: {reason[:200]}",
            hint="the file is damaged or cut off; copy it again",
        ) from None
    if not isinstance(document, dict):
        raise TokenizerError(f"{name} is not a JSON object")
    return document


def _refuse(constant: str) -> object:
    raise ValueError(f"{constant} is no value of JSON")


def fingerprint(document: Mapping[str, object]) -> str:
    """A hash of everything that decides which ids a text gets, independent of the file's layout."""
    kept = {
        part: _plain(document.get(part))
        for part in ("added_tokens", "normalizer", "pre_tokenizer", "model")
    }
    return digest(json.dumps(kept, sort_keys=True, ensure_ascii=True))


def _plain(value: object) -> object:
    """Drop the entries that equal their defaults (null, false, ""), and write merges as pairs."""
    if isinstance(value, dict):
        return {
            name: _merges(entry) if name == "merges" else _plain(entry)
            for name, entry in value.items()
            if entry is not None and entry is not False and entry != ""
        }
    if isinstance(value, list):
        return [_plain(entry) for entry in value]
    return value


def _merges(value: object) -> object:
    if isinstance(value, list):
        return [entry.split(" ", 1) if isinstance(entry, str) else entry for entry in value]
    return value


def document(
    vocabulary: Mapping[bytes, int],
    merges: Sequence[tuple[bytes, bytes]],
    special: Mapping[str, int],
    pattern: str | None,
) -> Json:
    """The tokenizer.json of one of our tokenizers, without a split step if `pattern` is None."""
    split: Json = {
        "type": "Split",
        "pattern": {"Regex": pattern},
        "behavior": "Isolated",
        "invert": False,
    }
    as_letters: Json = {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": False,
    }
    both: Json = {"type": "Sequence", "pretokenizers": [split, as_letters]}
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": i, "content": name, **flags, "special": True} for name, i in special.items()
        ],
        "normalizer": None,
        "pre_tokenizer": as_letters if pattern is None else both,
        "post_processor": None,
        "decoder": {**as_letters, "add_prefix_space": True, "use_regex": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {bytes_to_unicode(token): i for token, i in vocabulary.items()},
            "merges": [[bytes_to_unicode(left), bytes_to_unicode(right)] for left, right in merges],
        },
    }


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
            try:
                template = files[TEMPLATE].decode("utf-8")
            except UnicodeDecodeError:
                raise TokenizerError(f"{TEMPLATE} is not UTF-8") from None
        if isinstance(template, list):  # several named templates: take the default
            template = next(
                (
                    entry.get("template")
                    for entry in template
                    if isinstance(entry, dict) and entry.get("name") == "default"
                ),
                None,
            )
        if template is not None and not isinstance(template, str):
            raise TokenizerError(
                f"{CONFIG}: chat_template is neither text nor a list of named ones"
            )
        return cls(
            _content("bos_token", config, named),
            _content("eos_token", config, named),
            template,
            _begins_with_token(document.get("post_processor"))
            or config.get("add_bos_token") is True,
        )

    def config(self) -> Json:
        """The tokenizer_config.json with which transformers uses tokenizer.json unchanged."""
        config = {"bos_token": self.start, "eos_token": self.end, "chat_template": self.template}
        return {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "clean_up_tokenization_spaces": False,
            "add_bos_token": self.adds_start,
            "add_eos_token": False,
            **{name: value for name, value in config.items() if value is not None},
        }


def _begins_with_token(processor: object) -> bool:
    match processor:
        case {"type": "Sequence", "processors": list(steps)}:
            return any(map(_begins_with_token, steps))
        case {"type": "TemplateProcessing", "single": [{"SpecialToken": _}, *_]}:
            return True
    return False


def _content(name: str, *places: Json) -> str | None:
    value = next((place[name] for place in places if place.get(name) is not None), None)
    if isinstance(value, dict):  # an AddedToken with its flags
        value = value.get("content")
    if value is not None and not isinstance(value, str):
        raise TokenizerError(f"{CONFIG}: {name} is not the text of a token")
    return value
