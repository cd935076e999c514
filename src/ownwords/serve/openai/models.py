"""GET /v1/models: what can be asked for by name."""

from collections.abc import Mapping
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from ownwords.serve.app_state import AppState
from ownwords.serve.openai.embeddings import name_of
from ownwords.serve.openai.errors import no_such_model
from ownwords.serve.openai.formatters import JsonObject
from ownwords.serve.openai.sending import as_json

_CONFIG = "config.json"


async def listed(state: AppState, _: Request) -> Response:
    """All of them."""
    found = await _found(state)
    return _answer({"object": "list", "data": list(found.values())})


async def one(state: AppState, request: Request) -> Response:
    """The one of that name."""
    found = await _found(state)
    name = str(request.path_params["name"])
    if name not in found:
        raise no_such_model(f"there is no model {name[:80]!r} here", "there is " + ", ".join(found))
    return _answer(found[name])


async def _found(state: AppState) -> Mapping[str, JsonObject]:
    def look() -> dict[str, JsonObject]:
        return {name: _shape(name, _since(folder)) for name, folder in state.models().items()}

    found = await state.run(look)
    embedder = await state.embedder()
    if embedder is not None and (name := name_of(embedder)) not in found:
        found[name] = _shape(name, 0)
    return found


def _shape(name: str, since: int) -> JsonObject:
    return {"id": name, "object": "model", "created": since, "owned_by": "ownwords"}


def _since(folder: Path) -> int:
    """When a model was put there; 0 where it has just been taken away."""
    try:
        return int((folder / _CONFIG).stat().st_mtime)
    except OSError:
        return 0


def _answer(shape: Mapping[str, object]) -> Response:
    return Response(as_json(shape), media_type="application/json")
