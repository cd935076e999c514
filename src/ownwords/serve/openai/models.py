"""GET /v1/models: lists the available models."""

from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from ownwords.models.directory import CONFIG
from ownwords.serve.app_state import AppState
from ownwords.serve.errors import no_such_model
from ownwords.serve.openai.embeddings import short_name
from ownwords.serve.openai.formatters import JsonObject
from ownwords.serve.sse import to_json


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
