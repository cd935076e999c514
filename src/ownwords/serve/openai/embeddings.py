"""POST /v1/embeddings: computes vectors with the embedder of the archive's search."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Protocol, runtime_checkable

from starlette.requests import Request
from starlette.responses import Response

from ownwords.ask.encoder import Embedder
from ownwords.core.validation import Meta
from ownwords.serve.app_state import AppState
from ownwords.serve.errors import invalid, no_such_model, unsupported
from ownwords.serve.json_body import read_body
from ownwords.serve.openai.formatters import JsonObject
from ownwords.serve.openai.request_params import text_or_ids
from ownwords.serve.sse import to_json

MAX_TEXTS = 2048  # as in OpenAI's API


@dataclass(frozen=True, kw_only=True)
class EmbeddingRequest:
    """The body of a POST to /v1/embeddings."""

    model: Annotated[str, Meta(min_length=1)]
    input: Any
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: Annotated[int, Meta(ge=1, le=1 << 20)] | None = None

    def __post_init__(self) -> None:
        if isinstance(self.input, list) and len(self.input) > MAX_TEXTS:
            raise invalid(
                f"input must have at most {MAX_TEXTS:,} items, not {len(self.input):,}",
                param="input",
                code="invalid_value",
            )
        if any(not text for text in self.inputs):
            raise invalid("input holds an empty text", param="input", code="invalid_value")

    @property
    def inputs(self) -> tuple[str | Sequence[int], ...]:
        """The inputs, each as a text or as token ids."""
        if isinstance(self.input, str):
            return (self.input,)
        return text_or_ids(self.input, "input")


@runtime_checkable
class _Counting(Protocol):
    """An embedder that can count tokens; one at an endpoint cannot."""

    def count(self, texts: Sequence[str]) -> int: ...


@runtime_checkable
class _Decoding(Protocol):
    """An embedder that can decode token ids."""

    def decode(self, ids: Sequence[int]) -> str: ...


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
    texts = [x if isinstance(x, str) else _decode(embedder, x) for x in asked.inputs]
    rows = embedder.embed(texts).astype("<f4", copy=False)
    is_base64 = asked.encoding_format == "base64"
    data = [
        {
            "object": "embedding",
            "index": i,
            "embedding": base64.b64encode(row.tobytes()).decode() if is_base64 else row.tolist(),
        }
        for i, row in enumerate(rows)
    ]
    tokens = embedder.count(texts) if isinstance(embedder, _Counting) else 0
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return {"object": "list", "data": data, "model": name, "usage": usage}


def _decode(embedder: Embedder, ids: Sequence[int]) -> str:
    """Decode token ids with the embedder's own tokenizer."""
    if not isinstance(embedder, _Decoding):
        raise unsupported("input", f"as token ids: the tokenizer of {embedder.name} is unknown")
    return embedder.decode(ids)
