"""What is to be served, where the verb was given a path, a workspace or nothing at all."""

from collections.abc import Sequence
from pathlib import Path

from ownwords.base import catalogue
from ownwords.core.errors import OwnwordsError
from ownwords.core.workspace import SUFFIX, Workspace, source_name
from ownwords.models.directory import CONFIG

Sources = tuple[Path, ...]


def served(paths: Sequence[Path], workspace: Path | None, here: Path) -> tuple[Workspace, Sources]:
    """The workspace, which need not be there yet, and the blogs that it is, or will be, made of.

    A path that is a workspace is served; any other is a blog, whose workspace stands in `here`.
    Without one it is the only NAME.ownwords in `here`. OwnwordsError where it is not clear which.
    """
    for path in paths:
        if not path.exists() and not path.name.endswith(SUFFIX):
            raise OwnwordsError(f"{path} does not exist", hint="give a blog, or a workspace")
    workspaces = [path for path in paths if _is_workspace(path)]
    blogs = tuple(path.absolute() for path in paths if path not in workspaces)
    if workspace is not None:
        workspaces.append(workspace)
    if len(workspaces) > 1:
        raise OwnwordsError(
            "one workspace is served at a time: " + " and ".join(map(str, workspaces)),
            hint="start it once for each; the second takes the next port",
        )
    if workspaces:
        return Workspace(workspaces[0].absolute()), blogs
    if blogs:
        return Workspace(here.absolute() / (source_name(blogs[0]) + SUFFIX)), blogs
    return Workspace(_only_one(here).absolute()), ()


def models_called(names: Sequence[str]) -> dict[str, Path]:
    """Folders of further models: a base's name, a model directory or a workspace with a model."""
    found: dict[str, Path] = {}
    for given in names:
        folder = catalogue.find(given)
        name = catalogue.name_for(given) or "model"
        if name in found and found[name] != folder:
            raise OwnwordsError(
                f"two models would be called {name}: {found[name]} and {folder}",
                hint="rename the folder of one of them",
            )
        found[name] = folder.absolute()
    return found


def _only_one(here: Path) -> Path:
    if _is_workspace(here):
        return here
    found = sorted(path for path in here.glob(f"*{SUFFIX}") if path.is_dir())
    if len(found) > 1:
        raise OwnwordsError(
            f"there are {len(found)} workspaces here: " + ", ".join(path.name for path in found),
            hint=f"say which: ownwords serve {found[0].name}",
        )
    # Where there is none yet, the page says how one is made.
    return found[0] if found else here / (source_name(here) + SUFFIX)


def _is_workspace(path: Path) -> bool:
    if path.name.endswith(SUFFIX):
        return True
    return Workspace(path).archive.is_file() or (path / "model" / CONFIG).is_file()
