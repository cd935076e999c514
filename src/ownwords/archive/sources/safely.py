"""Opening other people's files without harm: bounded, inside the folder, no network or entities."""

import codecs
import lzma
import os
import re
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Protocol, TypeVar, cast

from lxml import etree

from ownwords.archive.document import Skipped
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


def decode(data: bytes) -> str:
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


def without_surrogates(text: str) -> str:
    """Text from JSON, where half of a character may be written alone: such halves become U+FFFD."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def walk(
    folder: Path, suffixes: frozenset[str], leave: frozenset[str] = frozenset()
) -> Iterator[Path | Skipped]:
    """The files below `folder` with these suffixes (".md", lower case), in order of their names.

    Folders named in `leave` are not entered, and Skipped; nor are workspaces of our own.
    Links to folders are not followed, so a circle of links ends; a folder that cannot be listed
    is Skipped.
    """
    trouble: list[Skipped] = []

    def remember(error: OSError) -> None:
        trouble.append(
            Skipped("folder", f"cannot be listed: {error.strerror}", ref=str(error.filename))
        )

    for where, folders, names in os.walk(folder, onerror=remember):
        left = {name for name in folders if name in leave or name.endswith(SUFFIX)}
        for name in sorted(left):
            ref = Path(where, name).relative_to(folder).as_posix()
            yield Skipped("folder", "of a program, or made by one; not entered", ref=ref)
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
                    yield Skipped("file", reason, ref=path.relative_to(folder).as_posix())
                    continue
                yield path
    yield from trouble


def count_of(mark: bytes, opened: IO[bytes]) -> int:
    """How often `mark` stands in a file, which is then at its beginning again."""
    count, tail = 0, b""
    while chunk := opened.read(1 << 20):
        count += (tail + chunk).count(mark)
        tail = chunk[1 - len(mark) :]
    opened.seek(0)
    return count


class Members(Protocol):
    """The files inside a zip or tar, by name."""

    names: tuple[str, ...]

    def read(self, name: str, first: int | None = None) -> bytes:
        """The whole of a file, or its first so many bytes; raises SourceError."""
        ...


class _Zip:
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


class _Tar:
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
def open_members(path: Path) -> Iterator[Members]:
    """A zip or tar file, its members checked before one is unpacked; nothing is written to disk."""
    with ExitStack() as opened:
        members: Members
        try:
            if zipfile.is_zipfile(path):
                members = _Zip(path, opened.enter_context(zipfile.ZipFile(path)))
            else:
                members = _Tar(path, opened.enter_context(tarfile.open(path)))
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


class _Repaired:
    """A stream of XML without the bytes for which a parser throws whole passages away.

    Control characters, which old editors leave in exports, become spaces; U+FFFE and U+FFFF become
    U+FFFD. Nothing changes its length. UTF-16, whose every other byte is a zero, stays as it is.
    """

    def __init__(self, opened: IO[bytes], wide: bool) -> None:
        self._opened, self._wide = opened, wide
        self._held = b""
        self.repaired = 0
        self.last = b""
        self.ended = False

    def read(self, size: int = -1) -> bytes:
        fresh = self._opened.read(size)
        self.ended = not fresh
        self.last = (self.last + fresh)[-256:]
        if self._wide:
            return fresh
        data = self._held + fresh
        # A character of three bytes may lie across two reads: its beginning waits.
        keep = 0 if self.ended else next((n for n in (2, 1) if data.endswith(_MARK[:n])), 0)
        data, self._held = data[: len(data) - keep], data[len(data) - keep :]
        if not data and self._held:
            return self.read(size)
        self.repaired += len(data) - len(data.translate(None, _CONTROLS))
        return _NON_CHARACTERS.sub(_MARK + b"\xbd", data.translate(_SPACED))


_MARK = b"\xef\xbf"
_NON_CHARACTERS = re.compile(_MARK + b"[\xbe\xbf]")
_CONTROLS = bytes(n for n in range(32) if n not in b"\t\n\r")
_SPACED = bytes.maketrans(_CONTROLS, b" " * len(_CONTROLS))
_HEAD_BYTES = 64 << 10
_PROLOG = re.compile(rb"(?:\s|<\?.*?\?>|<!--.*?-->)*", re.DOTALL)
# One that only names its kind, without declarations of its own between brackets.
_PLAIN_DOCTYPE = re.compile(rb"""<!DOCTYPE(?:[^\[>"']|"[^"]*"|'[^']*')*>""")


def iterate_xml(
    path: Path, opened: IO[bytes], tags: tuple[str, ...], damage: list[str] | None = None
) -> Iterator[etree._Element]:
    """The elements of these tags (with namespace), each whole, freed after use.

    A damaged file gives what it can: an element that the end of the file cuts off is not given, and
    what was wrong with the file is added to `damage` at the end, a clause each.
    Entities are never expanded and nothing is fetched; a file that declares some is refused.
    """
    head = opened.read(_HEAD_BYTES)
    opened.seek(0)
    wide = head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or b"\0" in head[:4]
    refuse_entities(path, head)
    stream = _Repaired(opened, wide)
    cut = False
    events = etree.iterparse(
        cast(IO[bytes], stream),
        events=("end",),
        tag=tags,
        resolve_entities=False,
        no_network=True,
        load_dtd=False,
        huge_tree=True,
        recover=True,
    )
    try:
        for _, element in events:
            # After the end of the file the parser closes by itself whatever is open.
            if stream.ended and not _closes(stream.last, element):
                cut = True
                continue
            yield element
            element.clear()
            while element.getprevious() is not None:
                parent = element.getparent()
                if parent is None:
                    break
                del parent[0]
    except etree.XMLSyntaxError as error:
        raise SourceError(f"{path} is not XML: {error.msg}") from error
    if damage is not None:
        errors = [each for each in events.error_log if each.level >= etree.ErrorLevels.ERROR]
        whole = not errors or (events.root is not None and _closes(stream.last, events.root))
        damage.extend(_damage(errors, stream.repaired, cut or not whole))


def refuse_entities(path: Path, head: bytes) -> None:
    """Raise SourceError where the beginning of an XML file declares entities."""
    plain = head.replace(b"\0", b"").lstrip(b"\xef\xbb\xbf\xff\xfe")
    prolog = _PROLOG.match(plain)
    rest = plain[prolog.end() :] if prolog else plain
    # Declarations stand before the first element; the same words in a post are only words.
    if _PLAIN_DOCTYPE.match(rest) or (rest and not rest.startswith((b"<!", b"<?"))):
        return
    if b"<!ENTITY" in rest or len(head) == _HEAD_BYTES:
        raise SourceError(
            f"{path} declares XML entities, which can read other files or fill the memory; refused",
            hint="remove the <!DOCTYPE ...> at its top if you trust it",
        )


def _closes(last: bytes, element: etree._Element) -> bool:
    """Whether the file ends by closing this element, or its root: then nothing of it is missing."""
    ending = re.search(rb"</([^<>]+?)\s*>$", last.replace(b"\0", b"").rstrip())
    closed = ending[1].rpartition(b":")[2].decode(errors="replace") if ending else ""
    return closed in {
        str(each.tag).rpartition("}")[2].rpartition(":")[2]
        for each in (element, element.getroottree().getroot())
    }


def _damage(errors: list[etree._LogEntry], repaired: int, cut: bool) -> Iterator[str]:
    if repaired:
        yield f"{repaired:,} control characters, which XML does not allow, were read as spaces"
    if cut:
        yield "it breaks off before its end; an entry cut in two there was left out"
    if errors:
        first = errors[0].message.strip().splitlines()[0]
        yield f"it is not well-formed (line {errors[0].line}: {first}); text may be missing there"
