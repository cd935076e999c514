"""The routes of OpenAI's API, with GET /v1/models and POST /v1/embeddings."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol, runtime_checkable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from ownwords.ask.encoder import Embedder
from ownwords.core.validation import Meta
from ownwords.models.directory import CONFIG
from ownwords.serve.app_state import AppState
from ownwords.serve.errors import invalid, no_such_model, unsupported
from ownwords.serve.json_api import read_body
from ownwords.serve.openai.completions import JsonObject, create_chat_completion, create_completion
from ownwords.serve.sse import to_json

MAX_TEXTS = 2048  # to embed in one request, as in OpenAI's API


def routes(state: AppState) -> list[BaseRoute]:
    """Create the routes under /v1."""
    return [
        Route("/v1/models", partial(list_models, state), methods=["GET"]),
        Route("/v1/models/{name:path}", partial(get_model, state), methods=["GET"]),
        Route("/v1/completions", partial(create_completion, state), methods=["POST"]),
        Route("/v1/chat/completions", partial(create_chat_completion, state), methods=["POST"]),
        Route("/v1/embeddings", partial(create_embeddings, state), methods=["POST"]),
    ]


async def list_models(state: AppState, _: Request) -> Response:
    """All models."""
    models = await _models(state)
    body = to_json({"object": "list", "data": list(models.values())})
    return Response(body, media_type="application/json")


async def get_model(state: AppState, request: Request) -> Response:
    """Return the model with this name."""
    models = await _models(state)
    name = str(request.path_params["name"])
    if name not in models:
        raise no_such_model(f"there is no model {name[:80]!r}", "models: " + ", ".join(models))
    return Response(to_json(models[name]), media_type="application/json")


async def _models(state: AppState) -> dict[str, JsonObject]:
    def read() -> dict[str, JsonObject]:
        return {name: _model(name, _created(path)) for name, path in state.models().items()}

    models = await state.run(read)
    embedder = await state.embedder()
    if embedder is not None and (name := short_name(embedder)) not in models:
        models[name] = _model(name, 0)
    return models


def _model(name: str, created: int) -> JsonObject:
    return {"id": name, "object": "model", "created": created, "owned_by": "ownwords"}


def _created(folder: Path) -> int:
    """The Unix time at which the model was written; 0 if it has just been deleted."""
    try:
        return int((folder / CONFIG).stat().st_mtime)
    except OSError:
        return 0


@dataclass(frozen=True, kw_only=True)
class EmbeddingRequest:
    """The body of a POST to /v1/embeddings."""

    model: Annotated[str, Meta(min_length=1)]
    input: str | list[Any]
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: Annotated[int, Meta(ge=1, le=1 << 20)] | None = None

    def __post_init__(self) -> None:
        if isinstance(self.input, list) and len(self.input) > MAX_TEXTS:
            raise invalid(
                f"input must have at most {MAX_TEXTS:,} items, not {len(self.input):,}",
                param="input",
                code="invalid_value",
            )
        if not all(isinstance(text, str) and text for text in self.texts):
            # Ids would be another tokenizer's: programs count with the one of OpenAI's models.
            raise invalid(
                "input must be text, or a list of texts that are not empty",
                param="input",
                code="invalid_value",
            )

    @property
    def texts(self) -> list[str]:
        """The inputs."""
        return [self.input] if isinstance(self.input, str) else self.input or [""]


@runtime_checkable
class _Counting(Protocol):
    """An embedder that can count tokens; one at an endpoint cannot."""

    def count(self, texts: Sequence[str]) -> int: ...


def short_name(embedder: Embedder) -> str:
    """The embedder's name without the hash of its weights."""
    return embedder.name.partition(" ")[0]


async def create_embeddings(state: AppState, request: Request) -> Response:
    """Compute the vectors of the inputs."""
    asked = await read_body(state, request, EmbeddingRequest)
    embedder = await state.embedder()
    if embedder is None:
        raise invalid(
            "this server has no embedding model",
            hint="start it with --embed and one that `ownwords ask --help` names",
            param="model",
            code="no_embedder",
        )
    name = short_name(embedder)
    if asked.model not in (name, embedder.name):
        if asked.model in await state.run(state.models):
            raise unsupported("model", f"{asked.model} generates text; {name} computes vectors")
        raise no_such_model(
            f"there is no model {asked.model[:80]!r}", f"{name} computes vectors here"
        )
    body = await state.run_long(lambda: to_json(_embed(asked, embedder)))
    return Response(body, media_type="application/json")


def _embed(asked: EmbeddingRequest, embedder: Embedder) -> JsonObject:
    name = short_name(embedder)
    if asked.dimensions not in (None, embedder.dimensions):
        raise unsupported("dimensions", f"the vectors of {name} have {embedder.dimensions}")
    rows = embedder.embed(asked.texts).astype("<f4", copy=False)
    is_base64 = asked.encoding_format == "base64"
    data = [
        {
            "object": "embedding",
            "index": i,
            "embedding": base64.b64encode(row.tobytes()).decode() if is_base64 else row.tolist(),
        }
        for i, row in enumerate(rows)
    ]
    tokens = embedder.count(asked.texts) if isinstance(embedder, _Counting) else 0
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return {"object": "list", "data": data, "model": name, "usage": usage}
