"""Read files, folders, zips and tars of texts: bounded in size, confined to their folder."""

import codecs
import io
import json
import lzma
import os
import re
import shutil
import stat
import struct
import sys
import tarfile
import unicodedata
import zipfile
import zlib
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, cast

from ownwords.archive.document import SkippedItem
from ownwords.core.errors import SourceError
from ownwords.core.workspace import SUFFIX

MAX_EXPORT_BYTES = 512 << 20  # of one file with many posts
MAX_UNPACKED_BYTES = 16 << 30  # of all files in a zip or tar
# A larger file is data, not a post.
MAX_TEXT_BYTES = 64 << 20
_MAX_MEMBERS = 500_000  # of a tar, whose list is held in memory
SPARE_BYTES = 256 << 20  # free disk space that unpacked and uploaded files must leave

# Bytes inspected from the first invalid UTF-8 byte on, to tell damaged UTF-8 from Windows-1252.
_WINDOW_BYTES = 64 << 10

_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


def decode_text(data: bytes) -> str:
    """Decode bytes by their byte order mark, else as UTF-8, else as Windows-1252; never fails."""
    for mark, encoding in _BOMS:
        if data.startswith(mark):
            return data[len(mark) :].decode(encoding, errors="replace")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        # A stray byte in a UTF-8 file is damage; a text full of high bytes was never UTF-8.
        window = data[error.start : error.start + _WINDOW_BYTES]
        bad = window.decode("utf-8", errors="replace").count("�")
        is_utf8 = bad * 4 < sum(byte >= 0x80 for byte in window)
        return data.decode("utf-8" if is_utf8 else "cp1252", errors="replace")


def walk_files(
    folder: Path,
    suffixes: frozenset[str] | None = None,
    leave: frozenset[str] = frozenset(),
    only: Set[Path] | None = None,
) -> Iterator[Path | SkippedItem]:
    """Yield the files below `folder` with these suffixes (".md", lower case), sorted by name.

    With `only`, yields only the files in it, and enters no other folders.
    Yields a SkippedItem for folders named in `leave`, ownwords workspaces, folders that cannot be
    listed, links to folders, and links to files outside `folder`.
    """
    trouble: list[SkippedItem] = []

    def remember(error: OSError) -> None:
        reason = f"cannot be listed: {error.strerror}"
        trouble.append(SkippedItem("folder", reason, ref=str(error.filename)))

    root = folder.resolve()
    above = {str(each) for path in only or () for each in path.parents}
    for parent, folders, names in os.walk(folder, onerror=remember):
        if only is not None:
            folders[:] = [name for name in folders if f"{parent}{os.sep}{name}" in above]
            names[:] = [name for name in names if Path(parent, name) in only]
        for name in sorted(folders):
            path = Path(parent, name)
            ref = path.relative_to(folder).as_posix()
            if name in leave or name.endswith(SUFFIX):
                yield SkippedItem(
                    "folder", "the folder of a program, or made by one; not read", ref=ref
                )
                folders.remove(name)
            elif path.is_symlink():
                yield SkippedItem("folder", "a link to another folder; not followed", ref=ref)
                folders.remove(name)
        folders.sort()
        yield from trouble
        trouble.clear()
        for name in sorted(names):
            path = Path(parent, name)
            if suffixes is not None and path.suffix.lower() not in suffixes:
                continue
            try:
                if path.is_symlink() and not path.resolve(strict=True).is_relative_to(root):
                    reason = "a link to a file outside the folder; not followed"
                elif stat.S_ISREG(path.stat().st_mode):
                    yield path
                    continue
                else:
                    continue
            except (OSError, RuntimeError) as error:  # RuntimeError: a symlink loop
                reason = f"cannot be read: {getattr(error, 'strerror', None) or error}"
            yield SkippedItem("file", reason, ref=path.relative_to(folder).as_posix())
    yield from trouble


def relative_name(path: Path, folder: Path) -> str:
    """Return the path relative to `folder`, with slashes, normalised for storing and comparing.

    Names are in NFC (macOS decomposes accents); bytes that are not UTF-8 become U+FFFD.
    """
    return normalize_filename(path.relative_to(folder).as_posix())


def normalize_filename(name: str) -> str:
    """Return a file name in NFC, with undecodable bytes replaced by U+FFFD."""
    text = name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return unicodedata.normalize("NFC", text)


