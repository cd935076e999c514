"""Opening other people's files without harm: bounded, inside the folder, no network or entities."""

import codecs
import lzma
import os
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Protocol, TypeVar

from ownwords.archive.document import SkippedItem
from ownwords.core.errors import SourceError
from ownwords.core.workspace import SUFFIX

MAX_MEMBERS = 200_000
MAX_TOTAL_BYTES = 8 << 30
MAX_MEMBER_BYTES = 512 << 20
# Text compresses 3 to 10 times, a database of one repeated row perhaps 100; a bomb 1,000 times.
MAX_RATIO = 300
_RATIO_MATTERS_ABOVE_BYTES = 10 << 20

Info = TypeVar("Info", zipfile.ZipInfo, tarfile.TarInfo)

# How much of a text is looked at, from its first byte that is not UTF-8, to tell what it is.
WINDOW_BYTES = 64 << 10

BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


def decode_text(data: bytes) -> str:
    """Bytes as text: by byte order mark, else UTF-8, else Windows-1252; never fails."""
    for mark, encoding in BOMS:
        if data.startswith(mark):
            return data[len(mark) :].decode(encoding, errors="replace")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        window = data[error.start : error.start + WINDOW_BYTES]
        encoding = "utf-8" if is_damaged_utf8(window) else "cp1252"
        return data.decode(encoding, errors="replace")


def is_damaged_utf8(window: bytes) -> bool:
    """Whether bytes that are not valid UTF-8 are damaged UTF-8 rather than another encoding.

    A stray byte in a UTF-8 file is damage; a text full of high bytes was never UTF-8.
    """
    bad = window.decode("utf-8", errors="replace").count("�")
    high = sum(byte >= 0x80 for byte in window)
    return bad * 4 < high


