"""The tokenizer of a model: a tokenizer.json, with which the `tokenizers` library encodes.

Supported kinds: byte-level BPE (ours, GPT-2, Llama 3, Qwen) and BPE with byte fallback (Llama 2,
Gemma).
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ownwords.tokenizers import tokenizer_json
from ownwords.tokenizers.text import TokenizerError, encode_utf8
from ownwords.tokenizers.tokenizer_json import SpecialTokensConfig

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Backend

Ids = npt.NDArray[np.uint32]

_REPLACEMENT = "\ufffd"
_BATCH = 1024  # texts encoded together, since the library keeps some 100 bytes per token of them


class Tokenizer:
    """Encodes text to token ids and decodes them; `template` is the chat template, if any.

    `special` maps the names of special tokens to their ids. `start` begins a document in training,
    and `adds_start` says whether a prompt begins with it, too. Ids are those of the `tokenizers`
    library. Lossless except where the tokenizer itself is not: with a normaliser (Qwen: NFC),
    decoding returns the normalised text, and sentencepiece tokenizers treat U+2581 as a space. A
    character with a byte that the vocabulary lacks becomes U+FFFD; `replaced` counts these.
    """

    def __init__(self, files: Mapping[str, bytes]) -> None:
        """Load the files of a model directory by name; unknown names are ignored."""
        if tokenizer_json.TOKENIZER not in files:
            raise TokenizerError(f"the model's files lack {tokenizer_json.TOKENIZER}")
        document = tokenizer_json.read(tokenizer_json.TOKENIZER, files[tokenizer_json.TOKENIZER])
        self._document = document
        self._roles = SpecialTokensConfig.read(files, document)
        self._files = {name: files[name] for name in tokenizer_json.FILES if name in files}
        tokenizer_json.check_parts(document)
        self._backend = _backend(document, files[tokenizer_json.TOKENIZER])
        vocabulary = self._backend.get_vocab(with_added_tokens=False)
        added = self._backend.get_added_tokens_decoder()
        # The bytes of each token, for a special one its name in UTF-8; None where an id is unused.
        self.table, self._strips, self._missing = tokenizer_json.token_table(
            document, vocabulary, {i: token.content for i, token in added.items()}
        )
        self.special = {token.content: i for i, token in sorted(added.items()) if token.special}
        self.start = _role(self._roles.start, self.special | vocabulary)
        self.end = _role(self._roles.end, self.special | vocabulary)
        self.template = self._roles.template
        self.adds_start = self._roles.adds_start
        self.replaced = 0
        self._lock = Lock()

    @property
    def vocabulary_size(self) -> int:
        return len(self.table)

    @cached_property
    def gaps(self) -> Sequence[int]:
        """The unused ids below the size of the vocabulary."""
        return [i for i, piece in enumerate(self.table) if piece is None]

    @cached_property
    def _sorted(self) -> tuple[list[bytes], Ids]:
        """The bytes of all tokens but the special ones, in order, and their ids."""
        special = set(self.special.values())
        pairs = sorted((x, i) for i, x in enumerate(self.table) if x and i not in special)
        return [piece for piece, _ in pairs], np.array([i for _, i in pairs], np.uint32)

    def ids_that_begin(self, data: bytes) -> Ids:
        """Return the tokens that begin with `data`.

        If there are none, the tokens that `data` begins with."""
        pieces, ids = self._sorted
        beyond = bisect_left(pieces, data + b"\xff" * 8)  # which no text holds
        whole = ids[bisect_left(pieces, data) : beyond]
        starts = [data[:size] for size in range(1, len(data))]
        parts = [ids[bisect_left(pieces, each) : bisect_right(pieces, each)] for each in starts]
        return whole if len(whole) or not parts else np.concatenate(parts)

    @property
    def row_start(self) -> int | None:
        """The id that every row of a training batch begins with, if the model was pretrained so.

        Without its start token, Gemma predicts poorly for hundreds of tokens.
        """
        begins = tokenizer_json.begins_with_token(self._document.get("post_processor"))
        return self.start if begins and self.adds_start else None

    def encode(self, text: str, *, special: bool = False) -> list[int]:
        """Return the ids of a text; with `special`, names of special tokens become their ids."""
        text = self._writable(text)
        with self._lock:  # encode_special_tokens is state of the backend, not of the call
            self._backend.encode_special_tokens = not special
            with _library_errors():
                return self._backend.encode(text, add_special_tokens=False).ids

    def encode_batch(self, texts: Iterable[str]) -> list[Ids]:
        """Return the ids of each text, on all cores, or RAYON_NUM_THREADS."""
        ids: list[Ids] = []
        left = map(self._writable, texts)
        while batch := list(islice(left, _BATCH)):
            with self._lock:
                self._backend.encode_special_tokens = True
                with _library_errors():
                    encodings = self._backend.encode_batch_fast(batch, add_special_tokens=False)
            ids += [np.array(encoding.ids, np.uint32) for encoding in encodings]
        return ids

    def _writable(self, text: str) -> str:
        """Return the text with U+FFFD for each character that the vocabulary has no bytes for."""
        data = encode_utf8(text)
        if not self._missing or len(data.translate(None, self._missing)) == len(data):
            return text
        letters = [
            _REPLACEMENT if any(byte in self._missing for byte in letter.encode()) else letter
            for letter in text
        ]
        self.replaced += sum(map(str.__ne__, letters, text))
        return "".join(letters)

    def decode_bytes(self, ids: Iterable[int]) -> bytes:
        """Return the bytes of the tokens (special ones: their names); unknown ids are errors."""
        return b"".join(self._pieces(ids))

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of the tokens; bytes that are not valid UTF-8 become U+FFFD."""
        return self.decode_bytes(ids).decode("utf-8", "replace")

    def _pieces(self, ids: Iterable[int]) -> Iterator[bytes]:
        table, size = self.table, len(self.table)
        strips = self._strips  # the space that encoding put before the text
        for i in ids:
            piece = table[i] if 0 <= i < size else None
            if piece is None:
                raise TokenizerError(
                    f"there is no token {i}: this tokenizer has {size:,}",
                    hint="the ids were made with another tokenizer",
                )
            yield piece.removeprefix(b" ") if strips else piece
            strips = False

    def files(self) -> dict[str, bytes]:
        """Return the files as they were read, with the current chat template and `adds_start`."""
        roles = replace(self._roles, template=self.template, adds_start=self.adds_start)
        if roles == self._roles and tokenizer_json.CONFIG in self._files:
            return dict(self._files)
        config = roles.config()
        if tokenizer_json.CONFIG in self._files:
            kept = tokenizer_json.read(tokenizer_json.CONFIG, self._files[tokenizer_json.CONFIG])
            changed = ("chat_template", "add_bos_token")
            config |= {name: kept[name] for name in kept if name not in changed}
        files = self._files | {tokenizer_json.CONFIG: tokenizer_json.write(config)}
        files.pop(tokenizer_json.TEMPLATE, None)
        return files

    def fingerprint(self) -> str:
        """Return a hash of the text-to-ids mapping, stable across saving, loading and importing."""
        return self._fingerprint

    @cached_property
    def _fingerprint(self) -> str:
        return tokenizer_json.fingerprint(self._document)