def count_bytes(mark: bytes, opened: IO[bytes]) -> int:
    """Count the occurrences of `mark` in a file, then seek back to its beginning."""
    count, tail = 0, b""
    while chunk := opened.read(1 << 20):
        count += (tail + chunk).count(mark)
        tail = chunk[1 - len(mark) :]
    opened.seek(0)
    return count


def bound_memory(most: int) -> None:
    """Limit the memory of this process if the system can, so that the machine stays usable."""
    if sys.platform != "win32":
        import resource  # noqa: PLC0415 - not on Windows

        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        with suppress(OSError, ValueError):  # macOS
            resource.setrlimit(resource.RLIMIT_AS, (most, hard))


class ExportFiles:
    """Bounded access by name to the files of an export: a folder, a zip or a tar."""

    def __init__(
        self,
        path: Path,
        sizes: Mapping[str, int],
        opener: Callable[[str], IO[bytes]],
        skipped: Sequence[SkippedItem] = (),
    ) -> None:
        self.path, self.names, self.skipped = path, tuple(sizes), skipped
        self.bytes = sum(sizes.values())
        self.sizes, self.opener = sizes, opener

    @contextmanager
    def open(self, name: str) -> Iterator[IO[bytes]]:
        """Open a file as a seekable stream; raises SourceError."""
        shown = f"{self.path}: {name!r} inside it"
        with _translated(shown):
            file = self.opener(name)
        with closing(file):
            yield cast(IO[bytes], _MemberStream(shown, file))

    def read(self, name: str, first: int | None = None) -> bytes:
        """Read a file that may be a text, or its `first` bytes; raises SourceError."""
        with self.open(name) as file:
            if first is None and self.sizes[name] > MAX_TEXT_BYTES:
                limit = f"{MAX_TEXT_BYTES >> 20} MiB"
                raise SourceError(f"{self.path}: {name!r} inside it is over {limit}")
            return file.read(-1 if first is None else first)


# Exceptions that zipfile and tarfile raise for damaged or mislabelled files.
_DAMAGE = (
    *(OSError, zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError, struct.error),
    *(EOFError, RuntimeError, ValueError),  # RuntimeError: an encrypted zip
)


@contextmanager
def _translated(shown: str, what: str = "is damaged or cannot be read") -> Iterator[None]:
    try:
        yield
    except _DAMAGE as error:
        if reason := getattr(error, "strerror", None):  # an error of the system, not of the file
            raise SourceError(f"{shown} cannot be read: {reason}") from error
        raise SourceError(f"{shown} {what}: {' '.join(str(error).split())}") from error


class _MemberStream:
    """A stream whose read errors are SourceErrors, wherever it is read."""

    def __init__(self, shown: str, file: IO[bytes]) -> None:
        self._shown, self._file = shown, file

    def read(self, size: int = -1) -> bytes:
        with _translated(self._shown):
            return self._file.read(size)

    def seek(self, offset: int) -> int:
        with _translated(self._shown):
            return self._file.seek(offset)


def _zip_files(path: Path, archive: zipfile.ZipFile) -> ExportFiles:
    # A damaged zip may hold a member without a name, on which zipfile fails.
    infos = {info.filename: info for info in archive.infolist() if info.filename}
    sizes = {
        name: info.file_size
        for name, info in infos.items()
        if not (info.is_dir() or name.startswith("__MACOSX/"))  # metadata of macOS
    }
    return ExportFiles(path, sizes, lambda name: archive.open(infos[name]))


def _files_of_zips(path: Path, packed: ExportFiles, stack: ExitStack) -> ExportFiles:
    """Return the files of a zip of zips, as Notion makes; the inner zips are held in memory."""
    if packed.bytes > MAX_EXPORT_BYTES:
        raise SourceError(
            f"{path} contains zip files larger than {MAX_EXPORT_BYTES >> 20} MiB",
            hint="unpack it, and give each zip file in it",
        )
    holders: dict[str, tuple[ExportFiles, str]] = {}
    for zip_name in packed.names:
        data = io.BytesIO(packed.read(zip_name, packed.bytes))
        inner = _zip_files(path, stack.enter_context(zipfile.ZipFile(data)))
        for name in inner.names:
            shown, number = name, 1
            while shown in holders:
                number += 1
                shown = f"{PurePosixPath(zip_name).stem}{number}/{name}"
            holders[shown] = inner, name
    sizes = {shown: inner.sizes[name] for shown, (inner, name) in holders.items()}

    def opener(shown: str) -> IO[bytes]:
        inner, name = holders[shown]
        return inner.opener(name)

    return ExportFiles(path, sizes, opener)


