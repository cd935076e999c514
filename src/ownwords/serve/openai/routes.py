"""The supported routes of OpenAI's API."""

from collections.abc import Awaitable, Callable
from functools import partial
from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from ownwords.core.errors import OwnwordsError
from ownwords.serve.api_route import ApiRoute, NoBody
from ownwords.serve.app_state import AppState
from ownwords.serve.errors import ApiError, error_response
from ownwords.serve.openai import completions, embeddings, models
from ownwords.serve.openai.embeddings import EmbeddingRequest
from ownwords.serve.openai.request_params import ChatRequest, CompletionRequest

_Endpoint = Callable[[AppState, Request], Awaitable[Response]]

_ENDPOINTS: tuple[tuple[str, str, _Endpoint, object], ...] = (
    ("GET", "/v1/models", models.list_models, NoBody),
    ("GET", "/v1/models/{name:path}", models.get_model, NoBody),
    ("POST", "/v1/completions", completions.create_completion, CompletionRequest),
    ("POST", "/v1/chat/completions", completions.create_chat_completion, ChatRequest),
    ("POST", "/v1/embeddings", embeddings.create_embeddings, EmbeddingRequest),
)


def routes(state: AppState) -> list[BaseRoute]:
    """Create the routes under /v1; unknown paths also get an error in OpenAI's format."""
    known: list[BaseRoute] = [
        ApiRoute(
            method,
            path,
            partial(_answer, state, endpoint),
            summary=str(endpoint.__doc__),
            body=body,
        )
        for method, path, endpoint, body in _ENDPOINTS
    ]
    return [*known, Route("/v1", _UnknownPath()), Route("/v1/{rest:path}", _UnknownPath())]


async def _answer(state: AppState, endpoint: _Endpoint, request: Request) -> Response:
    try:
        return await endpoint(state, request)
    except OwnwordsError as error:
        return error_response(request.url.path, error)


class _UnknownPath:
    """Responds to all other paths; an ASGI app, since an endpoint would not take any method."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path, method = str(scope["path"]), str(scope["method"])
        methods = [allowed for allowed, known, *_ in _ENDPOINTS if known == path]
        if methods:
            error = ApiError(
                HTTPStatus.METHOD_NOT_ALLOWED, f"{path} takes {methods[0]}, not {method}"
            )
        else:
            paths = ", ".join(known for _, known, *_ in _ENDPOINTS)
            error = ApiError(
                HTTPStatus.NOT_FOUND,
                f"there is no {path[:200]} here",
                f"these paths of OpenAI's API exist: {paths}",
                code="unknown_url",
            )
        await error_response(path, error)(scope, receive, send)
