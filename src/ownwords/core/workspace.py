"""The workspace: every path in it, whole-or-nothing writes, one process at a time."""

import errno
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from ownwords.core.errors import InUseError, WorkspaceError

SUFFIX = ".ownwords"
_UNFINISHED = ".unfinished"
_NO_SUCH_PLACE = {
    errno.ENOENT,
    errno.ENOTDIR,
    errno.EISDIR,
    errno.ENAMETOOLONG,
    errno.ELOOP,
    errno.EINVAL,
}
# Any of these in a folder says that it is a workspace, or is meant to become one.
_MARKS = ("archive.sqlite", "ownwords.toml", "choices.toml", ".lock")


class Workspace:
    """One folder that holds everything made from one corpus."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.archive = root / "archive.sqlite"
        self.report_page = root / "report.html"
        self.choices = root / "choices.toml"
        self.settings = root / "ownwords.toml"
        self.runs = root / "runs"

    @classmethod
    def beside(cls, source: Path) -> "Workspace":
        """The default workspace of a source: `./<name>.ownwords`."""
        return cls(Path.cwd() / (name_of(source) + SUFFIX))

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Hold the workspace for writing; a folder made for a job that fails is taken away."""
        made = self._made()
        if not made and any(self.root.iterdir()) and not self._is_ours():
            raise WorkspaceError(
                f"{self.root} holds other files and is not an ownwords workspace",
                hint="give an empty or new folder to --workspace",
            )
        try:
            with self._locked():
                for left in self.root.glob(f".*{_UNFINISHED}"):  # by a process that was killed
                    left.unlink(missing_ok=True)
                yield
        except BaseException:
            if made:
                shutil.rmtree(self.root, ignore_errors=True)
            raise

    def _made(self) -> bool:
        """Make the folder; False if it was there, as when another process has just made it."""
        with telling_of_the_disk(self.root):
            try:
                self.root.mkdir(parents=True)
            except FileExistsError:
                if self.root.is_dir():
                    return False
                raise WorkspaceError(
                    f"{self.root} is a file", hint="give a folder to --workspace"
                ) from None
        return True

    def _is_ours(self) -> bool:
        return any((self.root / mark).exists() for mark in _MARKS)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        path = self.root / ".lock"
        with telling_of_the_disk(path):
            file = path.open("a+", encoding="utf-8")
        with file:  # what goes wrong while it is held has nothing to do with it
            if not try_lock(file.fileno()):
                raise InUseError(
                    f"another ownwords is working in {self.root}",
                    hint="wait for it to end, or give another folder to --workspace",
                )
            yield


def name_of(source: Path) -> str:
    """A short name for what is read: of the site rather than of its `input/db.sqlite`."""
    path = source.resolve()
    if path.name == "db.sqlite":
        path = path.parent
    if path.name == "input" and path.parent.name:
        path = path.parent
    stem = path.stem if path.is_file() else path.name
    return re.sub(r"[^\w.-]+", "-", stem).strip("-.") or "corpus"


def shown(path: Path) -> str:
    """A path as text that any file can hold, also where its name is no valid UTF-8."""
    return os.fsencode(path).decode("utf-8", "replace")


def write_atomically(path: Path, content: str | bytes) -> None:
    """Replace a file whole: after a crash at any moment it holds the old content or the new."""
    with writing_atomically(path) as file:
        file.write(content.encode("utf-8") if isinstance(content, str) else content)


@contextmanager
def writing_atomically(path: Path) -> Iterator[IO[bytes]]:
    """The same for what is written piece by piece; nothing is replaced if the writing fails."""
    with telling_of_the_disk(path):
        beside = f".{path.name}."  # on the same disk, or it could not be renamed into place
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=beside, suffix=_UNFINISHED)
        try:
            with os.fdopen(handle, "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.chmod(name, 0o666 & ~UMASK)  # noqa: PTH101 - mkstemp makes files only their owner reads
            os.replace(name, path)  # noqa: PTH105 - both names are strings here
        except BaseException:
            with suppress(OSError):
                os.unlink(name)  # noqa: PTH108
            raise


@contextmanager
def telling_of_the_disk(path: Path) -> Iterator[None]:
    """Turn what the file system refuses into a sentence about `path`."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise WorkspaceError(
                f"the disk is full: {path} could not be written",
                hint="make room, then run the same command again; nothing was lost",
            ) from error
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise WorkspaceError(
                f"{path} cannot be written: {error.strerror}",
                hint="give a folder of your own to --workspace",
            ) from error
        if error.errno in _NO_SUCH_PLACE:
            raise WorkspaceError(
                f"{path} cannot be made: {error.strerror}",
                hint="give a path whose folders are there",
            ) from error
        raise


def _read_umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


# Read once, at import: asking for it later would change it for a moment under other threads.
UMASK = _read_umask()


if sys.platform == "win32":
    import msvcrt

    def try_lock(handle: int) -> bool:
        """Whether this process now holds the file, without waiting for another to let go."""
        try:
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

else:
    import fcntl

    def try_lock(handle: int) -> bool:
        """Whether this process now holds the file, without waiting for another to let go."""
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