def is_packed(path: Path) -> bool:
    """Return whether the path is a zip or tar."""
    try:
        return path.is_file() and (zipfile.is_zipfile(path) or tarfile.is_tarfile(path))
    except EOFError:  # a gzip file that was cut off
        return False


def _tar_files(path: Path, archive: tarfile.TarFile) -> ExportFiles:
    infos: dict[str, tarfile.TarInfo] = {}
    for number, info in enumerate(archive):
        if number >= _MAX_MEMBERS:
            raise SourceError(f"{path} holds more than {_MAX_MEMBERS:,} files, which no blog has")
        if info.isfile():
            infos[info.name.removeprefix("./")] = info

    def opener(name: str) -> IO[bytes]:
        member = archive.extractfile(infos[name])
        assert member is not None  # `infos` holds only regular files
        return member

    return ExportFiles(path, {name: info.size for name, info in infos.items()}, opener)


@contextmanager
def open_packed(path: Path) -> Iterator[ExportFiles]:
    """Open a zip or tar, after checking the names of its members; writes nothing to disk."""
    with ExitStack() as stack:
        with _translated(str(path), "is not a complete zip or tar file"):
            if zipfile.is_zipfile(path):
                members = _zip_files(path, stack.enter_context(zipfile.ZipFile(path)))
                if members.names and all(name.lower().endswith(".zip") for name in members.names):
                    members = _files_of_zips(path, members, stack)
            else:
                members = _tar_files(path, stack.enter_context(tarfile.open(path)))
        for name in members.names:
            parts = PurePosixPath(name.replace("\\", "/")).parts
            if ".." in parts or name.startswith(("/", "\\")) or name[1:2] == ":":
                raise SourceError(
                    f"{path} was not opened: it holds a path that points outside it, {name!r}"
                )
        if members.bytes > MAX_UNPACKED_BYTES:
            raise SourceError(
                f"{path} would unpack to {members.bytes >> 30:,} GiB, which is larger than any blog"
            )
        yield members


@contextmanager
def open_export(path: Path) -> Iterator[ExportFiles]:
    """Open an export, packed or unpacked to a folder."""
    if not path.is_dir():
        with open_packed(path) as members:
            yield members
        return
    files: dict[str, Path] = {}
    skipped: list[SkippedItem] = []
    for file in walk_files(path):
        if isinstance(file, SkippedItem):
            skipped.append(file)
        else:
            files[relative_name(file, path)] = file
    sizes = {name: file.stat().st_size for name, file in files.items()}
    yield ExportFiles(path, sizes, lambda name: files[name].open("rb"), skipped)


def require_room(folder: Path, size: int) -> None:
    """Raise SourceError if `size` bytes do not fit on the disk of a folder."""
    free = shutil.disk_usage(folder).free
    if size > free - SPARE_BYTES:
        raise SourceError(
            f"there is not enough room on the disk: {free >> 20:,} MiB are free",
            hint="free some space, then try again",
        )


def export_holds(path: Path, is_ours: Callable[[ExportFiles], object]) -> bool:
    """Return whether `is_ours` accepts a readable zip, or the first files of a folder."""
    try:
        if path.is_dir():
            files = {file.relative_to(path).as_posix(): file for file in first_files(path)}
            sizes = dict.fromkeys(files, 0)
            return bool(is_ours(ExportFiles(path, sizes, lambda name: files[name].open("rb"))))
        if read_head(path, 2) != b"PK":
            return False
        with open_packed(path) as members:
            return bool(is_ours(members))
    except (OSError, SourceError):
        return False


