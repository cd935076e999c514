"""The workspaces that the page lists: those opened before, and those beside the current one."""

import json
import re
import sqlite3
import time
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path

from ownwords.archive.blog_name import blog_name, give_name
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
    """A workspace as the page lists it; `posts` is None if none were read."""

    path: str
    name: str
    posts: int | None
    models: int
    is_current: bool


@dataclass(frozen=True)
class _Contents:
    """When each workspace was last opened, by path."""

    opened: dict[str, float] = field(default_factory=dict)


class WorkspaceList:
    """The workspaces of this user, as listed in the one that is open."""

    def __init__(self, current: Workspace) -> None:
        self._current = current.root.absolute()

    def entries(self) -> list[WorkspaceEntry]:
        """Return an entry for each path in `paths`."""
        return [self._entry(path) for path in self.paths()]

    def paths(self) -> list[Path]:
        """Return the current workspace, then those opened before, the latest first, then others."""
        beside = sorted(self._current.parent.glob(f"*{SUFFIX}"))
        others = dict.fromkeys([*map(Path, self._read()), *beside])
        # Others may be deleted, or on a disk that is not mounted.
        return [
            self._current,
            *(path for path in others if path != self._current and path.is_dir()),
        ]

    def last_opened(self) -> Path | None:
        """Return the workspace that was opened last and is still there."""
        return next((path for path in map(Path, self._read()) if path.is_dir()), None)

    def find(self, path: str) -> Workspace:
        """Return the listed workspace at this path. Raises ApiError if it is not listed."""
        if path in map(path_text, self.paths()):
            return Workspace(Path(path))
        raise not_found(f"there is no workspace at {path[:200]}", hint="it was moved or deleted")

    def new(self, name: str) -> Workspace:
        """Create a workspace beside the current one. Raises ApiError for an unusable name."""
        words = re.sub(r"[^\w. -]+", "", plain(name)).strip(" .")
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
        give_name(path, name, is_first=True)
        return workspace

    def rename(self, path: str, name: str) -> None:
        """Give the blog of a listed workspace another name."""
        root = self.find(path).root
        if not plain(name):
            raise invalid("a blog needs a name", hint="use letters and digits", param="name")
        Workspace(root).create()  # the open blog's may not exist yet
        give_name(root, name)

    def remember(self, workspace: Workspace) -> None:
        """Record that a workspace is opened now."""
        self._write(self._read() | {path_text(workspace.root.absolute()): time.time()})

    def delete(self, path: str) -> None:
        """Delete the folder of a listed workspace. Raises ApiError if it may hold other files."""
        root = self.find(path).root
        if not root.name.endswith(SUFFIX):
            raise conflict(
                f"{root.name} may contain files that ownwords did not create",
                hint="delete the folder by hand",
            )
        atomic_dir.delete_dir(root)
        self._write({each: at for each, at in self._read().items() if each != path})

    def _entry(self, path: Path) -> WorkspaceEntry:
        has_model = (atomic_dir.readable_dir(path / "model") / CONFIG).exists()
        return WorkspaceEntry(
            path=path_text(path),
            name=blog_name(path),
            posts=_count_posts(path / "archive.sqlite"),
            models=max(sum(1 for _ in path.glob("models/[!.]*")), int(has_model)),
            is_current=path == self._current,
        )

    def _read(self) -> dict[str, float]:
        """Return when each workspace was opened, by path, the last one first."""
        try:
            text = (data_folder() / _FILE).read_bytes()
            opened = decode(_Contents, json.loads(text), unknown="ignore").opened
        except (OSError, ValueError, OwnwordsError):  # none yet, or a damaged one
            return {}
        return dict(sorted(opened.items(), key=lambda item: -item[1]))

    def _write(self, opened: dict[str, float]) -> None:
        folder = data_folder()
        with translate_os_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / _FILE, json.dumps(encode(_Contents(opened))) + "\n")


def _count_posts(archive: Path) -> int | None:
    """Count how many posts were read; None if none ever were."""
    with (
        suppress(sqlite3.Error),
        closing(sqlite3.connect(f"{archive.absolute().as_uri()}?mode=ro", uri=True)) as connection,
    ):
        return int(connection.execute("SELECT count(*) FROM documents").fetchone()[0])
    return None
