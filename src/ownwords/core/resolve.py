"""Finds the workspace or model for a command, from a path or the current folder."""

from collections.abc import Callable, Sequence
from pathlib import Path

from ownwords.core.errors import OwnwordsError
from ownwords.core.workspace import SUFFIX, Workspace, source_name

_CONFIG, _MODEL, _GGUF = "config.json", "model", ".gguf"
_LOOK = "read your posts first: ownwords look PATH"


def resolve_workspace(given: Path | None, here: Path) -> Workspace:
    """The workspace given, `here` itself, or the only one in `here` that has an archive.

    Raises OwnwordsError if there is none or more than one.
    """
    if given is None and _has_archive(here):
        return Workspace(here)
    if given is None:
        return Workspace(_only(here, _has_archive, "archive", "--workspace", _LOOK))
    if _has_archive(given):
        return Workspace(given)
    if not given.exists():
        raise OwnwordsError(f"{given} does not exist", hint=_LOOK)
    if not given.is_dir():
        raise OwnwordsError(f"{given} is a file", hint="give the folder of a workspace")
    if given.name.endswith(SUFFIX):
        raise OwnwordsError(f"the workspace {given} holds no archive yet", hint=_LOOK)
    raise OwnwordsError(
        f"{given} is not a workspace: it has no archive.sqlite",
        hint=f"read the posts in it first: ownwords look {given}",
    )


def resolve_model(given: Path | None, here: Path) -> Path:
    """The model given, a directory or a GGUF file, or that of a workspace, given or in `here`.

    Raises OwnwordsError if there is none or more than one.
    """
    if given is None:
        make = "make one with `ownwords make PATH`"
        return (
            _only(here, lambda path: _has_model(path / _MODEL), "model", "--model", make) / _MODEL
        )
    if given.is_file() and given.suffix.lower() == _GGUF:
        return given
    if given.is_file():
        raise OwnwordsError(
            f"{given} is a file, not a model directory",
            hint="give the folder that holds config.json, or a GGUF file",
        )
    if not given.exists():
        raise OwnwordsError(f"{given} does not exist", hint="give the folder of a model")
    if not _has_model(given) and _has_model(given / _MODEL):
        return given / _MODEL
    if given.name.endswith(SUFFIX) and not _has_model(given):
        raise OwnwordsError(
            f"the workspace {given} holds no model yet",
            hint="make one with `ownwords make PATH`",
        )
    return given  # reading it will report missing files


def resolve_served(
    paths: Sequence[Path], workspace: Path | None, here: Path
) -> tuple[Workspace, tuple[Path, ...]]:
    """The workspace to serve, which may not exist yet, and the blogs given as its sources.

    A path that is a workspace is served; any other is a blog, whose workspace is in `here`. Without
    paths, it is the only NAME.ownwords in `here`. Raises OwnwordsError if there are several.
    """
    for path in paths:
        if not path.exists() and not path.name.endswith(SUFFIX):
            raise OwnwordsError(f"{path} does not exist", hint="give a blog or a workspace")
    workspaces = [path for path in paths if _is_workspace(path)]
    blogs = tuple(path.absolute() for path in paths if path not in workspaces)
    if workspace is not None:
        workspaces.append(workspace)
    if len(workspaces) > 1:
        raise OwnwordsError(
            "one server serves one workspace, not " + " and ".join(map(str, workspaces)),
            hint="start a server for each; the second takes the next port",
        )
    if workspaces:
        root = workspaces[0].absolute()
    elif blogs:
        root = Workspace.default_for(blogs[0], here.absolute()).root
    elif _is_workspace(here):
        root = here.absolute()
    else:
        candidates = sorted(path for path in here.glob(f"*{SUFFIX}") if path.is_dir())
        if len(candidates) > 1:
            raise _several("workspace", candidates, f"ownwords serve {candidates[0].name}")
        # If there is no workspace yet, the web page explains how to make one.
        root = (candidates[0] if candidates else here / (source_name(here) + SUFFIX)).absolute()
    return Workspace(root), blogs


def _only(here: Path, fits: Callable[[Path], bool], what: str, option: str, hint: str) -> Path:
    """The only NAME.ownwords in `here` for which `fits` is true; OwnwordsError otherwise."""
    candidates = sorted(path for path in here.glob(f"*{SUFFIX}") if fits(path))
    if not candidates:
        raise OwnwordsError(
            f"there is no {what} here: no folder NAME{SUFFIX} in {here} holds one",
            hint=f"{hint}, or say where one is with {option}",
        )
    if len(candidates) > 1:
        raise _several(what, candidates, f"{option} {candidates[0].name}")
    return candidates[0]


def _several(what: str, candidates: Sequence[Path], choice: str) -> OwnwordsError:
    names = ", ".join(path.name for path in candidates)
    return OwnwordsError(
        f"there are {len(candidates)} {what}s here: {names}", hint=f"say which: {choice}"
    )


def _has_archive(folder: Path) -> bool:
    return Workspace(folder).archive.is_file()


def _has_model(folder: Path) -> bool:
    return (folder / _CONFIG).exists()


def _is_workspace(folder: Path) -> bool:
    return folder.name.endswith(SUFFIX) or _has_archive(folder) or _has_model(folder / _MODEL)
