"""Routes of the page's API: JSON in, JSON out, each with the dataclasses that describe it."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Generic, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ownwords.serve.app_state import AppState
from ownwords.serve.json_body import decode_fields, parse_json

T = TypeVar("T")
_MEDIA_TYPE = "application/json"
EVENT_STREAM = "text/event-stream"


@dataclass(frozen=True)
class NoBody:
    """The body of a request that needs none."""


@dataclass(frozen=True)
class ApiCall(Generic[T]):
    """One request: the parts of its path, its query and its decoded body."""

    path: Mapping[str, str]
    query: Mapping[str, str]
    body: T


class ApiRoute(Route):
    """A route with what `/api/schema` says of it; its summary is the docstring of the handler."""

    def __init__(
        self,
        method: str,
        path: str,
        endpoint: Callable[[Request], Awaitable[Response]],
        *,
        summary: str = "",
        body: object = NoBody,
        result: object = None,
        query: Mapping[str, str] | None = None,
        media_type: str = _MEDIA_TYPE,
        accepts: str = _MEDIA_TYPE,
    ) -> None:
        super().__init__(path, endpoint, methods=[method])
        self.method, self.summary = method, summary or (endpoint.__doc__ or "").strip()
        self.body, self.result, self.query = body, result, dict(query or {})
        self.media_type, self.accepts = media_type, accepts


def json_route(
    state: AppState,
    method: str,
    path: str,
    work: Callable[[ApiCall[T]], object],
    *,
    body: type[T] = NoBody,  # type: ignore[assignment]
    parse: Callable[[Mapping[str, Any]], T] | None = None,
    shape: object = None,
    result: object = None,
    query: Mapping[str, str] | None = None,
    status: int = HTTPStatus.OK,
) -> ApiRoute:
    """Create a route whose `work` runs in a thread; None as its result is 204 without a body.

    `query` gives the parameters and what each is for. `parse` decodes a body whose shape depends on
    its content; `shape` then describes it.
    """
    decode = parse or (lambda fields: decode_fields(body, fields))

    async def endpoint(request: Request) -> Response:
        data = await request.body()

        def answer() -> object:
            fields = parse_json(data.strip() or b"{}") if method != "GET" else {}
            return work(ApiCall(request.path_params, request.query_params, decode(fields)))

        value = await state.run(answer)
        if value is None:
            return Response(status_code=HTTPStatus.NO_CONTENT)
        return json_response(value, status)

    return ApiRoute(
        method,
        path,
        endpoint,
        summary=(work.__doc__ or "").strip(),
        body=shape or body,
        result=result,
        query=query,
    )


def json_response(value: object, status: int = HTTPStatus.OK) -> Response:
    """A response of dataclasses, mappings, lists and text as JSON."""
    return Response(msgspec.json.encode(value), status, media_type=_MEDIA_TYPE)
