"""Embeds texts with a BERT model from a folder in sentence-transformers' layout.

    modules.json                      the list of parts: the model, the pooling
    config.json  model.safetensors    the model
    tokenizer.json                    its tokenizer
    sentence_bert_config.json         the maximum number of tokens of a text
    1_Pooling/config.json             mean of all tokens, or the first one
    config_sentence_transformers.json what to put before questions and passages, if anything

The folder is checked when it is opened; the weights are read when the first text is embedded. The
compiled library computes, or NumPy where it is missing; PyTorch is not needed.
"""

import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

from ownwords.core.errors import ConfigError, OwnwordsError
from ownwords.core.fingerprint import digest
from ownwords.core.hardware import usable_cores
from ownwords.models.bert import Bert, Pooling, load_weights
from ownwords.models.configs.bert import BertConfig
from ownwords.models.directory import tokens_digest
from ownwords.models.safetensors_header import TensorInfo
from ownwords.models.untrusted_files import (
    ModelError,
    open_file,
    parse_json,
    preview,
    read_bytes,
    read_json,
)
from ownwords.models.weight_mapping import find_tensors
from ownwords.native.bindings import load_library
from ownwords.native.encoder import NativeEncoder

if TYPE_CHECKING:
    from tokenizers import Tokenizer

MODULES = "modules.json"
_PROMPTS = "config_sentence_transformers.json"
_TRANSFORMER, _POOLING, _NORMALIZE = "Transformer", "Pooling", "Normalize"
_KINDS = frozenset({"WordPiece", "Unigram"})  # of sentence-transformers' BERT models
_MOST_TOKENIZER_BYTES = 64 << 20
# Per call: enough to read each weight once for many tokens, few enough for the cache.
_TOKENS_AT_ONCE = 512
_SAMPLES, _SAMPLE_BYTES = 64, 1024  # of the weights, for the fingerprint
_FOLDER = re.compile(r"[A-Za-z0-9_-]{1,64}")
_ELSEWHERE = "sentence-transformers/all-MiniLM-L6-v2 is one that can be used"

Vectors = npt.NDArray[np.float32]


class _Encoder(Protocol):
    """Makes unit vectors of token ids; several threads may call it at once."""

    def vectors(self, texts: Sequence[Sequence[int]]) -> Vectors: ...


class SentenceModel:
    """Makes unit vectors of texts, equal to those of sentence-transformers with this folder.

    `name` identifies the model; stored vectors are keyed by it. Only the first `max_tokens` tokens
    of a text are used. `embed` adds no prompt.
    """

    def __init__(self, folder: Path, name: str = "") -> None:
        """Raise ModelError or ConfigError if a file is missing, damaged or unsupported."""
        if not (folder / MODULES).is_file():
            raise ModelError(
                f"{folder} holds no {MODULES}: it is no folder of a sentence-embedding model",
                hint=f"{_ELSEWHERE}; copy its whole folder",
            )
        self._folder = folder
        pooling = _pooling_folder(folder)
        self._pooling = _pooling(read_json(folder / pooling / "config.json"), folder / pooling)
        data = read_bytes(folder / "config.json", _MOST_TOKENIZER_BYTES)
        self._config = BertConfig.from_hf(parse_json(data, str(folder / "config.json")))
        self.dimensions = self._config.width
        self.max_tokens, self._lowercase = _sequence_length(folder, self._config)
        vocabulary = _read_tokenizer(folder)
        tokens = tokens_digest(vocabulary, str(folder / "tokenizer.json"), self._config)
        self._tokenizer = _tokenizer(vocabulary, self.max_tokens, folder)
        weights = _fingerprint(find_tensors(folder))
        self.question_prompt, self.passage_prompt = _prompts(folder)
        prompts = [self.passage_prompt] if self.passage_prompt else []
        key = digest(data, tokens, weights, self._pooling, str(self.max_tokens), *prompts)
        self.name = f"{name or folder.resolve().name} {key[:8]}"
        self._lock = Lock()

    def embed(self, texts: Sequence[str]) -> Vectors:
        """A unit vector for each text as it is, as rows in order."""
        if not texts:
            return np.empty((0, self.dimensions), np.float32)
        ids = self._ids(texts)
        batches = list(_batches([len(text) for text in ids]))
        parts = [ids[begin:end] for begin, end in batches]
        encoder = self._encoder
        if len(parts) == 1:  # a question, for example
            return encoder.vectors(ids)
        with ThreadPoolExecutor(usable_cores()) as threads:
            return np.concatenate(list(threads.map(encoder.vectors, parts)))

    def count(self, texts: Sequence[str]) -> int:
        """The number of tokens used of these texts, at most `max_tokens` of each."""
        return sum(map(len, self._ids(texts)))

    def decode(self, ids: Sequence[int]) -> str:
        """The text of token ids. Raises ConfigError for ids outside the vocabulary."""
        size = self._tokenizer.get_vocab_size()
        if outside := [i for i in ids if not 0 <= i < size]:
            raise ConfigError(
                f"the token id {outside[0]:,} is not in the vocabulary of {self.name}",
                hint="send texts, or the token ids of this model's own tokenizer",
            )
        text: str = self._tokenizer.decode(list(ids), skip_special_tokens=True)
        return text

    def _ids(self, texts: Sequence[str]) -> list[list[int]]:
        data = [text.strip() for text in texts]
        if self._lowercase:
            data = [text.lower() for text in data]
        with _translate_tokenizer_errors(self._folder):
            encoded = self._tokenizer.encode_batch(
                [text.encode("utf-8", "replace").decode("utf-8") for text in data]
            )
        return [encoding.ids for encoding in encoded]

    @cached_property
    def _loaded(self) -> _Encoder:
        config, weights = load_weights(self._folder)
        if library := load_library():
            return NativeEncoder(library, config, weights, pool_first=self._pooling == "cls")
        return Bert(config, weights, self._pooling)

    @property
    def _encoder(self) -> _Encoder:
        with self._lock:  # a server may start with two requests at once
            return self._loaded


