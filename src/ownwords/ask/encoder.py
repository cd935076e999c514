"""Encoders for the search by meaning: by name, or in a folder.

A folder is in sentence-transformers' layout:

    modules.json                      the list of parts: the model, the pooling
    config.json  model.safetensors    the model
    tokenizer.json                    its tokenizer
    sentence_bert_config.json         the maximum number of tokens of a text
    1_Pooling/config.json             mean of all tokens, or the first one
    config_sentence_transformers.json what to put before questions and passages, if anything

It is checked when it is opened; the weights are read when the first text is embedded. The compiled
library computes, or NumPy where it is missing; PyTorch is not needed.
"""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from ownwords.ask.known_encoders import (
    KNOWN,
    MODULES,
    PROMPTS,
    install,
    installed,
    tokenizers_missing,
)
from ownwords.ask.passages import windows
from ownwords.core.errors import ConfigError, InUseError
from ownwords.core.fingerprint import digest
from ownwords.core.hardware import usable_cores
from ownwords.core.packages import install_command
from ownwords.core.progress import Progress, print_answer, reporting_job
from ownwords.core.workspace import locked
from ownwords.models.bert import Bert, BertConfig, NativeBert, Pooling, load_weights
from ownwords.models.configs.config import check_size
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

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from ownwords.ask.index import SearchIndex

Vectors = npt.NDArray[np.float32]

_KINDS = frozenset({"WordPiece", "Unigram"})  # of sentence-transformers' BERT models
_POOLINGS: Final[dict[str, Pooling]] = {
    "mean": "mean", "mean_tokens": "mean", "cls": "cls", "cls_token": "cls",
}  # fmt: skip
_MAX_TOKENIZER_BYTES = 64 << 20
# Per call: enough to read each weight once for many tokens, few enough for the cache.
_TOKENS_AT_ONCE = 256
_SAMPLE_BYTES = 1 << 20  # of each file of weights
_ELSEWHERE = "sentence-transformers/all-MiniLM-L6-v2 is one that can be used"


class SentenceModel:
    """Makes unit vectors of texts, equal to those of sentence-transformers with this folder.

    `name` identifies the model; stored vectors are keyed by it. Only the first `max_tokens` tokens
    of a text are used. `embed` adds no prompt.
    """

    def __init__(
        self, folder: Path, name: str = "", cosine_scale: tuple[float, float] | None = None
    ) -> None:
        """Raise ModelError or ConfigError if a file is missing, damaged or unsupported."""
        if not (folder / MODULES).is_file():
            raise ModelError(
                f"{folder} holds no {MODULES}: it is no folder of a sentence-embedding model",
                hint=f"{_ELSEWHERE}; copy its whole folder",
            )
        self._folder, self.cosine_scale = folder, cosine_scale
        data = read_bytes(folder / "config.json", _MAX_TOKENIZER_BYTES)
        config = BertConfig.from_hf(parse_json(data, str(folder / "config.json")))
        self.dimensions = config.width
        try:
            self._pooling = _pooling(folder)
            self.max_tokens, self._lowercase = _sequence_length(folder, config)
            self.question_prompt, self.passage_prompt = _prompts(folder)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            raise ModelError(
                f"the settings in {folder} are not those of a sentence-embedding model: {error!r}",
                hint=_ELSEWHERE,
            ) from error
        self._tokenizer, vocabulary = _tokenizer(folder, self.max_tokens, config)
        settings = (data, vocabulary, self._pooling, str(self.max_tokens), self.passage_prompt)
        samples = []  # the end of each file tells weights apart; reading them all takes a second
        for path in sorted({each.path for each in find_tensors(folder).values()}):
            with open_file(path) as file:
                file.seek(max(0, path.stat().st_size - _SAMPLE_BYTES))
                samples.append(file.read())
        self.name = f"{name or folder.resolve().name} {digest(*settings, *samples)[:8]}"

    def embed(self, texts: Sequence[str]) -> Vectors:
        """A unit vector for each text as it is, as rows in order."""
        if not texts:
            return np.empty((0, self.dimensions), np.float32)
        with ThreadPoolExecutor(usable_cores()) as threads:
            batches = threads.map(self._encoder.vectors, _batches(self._ids(texts)))
            return np.concatenate(list(batches))

    def _ids(self, texts: Sequence[str]) -> list[list[int]]:
        data = [text.strip().encode("utf-8", "replace").decode("utf-8") for text in texts]
        if self._lowercase:
            data = [text.lower() for text in data]
        return [encoding.ids for encoding in self._tokenizer.encode_batch(data)]

    @cached_property
    def _encoder(self) -> Bert | NativeBert:
        config, weights = load_weights(self._folder)
        if library := load_library():
            return NativeBert(library, config, weights, pool_first=self._pooling == "cls")
        return Bert(config, weights, self._pooling)