def load(folder: Path) -> Tokenizer:
    """Load the tokenizer of a folder."""
    paths = [folder / name for name in tokenizer_json.FILES]
    return Tokenizer({path.name: path.read_bytes() for path in paths if path.exists()})


def _role(name: str | None, ids: Mapping[str, int]) -> int | None:
    if name is not None and name not in ids:
        raise TokenizerError(
            f"{tokenizer_json.CONFIG} names {name[:50]!r}, which is not in the vocabulary"
        )
    return None if name is None else ids[name]


def _backend(document: tokenizer_json.Json, data: bytes) -> "Backend":
    from tokenizers import Tokenizer as Backend  # noqa: PLC0415 - slow

    with _library_errors():
        backend = Backend.from_str(data.decode("utf-8"))
        backend.no_padding()
        backend.no_truncation()
    entries = document.get("added_tokens")
    for entry in entries if isinstance(entries, list) else ():
        if backend.token_to_id(entry["content"]) != entry["id"]:  # the library chose another id
            raise TokenizerError(
                f"tokenizer.json: the id {entry['id']} of {entry['content'][:50]!r} belongs to"
                " another token, or leaves a gap before it"
            )
    return backend


@contextmanager
def _library_errors() -> Iterator[None]:
    """Turn the library's exceptions, its panics included, into a TokenizerError."""
    try:
        yield
    except BaseException as error:
        # The library's PanicException derives from BaseException and cannot be imported.
        if isinstance(error, Exception) or type(error).__name__ == "PanicException":
            raise TokenizerError(
                f"the `tokenizers` library cannot use this tokenizer.json: {str(error)[:200]}",
                hint="the file is damaged, or the text is too long for it",
            ) from None
        raise