def replace_surrogates(text: str) -> str:
    """Text from JSON, where half of a character may be written alone: such halves become U+FFFD."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def walk_files(
    folder: Path, suffixes: frozenset[str], leave: frozenset[str] = frozenset()
) -> Iterator[Path | SkippedItem]:
    """The files below `folder` with these suffixes (".md", lower case), in order of their names.

    Folders named in `leave` are not entered, and Skipped; nor are workspaces of our own.
    Links to folders are not followed, so a circle of links ends; they are Skipped, and so is a
    folder that cannot be listed.
    """
    trouble: list[SkippedItem] = []

    def remember(error: OSError) -> None:
        trouble.append(
            SkippedItem("folder", f"cannot be listed: {error.strerror}", ref=str(error.filename))
        )

    for where, folders, names in os.walk(folder, onerror=remember):
        left = {name for name in folders if name in leave or name.endswith(SUFFIX)}
        for name in sorted(left):
            ref = Path(where, name).relative_to(folder).as_posix()
            yield SkippedItem("folder", "of a program, or made by one; not entered", ref=ref)
        for name in sorted(set(folders) - left):
            if Path(where, name).is_symlink():
                ref = Path(where, name).relative_to(folder).as_posix()
                yield SkippedItem("folder", "a link to another folder; not followed", ref=ref)
        folders[:] = sorted(set(folders) - left)
        yield from trouble
        trouble.clear()
        for name in sorted(names):
            path = Path(where, name)
            if path.suffix.lower() in suffixes:
                try:
                    if not stat.S_ISREG(path.stat().st_mode):
                        continue
                except OSError as error:
                    reason = f"cannot be read: {error.strerror}"
                    yield SkippedItem("file", reason, ref=path.relative_to(folder).as_posix())
                    continue
                yield path
    yield from trouble


def count_bytes(mark: bytes, opened: IO[bytes]) -> int:
    """How often `mark` stands in a file, which is then at its beginning again."""
    count, tail = 0, b""
    while chunk := opened.read(1 << 20):
        count += (tail + chunk).count(mark)
        tail = chunk[1 - len(mark) :]
    opened.seek(0)
    return count


class ExportFiles(Protocol):
    """The files inside a zip or tar, by name."""

    names: tuple[str, ...]

    def read(self, name: str, first: int | None = None) -> bytes:
        """The whole of a file, or its first so many bytes; raises SourceError."""
        ...


class _ZipFiles:
    def __init__(self, path: Path, archive: zipfile.ZipFile) -> None:
        self._path, self._archive = path, archive
        # A damaged zip may hold a member without a name, at which the library itself stumbles.
        infos = [info for info in archive.infolist() if info.filename]
        self._infos = {info.filename: info for info in infos if not info.is_dir()}
        self.names = tuple(self._infos)
        for info in self._infos.values():
            if info.file_size > _RATIO_MATTERS_ABOVE_BYTES and (
                info.file_size > MAX_RATIO * max(1, info.compress_size)
            ):
                raise SourceError(
                    f"{path} holds {info.filename!r}, which unpacks to {info.file_size:,} bytes"
                    f" from {info.compress_size:,}: a zip bomb, left unopened"
                )
        for _ in _checked(path, iter(self._infos.items()), lambda info: info.file_size):
            pass

    def read(self, name: str, first: int | None = None) -> bytes:
        try:
            with self._archive.open(self._infos[name]) as member:
                return _read_bounded(self._path, name, member, first)
        except (zipfile.BadZipFile, RuntimeError, NotImplementedError, EOFError, OSError) as error:
            raise SourceError(
                f"{self._path}: {name!r} inside it cannot be unpacked: {error}"
            ) from error
        except Exception as error:  # zlib.error and its like are not one family
            raise SourceError(f"{self._path}: {name!r} inside it is damaged: {error}") from error


class _TarFiles:
    def __init__(self, path: Path, archive: tarfile.TarFile) -> None:
        self._path, self._archive = path, archive
        self._infos: dict[str, tarfile.TarInfo] = {}
        # Checked as they are listed: to reach the next member, a compressed tar unpacks this one.
        listed = ((info.name.removeprefix("./"), info) for info in archive if info.isfile())
        for name, info in _checked(path, listed, lambda info: info.size):
            self._infos[name] = info
        self.names = tuple(self._infos)

    def read(self, name: str, first: int | None = None) -> bytes:
        try:
            member = self._archive.extractfile(self._infos[name])
            assert member is not None  # only regular files were kept
            with member:
                return _read_bounded(self._path, name, member, first)
        except (tarfile.TarError, EOFError, OSError) as error:
            raise SourceError(
                f"{self._path}: {name!r} inside it cannot be unpacked: {error}"
            ) from error


# What the unpackers of the standard library raise for a file that is not what it seems.
_DAMAGE = (
    zipfile.BadZipFile,
    tarfile.TarError,
    zlib.error,
    lzma.LZMAError,
    struct.error,
    EOFError,
    NotImplementedError,
    ValueError,
)


@contextmanager
def open_packed(path: Path) -> Iterator[ExportFiles]:
    """A zip or tar file, its members checked before one is unpacked; nothing is written to disk."""
    with ExitStack() as opened:
        members: ExportFiles
        try:
            if zipfile.is_zipfile(path):
                members = _ZipFiles(path, opened.enter_context(zipfile.ZipFile(path)))
            else:
                members = _TarFiles(path, opened.enter_context(tarfile.open(path)))
        except _DAMAGE as error:
            said = " ".join(str(error).split())
            raise SourceError(f"{path} is not a whole zip or tar file: {said}") from error
        except OSError as error:
            raise SourceError(f"{path} cannot be read: {error.strerror or error}") from error
        yield members


def _checked(
    path: Path, members: Iterator[tuple[str, Info]], size_of: Callable[[Info], int]
) -> Iterator[tuple[str, Info]]:
    """The members, each handed on if its name and the size of all so far may pass."""
    total = 0
    for count, (name, info) in enumerate(members, 1):
        parts = PurePosixPath(name.replace("\\", "/")).parts
        if ".." in parts or name.startswith(("/", "\\")) or name[1:2] == ":":
            raise SourceError(
                f"{path} holds a path that points outside it: {name!r}; left unopened"
            )
        total += size_of(info)
        if count > MAX_MEMBERS or total > MAX_TOTAL_BYTES:
            raise SourceError(
                f"{path} holds more than {MAX_MEMBERS:,} files or {MAX_TOTAL_BYTES >> 30} GiB;"
                " left unopened"
            )
        yield name, info


def _read_bounded(path: Path, name: str, member: IO[bytes], first: int | None) -> bytes:
    if first is not None:
        return member.read(first)
    data = member.read(MAX_MEMBER_BYTES + 1)  # the size a zip declares may be a lie
    if len(data) > MAX_MEMBER_BYTES:
        raise SourceError(f"{path}: {name!r} inside it is over {MAX_MEMBER_BYTES >> 20} MiB")
    return data
