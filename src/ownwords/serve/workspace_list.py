"""The workspaces that the page switches between: those opened before, and those beside this one."""

import json
import re
import sqlite3
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from ownwords.core.errors import OwnwordsError
from ownwords.core.validation import decode, encode
from ownwords.core.workspace import (
    SUFFIX,
    Workspace,
    data_folder,
    path_text,
    translate_os_errors,
    write_atomically,
)
from ownwords.models import atomic_dir
from ownwords.models.directory import CONFIG
from ownwords.serve.errors import conflict, invalid, not_found
from ownwords.view.format import plain

_FILE = "workspaces.json"


@dataclass(frozen=True)
class WorkspaceEntry:
    """A workspace as the page lists it; `posts` is None where none were read."""

    path: str
    name: str
    posts: int | None
    has_model: bool
    is_current: bool


@dataclass(frozen=True)
class _Contents:
    opened: dict[str, float]


class WorkspaceList:
    """The workspaces of this user, seen from the one that is open."""

    def __init__(self, current: Workspace) -> None:
        self._current = current.root.absolute()

    def entries(self) -> list[WorkspaceEntry]:
        """What `paths` lists."""
        return [self._entry(path) for path in self.paths()]

    def paths(self) -> list[Path]:
        """The current one first, then the last opened ones, then those beside it."""
        beside = sorted(self._current.parent.glob(f"*{SUFFIX}"))
        paths = dict.fromkeys([self._current, *map(Path, self._read()), *beside])
        # Others may be on a disk that is away.
        return [path for path in paths if path == self._current or path.is_dir()]

    def last_opened(self) -> Path | None:
        """The workspace that was opened last and is still there."""
        return next((path for path in map(Path, self._read()) if path.is_dir()), None)

    def find(self, path: str) -> Workspace:
        """The listed workspace at this path. Raises ApiError if it is not listed."""
        if path in map(path_text, self.paths()):
            return Workspace(Path(path))
        raise not_found(f"there is no workspace at {path[:200]}", hint="it was moved or deleted")

    def new(self, name: str) -> Workspace:
        """A new workspace beside the current one. Raises ApiError if the name cannot be used."""
        words = re.sub(r"[^\w. -]+", "", name).strip(" .")
        if not words:
            raise invalid("a blog needs a name", hint="use letters and digits", param="name")
        path = self._current.parent / f"{words.replace(' ', '-')}{SUFFIX}"
        if path.exists():
            raise conflict(
                f"there is already a blog called {words}",
                hint="choose another name, or open that one",
            )
        workspace = Workspace(path)
        workspace.create()
        return workspace

    def remember(self, workspace: Workspace) -> None:
        """Put a workspace first among those opened before."""
        self._write(self._read() | {path_text(workspace.root.absolute()): time.time()})

    def forget(self, path: str, *, deletes: bool = False) -> None:
        """Remove a workspace from the list, and its folder if it `deletes`.

        Raises ApiError if the folder is open, or may hold more than a workspace does.
        """
        if deletes:
            root = self.find(path).root
            if root == self._current:
                raise conflict("this blog is open", hint="open another one first")
            if not root.name.endswith(SUFFIX):
                raise conflict(
                    f"{root.name} may hold files that ownwords has not made",
                    hint="delete the folder by hand",
                )
            atomic_dir.delete_dir(root)
        opened = self._read()
        if opened.pop(path, None) is not None:
            self._write(opened)

    def _entry(self, path: Path) -> WorkspaceEntry:
        posts, name = _posts_and_name(path / "archive.sqlite")
        return WorkspaceEntry(
            path=path_text(path),
            name=plain(name, 120) or path.name.removesuffix(SUFFIX),
            posts=posts,
            has_model=(atomic_dir.readable_dir(path / "model") / CONFIG).exists(),
            is_current=path == self._current,
        )

    def _read(self) -> dict[str, float]:
        """When each workspace was opened last, by its path, the last one first."""
        try:
            opened = decode(_Contents, json.loads((data_folder() / _FILE).read_bytes())).opened
        except (OSError, ValueError, OwnwordsError):  # none yet, or a damaged one
            return {}
        return dict(sorted(opened.items(), key=lambda item: -item[1]))

    def _write(self, opened: dict[str, float]) -> None:
        folder = data_folder()
        with translate_os_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / _FILE, json.dumps(encode(_Contents(opened))) + "\n")


def _posts_and_name(archive: Path) -> tuple[int | None, str]:
    """How many posts were read, None if none ever were, and what their blog is called."""
    if not archive.exists():
        return None, ""
    try:
        uri = f"{archive.absolute().as_uri()}?mode=ro"
        with closing(sqlite3.connect(uri, uri=True)) as connection:
            rows = connection.execute(
                "SELECT (SELECT count(*) FROM documents),"
                " (SELECT json_extract(value, '$.name') FROM meta WHERE key = 'report')"
            )
            posts, name = rows.fetchone()
            return int(posts), name or ""
    except sqlite3.Error:
        return None, ""