@dataclass(frozen=True, slots=True)
class ExportFormat:
    """How to find the files of an export: as single files, in a folder or in a zip."""

    mark: re.Pattern[bytes]  # in the first bytes of each file
    layouts: tuple[str, ...]  # their paths in a folder, as glob patterns
    suffixes: tuple[str, ...]  # of their names in a zip
    not_below: str = "\0"  # a folder in a zip with none of these files
    anywhere: bytes = b""  # each file also holds this, perhaps far from its beginning

    def count(self, path: Path) -> int:
        """Return the number of files that `open` yields; 0 if the path cannot be read."""
        try:
            return sum(1 for _ in self.open(path))
        except SourceError:
            return 0

    def open(self, path: Path) -> Iterator[tuple[str, IO[bytes]]]:
        """Yield the name and open stream of each file of an export."""
        with ExitStack() as stack:
            files: dict[str, Callable[[], AbstractContextManager[IO[bytes]]]]
            if path.suffix.lower() == ".zip" and path.is_file():
                members = stack.enter_context(open_packed(path))
                files = {
                    f"{path}: {name}": partial(members.open, name)
                    for name in members.names
                    if name.lower().endswith(self.suffixes) and self.not_below not in f"/{name}"
                }
            else:
                found = {path} if path.is_file() else set()
                with _translated(str(path)):
                    found.update(file for layout in self.layouts for file in path.glob(layout))
                    found = {file for file in found if file.is_file()}
                files = {str(file): partial(io.FileIO, file) for file in found}
            for name in sorted(files):
                with _translated(name), files[name]() as opened:
                    if self._matches(opened):
                        yield name, opened

    def read(self, path: Path) -> Iterator[tuple[str, bytes]]:
        """Yield the name and the bytes of each file of an export; SourceError if it is huge."""
        for name, opened in self.open(path):
            data = opened.read(MAX_EXPORT_BYTES + 1)
            if len(data) > MAX_EXPORT_BYTES:
                raise SourceError(
                    f"{name} is larger than {MAX_EXPORT_BYTES >> 20} MiB, too large for an export"
                )
            yield name, data

    def _matches(self, opened: IO[bytes]) -> bool:
        """Return whether a file belongs to the export, and seek back to its beginning."""
        head = opened.read(HEAD_BYTES)
        opened.seek(0)
        is_ours = self.mark.search(head) is not None
        # `anywhere` may also begin in the head and end after it.
        return is_ours and (self.anywhere in head or count_bytes(self.anywhere, opened) > 0)


def parse_json(name: str, data: bytes) -> object:
    """Parse a JSON file; raises a SourceError that names it if it is damaged."""
    try:
        return cast(object, json.loads(decode_text(data)))
    except (ValueError, RecursionError) as error:
        hint = "export it again"
        raise SourceError(f"{name} is not complete JSON: {error}", hint=hint) from error


# ---- bounded listing and reading of folders of texts

HEAD_BYTES = 64 << 10  # enough to recognise a file
_BINARY_LOOK_BYTES = 8 << 10
_FIRST_NAMES = 3_000
_FIRST_FOLDERS = 300
# Folders made by programs, without texts by the author.
PROGRAM_FOLDERS = frozenset({"node_modules", "__pycache__", "__MACOSX", "bower_components"})
NOT_TEXTS = PROGRAM_FOLDERS | {".git"}


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
    """Count the first files by suffix (".md", lower case)."""
    return Counter(path.suffix.lower() for path in first_files(folder))


def path_exists(path: Path) -> bool:
    """Return whether the path exists and is accessible."""
    try:
        return path.exists()
    except OSError:
        return False


def read_head(path: Path, size: int) -> bytes:
    """Return the first `size` bytes of a file; b"" if it is not a file or cannot be read."""
    with suppress(OSError):
        if path.is_file():
            with path.open("rb") as opened:
                return opened.read(size)
    return b""


def is_binary(data: bytes) -> bool:
    """Return whether a file's beginning holds NULs without a UTF-16 or UTF-32 mark."""
    look = data[:_BINARY_LOOK_BYTES]
    return b"\0" in look and not look.startswith((b"\xff\xfe", b"\xfe\xff", b"\0\0\xfe\xff"))


def read_file(path: Path, most: int = MAX_TEXT_BYTES) -> bytes:
    """Return the bytes of a text file; SourceError if it is unreadable, too large or binary."""
    try:
        with path.open("rb") as opened:
            data = opened.read(most + 1)
    except OSError as error:
        raise SourceError(f"{path} cannot be read: {error.strerror or error}") from error
    if len(data) > most:
        raise SourceError(f"{path} is larger than {most >> 20} MiB, too large for one text")
    if is_binary(data):
        raise SourceError(f"{path} is a binary file, not text")
    return data


def read_lines(path: Path, most: int = MAX_TEXT_BYTES) -> str:
    """Return the text of a file with plain line ends and without NULs; errors as `read_file`."""
    text = decode_text(read_file(path, most))
    return text.replace("\r\n", "\n").replace("\r", "\n").replace("\0", "")
