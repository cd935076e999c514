"""The switcher between blogs: lists the workspaces, and opens another one, or a new one."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from ownwords.core.errors import OwnwordsError
from ownwords.core.validation import Meta
from ownwords.core.workspace import Workspace, path_text
from ownwords.serve.api_route import ApiCall, ApiRoute, NoBody, json_response, json_route
from ownwords.serve.app_state import AppState
from ownwords.serve.errors import ApiError, invalid
from ownwords.serve.json_body import read_body
from ownwords.serve.workspace_list import WorkspaceEntry, WorkspaceList

Open = Callable[[Workspace], Awaitable[None]]
_PATH = Meta(max_length=4000)


@dataclass(frozen=True)
class KnownWorkspaces:
    """The path of the workspace that is open, and all that can be opened."""

    current: str
    workspaces: tuple[WorkspaceEntry, ...]


@dataclass(frozen=True)
class OpenRequest:
    """A workspace of the list, or the name of a new one."""

    path: Annotated[str, _PATH] = ""
    name: Annotated[str, Meta(max_length=100)] = ""


@dataclass(frozen=True)
class ForgetRequest:
    """A workspace of the list."""

    path: Annotated[str, _PATH]


def routes(state: AppState, open_workspace: Open) -> list[BaseRoute]:
    """Create the routes under /api/workspaces."""
    api = _Workspaces(state, open_workspace)
    return [
        json_route(state, "GET", "/api/workspaces", api.list, result=KnownWorkspaces),
        json_route(state, "DELETE", "/api/workspaces", api.forget, body=ForgetRequest),
        ApiRoute(
            "POST",
            "/api/workspaces/open",
            api.open,
            body=OpenRequest,
            result=KnownWorkspaces,
        ),
    ]


class _Workspaces:
    def __init__(self, state: AppState, open_workspace: Open) -> None:
        self._state, self._open = state, open_workspace
        self._list = WorkspaceList(state.workspace)

    def list(self, _: ApiCall[NoBody]) -> KnownWorkspaces:
        """List the workspaces: the open one, those opened before, and those beside it."""
        return _known(self._state.workspace)

    def forget(self, call: ApiCall[ForgetRequest]) -> None:
        """Remove a workspace from the list; its files stay."""
        self._list.forget(call.body.path)

    async def open(self, request: Request) -> Response:
        """Open another workspace, or a new one; requests without `blog` are then about it."""
        asked = await read_body(self._state, request, OpenRequest)
        workspace = await self._state.run(lambda: self._find(asked))
        await self._open(workspace)
        return json_response(_known(workspace))

    def _find(self, asked: OpenRequest) -> Workspace:
        if bool(asked.path) == bool(asked.name):
            raise invalid("give either the path of a workspace or the name of a new one")
        try:
            found = self._list.find(asked.path) if asked.path else self._list.new(asked.name)
            self._list.remember(self._state.workspace)
            self._list.remember(found)
        except ApiError:
            raise
        except OwnwordsError as error:
            raise invalid(error.message, hint=error.hint) from error
        return found


def _known(workspace: Workspace) -> KnownWorkspaces:
    current = path_text(workspace.root.absolute())
    return KnownWorkspaces(current, tuple(WorkspaceList(workspace).entries()))
