"""The paths of the interface that tools written for OpenAI speak."""

from collections.abc import Awaitable, Callable
from functools import partial
from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from ownwords.core.errors import OwnwordsError
from ownwords.serve.app_state import AppState
from ownwords.serve.errors import ApiError, refusal
from ownwords.serve.openai import completions, embeddings, models

_Endpoint = Callable[[AppState, Request], Awaitable[Response]]

_TABLE: tuple[tuple[str, str, _Endpoint], ...] = (
    ("GET", "/v1/models", models.listed),
    ("GET", "/v1/models/{name:path}", models.one),
    ("POST", "/v1/completions", completions.completions),
    ("POST", "/v1/chat/completions", completions.chats),
    ("POST", "/v1/embeddings", embeddings.made),
)


def routes(state: AppState) -> list[BaseRoute]:
    """All of /v1. What goes wrong there is told in its own form, whatever it is."""
    table: list[BaseRoute] = [
        Route(path, partial(_answered, state, endpoint), methods=[method])
        for method, path, endpoint in _TABLE
    ]
    return [*table, Route("/v1", _Nothing()), Route("/v1/{rest:path}", _Nothing())]


async def _answered(state: AppState, endpoint: _Endpoint, request: Request) -> Response:
    try:
        return await endpoint(state, request)
    except OwnwordsError as error:
        return refusal(request.url.path, error)


class _Nothing:
    """The rest of the paths; an application and no endpoint, so that it takes any method."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path, method = str(scope["path"]), str(scope["method"])
        methods = [its for its, there, _ in _TABLE if there == path]
        if methods:
            error = ApiError(
                HTTPStatus.METHOD_NOT_ALLOWED, f"{path} takes {methods[0]}, and not {method}"
            )
        else:
            paths = ", ".join(there for _, there, _ in _TABLE)
            error = ApiError(
                HTTPStatus.NOT_FOUND,
                f"there is no {path[:200]} here",
                f"of OpenAI's interface there are {paths}",
                code="unknown_url",
            )
        await refusal(path, error)(scope, receive, send)
