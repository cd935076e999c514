"""The models of a workspace: `model` is the current one, and `models/NAME` keeps each model.

Keeping the current model takes no extra disk space, because its files are hard links. A kept
model's folder also holds its scorecard and the records of `make`.
"""

import os
import re
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import wraps
from itertools import count
from pathlib import Path
from threading import RLock
from typing import Any, Final, TypeVar

from ownwords.archive.blog_name import as_file_name, blog_name
from ownwords.core.errors import OwnwordsError
from ownwords.core.workspace import write_atomically
from ownwords.models import atomic_dir
from ownwords.models.directory import CONFIG, model_fingerprint
from ownwords.models.weight_mapping import INDEX, SINGLE

FOLDER: Final = "models"
_SWITCHING = "switching"
# Files of the workspace that belong to its current model.
SCORECARD: Final = (Path("scorecard.json"), Path("scorecard.html"))
BESIDE: Final = (
    *SCORECARD,
    Path("runs", "make", "finished.json"),
    Path("runs", "make", "posts.json"),
)
_NAME = re.compile(r"[\w][\w .()+-]{0,79}")
_Method = TypeVar("_Method", bound=Callable[..., Any])


@dataclass(frozen=True)
class KeptModel:
    """A kept model: `folder` holds `model`, and copies of the workspace files that belong to it."""

    name: str
    folder: Path
    made_at: float
    is_current: bool

    @property
    def model(self) -> Path:
        return self.folder / "model"

    def beside(self, path: Path) -> Path:
        """Return where a copy of one of the `BESIDE` files is kept."""
        return self.folder / path.name


def _locked(method: _Method) -> _Method:
    """Hold the library's lock in a method."""

    @wraps(method)
    def call(library: "ModelLibrary", *arguments: Any) -> Any:  # noqa: ANN401 - as the method
        with library.lock:
            return method(library, *arguments)

    return call  # type: ignore[return-value]


