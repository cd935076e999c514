"""The interface that every tokenizer implements, and loading one from a model directory."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from ownwords.tokenizers import tokenizer_json
from ownwords.tokenizers.bpe import BPETokenizer
from ownwords.tokenizers.byte_tokenizer import ByteTokenizer
from ownwords.tokenizers.hf_tokenizer import HFTokenizer
from ownwords.tokenizers.text import TokenizerError


class Tokenizer(Protocol):
    """Encodes text to token ids and decodes them; `template` is the chat template, if any."""

    template: str | None
    replaced: int
    adds_start: bool

    @property
    def vocabulary_size(self) -> int: ...
    @property
    def gaps(self) -> Sequence[int]: ...
    @property
    def special(self) -> Mapping[str, int]: ...
    @property
    def start(self) -> int | None: ...
    @property
    def end(self) -> int | None: ...
    @property
    def row_start(self) -> int | None: ...

    def encode(self, text: str, *, special: bool = False) -> list[int]: ...
    def encode_batch(
        self, texts: Iterable[str], *, threads: int | None = None
    ) -> Sequence[npt.NDArray[np.uint32]]: ...
    def decode(self, ids: Iterable[int]) -> str: ...
    def decode_bytes(self, ids: Iterable[int]) -> bytes: ...
    def stream(self, ids: Iterable[int]) -> Iterator[str]: ...
    def files(self) -> dict[str, bytes]: ...
    def fingerprint(self) -> str: ...


def load(folder: Path) -> Tokenizer:
    """Load the tokenizer of a model directory."""
    files = {}
    for name in tokenizer_json.FILES:
        path = folder / name
        try:
            if path.stat().st_size > tokenizer_json.LARGEST:
                raise TokenizerError(f"{path} is larger than any tokenizer")
            files[name] = path.read_bytes()
        except FileNotFoundError:
            continue
        except OSError as error:
            raise TokenizerError(f"{path} cannot be read: {error.strerror}") from error
    if tokenizer_json.TOKENIZER not in files:
        raise TokenizerError(
            f"{folder} holds no {tokenizer_json.TOKENIZER}",
            hint="a model needs the tokenizer it was trained with; copy the whole directory",
        )
    return from_files(files)


def from_files(files: Mapping[str, bytes]) -> Tokenizer:
    """Load a tokenizer from file contents by name; unknown names are ignored.

    A tokenizer.json equal to what one of our own tokenizers would write is loaded as that
    tokenizer, whatever wrote it; any other is loaded through the `tokenizers` library.
    """
    if tokenizer_json.TOKENIZER not in files:
        raise TokenizerError(f"there is no {tokenizer_json.TOKENIZER}")
    document = tokenizer_json.read(tokenizer_json.TOKENIZER, files[tokenizer_json.TOKENIZER])
    roles = tokenizer_json.SpecialTokensConfig.read(files, document)
    for ours in (BPETokenizer, ByteTokenizer):
        if found := ours.from_document(document, roles):
            return found
    return HFTokenizer(document, roles, files)
