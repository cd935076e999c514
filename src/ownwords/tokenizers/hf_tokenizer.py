"""Tokenizers of other models: tokenizer.json through the `tokenizers` library.

Supported kinds: byte-level BPE (GPT-2, Llama 3, Qwen) and BPE with byte fallback (Llama 2, Gemma).
Every part of the file must be listed here, with the settings listed here. An unknown part could
lose text, be random (dropout), or take unbounded time or memory (a regular expression, a
replacement that grows), so it is refused by name.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from threading import Lock
from typing import TYPE_CHECKING, TypeGuard

import numpy as np

from ownwords.tokenizers import tokenizer_json
from ownwords.tokenizers.byte_level import Ids
from ownwords.tokenizers.pre_tokenizer import PATTERN
from ownwords.tokenizers.text import TokenizerError, TokenTable, encode_utf8

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Backend

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
_MOST_TOKENS = 1 << 20
_MOST_STEPS = 16  # in one part of the file; known models have up to four
_LONGEST_TOKEN = 1 << 12  # characters
_REPLACEMENT = "\ufffd"
# A vocabulary that was learned from text may lack bytes that the text did not have (SmolLM2 has no
# U+0004), but not these.
_NEEDED = frozenset(b"\t\n" + bytes(range(0x20, 0x7F)) + _REPLACEMENT.encode())

# The steps allowed in each part of the file, and the settings required of each step.
_NORMALIZERS: Mapping[str, tokenizer_json.Json] = {
    "NFC": {},
    "Prepend": {"prepend": _BLANK},
    "Replace": {"pattern": {"String": " "}, "content": _BLANK},
}
_PRE_TOKENIZERS: Mapping[str, tokenizer_json.Json] = {
    "ByteLevel": {"add_prefix_space": False},
    "Split": {},
    "Metaspace": {"replacement": _BLANK},
    "Digits": {},
}
_DECODERS: Mapping[str, tokenizer_json.Json] = {
    "ByteLevel": {},
    "Metaspace": {"replacement": _BLANK},
    "Replace": {"pattern": {"String": _BLANK}, "content": " "},
    "ByteFallback": {},
    "Fuse": {},
    "Strip": {"content": " ", "stop": 0},
}
_POST_PROCESSORS: Mapping[str, tokenizer_json.Json] = {"ByteLevel": {}, "TemplateProcessing": {}}


class HFTokenizer(TokenTable):
    """An imported tokenizer.json, used unchanged; its ids are those of the `tokenizers` library.

    Lossless except where the tokenizer itself is not: with a normaliser (Qwen: NFC), decoding
    returns the normalised text, and sentencepiece tokenizers treat U+2581 as a space. A character
    with a byte that the vocabulary lacks becomes U+FFFD; `replaced` counts these.
    """

    def __init__(
        self,
        document: tokenizer_json.Json,
        roles: tokenizer_json.SpecialTokensConfig,
        files: Mapping[str, bytes],
    ) -> None:
        self._document = document
        self._roles = roles
        self._kept = {name: files[name] for name in tokenizer_json.FILES if name in files}
        _check_parts(document)
        vocabulary = _vocabulary(document)
        added = _added(document)
        table, strips, self._missing = _table(document, vocabulary, added)
        special = {name: i for i, name, is_special in added if is_special}
        super().__init__(
            table,
            special,
            _role(roles.start, special | vocabulary),
            _role(roles.end, special | vocabulary),
            roles.template,
        )
        self.adds_start = roles.adds_start
        self._strips = strips
        self._lock = Lock()
        self._backend = _backend(files[tokenizer_json.TOKENIZER], added)

    @property
    def row_start(self) -> int | None:
        # Without its start token, Gemma predicts poorly for hundreds of tokens.
        return self.start if self.adds_start else None

    def encode(self, text: str, *, special: bool = False) -> list[int]:
        """The ids of a text, without BOS or EOS; with `special`, special names become their ids."""
        text = self._writable(text)
        with self._lock:  # encode_special_tokens is state of the backend, not of the call
            self._backend.encode_special_tokens = not special
            with _telling():
                return self._backend.encode(text, add_special_tokens=False).ids

    def encode_batch(self, texts: Iterable[str], *, threads: int | None = None) -> list[Ids]:
        """The ids of each text; the library uses RAYON_NUM_THREADS threads, not `threads`."""
        given = [self._writable(text) for text in texts]
        with self._lock:
            self._backend.encode_special_tokens = True
            with _telling():
                found = self._backend.encode_batch_fast(given, add_special_tokens=False)
        return [np.array(encoding.ids, np.uint32) for encoding in found]

    def _writable(self, text: str) -> str:
        """The text with U+FFFD for each character that the vocabulary has no bytes for."""
        data = encode_utf8(text)
        if len(data.translate(None, self._missing)) == len(data):
            return text
        letters = [
            _REPLACEMENT if any(byte in self._missing for byte in letter.encode()) else letter
            for letter in text
        ]
        self.replaced += sum(map(str.__ne__, letters, text))
        return "".join(letters)

    def files(self) -> dict[str, bytes]:
        """The files as they were read, with the current chat template and `adds_start`."""
        roles = replace(self._roles, template=self.template, adds_start=self.adds_start)
        if roles == self._roles and tokenizer_json.CONFIG in self._kept:
            return dict(self._kept)
        kept = (
            tokenizer_json.read(tokenizer_json.CONFIG, self._kept[tokenizer_json.CONFIG])
            if tokenizer_json.CONFIG in self._kept
            else {}
        )
        changed = ("chat_template", "add_bos_token")
        config = roles.config() | {name: kept[name] for name in kept if name not in changed}
        others = {
            name: data for name, data in self._kept.items() if name != tokenizer_json.TEMPLATE
        }
        return {**others, tokenizer_json.CONFIG: tokenizer_json.write(config)}

    def fingerprint(self) -> str:
        """A hash of the text-to-ids mapping."""
        return self._fingerprint

    @cached_property
    def _fingerprint(self) -> str:
        return tokenizer_json.fingerprint(self._document)

    def _pieces(self, ids: Iterable[int]) -> Iterator[bytes]:
        pieces = super()._pieces(ids)
        if self._strips:  # remove the space that encoding put before the text
            for first in pieces:
                yield first.removeprefix(b" ")
                break
        yield from pieces


def _check_parts(document: tokenizer_json.Json) -> None:
    _parts(document, "normalizer", "normalizers", _NORMALIZERS)
    _parts(document, "decoder", "decoders", _DECODERS)
    _parts(document, "post_processor", "processors", _POST_PROCESSORS)
    for splitter in _parts(document, "pre_tokenizer", "pretokenizers", _PRE_TOKENIZERS):
        if splitter["type"] == "Split":
            _check_split(splitter)
    model = document.get("model")
    kind = model.get("type", "BPE") if isinstance(model, dict) else None
    if not isinstance(model, dict) or kind != "BPE":
        raise TokenizerError(
            f"tokenizer.json holds a model of kind {str(kind)[:50]!r}, which is not known here",
            hint="known is BPE, with byte-level tokens or byte fallback",
        )
    for setting in ("dropout", "continuing_subword_prefix", "end_of_word_suffix"):
        if model.get(setting):
            raise TokenizerError(
                f"tokenizer.json sets model.{setting}, which is not known here",
                hint="only tokenizers that give one text always the same ids can be used",
            )


def _check_split(splitter: tokenizer_json.Json) -> None:
    pattern = splitter.get("pattern")
    regex = pattern.get("Regex") if isinstance(pattern, dict) else None
    known = pattern == {"String": " "} or (isinstance(regex, str) and regex in PATTERNS)
    if not known or splitter.get("behavior") == "Removed":
        raise TokenizerError(
            f"tokenizer.json splits text in a way that is not known here: {str(pattern)[:200]}",
            hint=f"known are those of {', '.join(PATTERNS.values())}",
        )


def _parts(
    document: tokenizer_json.Json, name: str, inner: str, known: Mapping[str, tokenizer_json.Json]
) -> list[tokenizer_json.Json]:
    """The steps of one part of the file, sequences flattened; an unknown step is an error."""
    found: list[tokenizer_json.Json] = []
    left = [document.get(name)]
    while left:
        part = left.pop(0)
        if part is None:
            continue
        kind = part.get("type") if isinstance(part, dict) else None
        steps = part.get(inner) if isinstance(part, dict) and kind == "Sequence" else None
        if isinstance(steps, list) and len(steps) + len(left) + len(found) < _MOST_STEPS:
            left = [*steps, *left]
        elif isinstance(part, dict) and isinstance(kind, str) and kind in known:
            for setting, value in known[kind].items():
                _expect(part, name, setting, value)
            found.append(part)
        else:
            raise TokenizerError(
                f"tokenizer.json has a {name} of kind {str(kind)[:50]!r}, which is not known here",
                hint=f"known are {', '.join(known)}",
            )
    return found


def _expect(part: tokenizer_json.Json, name: str, setting: str, value: object) -> None:
    if part.get(setting) != value:
        raise TokenizerError(
            f"tokenizer.json has a {name} {part['type']} whose {setting} is"
            f" {str(part.get(setting))[:50]!r}; only {value!r} is known here",
            hint="such a tokenizer could not give every text back",
        )


def _vocabulary(document: tokenizer_json.Json) -> dict[str, int]:
    match document:
        case {"model": {"vocab": dict(vocabulary)}}:
            pass
        case _:
            raise TokenizerError("tokenizer.json has no model.vocab")
    ids = vocabulary.values()
    if not all(map(_is_id, ids)) or len(set(ids)) != len(vocabulary):
        raise TokenizerError(
            "tokenizer.json: the ids of model.vocab are not distinct small numbers"
        )
    if any(len(token) > _LONGEST_TOKEN for token in vocabulary):
        raise TokenizerError(f"tokenizer.json has a token of over {_LONGEST_TOKEN} characters")
    return vocabulary


def _added(document: tokenizer_json.Json) -> list[tuple[int, str, bool]]:
    entries = document.get("added_tokens") or []
    added = []
    for entry in entries if isinstance(entries, list) else [None]:
        token = entry if isinstance(entry, dict) else {}
        i, name = token.get("id"), token.get("content")
        if not _is_id(i) or not isinstance(name, str) or not 0 < len(name) < _LONGEST_TOKEN:
            raise TokenizerError("tokenizer.json: added_tokens is not a list of ids and contents")
        added.append((i, name, token.get("special") is True))
    return added


def _is_id(value: object) -> TypeGuard[int]:
    return type(value) is int and 0 <= value < _MOST_TOKENS


def _table(
    document: tokenizer_json.Json, vocabulary: Mapping[str, int], added: list[tuple[int, str, bool]]
) -> tuple[list[bytes | None], bool, bytes]:
    """The bytes of each id, whether decoding strips a leading space, and bytes without an id."""
    splitters = _parts(document, "pre_tokenizer", "pretokenizers", _PRE_TOKENIZERS)
    decoders = _parts(document, "decoder", "decoders", _DECODERS)
    model = document["model"]
    falls_back = isinstance(model, dict) and model.get("byte_fallback") is True
    byte_level = [part["type"] for part in decoders] == ["ByteLevel"]
    table: list[bytes | None] = [None] * (
        1 + max([*vocabulary.values(), *(i for i, _, _ in added)])
    )
    if byte_level and any(part["type"] == "ByteLevel" for part in splitters):
        for token, i in vocabulary.items():
            data = tokenizer_json.unicode_to_bytes(token)
            table[i] = encode_utf8(token) if data is None else data
    elif falls_back and not byte_level:
        for token, i in vocabulary.items():
            byte = _FALLBACK.fullmatch(token)
            table[i] = (
                bytes([int(byte[1], 16)]) if byte else encode_utf8(token.replace(_BLANK, " "))
            )
    else:
        raise TokenizerError(
            "tokenizer.json is neither byte-level nor falls back to bytes",
            hint="such a tokenizer loses every character that it does not know",
        )
    missing = bytes(
        byte
        for byte, letter in tokenizer_json.LETTER_OF.items()
        if (letter if byte_level else f"<0x{byte:02X}>") not in vocabulary
    )
    if missing and (not byte_level or _NEEDED.intersection(missing)):
        raise TokenizerError(
            f"tokenizer.json lacks {len(missing)} of the 256 tokens for single bytes",
            hint="such a tokenizer loses every character that it does not know",
        )
    for i, name, _ in added:
        if vocabulary.get(name, i) != i or (name not in vocabulary and table[i] is not None):
            raise TokenizerError(f"tokenizer.json gives the id of {name[:50]!r} to two tokens")
        table[i] = encode_utf8(name)
    strips = any(
        (part["type"] == "Strip" and part.get("start") == 1)
        or (part["type"] == "Metaspace" and part.get("prepend_scheme", "always") != "never")
        for part in decoders
    )
    return table, strips, missing


def _role(name: str | None, ids: Mapping[str, int]) -> int | None:
    if name is not None and name not in ids:
        raise TokenizerError(
            f"{tokenizer_json.CONFIG} names {name[:50]!r}, which is not in the vocabulary"
        )
    return None if name is None else ids[name]


def _backend(data: bytes, added: list[tuple[int, str, bool]]) -> "Backend":
    from tokenizers import Tokenizer as Backend  # noqa: PLC0415 - only who imports waits for it

    with _telling():
        backend = Backend.from_str(data.decode("utf-8"))
        backend.no_padding()
        backend.no_truncation()
    for i, name, _ in added:
        if backend.token_to_id(name) != i:
            raise TokenizerError(f"tokenizer.json: the id of {name[:50]!r} leaves a gap before it")
    return backend


@contextmanager
def _telling() -> Iterator[None]:
    """Turn the library's exceptions, its panics included, into a TokenizerError."""
    try:
        yield
    except BaseException as error:
        # The library's PanicException derives from BaseException and cannot be imported.
        if isinstance(error, Exception) or type(error).__name__ == "PanicException":
            raise TokenizerError(
                f"the `tokenizers` library cannot use this tokenizer.json: {str(error)[:200]}",
                hint="the file is damaged, or the text too much for it",
            ) from None
        raise
