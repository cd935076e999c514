"""Which archive is meant, where a verb that asks was given a folder or nothing at all."""

from pathlib import Path

from ownwords.core.errors import OwnwordsError
from ownwords.core.workspace import SUFFIX, Workspace

_LOOK = "read your posts first: ownwords look PATH"


def asked_workspace(given: Path | None, here: Path) -> Workspace:
    """The workspace to ask: the one given, `here` if it is one, or the only one in `here`.

    Looked for is the archive of folders called NAME.ownwords. OwnwordsError where there is none,
    or where it is not clear which.
    """
    if given is not None:
        return _of(given)
    if Workspace(here).archive.is_file():
        return Workspace(here)
    found = sorted(place for place in here.glob(f"*{SUFFIX}") if Workspace(place).archive.is_file())
    if not found:
        raise OwnwordsError(
            f"there is no archive here: no folder NAME{SUFFIX} in {here} holds one",
            hint=f"{_LOOK}, or say where one is with --workspace",
        )
    if len(found) > 1:
        raise OwnwordsError(
            f"there are {len(found)} archives here: " + ", ".join(path.name for path in found),
            hint=f"say which with --workspace {found[0].name}",
        )
    return Workspace(found[0])


def _of(given: Path) -> Workspace:
    place = Workspace(given)
    if place.archive.is_file():
        return place
    if not given.exists():
        raise OwnwordsError(f"{given} does not exist", hint=_LOOK)
    if not given.is_dir():
        raise OwnwordsError(f"{given} is a file", hint="give the folder of a workspace")
    if given.name.endswith(SUFFIX):
        raise OwnwordsError(f"the workspace {given} holds no archive yet", hint=_LOOK)
    raise OwnwordsError(
        f"{given} is no workspace: it holds no archive.sqlite",
        hint=f"read the posts in it first: ownwords look {given}",
    )
