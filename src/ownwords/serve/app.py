"""The ASGI app with all routes behind the security middleware, for each blog that is open."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus

from starlette.applications import Starlette
from starlette.datastructures import QueryParams
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route, Router
from starlette.types import Receive, Scope, Send

from ownwords.core.errors import OwnwordsError
from ownwords.core.version import __version__
from ownwords.core.workspace import Workspace, path_text
from ownwords.serve import security, static_files
from ownwords.serve.api import (
    ask,
    home,
    jobs,
    machine,
    models,
    posts,
    sources,
    texts,
    write,
)
from ownwords.serve.api.home import Open
from ownwords.serve.app_state import AppState
from ownwords.serve.errors import ApiError, error_response, is_navigation
from ownwords.serve.model_worker import METRICS_TYPE
from ownwords.serve.openai import routes as openai
from ownwords.serve.security import LOGIN, Authenticator, SecurityMiddleware
from ownwords.serve.static_files import FRONT, with_blog
from ownwords.serve.workspace_list import WorkspaceList


@dataclass(eq=False)
class OpenBlog:
    """A blog with its routes."""

    state: AppState
    router: Router
    requests: int = 0  # a tab that shows the blog has one all the time: its stream of events


class OpenBlogs:
    """The ASGI app that passes each request on to the routes of the blog that it names.

    The query parameter `blog` holds the path of the blog's workspace; without it, the request is
    about the blog that was opened last.
    """

    def __init__(
        self, first: AppState, routes: Callable[[AppState, Open], list[BaseRoute]]
    ) -> None:
        self._routes_of = routes
        self._open: dict[str, OpenBlog] = {}  # by path
        self._closing: set[asyncio.Task[None]] = set()
        self._first = self._last = self._add(first)

    @property
    def last(self) -> AppState:
        """The blog that was opened last."""
        return self._last.state

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on. Raises ApiError if there is no such blog."""
        blog = await self.find(QueryParams(scope["query_string"]).get("blog", ""))
        blog.requests += 1
        try:
            await blog.router(scope, receive, send)
        finally:
            blog.requests -= 1

    async def find(self, path: str) -> OpenBlog:
        """The listed blog at this path, opened on first use. Raises ApiError if there is none."""
        if not path:
            return self._last
        if path not in self._open:
            known = WorkspaceList(self.last.workspace)
            return self._of(await self.last.run(lambda: known.find(path)))
        return self._open[path]

    async def open(self, workspace: Workspace) -> None:
        """Open a blog, which requests that name none are about from now on."""
        self._last = self._of(workspace)

    def queue_lengths(self) -> Iterator[tuple[str, int, int]]:
        """Yield (name, waiting requests, running requests) for each loaded model."""
        waiting, running = Counter[str](), Counter[str]()
        for blog in self._open.values():
            for name, waits, runs in blog.state.queue_lengths():
                waiting[name] += waits
                running[name] += runs
        return ((name, waiting[name], running[name]) for name in waiting)

    def _of(self, workspace: Workspace) -> OpenBlog:
        path = path_of(workspace)
        if path not in self._open:
            self._close_idle()
            state = self._first.state.of_workspace(workspace)
            self._first.state.others.append(state)
            return self._add(state)
        return self._open[path]

    def _add(self, state: AppState) -> OpenBlog:
        routes = self._routes_of(state, self.open)
        blog = OpenBlog(state, Router(routes, redirect_slashes=False))
        self._open[path_of(state.workspace)] = blog
        return blog

    def _close_idle(self) -> None:
        """Close the blogs that no tab shows, and free the memory of their models."""
        for path, blog in [*self._open.items()]:
            if not blog.requests and blog not in (self._first, self._last):
                del self._open[path]
                self._first.state.others.remove(blog.state)
                task = asyncio.create_task(blog.state.close())
                self._closing.add(task)
                task.add_done_callback(self._closing.discard)


def path_of(workspace: Workspace) -> str:
    """The path of a workspace, as a request names it."""
    return path_text(workspace.root.absolute())


_INDEX, _LOGIN_FORM = "index.html", "login.html"
_PARTS = (sources, models, posts, jobs, write, ask, texts, machine)
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
        *security.routes(authenticator, form),
        *static_files.routes(files),
        Route(FRONT, show_page, methods=["GET"]),
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
            OwnwordsError: on_error,
            HTTPException: on_http_exception,
        },
    )
    app.router.redirect_slashes = False
    app.router.default = blogs
    return app


def _blog_routes(state: AppState, open_workspace: Open) -> list[BaseRoute]:
    """The routes about the blog of `state`."""
    return [
        *openai.routes(state),
        *(route for part in _PARTS for route in part.routes(state)),
        *home.routes(state, open_workspace),
    ]


def _monitoring(state: AppState, blogs: OpenBlogs) -> list[BaseRoute]:
    """Create /healthz, which needs no key and shows no data, and /metrics for Prometheus."""

    async def health(_: Request) -> Response:
        """Say that the server runs."""
        return JSONResponse({"status": "ok", "version": __version__})

    async def show_metrics(_: Request) -> Response:
        """Show figures for Prometheus."""
        page = state.metrics.page(blogs.queue_lengths())
        return Response(page, headers={"Content-Type": METRICS_TYPE})

    return [
        Route(_HEALTH, health, methods=["GET"]),
        Route("/metrics", show_metrics, methods=["GET"]),
    ]


async def on_error(request: Request, error: Exception) -> Response:
    """Answer a request that was refused, or that failed for a reason its sender may know."""
    assert isinstance(error, OwnwordsError)
    return error_response(request.url.path, error, request.headers)


async def on_http_exception(request: Request, error: Exception) -> Response:
    """Answer a request for what is not there; a person who typed the path sees the page."""
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
