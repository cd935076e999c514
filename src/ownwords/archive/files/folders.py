"""Bounded listing and reading of folders of texts."""

import os
from collections import Counter, deque
from collections.abc import Callable, Iterator
from pathlib import Path

from ownwords.archive.document import ExpectedCount, SkippedItem, SourceItem
from ownwords.archive.files.untrusted_files import MAX_TEXT_BYTES, relative_name, walk_files
from ownwords.core.errors import SourceError
from ownwords.core.workspace import SUFFIX

_BINARY_LOOK_BYTES = 8 << 10
_FIRST_NAMES = 3_000
_FIRST_FOLDERS = 300
# Folders that programs make, without texts of the author's.
PROGRAM_FOLDERS = frozenset({"node_modules", "__pycache__", "__MACOSX", "bower_components"})


NOT_TEXTS = PROGRAM_FOLDERS | {".git"}
# Suffixes of text formats; a folder read as one kind reports the files of the other kinds.
_READ_BY_THEMSELVES = frozenset(
    {".md", ".markdown", ".mdown", ".mkd", ".html", ".htm", ".txt", ".text", ".epub"}
)
_WRITTEN = _READ_BY_THEMSELVES | {
    *(".org", ".rst", ".adoc", ".tex", ".docx", ".doc", ".odt", ".rtf", ".pages", ".pdf"),
    ".canvas",
}


def first_files(folder: Path) -> Iterator[Path]:
    """Yield at most the first few thousand files below a folder, breadth first.

    Skips hidden entries, program folders, ownwords workspaces and folders that cannot be listed.
    """
    waiting, opened, entries_read = deque([folder]), 0, 0
    while waiting and opened < _FIRST_FOLDERS:
        opened += 1
        try:
            with os.scandir(waiting.popleft()) as entries:
                for entry in entries:
                    entries_read += 1
                    if entries_read > _FIRST_NAMES:
                        return
                    if entry.name.startswith(".") or entry.name in PROGRAM_FOLDERS:
                        continue
                    if entry.name.endswith(SUFFIX):  # our own workspace is not input
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(Path(entry.path))
                    else:
                        yield Path(entry.path)
        except OSError:
            continue


def count_suffixes(folder: Path) -> Counter[str]:
    """How many of the first files have each suffix (".md", lower case)."""
    return Counter(path.suffix.lower() for path in first_files(folder))


def path_exists(path: Path) -> bool:
    """Whether the path exists and is accessible."""
    try:
        return path.exists()
    except OSError:
        return False


def read_head(path: Path, size: int) -> bytes:
    """The first `size` bytes of a file; b"" if it is not a file or cannot be read."""
    try:
        if not path.is_file():
            return b""
        with path.open("rb") as opened:
            return opened.read(size)
    except OSError:
        return b""


def is_binary(data: bytes) -> bool:
    """Whether a file's beginning is binary: it holds NULs and has no UTF-16 or UTF-32 mark."""
    look = data[:_BINARY_LOOK_BYTES]
    return b"\0" in look and not look.startswith((b"\xff\xfe", b"\xfe\xff", b"\0\0\xfe\xff"))


def read_file(path: Path, most: int = MAX_TEXT_BYTES) -> bytes:
    """The bytes of a text file; SourceError if it is unreadable, too large or binary."""
    try:
        with path.open("rb") as opened:
            data = opened.read(most + 1)
    except OSError as error:
        raise SourceError(f"{path} cannot be read: {error.strerror or error}") from error
    if len(data) > most:
        raise SourceError(f"{path} is over {most >> 20} MiB, too large for one text")
    if is_binary(data):
        raise SourceError(f"{path} is a binary file, not text")
    return data


def skip_unreadable(error: SourceError, path: Path, name: str) -> SkippedItem:
    """The SkippedItem for a file that could not be read, with the error as its reason."""
    return SkippedItem("file", error.message.removeprefix(f"{path} "), ref=name)


def list_files(
    folder: Path, suffixes: frozenset[str], leave: frozenset[str], kind: str
) -> list[Path | SkippedItem]:
    """The files with one of `suffixes`, and a SkippedItem for each that cannot be accessed.

    Texts of other formats are counted as skipped too: a folder is read as texts of one `kind`.
    """
    files: list[Path | SkippedItem] = []
    others: Counter[str] = Counter()
    for file in walk_files(folder, suffixes | _WRITTEN, leave):
        if isinstance(file, Path) and file.suffix.lower() not in suffixes:
            others[file.suffix.lower()] += 1
        else:
            files.append(file)
    for suffix, count in sorted(others.items()):
        apart = "; to take it in, give its path, too" if suffix in _READ_BY_THEMSELVES else ""
        files.append(SkippedItem("file", f"not {kind} ({suffix}){apart}", count))
    return files


def read_texts(
    folder: Path,
    suffixes: frozenset[str],
    leave: frozenset[str],
    read: Callable[[Path, str], Iterator[SourceItem]],
    missing: SourceError,
    *,
    kind: str,
    expected: Callable[[Path], int] = lambda _: 1,
) -> Iterator[SourceItem]:
    """Yield the items of `read(file, relative name)` for each file with one of `suffixes`.

    Folders named in `leave` are not entered. A file for which `read` raises SourceError is skipped
    with that reason; if there are no files, `missing` is raised. `kind` names the format in
    messages, and `expected` estimates the number of texts in a file.
    """
    files = list_files(folder, suffixes, leave, kind)
    yield ExpectedCount(sum(expected(file) for file in files if isinstance(file, Path)))
    any_file = False
    for file in files:
        if isinstance(file, SkippedItem):
            yield file
            continue
        any_file = True
        name = relative_name(file, folder)
        try:
            yield from read(file, name)
        except SourceError as error:
            yield skip_unreadable(error, file, name)
    if not any_file:
        raise missing
