"""The ASGI app with all routes behind the security middleware, for each blog that is open."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus

from starlette.applications import Starlette
from starlette.datastructures import QueryParams
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route, Router
from starlette.types import Receive, Scope, Send

from ownwords.core.errors import OwnwordsError
from ownwords.core.version import __version__
from ownwords.core.workspace import Workspace, path_text
from ownwords.serve import languagetool, openai, security, static_files
from ownwords.serve.api import (
    ask,
    home,
    jobs,
    machine,
    models,
    posts,
    texts,
    voice,
    write,
)
from ownwords.serve.app_state import AppState
from ownwords.serve.errors import ApiError, error_response, is_navigation
from ownwords.serve.security import LOGIN, Authenticator, SecurityMiddleware
from ownwords.serve.static_files import FRONT, with_blog
from ownwords.serve.workspace_list import WorkspaceList

_PARTS = (openai, languagetool, models, posts, jobs, write, voice, ask, texts, machine)
_HEALTH = "/healthz"


@dataclass(eq=False)
class OpenBlog:
    """A blog with its routes."""

    state: AppState
    router: Router
    requests: int = 0  # at least one per tab that shows the blog: its stream of events


class OpenBlogs:
    """The ASGI app that passes each request to the routes of its blog.

    The query parameter `blog` holds the path of a workspace; the default is the blog that was
    opened last.
    """

    def __init__(self, first: AppState) -> None:
        self._open: dict[str, OpenBlog] = {}  # by path
        self._closing: set[asyncio.Task[None]] = set()
        self._first = self.last = self._add(first)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Route a request. Raises ApiError if there is no such blog."""
        blog = await self.find(QueryParams(scope["query_string"]).get("blog", ""))
        blog.requests += 1
        try:
            await blog.router(scope, receive, send)
        finally:
            blog.requests -= 1

    async def find(self, path: str) -> OpenBlog:
        """Return the listed blog at this path, open. Raises ApiError if there is none."""
        if not path:
            return self.last
        if path not in self._open:
            known = WorkspaceList(self.last.state.workspace)
            return self._of(await self.last.state.run(lambda: known.find(path)))
        return self._open[path]

    async def open(self, workspace: Workspace) -> None:
        """Open a blog, and make it the default for requests without a blog."""
        self.last = self._of(workspace)

    def _of(self, workspace: Workspace) -> OpenBlog:
        if blog := self._open.get(path_of(workspace)):
            return blog
        self._close_idle()
        state = self._first.state.of_workspace(workspace)
        state.follower.start()
        self._first.state.others.append(state)
        return self._add(state)

    def _add(self, state: AppState) -> OpenBlog:
        routes = [route for part in _PARTS for route in part.routes(state)]
        router = Router([*routes, *home.routes(state, self.open)], redirect_slashes=False)
        blog = self._open[path_of(state.workspace)] = OpenBlog(state, router)
        return blog

    def _close_idle(self) -> None:
        """Close the blogs that no tab shows, which frees the memory of their models."""
        for path, blog in [*self._open.items()]:
            if not blog.requests and blog not in (self._first, self.last):
                del self._open[path]
                self._first.state.others.remove(blog.state)
                task = asyncio.create_task(blog.state.close())
                self._closing.add(task)
                task.add_done_callback(self._closing.discard)


def path_of(workspace: Workspace) -> str:
    """Return the path of a workspace, as requests contain it."""
    return path_text(workspace.root.absolute())


def create_app(state: AppState) -> Starlette:
    """Create the app that serves `state` and closes it at shutdown."""
    settings = state.settings
    authenticator = Authenticator(settings.key, port=settings.port)
    files = static_files.read()
    index, form = files.pop("index.html"), files.pop("login.html")
    blogs = OpenBlogs(state)

    async def show_page(request: Request) -> Response:
        """Return the page of the blog in its address."""
        if path := request.query_params.get("blog"):
            await blogs.find(path)
            return index.response()
        return RedirectResponse(with_blog(FRONT, {"blog": path_of(blogs.last.state.workspace)}))

    async def health(_: Request) -> Response:
        """Report that the server runs; needs no key, and shows no data."""
        return JSONResponse({"status": "ok", "version": __version__})

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncGenerator[None, None]:
        state.follower.start()
        yield
        await state.close()

    app = Starlette(
        routes=[
            Route(_HEALTH, health, methods=["GET"]),
            *security.routes(authenticator, form),
            *(file.route(f"/{name}") for name, file in files.items()),
            Route(FRONT, show_page, methods=["GET"]),
        ],
        middleware=[
            Middleware(
                SecurityMiddleware,
                settings=settings,
                authenticator=authenticator,
                # The page's files are public: they contain no data of the workspace.
                public={f"/{name}" for name in files} | {LOGIN, _HEALTH, languagetool.LANGUAGES},
                pages={FRONT, LOGIN},
                uploads={home.UPLOADS},
                editors={languagetool.CHECK, languagetool.LANGUAGES},
            )
        ],
        lifespan=lifespan,
        exception_handlers={OwnwordsError: on_error, HTTPException: on_http_exception},
    )
    app.router.redirect_slashes = False
    app.router.default = blogs
    return app


async def on_error(request: Request, error: Exception) -> Response:
    """Answer a request that was refused, or that failed for a known reason."""
    assert isinstance(error, OwnwordsError)
    return error_response(request.url.path, error, request.headers)


async def on_http_exception(request: Request, error: Exception) -> Response:
    """Answer a request without a route; a person who typed the path sees the page."""
    assert isinstance(error, HTTPException)
    path = request.url.path
    is_part = error.status_code == HTTPStatus.NOT_FOUND and not path.startswith(
        ("/api/", "/v1/", "/v2/")
    )
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
