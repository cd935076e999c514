"""Looks at an uploaded file in a process of its own, which a damaged or hostile file may end.

    python -m ownwords.serve.inspect_source PATH

prints one JSON object: the path to read, what it is, and how many posts it holds; or an error. A
zip or tar of texts that no source reads as it is, such as one of Markdown files, is unpacked beside
itself, its texts only, after all of its members have been checked.
"""

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path, PurePosixPath
from typing import Any

from ownwords.archive import sources
from ownwords.archive.document import ExpectedCount, RawDocument
from ownwords.archive.untrusted_files import ExportFiles, open_packed
from ownwords.core.errors import OwnwordsError, SourceError
from ownwords.core.workspace import path_text

_TIMEOUT_S = 300.0
_COUNT_S = 20.0  # after which the posts are no longer counted
_MEMORY_BYTES = 4 << 30
_MAX_UNPACKED_BYTES = 2 << 30
_BLOCK_BYTES = 1 << 20
_TEXTS = frozenset(
    {".md", ".markdown", ".mdown", ".mkd", ".html", ".htm", ".txt", ".text", ".epub"}
    | {".xml", ".json", ".yml", ".yaml", ".toml"}
)
_UNPACKED = "posts"


def inspect_upload(path: Path) -> dict[str, Any]:
    """Inspect a file in another process. Raises OwnwordsError with what it said."""
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-m", __name__, str(path)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
        answer = json.loads(done.stdout)
    except (subprocess.TimeoutExpired, ValueError):
        answer = None
    if not isinstance(answer, dict):
        raise SourceError(
            f"{path.name} cannot be read: reading it took too much memory or time",
            hint="give a smaller export, or a folder of the posts as text",
        )
    if error := answer.get("error"):
        raise SourceError(
            str(error["message"]).replace(str(path), path.name),
            str(error["hint"]).replace(str(path), path.name),
        )
    return answer


def inspect_path(path: Path) -> dict[str, Any]:
    """Detect the source of a path, and count its posts; unpack texts that nothing else reads."""
    try:
        kind, label = sources.detect_source(path)
    except SourceError:
        unpacked = _unpack_texts(path) if path.is_file() else None
        if unpacked is None:
            raise
        path, (kind, label) = unpacked, _detect_unpacked(unpacked)
    return {"path": path_text(path), "label": label, "posts": _count(kind, path)}


def _count(kind: str, path: Path) -> int | None:
    """The number of posts; the source's own estimate if there is no time to count them."""
    until = time.monotonic() + _COUNT_S
    posts, expected = 0, None
    for item in sources.load_source(kind).read(path):
        if isinstance(item, ExpectedCount):
            expected = (expected or 0) + item.documents
        posts += isinstance(item, RawDocument)
        if time.monotonic() > until:
            return expected
    return posts


def _detect_unpacked(folder: Path) -> tuple[str, str]:
    try:
        return sources.detect_source(folder)
    except SourceError:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _unpack_texts(path: Path) -> Path | None:
    """Unpack the texts of a zip or tar beside it, and delete it; None if it holds no texts."""
    try:
        with open_packed(path) as members:
            names = [name for name in members.names if _is_text(name)]
            if not names:
                return None
            folder = path.parent / _UNPACKED
            _copy(members, names, folder)
    except SourceError as error:
        if "whole zip or tar" in error.message:  # it is something else
            return None
        raise
    path.unlink()
    inside = [entry for entry in folder.iterdir() if not entry.name.startswith(".")]
    is_wrapped = len(inside) == 1 and inside[0].is_dir()
    return inside[0] if is_wrapped else folder


def _is_text(name: str) -> bool:
    path = PurePosixPath(name)
    is_hidden = any(part.startswith((".", "__MACOSX")) for part in path.parts)
    return path.suffix.lower() in _TEXTS and not is_hidden


def _copy(members: ExportFiles, names: list[str], folder: Path) -> None:
    """Copy the members into the folder; nothing is left of it if that fails."""
    left = _MAX_UNPACKED_BYTES
    try:
        for name in names:
            target = _target(members, name, folder)
            target.parent.mkdir(parents=True, exist_ok=True)
            with members.open(name) as file, target.open("xb") as copy:
                while block := file.read(_BLOCK_BYTES):
                    left -= len(block)
                    _refuse_more(members, left)
                    copy.write(block)
    except (OSError, ValueError) as error:  # names that clash, are too long, or hold a NUL
        shutil.rmtree(folder, ignore_errors=True)
        raise SourceError(f"{members.path} cannot be unpacked: {error}") from error
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _target(members: ExportFiles, name: str, folder: Path) -> Path:
    """Where a member goes; it was checked when the file was opened, and is checked again."""
    target = (folder / name.replace("\\", "/")).resolve()
    if not target.is_relative_to(folder.resolve()):
        raise SourceError(f"{members.path} holds a path that points outside it: {name!r}")
    return target


def _refuse_more(members: ExportFiles, left: int) -> None:
    if left < 0:
        most = _MAX_UNPACKED_BYTES >> 30
        raise SourceError(f"{members.path} unpacks to more than {most} GiB")


if sys.platform == "win32":

    def _limit_memory() -> None:
        """Do nothing: Windows has no such limit, and the time is limited everywhere."""

else:
    import resource

    def _limit_memory() -> None:
        """Let a file that fills the memory end this process only."""
        hard = resource.getrlimit(resource.RLIMIT_AS)[1]
        limit = _MEMORY_BYTES if hard == resource.RLIM_INFINITY else min(hard, _MEMORY_BYTES)
        resource.setrlimit(resource.RLIMIT_AS, (limit, hard))


def _main(path: Path) -> None:
    _limit_memory()
    try:
        answer: dict[str, Any] = inspect_path(path)
    except OwnwordsError as error:
        answer = {"error": {"message": error.message, "hint": error.hint}}
    sys.stdout.write(json.dumps(answer))


if __name__ == "__main__":
    _main(Path(sys.argv[1]))
