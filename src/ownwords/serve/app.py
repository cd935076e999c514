"""The app: every room's routes, and the guard around them."""

import sqlite3
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from http import HTTPStatus

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from ownwords.core.errors import OwnwordsError
from ownwords.serve import health, login, static_files
from ownwords.serve.api import ask, corpus, score, train, write
from ownwords.serve.app_state import AppState
from ownwords.serve.auth import Authenticator
from ownwords.serve.errors import ApiError, refusal
from ownwords.serve.middleware import LOGIN, SecurityMiddleware
from ownwords.serve.openai import routes as openai

_FORM = "login.html"
_RETRY_AFTER_S = 5


def create_app(state: AppState) -> Starlette:
    """The app that serves the house; the house ends when the app does."""
    settings = state.settings
    authenticator = Authenticator(settings.key, port=settings.port)
    files = static_files.read()
    form = files.pop(_FORM)
    pages = static_files.routes(files)
    rooms: list[BaseRoute] = [
        *health.routes(state),
        *login.routes(authenticator, form),
        *pages,
        *openai.routes(state),
        *(route for room in (corpus, score, train, write, ask) for route in room.routes(state)),
    ]
    # Files of the page are the same for everybody; what they show is not among them.
    public = {f"/{name}" for name in files} | {LOGIN, health.HEALTH}
    guard = Middleware(
        SecurityMiddleware,
        settings=settings,
        authenticator=authenticator,
        metrics=state.metrics,
        public=public,
        pages={static_files.FRONT, LOGIN},
    )

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncGenerator[None, None]:
        yield
        await state.close()

    app = Starlette(
        routes=rooms,
        middleware=[guard],
        lifespan=lifespan,
        exception_handlers={
            OwnwordsError: _mistake,
            HTTPException: _not_answered,
            sqlite3.OperationalError: _locked,
        },
    )
    app.router.redirect_slashes = False
    return app


async def _mistake(request: Request, error: Exception) -> Response:
    assert isinstance(error, OwnwordsError)
    return refusal(request.url.path, error)


async def _not_answered(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    said = {
        HTTPStatus.NOT_FOUND: f"there is nothing at {request.url.path[:200]}",
        HTTPStatus.METHOD_NOT_ALLOWED: f"{request.method} is not what one does here",
    }
    answer = refusal(
        request.url.path,
        ApiError(error.status_code, said.get(HTTPStatus(error.status_code), error.detail)),
    )
    answer.headers.update(error.headers or {})
    return answer


async def _locked(request: Request, error: Exception) -> Response:
    """Another process writes the archive, as a `look` does for a moment; anything else is a bug."""
    if "locked" not in str(error) and "busy" not in str(error):
        raise error
    return refusal(
        request.url.path,
        ApiError(
            HTTPStatus.SERVICE_UNAVAILABLE,
            "another ownwords is writing the archive just now",
            hint=f"try again in {_RETRY_AFTER_S} s",
            retry_after_s=_RETRY_AFTER_S,
        ),
    )
