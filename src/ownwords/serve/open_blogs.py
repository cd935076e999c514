"""The blogs that are open: each request names its own, so that two tabs can show two blogs."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from starlette.datastructures import QueryParams
from starlette.routing import BaseRoute, Router
from starlette.types import Receive, Scope, Send

from ownwords.core.workspace import Workspace, path_text
from ownwords.serve.api.workspaces import Open
from ownwords.serve.app_state import AppState
from ownwords.serve.workspace_list import WorkspaceList


@dataclass(eq=False)
class _OpenBlog:
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
        self._open: dict[str, _OpenBlog] = {}  # by path
        self._closing: set[asyncio.Task[None]] = set()
        self._first = self._last = self._add(first)

    @property
    def last(self) -> AppState:
        """The blog that was opened last."""
        return self._last.state

    @property
    def routes(self) -> Sequence[BaseRoute]:
        """The routes of each blog."""
        return self._first.router.routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on. Raises ApiError if there is no such blog."""
        blog = await self._find(QueryParams(scope["query_string"]).get("blog", ""))
        blog.requests += 1
        try:
            await blog.router(scope, receive, send)
        finally:
            blog.requests -= 1

    async def find(self, path: str) -> AppState:
        """The listed blog at this path, opened on first use. Raises ApiError if there is none."""
        return (await self._find(path)).state

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

    async def _find(self, path: str) -> _OpenBlog:
        if not path:
            return self._last
        if path not in self._open:
            known = WorkspaceList(self.last.workspace)
            return self._of(await self.last.run(lambda: known.find(path)))
        return self._open[path]

    def _of(self, workspace: Workspace) -> _OpenBlog:
        path = path_of(workspace)
        if path not in self._open:
            self._close_idle()
            state = self._first.state.of_workspace(workspace)
            self._first.state.others.append(state)
            return self._add(state)
        return self._open[path]

    def _add(self, state: AppState) -> _OpenBlog:
        routes = self._routes_of(state, self.open)
        blog = _OpenBlog(state, Router(routes, redirect_slashes=False))
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
