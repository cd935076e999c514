"""The workspace folder: its paths and lock, and how a command finds it; atomic writes."""

import errno
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from ownwords.core.errors import InUseError, OwnwordsError, WorkspaceError

SUFFIX = ".ownwords"
DATA_FOLDER_VARIABLE = "OWNWORDS_HOME"
UNFINISHED = ".unfinished"
_UNWRITABLE = {
    *(errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT, errno.ENOTDIR, errno.EISDIR),
    *(errno.ENAMETOOLONG, errno.ELOOP, errno.EINVAL),
}
_LOCK = ".lock"
_PACKED = {".zip", ".tar", ".tgz", ".gz", ".bz2", ".xz"}
# The ends of file names that differ in each export of a blog: a download's number, a date, a key.
_NUMBERED = re.compile(r" ?\(\d+\)$")
_EXPORTED = re.compile(
    r"(?i)(?<=\.wordpress)\.\d{4}-\d\d-\d\d(\.\d{3})?$|(?<=\.ghost)\.\d{4}-\d\d-\d\d[\d-]*$"
    r"|(?<=^takeout)-\d{8}T\d{6}Z[\d-]*$|(?<=^medium-export)-[0-9a-f]{16,}$"
)
_DATED = re.compile(r"(?<=\w)[-_. ]+\d{4}-?\d\d-?\d\d([-_T. ][\d-]+)?$")
_LOCK_TRIES, _LOCK_PAUSE_S = 10, 0.01  # `is_held` holds a lock for microseconds
_CONFIG, _MODEL, _GGUF = "config.json", "model", ".gguf"
_LOOK = "read your posts first: ownwords look PATH"
_MAKE = "make one with `ownwords make PATH`"
# A folder with any of these is a workspace.
_MARKS = ("archive.sqlite", "ownwords.toml", "choices.toml", _LOCK)


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
    def default_for(cls, source: Path, folder: Path | None = None) -> "Workspace":
        """Return `<name>.ownwords` in the folder, or the current one.

        The date in the name of an export is ignored; `ingest.workspace_for` also compares posts.
        """
        return cls((folder or Path.cwd()) / (source_name(source) + SUFFIX))

    def create(self) -> None:
        with self.opened():
            pass

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Lock the workspace for writing; a folder created for a job that fails is deleted."""
        with translate_os_errors(self.root):
            is_new = self._create_folder()
            if not is_new and any(self.root.iterdir()) and not self._is_workspace():
                raise WorkspaceError(
                    f"{self.root} is not an ownwords workspace, and it is not empty",
                    hint="give an empty or new folder to --workspace",
                )
        with locked(
            self.root / _LOCK,
            f"another ownwords process is working in {self.root}",
            "wait until it has finished, or give another folder to --workspace",
        ) as lock:
            # Another process may have had the lock since the folder was made.
            is_new = is_new and [path.name for path in self.root.iterdir()] == [_LOCK]
            remove_unfinished(self.root)
            try:
                yield
            except BaseException:
                if is_new:  # under the lock, so that no other process works in it
                    shutil.rmtree(self.root, ignore_errors=True)
                    if sys.platform == "win32":  # which does not delete open files
                        lock.close()
                        with suppress(OSError):
                            (self.root / _LOCK).unlink()
                            self.root.rmdir()
                raise

    def _create_folder(self) -> bool:
        """Create the folder; False if it exists, even if another process has just created it."""
        try:
            self.root.mkdir(parents=True)
        except FileExistsError:
            if self.root.is_dir():
                return False
            raise WorkspaceError(
                f"{self.root} is a file", hint="give a folder to --workspace"
            ) from None
        return True

    def _is_workspace(self) -> bool:
        return any((self.root / mark).exists() for mark in _MARKS)


def data_folder() -> Path:
    """Return the user's folder for bases and decisions: OWNWORDS_HOME, or a system folder."""
    if given := os.environ.get(DATA_FOLDER_VARIABLE):
        return Path(given).expanduser()
    try:
        return _user_folder("XDG_DATA_HOME", ".local/share", "Library/Application Support")
    except RuntimeError as error:
        raise OwnwordsError(
            "this user has no home folder to keep data in",
            hint=f"set a folder in the environment: {DATA_FOLDER_VARIABLE}=PATH",
        ) from error