def _batches(texts: Sequence[list[int]]) -> Iterator[list[list[int]]]:
    batch: list[list[int]] = []
    tokens = 0
    for ids in texts:
        if batch and tokens + len(ids) > _TOKENS_AT_ONCE:
            yield batch
            batch, tokens = [], 0
        batch.append(ids)
        tokens += len(ids)
    yield batch


def _pooling(folder: Path) -> Pooling:
    """How hidden states become a vector; ModelError if the folder lists unsupported parts."""
    # The file holds a list, but `parse_json` takes an object.
    data = b'{"modules":' + read_bytes(folder / MODULES, 1 << 20) + b"}"
    modules: Any = parse_json(data, str(folder / MODULES))["modules"]
    kinds = [each["type"].rpartition(".")[2] for each in modules]
    if kinds not in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]):
        raise ModelError(
            f"{folder / MODULES} lists {preview(kinds) or 'nothing'}; known is a Transformer, then"
            " a Pooling, then at most a Normalize",
            hint=_ELSEWHERE,
        )
    first, second = (each["path"] for each in modules[:2])
    if first or not second.replace("_", "").isalnum():
        raise ModelError(f"{folder / MODULES} has its parts in {preview([first, second])}")
    settings = read_json(folder / second / "config.json")
    # Later versions of sentence-transformers write a name instead of the flags.
    flags = [name for name, on in settings.items() if on is True and "pooling_mode_" in name]
    flags = [name.removeprefix("pooling_mode_") for name in flags]
    names = [str(settings["pooling_mode"])] if "pooling_mode" in settings else flags
    if len(names) != 1 or names[0] not in _POOLINGS:
        raise ModelError(
            f"{folder / second} pools by {preview(names) or 'nothing'}; known are the mean of all"
            " tokens and the first one (cls)",
            hint=_ELSEWHERE,
        )
    return _POOLINGS[names[0]]


def _settings(path: Path) -> dict[str, Any]:
    return read_json(path) if path.exists() else {}


def _sequence_length(folder: Path, config: BertConfig) -> tuple[int, bool]:
    """The maximum number of tokens of a text, and whether texts are lower-cased first."""
    settings = _settings(folder / "sentence_bert_config.json")
    longest = settings.get("max_seq_length")
    if longest is None:
        longest = _settings(folder / "tokenizer_config.json").get("model_max_length")
    # tokenizer_config.json of old models has a number of 31 digits for "no limit".
    longest = min(int(longest or config.context), config.context)
    if longest < 3:
        raise ValueError(f"a text of at most {longest} tokens")
    return longest, settings.get("do_lower_case") is True


def _prompts(folder: Path) -> tuple[str, str]:
    """What stands before a question and before a passage, by sentence-transformers' names."""
    settings = _settings(folder / PROMPTS)
    prompts = settings.get("prompts") or {}
    default = prompts.get(str(settings.get("default_prompt_name")), "")
    named = (prompts[name] for name in ("document", "passage", "corpus") if name in prompts)
    return "" + prompts.get("query", default), "" + next(named, default)


def _tokenizer(folder: Path, max_tokens: int, config: BertConfig) -> tuple["Tokenizer", bytes]:
    """The tokenizer, and the file that it is in."""
    path = folder / "tokenizer.json"
    data = read_bytes(path, _MAX_TOKENIZER_BYTES)
    try:
        from tokenizers import Tokenizer  # noqa: PLC0415 - only who asks for vectors waits for it
    except ModuleNotFoundError as error:
        raise tokenizers_missing() from error
    try:
        tokenizer = Tokenizer.from_str(data.decode("utf-8"))
    except Exception as error:
        hint = "the file is damaged: copy it again"
        raise ModelError(f"`tokenizers` cannot read {path}: {str(error)[:200]}", hint) from error
    if (kind := type(tokenizer.model).__name__) not in _KINDS:
        raise ModelError(
            f"{path} is of kind {kind!r:.40}; known are {' and '.join(sorted(_KINDS))}",
            hint=_ELSEWHERE,
        )
    # Replace the padding and truncation stored in the file: they may be left from an earlier use.
    tokenizer.no_padding()
    tokenizer.enable_truncation(max_tokens)
    check_size(max(tokenizer.get_vocab().values(), default=-1) + 1, config, str(path))
    return tokenizer, data


