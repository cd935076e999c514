"""Replaces a folder atomically: writes one beside it, flushes it to disk, and swaps the two."""

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from ownwords.core.errors import WorkspaceError
from ownwords.core.workspace import UNFINISHED, is_held, locked, translate_os_errors

_ASIDE = ".replaced"
_LOCK = ".lock"


@contextmanager
def replace_dir(folder: Path) -> Iterator[Path]:
    """Yield an empty folder that replaces `folder` when the block ends without an error.

    A process killed at any moment leaves the complete old or the complete new folder; the next
    `replace_dir` removes unfinished files. The old folder is moved aside first, where
    `readable_dir` still finds it. WorkspaceError if the disk is full or writing fails.
    """
    folder = Path(os.path.realpath(folder))
    try:
        with translate_os_errors(folder), scratch_dir(folder) as draft:
            yield draft
            _flush(draft)
            _put(draft, folder)
            _flush(folder.parent)
    except OSError as error:  # e.g. the folder is a mount point, or open in another program
        raise WorkspaceError(
            f"{folder} cannot be replaced: {error.strerror or error}",
            hint="nothing was changed; save to another folder",
        ) from error


@contextmanager
def scratch_dir(folder: Path) -> Iterator[Path]:
    """Yield an empty folder of this name, inside a temporary one that is removed at the end.

    It first removes what a killed process left behind. Raises OSError.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    _settle(folder)
    with ExitStack() as stack:
        yield _begin(folder, stack)


def readable_dir(folder: Path) -> Path:
    """Return the path to read `folder` from: its old copy if a replacement was killed midway."""
    aside = _aside(Path(os.path.realpath(folder)))
    return aside if not folder.exists() and aside.exists() else folder


def delete_dir(folder: Path) -> None:
    """Delete a folder atomically: after a crash it is complete or gone.

    WorkspaceError if renaming fails.
    """
    with translate_os_errors(folder.parent):
        beside = _folder_beside(folder)
        try:
            folder.rename(beside / folder.name)
        finally:
            shutil.rmtree(beside, ignore_errors=True)


def write_file(path: Path, data: bytes) -> None:
    """Write a new file and flush it to the disk."""
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _folder_beside(folder: Path) -> Path:
    return Path(tempfile.mkdtemp(prefix=f".{folder.name}.", suffix=UNFINISHED, dir=folder.parent))


def _begin(folder: Path, stack: ExitStack) -> Path:
    """Create the draft of a folder; try again if another process has just cleaned it up."""
    while True:
        beside = _folder_beside(folder)
        stack.callback(shutil.rmtree, beside, ignore_errors=True)
        # While the lock is held, no other process treats this folder as abandoned.
        stack.enter_context(locked(beside / _LOCK, f"{beside} is in use", ""))
        with suppress(FileNotFoundError):
            (beside / folder.name).mkdir()
            return beside / folder.name


def _settle(folder: Path) -> None:
    """Clean up after a killed process: restore or remove its folders."""
    aside = _aside(folder)
    if aside.exists():
        if folder.exists():
            shutil.rmtree(aside)
        else:
            aside.rename(folder)
    for path in folder.parent.iterdir():
        is_ours = path.name.startswith(f".{folder.name}.") and path.suffix == UNFINISHED
        # Check this before the lock, because the draft is created while the lock is held.
        has_draft = (path / folder.name).exists()
        if is_ours and not is_held(path / _LOCK):
            if has_draft:
                shutil.rmtree(path, ignore_errors=True)
            else:  # another process may be about to lock it
                with suppress(OSError):
                    (path / _LOCK).unlink(missing_ok=True)
                    path.rmdir()


def _aside(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}{_ASIDE}")


def _put(beside: Path, folder: Path) -> None:
    if folder.exists():
        folder.rename(_aside(folder))
    beside.rename(folder)
    shutil.rmtree(_aside(folder), ignore_errors=True)


def _flush(folder: Path) -> None:
    """Flush a folder's entries to the disk; Windows has no such call, but journals them."""
    if sys.platform != "win32":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
