"""`ownwords` alone, in a graphical session: the page, with the workspace that was open last."""

import os
from contextlib import suppress
from pathlib import Path

from ownwords.cli.serve import open_browser, serve
from ownwords.core.errors import OwnwordsError
from ownwords.core.workspace import SUFFIX, Workspace
from ownwords.serve.running_servers import RunningServer, running_servers
from ownwords.serve.workspace_list import WorkspaceList

_NEW = f"my-blog{SUFFIX}"


def open_page() -> None:
    """Open the page of a server that runs already; or serve until Ctrl-C, and open that page."""
    here = Path.cwd()
    workspace = workspace_to_open(here)
    if server := server_to_open(here, workspace):
        print(f"ownwords is running already. Page: {server.link}")
        open_browser(server.link)
        return
    try:
        serve(workspace=workspace, open=True)
    finally:
        if workspace.is_dir():  # it may have been made on the page
            with suppress(OwnwordsError):  # such as no home folder: it is found from here, too
                WorkspaceList(Workspace(workspace)).remember(Workspace(workspace))


def server_to_open(here: Path, workspace: Path) -> RunningServer | None:
    """The server of this workspace; any server if the workspace is not the one that is here."""
    running = running_servers()
    same = [server for server in running if server.workspace == str(workspace.absolute())]
    is_here = workspace.is_dir() and here.absolute() in (workspace, workspace.parent)
    return next(iter(same or ([] if is_here else running)), None)


def workspace_to_open(here: Path) -> Path:
    """`here` or the one in it, the one that was open last, or a new one."""
    if here.name.endswith(SUFFIX):
        return here
    inside = sorted(path for path in here.glob(f"*{SUFFIX}") if path.is_dir())
    if len(inside) == 1:
        return inside[0]
    last = WorkspaceList(Workspace(here / _NEW)).last_opened()
    if last is not None:
        return last
    if inside:
        return max(inside, key=lambda path: path.stat().st_mtime)
    return (here if os.access(here, os.W_OK) else Path.home()) / _NEW