class ModelLibrary:
    """The models of one workspace. Every change is atomic: if killed, it is completed or undone.

    Thread-safe. Hold `lock` to read the current model's files if another thread may switch models.
    """

    def __init__(self, root: Path) -> None:
        self.lock = RLock()
        self._root = root
        self._folder = root / FOLDER
        self._current = root / "model"

    @_locked
    def models(self) -> list[KeptModel]:
        """All kept models: the current one first, then the newest first."""
        self._finish_switch()
        kept = [self._read(name) for name in self._names()]
        return sorted(kept, key=lambda model: (not model.is_current, -model.made_at))

    @_locked
    def find(self, name: str) -> KeptModel:
        """Return a kept model by its name. Raises OwnwordsError if there is none."""
        if name not in self._names():
            raise OwnwordsError(
                f"there is no model called {name[:80]!r}",
                hint="the names of all models are under Models",
            )
        return self._read(name)

    @_locked
    def keep(self, name: str = "") -> KeptModel | None:
        """Keep the current model, if there is one, under a name, unless it is kept already.

        If it is already kept, a new name renames it. The scorecard and records are copied again.
        """
        if not _is_model(self._current):
            return None
        known = next((model for model in self.models() if model.is_current), None)
        if known is None:
            known = self._keep_new(self._free_name(name))
        elif name and name != known.name:
            known = self.rename(known.name, name)
        for path in BESIDE:
            _copy(self._root / path, known.beside(path))
        return known

    def forget_score(self) -> None:
        """Delete the workspace's scorecard, which describes the previous model."""
        for path in SCORECARD:
            (self._root / path).unlink(missing_ok=True)

    def check_name(self, name: str) -> None:
        """Raise OwnwordsError if a new model cannot have this name."""
        if not _NAME.fullmatch(name) or name != name.strip() or name.endswith("."):
            raise OwnwordsError(
                f"{name[:80]!r} cannot be the name of a model",
                hint="use at most 80 letters, digits, spaces and . _ - ( ), a letter first",
            )
        if name.casefold() in {each.casefold() for each in self._names()}:
            raise OwnwordsError(
                f"there is already a model called {name!r}", hint="choose another name"
            )

    @_locked
    def use(self, name: str) -> None:
        """Make a kept model the current one; keep the previous one."""
        wanted = self.find(name)
        if wanted.is_current:
            return
        self.keep()
        write_atomically(self._folder / _SWITCHING, name)
        self._finish_switch()

    @_locked
    def rename(self, name: str, new_name: str) -> KeptModel:
        """Rename a kept model."""
        model = self.find(name)
        if new_name.casefold() != name.casefold():
            self.check_name(new_name)
        model.folder.rename(self._folder / new_name)
        return self._read(new_name)

    @_locked
    def delete(self, name: str) -> None:
        """Delete a kept model; this never deletes the workspace's `model`."""
        atomic_dir.delete_dir(self.find(name).folder)

    # --- the files -------------------------------------------------------------------------------

    def _names(self) -> list[str]:
        try:
            entries = sorted(path.name for path in self._folder.iterdir())
        except OSError:
            return []
        names = [name for name in entries if not name.startswith(".")]
        return [name for name in names if _is_model(self._folder / name / "model")]

    def _read(self, name: str) -> KeptModel:
        folder = self._folder / name
        model = folder / "model"
        made_at = (atomic_dir.readable_dir(model) / CONFIG).stat().st_mtime
        return KeptModel(name, folder, made_at, _is_same(model, self._current))

    def _free_name(self, name: str) -> str:
        if name:
            self.check_name(name)
            return name
        stem = as_file_name(blog_name(self._root)) or "model"
        taken = {each.casefold() for each in self._names()}
        numbered = (f"{stem} {number}" for number in count(1))
        return next(each for each in numbered if each.casefold() not in taken)

    def _keep_new(self, name: str) -> KeptModel:
        with atomic_dir.replace_dir(self._folder / name) as folder:
            _link(atomic_dir.readable_dir(self._current), folder / "model")
        return self._read(name)

    def _finish_switch(self) -> None:
        """Complete a switch to another model, even if the process was killed during it."""
        try:
            name = (self._folder / _SWITCHING).read_text("utf-8")
        except (OSError, UnicodeDecodeError):
            return
        if name in self._names():
            kept = self._folder / name
            with atomic_dir.replace_dir(self._current) as folder:
                _link(kept / "model", folder)
            for path in BESIDE:
                _copy(kept / path.name, self._root / path)
        (self._folder / _SWITCHING).unlink(missing_ok=True)


def name_of(model: Path) -> str:
    """Return a name for files made from a model; a workspace's model has its kept name."""
    path = model.resolve()
    if path.is_file():
        return path.stem
    if path.name != "model":
        return path.name
    if path.parent.parent.name == FOLDER:
        return path.parent.name.replace(" ", "-")
    kept = ModelLibrary(path.parent).models()
    name = next((each.name for each in kept if each.is_current), "")
    return (name or as_file_name(blog_name(path.parent)) or path.name).replace(" ", "-")


def _is_model(folder: Path) -> bool:
    return (atomic_dir.readable_dir(folder) / CONFIG).exists()


def _is_same(first: Path, second: Path) -> bool:
    """Whether two folders hold the same model: the same files, or equal ones."""
    first, second = atomic_dir.readable_dir(first), atomic_dir.readable_dir(second)
    for name in (SINGLE, INDEX):
        with suppress(OSError):
            if (first / name).samefile(second / name):
                return True
            if (first / name).stat().st_size != (second / name).stat().st_size:
                return False
    key = model_fingerprint(first)
    return bool(key) and key == model_fingerprint(second)


def _link(source: Path, target: Path) -> None:
    """Link the files of a folder into another one; copy those that cannot be linked."""
    target.mkdir(exist_ok=True)
    for path in source.iterdir():
        if path.is_file():
            try:
                os.link(path, target / path.name)
            except OSError:  # another disk, or a file system without links
                shutil.copy2(path, target / path.name)


def _copy(source: Path, target: Path) -> None:
    """Replace a file atomically by a copy of `source`; delete it if `source` does not exist."""
    try:
        content = source.read_bytes()
    except OSError:
        with suppress(OSError):
            target.unlink(missing_ok=True)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(target, content)