NONE: Final = "none"
INSTALL: Final = (
    f"{install_command('embed')}, then ask once with --embed {KNOWN[0].name}"
    f" ({KNOWN[0].megabytes} MB)"
)
_BATCH = 32  # passages; an interruption loses at most one batch
_LOCK = ".vectors.lock"


class Embedder(Protocol):
    """Makes unit vectors of texts, so that a dot product is a cosine.

    Vectors are stored by `name`, which tells models apart: those of two models cannot be compared.
    The prompts are what the model was trained to read before a question and a passage ("query: "),
    often nothing. `cosine_scale`, a factor and a summand, makes cosines those of all-MiniLM-L6-v2,
    which say whether the archive answers a question; None if unknown.
    """

    name: str
    question_prompt: str
    passage_prompt: str

    @property
    def cosine_scale(self) -> tuple[float, float] | None: ...
    def embed(self, texts: Sequence[str]) -> "Vectors": ...


def default_encoder() -> str:
    """The name of the first known encoder that is installed; "none" if none is."""
    return next((known.name for known in KNOWN if installed(known)), NONE)


def open_embedder(setting: str, progress: Progress | None = None) -> Embedder | None:
    """The embedder that a setting names.

    "" is the first installed of `known_encoders.KNOWN`, "none" none. One of their names is
    downloaded the first time; nothing else is. Otherwise it is a folder in sentence-transformers'
    layout. OwnwordsError says what is missing.
    """
    setting = setting.strip() or default_encoder()
    if setting == NONE:
        return None
    for known in KNOWN:
        if setting == known.name:
            folder = install(known, progress or Progress(), SentenceModel)
            return SentenceModel(folder, known.title, known.cosine_scale)
    folder = Path(setting).expanduser()
    if not folder.is_dir():
        raise ConfigError(
            f"there is no embedding model {setting!r:.200}: no such folder",
            hint=f"give {', '.join(known.name for known in KNOWN)} or a folder of"
            " sentence-transformers",
        )
    return SentenceModel(folder)


def embed_missing(
    index: "SearchIndex",
    embedder: Embedder,
    progress: Progress | None = None,
    is_stopped: Callable[[], bool] = lambda: False,
) -> int:
    """Compute and store this embedder's missing vectors; returns for how many passages.

    Each batch is stored at once, so the next call resumes where an interrupted one stopped. While
    another process makes them, none is made twice: this call makes none. Once all are there, those
    of a former embedder are deleted.
    """
    if not index.without_vectors(embedder.name):
        return 0
    count = 0
    with ExitStack() as held:
        try:
            held.enter_context(locked(index.path.with_name(_LOCK), "vectors are being made", ""))
        except InUseError:
            return 0
        missing = index.without_vectors(embedder.name)  # another process may just have ended
        stage = held.enter_context(
            (progress or Progress()).stage("Making vectors", len(missing), "passages")
        )
        for start in range(0, len(missing), _BATCH):
            if is_stopped():
                return count
            batch = missing[start : start + _BATCH]
            # Leaves out chunks deleted since they were listed.
            passages = index.passages([(id_, 0.0) for id_ in batch])
            parts = [windows(x.title, x.heading, x.text) for x in passages]
            rows = embedder.embed([embedder.passage_prompt + x for some in parts for x in some])
            ends = list(accumulate(map(len, parts), initial=0))
            entries = [
                (passage.id, rows[begin:end])
                for passage, begin, end in zip(passages, ends, ends[1:], strict=False)
            ]
            index.put_vectors(embedder.name, entries)
            count += len(parts)
            stage.advance(len(batch))
        index.remove_former_vectors(embedder.name)
    return count


def _main(name: str) -> int:
    """Install a known encoder, as a job of the page."""

    def install() -> dict[str, str]:
        progress = Progress()
        with reporting_job(progress, os.environ):
            open_embedder(name, progress)
        return {"name": name}

    return print_answer(install)


if __name__ == "__main__":
    sys.exit(_main(*sys.argv[1:]))
