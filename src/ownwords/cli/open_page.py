"""`ownwords` alone, in a graphical session: the page, with the workspace that was open last."""

import os
from contextlib import suppress
from pathlib import Path

from ownwords.cli.serve import serve
from ownwords.core.errors import OwnwordsError
from ownwords.core.workspace import SUFFIX, Workspace
from ownwords.serve.workspace_list import WorkspaceList

_NEW = f"my-blog{SUFFIX}"


def open_page() -> None:
    """Serve a workspace until Ctrl-C, and open its page in the browser."""
    workspace = workspace_to_open(Path.cwd())
    try:
        serve(workspace=workspace, open=True)
    finally:
        if workspace.is_dir():  # it may have been made on the page
            with suppress(OwnwordsError):  # such as no home folder: it is found from here, too
                WorkspaceList(Workspace(workspace)).remember(Workspace(workspace))


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
