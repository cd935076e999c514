"""A language model of your own writing, on your own machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ownwords.core.version import __version__

if TYPE_CHECKING:
    from ownwords.archive.report import Report

__all__ = ["__version__", "look"]


def look(
    *paths: str | Path, workspace: str | Path | None = None, export: str | Path | None = None
) -> Report:
    """Read blogs, exports or folders into a workspace and report what is in them.

    The same as `ownwords look`: the workspace is `./<name>.ownwords` unless given; nothing is
    asked, the stated defaults apply. Raises `ownwords.core.errors.OwnwordsError` for what cannot
    be read.
    """
    # Only now, so that importing ownwords costs nothing.
    from ownwords.archive.look import look as look_at  # noqa: PLC0415

    return look_at(
        [Path(path) for path in paths],
        workspace=Path(workspace) if workspace else None,
        export=Path(export) if export else None,
    )