def _batches(lengths: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the range of the texts of each batch."""
    begin = tokens = 0
    for at, length in enumerate(lengths):
        if at > begin and tokens + length > _TOKENS_AT_ONCE:
            yield begin, at
            begin, tokens = at, 0
        tokens += length
    yield begin, len(lengths)


def _pooling_folder(folder: Path) -> str:
    """The name of the pooling folder; ModelError if modules.json lists unsupported parts."""
    data = read_bytes(folder / MODULES, 1 << 20)
    # The file holds a list, but `parse_json` takes an object.
    modules = parse_json(b'{"modules":' + data + b"}", str(folder / MODULES))["modules"]
    listed = modules if isinstance(modules, list) else []
    listed = [each for each in listed if isinstance(each, dict)]
    kinds = [str(each.get("type", "")).rpartition(".")[2] for each in listed]
    if kinds not in ([_TRANSFORMER, _POOLING], [_TRANSFORMER, _POOLING, _NORMALIZE]):
        raise ModelError(
            f"{folder / MODULES} lists {preview(kinds) or 'nothing'}; known is a {_TRANSFORMER},"
            f" then a {_POOLING}, then at most a {_NORMALIZE}",
            hint=_ELSEWHERE,
        )
    first, second = (str(each.get("path", "")) for each in listed[:2])
    if first or not _FOLDER.fullmatch(second):
        raise ModelError(f"{folder / MODULES} has its parts in {preview([first, second])}")
    return second


def _pooling(data: dict[str, object], where: Path) -> Pooling:
    modes = {name: value for name, value in data.items() if name.startswith("pooling_mode")}
    newer = modes.pop("pooling_mode", None)  # later versions write this instead of the flags
    chosen = [name.removeprefix("pooling_mode_") for name, value in modes.items() if value is True]
    named = [newer] if isinstance(newer, str) else chosen
    if named in (["mean"], ["mean_tokens"]):
        return "mean"
    if named in (["cls"], ["cls_token"]):
        return "cls"
    raise ModelError(
        f"{where} pools by {preview([str(one) for one in named]) or 'nothing'}; known are the mean"
        " of all tokens and the first one (cls)",
        hint=_ELSEWHERE,
    )


def _sequence_length(folder: Path, config: BertConfig) -> tuple[int, bool]:
    """The maximum number of tokens of a text, and whether texts are lower-cased first."""
    path = folder / "sentence_bert_config.json"
    data = read_json(path) if path.exists() else {}
    max_tokens = data.get("max_seq_length")
    if max_tokens is None and (folder / "tokenizer_config.json").exists():
        max_tokens = read_json(folder / "tokenizer_config.json").get("model_max_length")
    if max_tokens is None:
        max_tokens = config.context
    if (
        isinstance(max_tokens, bool)
        or not isinstance(max_tokens, int | float)
        or not max_tokens >= 3
    ):
        raise ModelError(f"{path} has max_seq_length = {max_tokens!r:.40}")
    # tokenizer_config.json of old models has a number of 31 digits for "no limit".
    return int(min(max_tokens, config.context)), data.get("do_lower_case") is True


def _prompts(folder: Path) -> tuple[str, str]:
    """What stands before a question and before a passage, by sentence-transformers' names."""
    path = folder / _PROMPTS
    data = read_json(path) if path.exists() else {}
    found = data.get("prompts")
    if found is None:
        return "", ""
    if not isinstance(found, dict) or not all(isinstance(text, str) for text in found.values()):
        raise ModelError(f"{path} has prompts that are not texts: {found!r:.80}")
    prompts: dict[str, str] = found
    default = prompts.get(str(data.get("default_prompt_name")), "")
    named = (prompts[name] for name in ("document", "passage", "corpus") if name in prompts)
    return prompts.get("query", default), next(named, default)


def _read_tokenizer(folder: Path) -> bytes:
    path = folder / "tokenizer.json"
    if not path.exists():
        raise ModelError(
            f"{folder} holds no tokenizer.json",
            hint="transformers writes it with"
            " AutoTokenizer.from_pretrained(...).save_pretrained(folder)",
        )
    return read_bytes(path, _MOST_TOKENIZER_BYTES)


def _tokenizer(data: bytes, max_tokens: int, folder: Path) -> "Tokenizer":
    model = parse_json(data, str(folder / "tokenizer.json")).get("model")
    kind = model.get("type", "WordPiece") if isinstance(model, dict) else None
    if kind not in _KINDS:
        raise ModelError(
            f"{folder / 'tokenizer.json'} is of kind {kind!r:.40}; known are"
            f" {' and '.join(sorted(_KINDS))}",
            hint=_ELSEWHERE,
        )
    try:
        from tokenizers import Tokenizer  # noqa: PLC0415 - only who asks for vectors waits for it
    except ModuleNotFoundError as error:
        raise OwnwordsError(
            "vectors of meaning take the `tokenizers` library, which is not installed",
            hint='pip install "ownwords[embed]"',
        ) from error
    with _translate_tokenizer_errors(folder):
        tokenizer = Tokenizer.from_str(data.decode("utf-8"))
        # Replace the padding and truncation stored in the file, such as 128 tokens: they may be
        # left over from an earlier use.
        tokenizer.no_padding()
        tokenizer.enable_truncation(max_tokens)
    return tokenizer


@contextmanager
def _translate_tokenizer_errors(folder: Path) -> Iterator[None]:
    """Turn the library's exceptions and panics into a ModelError."""
    try:
        yield
    except BaseException as error:
        # The library's panics derive from BaseException, and their class cannot be imported.
        if isinstance(error, Exception) or type(error).__name__ == "PanicException":
            raise ModelError(
                f"the `tokenizers` library cannot use {folder / 'tokenizer.json'}:"
                f" {str(error)[:200]}",
                hint="the file is damaged: copy it again",
            ) from None
        raise


def _fingerprint(stored: dict[str, TensorInfo]) -> str:
    """A key of the weights: names, types, shapes and samples; reading them all takes a second."""
    parts: list[bytes] = []
    for path in sorted({each.path for each in stored.values()}):
        here = [each for each in stored.values() if each.path == path]
        parts += [f"{one.name} {one.dtype} {one.shape}".encode() for one in here]
        size = path.stat().st_size
        with open_file(path) as file:
            for number in range(_SAMPLES):
                file.seek(max(0, size - _SAMPLE_BYTES) * number // (_SAMPLES - 1))
                parts.append(file.read(_SAMPLE_BYTES))
    return digest(*parts)