def cache_folder() -> Path:
    """Return the user's folder for this program's cached files."""
    try:
        folder = _user_folder("XDG_CACHE_HOME", ".cache", "Library/Caches")
    except RuntimeError:  # some services have no home folder
        return Path(os.devnull) / "ownwords"
    return folder / "Cache" if sys.platform == "win32" else folder


def _user_folder(variable: str, on_linux: str, on_mac: str) -> Path:
    """Return a folder of this user for this program; RuntimeError if the user has no home."""
    if (given := os.environ.get(variable)) and Path(given).is_absolute():
        return Path(given) / "ownwords"
    if sys.platform == "win32" and (local := os.environ.get("LOCALAPPDATA")):
        return Path(local) / "ownwords"
    at = {"win32": "AppData/Local", "darwin": on_mac}.get(sys.platform, on_linux)
    return Path.home() / at / "ownwords"


def source_name(source: Path, *, full: bool = False) -> str:
    """Return a short name for a source; for `SITE/input/db.sqlite`, the name of the site.

    All exports of a blog have the same name, unless it is `full`, with the date and number.
    """
    path = source.resolve()
    if path.name == "db.sqlite":
        path = path.parent
    if path.name == "input" and path.parent.name:
        path = path.parent
    stem = path.name
    if path.is_file():
        stem = path.stem.removesuffix(".tar")
        if not full:
            stem = _EXPORTED.sub("", _NUMBERED.sub("", stem))
            stem = _DATED.sub("", stem) if path.suffix.lower() in _PACKED else stem
    return re.sub(r"[^\w.-]+", "-", stem).strip("-.") or "corpus"


# --- the workspace that a command is about --------------------------------------------------------


def resolve_workspace(given: Path | None, here: Path) -> Workspace:
    """Return the given workspace, `here` itself, or the only one in `here` that has an archive.

    Raises OwnwordsError if there is none or more than one.
    """
    if given is None and not _has_archive(here):
        given = _only(here, _has_archive, "archive", "--workspace", _LOOK)
    root = given or here
    if not _has_archive(root):
        problem = "holds no archive yet" if root.is_dir() else _no_folder(root)
        raise OwnwordsError(f"{root} {problem}", hint=_LOOK)
    return Workspace(root)


def nearest_workspace(here: Path) -> Workspace:
    """Return the workspace of `here`, or of the nearest folder above that has one."""
    for folder in (here, *here.parents):
        if _has_archive(folder) or any(map(_has_archive, folder.glob(f"*{SUFFIX}"))):
            return resolve_workspace(None, folder)
    return resolve_workspace(None, here)  # raises the error that says what is missing


def has_model(here: Path) -> bool:
    """Whether `here` or a workspace in it has a model, for `resolve_model` to find."""
    return any(_has_model(path / _MODEL) for path in (here, *here.glob(f"*{SUFFIX}")))


def resolve_model(given: Path | None, here: Path) -> Path:
    """Find a model: the one given, that of a given workspace, or the only one in `here`.

    It is a directory or a GGUF file. Raises OwnwordsError if there is none or more than one.
    """
    if given is None and _has_model(here / _MODEL):
        given = here
    if given is None:
        given = _only(here, lambda path: _has_model(path / _MODEL), "model", "--model", _MAKE)
    if given.is_file() and given.suffix.lower() == _GGUF:
        return given
    if not given.is_dir():
        raise OwnwordsError(
            f"{given} {_no_folder(given)}", hint="give the folder of a model, or a GGUF file"
        )
    if _has_model(given):
        return given
    if _has_model(given / _MODEL):
        return given / _MODEL
    if given.name.endswith(SUFFIX):
        raise OwnwordsError(f"the workspace {given} holds no model yet", hint=_MAKE)
    return given  # reading it will report missing files


