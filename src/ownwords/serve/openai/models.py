"""GET /v1/models: what can be asked for by name."""

from collections.abc import Mapping
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from ownwords.serve.house import House
from ownwords.serve.openai.embeddings import name_of
from ownwords.serve.openai.refusals import no_such_model
from ownwords.serve.openai.sending import as_json
from ownwords.serve.openai.shapes import Shape

_CONFIG = "config.json"


async def listed(house: House, _: Request) -> Response:
    """All of them."""
    found = await _found(house)
    return _answer({"object": "list", "data": list(found.values())})


async def one(house: House, request: Request) -> Response:
    """The one of that name."""
    found = await _found(house)
    name = str(request.path_params["name"])
    if name not in found:
        raise no_such_model(f"there is no model {name[:80]!r} here", "there is " + ", ".join(found))
    return _answer(found[name])


async def _found(house: House) -> Mapping[str, Shape]:
    def look() -> dict[str, Shape]:
        return {name: _shape(name, _since(folder)) for name, folder in house.models().items()}

    found = await house.run(look)
    embedder = await house.embedder()
    if embedder is not None and (name := name_of(embedder)) not in found:
        found[name] = _shape(name, 0)
    return found


def _shape(name: str, since: int) -> Shape:
    return {"id": name, "object": "model", "created": since, "owned_by": "ownwords"}


def _since(folder: Path) -> int:
    """When a model was put there; 0 where it has just been taken away."""
    try:
        return int((folder / _CONFIG).stat().st_mtime)
    except OSError:
        return 0


def _answer(shape: Mapping[str, object]) -> Response:
    return Response(as_json(shape), media_type="application/json")
