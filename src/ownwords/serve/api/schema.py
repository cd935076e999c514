"""/api/schema: the OpenAPI description of every route, made from the shapes that check requests."""

import re
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from ownwords.core.version import __version__
from ownwords.serve.api_route import ApiRoute, NoBody, json_response

PATH: Final = "/api/schema"
_REF = "#/components/schemas/{name}"
_PARAMETER = re.compile(r"\{(\w+)(?::\w+)?\}")
_BLOG = (
    "Every path takes the query parameter `blog`: the path of its workspace."
    " Without it, a request is about the blog that was opened last."
)
_ERROR = {
    "type": "object",
    "properties": {
        "error": {
            "type": "object",
            "properties": {"message": {"type": "string"}, "hint": {"type": "string"}},
        }
    },
}


def route(routes: Callable[[], Sequence[BaseRoute]]) -> ApiRoute:
    """Create the route of the description of `routes`, which are read when it is asked for."""

    async def schema(_: Request) -> Response:
        """Describe every route of the API in OpenAPI 3.1."""
        return json_response(openapi(routes()))

    return ApiRoute("GET", PATH, schema)


def openapi(routes: Sequence[BaseRoute]) -> dict[str, Any]:
    """The OpenAPI document of the routes."""
    known = [route for route in routes if isinstance(route, ApiRoute)]
    shapes = [shape for route in known for shape in (*_shapes(route.body), *_shapes(route.result))]
    unique = list(dict.fromkeys(shapes))
    schemas, components = msgspec.json.schema_components(unique, ref_template=_REF)
    refs = dict(zip(unique, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for each in known:
        path = _PARAMETER.sub(r"{\1}", each.path)
        paths.setdefault(path, {})[each.method.lower()] = _operation(each, refs)
    return {
        "openapi": "3.1.0",
        "info": {"title": "ownwords", "version": __version__, "description": _BLOG},
        "security": [{"key": []}],
        "paths": dict(sorted(paths.items())),
        "components": {
            "schemas": components,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(route: ApiRoute, refs: dict[object, Any]) -> dict[str, Any]:
    result = _schema_of(route.result, refs)
    answer: dict[str, Any] = {"description": "Done."}
    if route.result is not None or route.media_type != "application/json":
        answer["content"] = {route.media_type: {"schema": result}}
    operation: dict[str, Any] = {
        "summary": route.summary,
        "responses": {
            "2XX": answer,
            "default": {
                "description": "What went wrong, and what to do about it.",
                "content": {"application/json": {"schema": _ERROR}},
            },
        },
    }
    names = [(name, "path", True, "") for name in _PARAMETER.findall(route.path)]
    names += [(name, "query", False, what) for name, what in route.query.items()]
    if route.method != "GET" and not route.path.startswith("/v1/"):
        names.append(("X-Ownwords", "header", True, "1: our own page, or a program, sends it"))
    if names:
        operation["parameters"] = [
            {"name": name, "in": where, "required": is_required, "schema": {"type": "string"}}
            | ({"description": what} if what else {})
            for name, where, is_required, what in names
        ]
    if route.accepts != "application/json":
        operation["requestBody"] = {"content": {route.accepts: {}}}
    elif route.body is not NoBody:
        schema = _schema_of(route.body, refs)
        operation["requestBody"] = {"content": {"application/json": {"schema": schema}}}
    return operation


def _shapes(shape: object) -> Sequence[object]:
    if shape is None or shape is NoBody:
        return ()
    return shape if isinstance(shape, tuple) else (shape,)


def _schema_of(shape: object, refs: dict[object, Any]) -> dict[str, Any]:
    schemas = [_with_kind(each, refs[each]) for each in _shapes(shape)]
    if len(schemas) > 1:
        return {"oneOf": schemas}
    return schemas[0] if schemas else {}


def _with_kind(shape: object, schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of a request that is told from others by its `kind`."""
    kind = getattr(shape, "kind", None)
    if not isinstance(kind, str):
        return schema
    constant = {"properties": {"kind": {"const": kind}}, "required": ["kind"]}
    return {"allOf": [schema, constant]}
