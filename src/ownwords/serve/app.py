"""The ASGI app with all routes, behind the security middleware."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from http import HTTPStatus

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from ownwords.core.errors import OwnwordsError
from ownwords.core.version import __version__
from ownwords.serve import auth, metrics, static_files
from ownwords.serve.api import (
    ask,
    blog,
    corpus,
    exports,
    home,
    jobs,
    machine,
    models,
    schema,
    score,
    sources,
    texts,
    train,
    workspaces,
    write,
)
from ownwords.serve.api_route import ApiRoute
from ownwords.serve.app_state import AppState
from ownwords.serve.auth import LOGIN, Authenticator
from ownwords.serve.errors import ApiError, error_response, is_navigation
from ownwords.serve.middleware import SecurityMiddleware
from ownwords.serve.open_blogs import OpenBlogs, path_of
from ownwords.serve.openai import routes as openai
from ownwords.serve.static_files import FRONT, with_blog

_INDEX, _LOGIN_FORM = "index.html", "login.html"
_PARTS = (
    *(home, blog, sources, models, exports, corpus, score, train, jobs, write, ask),
    *(texts, machine),
)
_HEALTH = "/healthz"


def create_app(state: AppState) -> Starlette:
    """Create the app that serves `state`, and closes it at shutdown."""
    settings = state.settings
    authenticator = Authenticator(settings.key, port=settings.port)
    files = static_files.read()
    index, form = files.pop(_INDEX), files.pop(_LOGIN_FORM)
    blogs = OpenBlogs(state, _blog_routes)

    async def show_page(request: Request) -> Response:
        """The page, about the blog that stands in its address."""
        if path := request.query_params.get("blog"):
            await blogs.find(path)
            return index.response(request)
        return RedirectResponse(with_blog(FRONT, {"blog": path_of(blogs.last.workspace)}))

    fixed: list[BaseRoute] = [
        *_monitoring(state, blogs),
        *auth.routes(authenticator, form),
        *static_files.routes(files),
        Route(FRONT, show_page, methods=["GET"]),
        schema.route(lambda: [*fixed, *blogs.routes]),
    ]

    middleware = Middleware(
        SecurityMiddleware,
        settings=settings,
        authenticator=authenticator,
        metrics=state.metrics,
        # The page's files are public: they contain no data of the workspace.
        public={f"/{name}" for name in files} | {LOGIN, _HEALTH},
        pages={FRONT, LOGIN},
        uploads={sources.UPLOADS},
    )

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncGenerator[None, None]:
        yield
        await state.close()

    app = Starlette(
        routes=fixed,
        middleware=[middleware],
        lifespan=lifespan,
        exception_handlers={
            OwnwordsError: _on_error,
            HTTPException: _on_http_exception,
        },
    )
    app.router.redirect_slashes = False
    app.router.default = blogs
    app.state.blogs = blogs
    return app


def _blog_routes(state: AppState, open_workspace: workspaces.Open) -> list[BaseRoute]:
    """The routes about the blog of `state`."""
    return [
        *openai.routes(state),
        *(route for part in _PARTS for route in part.routes(state)),
        *workspaces.routes(state, open_workspace),
    ]


def _monitoring(state: AppState, blogs: OpenBlogs) -> list[BaseRoute]:
    """Create /healthz, which needs no key and shows no data, and /metrics for Prometheus."""

    async def health(_: Request) -> Response:
        """Say that the server runs."""
        return JSONResponse({"status": "ok", "version": __version__})

    async def show_metrics(_: Request) -> Response:
        """Show figures for Prometheus."""
        page = state.metrics.page(blogs.queue_lengths())
        return Response(page, headers={"Content-Type": metrics.CONTENT_TYPE})

    return [
        ApiRoute("GET", _HEALTH, health),
        ApiRoute("GET", "/metrics", show_metrics, media_type=metrics.CONTENT_TYPE),
    ]


async def _on_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, OwnwordsError)
    return error_response(request.url.path, error, request.headers)


async def _on_http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    path = request.url.path
    is_part = error.status_code == HTTPStatus.NOT_FOUND and not path.startswith(("/api/", "/v1/"))
    if is_part and request.method == "GET" and is_navigation(request.headers):
        front = with_blog(FRONT, request.query_params)
        return RedirectResponse(f"{front}#{path}")  # /ask is the page's part #/ask
    messages = {
        HTTPStatus.NOT_FOUND: f"there is nothing at {path[:200]}",
        HTTPStatus.METHOD_NOT_ALLOWED: f"{request.method} is not allowed here",
    }
    message = messages.get(HTTPStatus(error.status_code), error.detail)
    response = error_response(path, ApiError(error.status_code, message), request.headers)
    response.headers.update(error.headers or {})
    return response
