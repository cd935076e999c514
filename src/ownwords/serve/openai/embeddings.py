"""POST /v1/embeddings: texts as vectors, by the embedder that the archive is searched with."""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from starlette.requests import Request
from starlette.responses import Response

from ownwords.ask.embedders import Embedder
from ownwords.serve.app_state import AppState
from ownwords.serve.openai.errors import invalid, missing, no_such_model, unsupported
from ownwords.serve.openai.formatters import JsonObject
from ownwords.serve.openai.json_body import RequestBody, parsed, wrong_kind
from ownwords.serve.openai.sending import as_json

MOST_TEXTS = 2048  # as theirs


@runtime_checkable
class _Counting(Protocol):
    """An embedder that knows how many tokens it reads of texts: not one at an endpoint."""

    def count(self, texts: Sequence[str]) -> int: ...


@dataclass(frozen=True)
class EmbeddingRequest:
    """Texts to be made vectors, and whether these are to come as Base64."""

    model: str
    texts: Sequence[str]
    as_base64: bool
    dimensions: int | None


def name_of(embedder: Embedder) -> str:
    """What it is called, without what tells one state of it from another, or where it is."""
    return embedder.name.partition(" ")[0]


def order_of(given: Mapping[str, object]) -> EmbeddingRequest:
    """The order in the body of a request."""
    fields = RequestBody(given)
    model = fields.needed("model")
    form = fields.text("encoding_format") or "float"
    if form not in ("float", "base64"):
        raise invalid(
            f"encoding_format should be float or base64, and is {form[:40]!r}",
            param="encoding_format",
            code="invalid_value",
        )
    dimensions = fields.whole("dimensions", 1, 1 << 20)
    return EmbeddingRequest(model, _texts(fields.get("input")), form == "base64", dimensions)


def _texts(given: object) -> Sequence[str]:
    if given is None:
        raise missing("input")
    several = [given] if isinstance(given, str) else given
    if not isinstance(several, list):
        raise wrong_kind("input", "a string or a list of strings", given)
    if not 0 < len(several) <= MOST_TEXTS:
        raise invalid(
            f"input holds {len(several):,} texts, and should hold from 1 to {MOST_TEXTS:,}",
            param="input",
            code="invalid_value",
        )
    for text in several:
        if isinstance(text, (int, list)) and not isinstance(text, bool):
            raise unsupported("input", "as token ids: send the texts themselves")
        if not isinstance(text, str):
            raise wrong_kind("input", "a string or a list of strings", text)
        if not text:
            raise invalid("input holds an empty text", param="input", code="invalid_value")
    return several


def answered(order: EmbeddingRequest, embedder: Embedder) -> JsonObject:
    """The vectors, in the order of their texts. It takes its time: not for the event loop."""
    if order.dimensions not in (None, embedder.dimensions):
        raise unsupported(
            "dimensions",
            f"the vectors of {name_of(embedder)} have {embedder.dimensions}, and are not cut",
        )
    rows = embedder.embed(order.texts)
    data = [
        {
            "object": "embedding",
            "index": n,
            "embedding": _base64(row.tobytes()) if order.as_base64 else row.tolist(),
        }
        for n, row in enumerate(rows.astype("<f4", copy=False))
    ]
    count = embedder.count(order.texts) if isinstance(embedder, _Counting) else 0
    usage = {"prompt_tokens": count, "total_tokens": count}
    return {"object": "list", "data": data, "model": name_of(embedder), "usage": usage}


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


async def made(state: AppState, request: Request) -> Response:
    """The vectors of some texts."""
    data = await request.body()
    order = await state.run(lambda: order_of(parsed(data)))
    embedder = await state.embedder()
    if embedder is None:
        raise invalid(
            "this server has nothing to make vectors with",
            hint="start it with --embed minilm, or another that `ownwords ask --help` names",
            param="model",
            code="no_embedder",
        )
    name = name_of(embedder)
    if order.model not in (name, embedder.name):
        if order.model in await state.run(state.models):
            raise unsupported("model", f"{order.model} writes; vectors are made by {name}")
        raise no_such_model(
            f"there is no model {order.model[:80]!r} here", f"vectors are made by {name}"
        )
    shape = await state.run_long(lambda: answered(order, embedder))
    return Response(as_json(shape), media_type="application/json")