def _no_folder(path: Path) -> str:
    return "is a file, not a folder" if path.exists() else "does not exist"


def resolve_served(
    paths: Sequence[Path],
    workspace: Path | None,
    here: Path,
    default_for: Callable[[Path, Path], Workspace] = Workspace.default_for,
) -> tuple[Workspace, tuple[Path, ...]]:
    """Return the workspace to serve, which may not exist yet, and the blogs given as its sources.

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
        root = default_for(blogs[0], here.absolute()).root
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
    """Return the only NAME.ownwords in `here` for which `fits` is true; OwnwordsError otherwise."""
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


# --- files ----------------------------------------------------------------------------------------


def path_text(path: Path) -> str:
    """Return the path as text, with invalid UTF-8 replaced."""
    return os.fsencode(path).decode("utf-8", "replace")


def write_atomically(path: Path, content: str | bytes) -> None:
    """Replace a file atomically: after a crash it holds either the old content or the new."""
    with writing_atomically(path) as file:
        file.write(content.encode("utf-8") if isinstance(content, str) else content)


@contextmanager
def writing_atomically(path: Path) -> Iterator[IO[bytes]]:
    """Open a file to be replaced atomically; nothing is replaced if the block raises."""
    with translate_os_errors(path):
        # In the same folder, since a rename works only within one file system.
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=UNFINISHED)
        try:
            with os.fdopen(handle, "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.chmod(name, 0o666 & ~UMASK)  # noqa: PTH101 - mkstemp makes the file private
            os.replace(name, path)  # noqa: PTH105 - both names are strings here
        except BaseException:
            with suppress(OSError):
                os.unlink(name)  # noqa: PTH108
            raise


def remove_unfinished(folder: Path) -> None:
    """Delete the unfinished files of a killed process; call it with the folder's lock."""
    for draft in folder.glob(f".*{UNFINISHED}"):
        if draft.is_file():  # folders have a lock of their own, see models/atomic_dir.py
            draft.unlink(missing_ok=True)


def is_disk_full(error: OSError) -> bool:
    """Whether writing failed because the disk is full."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextmanager
def translate_os_errors(path: Path) -> Iterator[None]:
    """Turn an OSError about `path` into a WorkspaceError."""
    try:
        yield
    except OSError as error:
        if is_disk_full(error):
            raise WorkspaceError(
                f"the disk is full: {path} could not be written",
                hint="free some space, then run the same command again",
            ) from error
        if error.errno in _UNWRITABLE:
            raise WorkspaceError(
                f"{path} cannot be written: {error.strerror}",
                hint="give a path in an existing folder that you may write to",
            ) from error
        raise


def _read_umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


# Read once at import: reading it changes it for a moment, for other threads too.
UMASK = _read_umask()


@contextmanager
def locked(path: Path, message: str, hint: str) -> Iterator[IO[str]]:
    """Hold the lock of a file, which is made if missing; InUseError if another process has it."""
    with translate_os_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("a+", encoding="utf-8")
    with file:  # not translated: errors of the block are not about the lock
        if not try_lock(file.fileno()):
            raise InUseError(message, hint)
        yield file


def try_lock(handle: int) -> bool:
    """Lock an open file; return False if another process holds it for longer than a check."""
    for _ in range(_LOCK_TRIES):
        if _lock_at_once(handle):
            return True
        time.sleep(_LOCK_PAUSE_S)
    return False


def is_held(path: Path) -> bool:
    """Whether a process holds the lock. The check itself holds it for an instant."""
    try:
        with path.open("r+b") as file:
            return not _lock_at_once(file.fileno(), shared=True)
    except OSError:
        return False


if sys.platform == "win32":
    import msvcrt

    def _lock_at_once(handle: int, *, shared: bool = False) -> bool:
        try:
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

else:
    import fcntl

    def _lock_at_once(handle: int, *, shared: bool = False) -> bool:
        try:
            fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
