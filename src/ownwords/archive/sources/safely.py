"""Opening other people's files without harm: bounded, inside the folder, no network, no entities."""

import codecs
import os
import stat
import tarfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Protocol

from lxml import etree

from ownwords.archive.document import Skipped
from ownwords.core.errors import SourceError

MAX_MEMBERS = 200_000
MAX_TOTAL_BYTES = 8 << 30
MAX_MEMBER_BYTES = 512 << 20
# Text compresses 3 to 10 times, a database of one repeated row perhaps 100; a bomb 1,000 times.
MAX_RATIO = 300
_RATIO_MATTERS_ABOVE_BYTES = 10 << 20

_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


def decode(data: bytes) -> str:
    """Bytes as text: by byte order mark, else UTF-8, else Windows-1252, the usual other one; never fails."""
    for mark, encoding in _BOMS:
        if data.startswith(mark):
            return data[len(mark) :].decode(encoding, errors="replace")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        # A stray byte in a UTF-8 file is damage; a file full of high bytes was never UTF-8.
        bad = data.decode("utf-8", errors="replace").count("�")
        high = sum(byte >= 0x80 for byte in data[error.start : error.start + 65536])
        if bad * 4 < high:
            return data.decode("utf-8", errors="replace")
        return data.decode("cp1252", errors="replace")


def walk(folder: Path, suffixes: frozenset[str]) -> Iterator[Path | Skipped]:
    """The files below `folder` with these suffixes (".md", lower case), in order of their names.

    Links to folders are not followed, so a circle of links ends; a folder that cannot be listed is Skipped.
    """
    trouble: list[Skipped] = []

    def remember(error: OSError) -> None:
        trouble.append(
            Skipped("folder", f"cannot be listed: {error.strerror}", ref=str(error.filename))
        )

    for where, folders, names in os.walk(folder, onerror=remember):
        folders.sort()
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
                    yield Skipped("file", reason, ref=path.relative_to(folder).as_posix())
                    continue
                yield path
    yield from trouble


class Members(Protocol):
    """The files inside a zip or tar, by name."""

    names: tuple[str, ...]

    def read(self, name: str) -> bytes: ...


class _Zip:
    def __init__(self, path: Path, archive: zipfile.ZipFile) -> None:
        self._path, self._archive = path, archive
        self._infos = {info.filename: info for info in archive.infolist() if not info.is_dir()}
        self.names = tuple(self._infos)
        for info in self._infos.values():
            if info.file_size > _RATIO_MATTERS_ABOVE_BYTES and (
                info.file_size > MAX_RATIO * max(1, info.compress_size)
            ):
                raise SourceError(
                    f"{path} holds {info.filename!r}, which unpacks to {info.file_size:,} bytes"
                    f" from {info.compress_size:,}: a zip bomb, left unopened"
                )
        _check_members(path, ((i.filename, i.file_size) for i in self._infos.values()))

    def read(self, name: str) -> bytes:
        try:
            with self._archive.open(self._infos[name]) as member:
                return _read_bounded(self._path, name, member)
        except (zipfile.BadZipFile, RuntimeError, NotImplementedError, EOFError, OSError) as error:
            raise SourceError(
                f"{self._path}: {name!r} inside it cannot be unpacked: {error}"
            ) from error
        except Exception as error:  # zlib.error and its like are not one family
            raise SourceError(f"{self._path}: {name!r} inside it is damaged: {error}") from error


class _Tar:
    def __init__(self, path: Path, archive: tarfile.TarFile) -> None:
        self._path, self._archive = path, archive
        self._infos: dict[str, tarfile.TarInfo] = {}
        for info in archive:
            if len(self._infos) > MAX_MEMBERS:
                break
            if info.isfile():
                self._infos[info.name.removeprefix("./")] = info
        self.names = tuple(self._infos)
        _check_members(path, ((name, info.size) for name, info in self._infos.items()))

    def read(self, name: str) -> bytes:
        try:
            member = self._archive.extractfile(self._infos[name])
            assert member is not None  # only regular files were kept
            with member:
                return _read_bounded(self._path, name, member)
        except (tarfile.TarError, EOFError, OSError) as error:
            raise SourceError(
                f"{self._path}: {name!r} inside it cannot be unpacked: {error}"
            ) from error


@contextmanager
def open_members(path: Path) -> Iterator[Members]:
    """A zip or tar file, its members checked before one is unpacked; nothing is written to disk."""
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                yield _Zip(path, archive)
        else:
            with tarfile.open(path) as tar:
                yield _Tar(path, tar)
    except (zipfile.BadZipFile, tarfile.TarError, EOFError) as error:
        raise SourceError(f"{path} is not a whole zip or tar file: {error}") from error
    except OSError as error:
        raise SourceError(f"{path} cannot be read: {error.strerror or error}") from error


def _check_members(path: Path, members: Iterator[tuple[str, int]]) -> None:
    total = 0
    for count, (name, size) in enumerate(members, 1):
        parts = PurePosixPath(name.replace("\\", "/")).parts
        if ".." in parts or name.startswith(("/", "\\")) or name[1:2] == ":":
            raise SourceError(
                f"{path} holds a path that points outside it: {name!r}; left unopened"
            )
        total += size
        if count > MAX_MEMBERS or total > MAX_TOTAL_BYTES:
            raise SourceError(
                f"{path} holds more than {MAX_MEMBERS:,} files or {MAX_TOTAL_BYTES >> 30} GiB;"
                " left unopened"
            )


def _read_bounded(path: Path, name: str, member: IO[bytes]) -> bytes:
    data = member.read(MAX_MEMBER_BYTES + 1)  # the size a zip declares may be a lie
    if len(data) > MAX_MEMBER_BYTES:
        raise SourceError(f"{path}: {name!r} inside it is over {MAX_MEMBER_BYTES >> 20} MiB")
    return data


def iterate_xml(path: Path, opened: IO[bytes], tags: tuple[str, ...]) -> Iterator[etree._Element]:
    """The elements of these tags (with namespace), each whole, freed after use.

    A damaged file gives what it can.
    Entities are never expanded and nothing is fetched; a file that declares some is refused.
    """
    head = opened.read(64 << 10)
    opened.seek(0)
    if b"<!ENTITY" in head.replace(b"\0", b""):
        raise SourceError(
            f"{path} declares XML entities, which can read other files or fill the memory; refused",
            hint="remove the <!DOCTYPE ...> at its top if you trust it",
        )
    try:
        for _, element in etree.iterparse(
            opened,
            events=("end",),
            tag=tags,
            resolve_entities=False,
            no_network=True,
            load_dtd=False,
            huge_tree=True,
            recover=True,
        ):
            yield element
            element.clear()
            while element.getprevious() is not None:
                parent = element.getparent()
                if parent is None:
                    break
                del parent[0]
    except etree.XMLSyntaxError as error:
        raise SourceError(f"{path} is not XML: {error.msg}") from error
