"""A language model of your own writing, on your own machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ownwords.core.version import __version__

if TYPE_CHECKING:
    from ownwords.archive.report import Report
    from ownwords.inference.model import Model

__all__ = ["__version__", "load", "look"]


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


def load(folder: str | Path, *, device: str = "cpu") -> Model:
    """The model of a directory, ours or another's, with its tokenizer.

    `Model.logits(ids)` gives the scores of what follows each id; `Model.tokenizer` turns text into
    ids and back. Nothing in the directory is executed. Raises
    `ownwords.core.errors.OwnwordsError` for what is missing, damaged or does not fit, and where
    PyTorch is not installed.
    """
    try:
        from ownwords.inference.model import Model  # noqa: PLC0415 - torch takes a second
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        from ownwords.core.errors import OwnwordsError  # noqa: PLC0415

        raise OwnwordsError(
            "loading a model takes PyTorch, which is not installed",
            hint='pip install "ownwords[train]"',
        ) from error
    return Model.load(Path(folder), device=device)
