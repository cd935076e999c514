"""Choose the source that reads a path, and read folders of texts."""

import mimetypes
import shutil
import tempfile
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Set
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path, PurePosixPath
from typing import Protocol, cast

from ownwords.archive.document import ExpectedCount, SkippedItem, SourceItem
from ownwords.archive.untrusted_files import (
    NOT_TEXTS,
    count_suffixes,
    is_packed,
    normalize_filename,
    open_packed,
    relative_name,
    require_room,
    walk_files,
)
from ownwords.core.errors import OwnwordsError, SourceError
from ownwords.core.workspace import source_name
from ownwords.view.format import count


class Source(Protocol):
    """The interface of every source module.

    A source of texts that are single files also has their SUFFIXES, in lower case.
    """

    NAME: str  # in a list: "WordPress", "plain text"

    def detect(self, path: Path) -> str | None:
        """Return a short description if `path` is of this kind; cheap, and never raises."""

    def read(self, path: Path) -> Iterator[SourceItem]:
        """Yield its items, streamed; raises SourceError if nothing can be read."""


class FileByFile(Source, Protocol):
    """The interface of the sources in FILE_BY_FILE, which read each file of a folder by itself."""

    def read(self, path: Path, only: Set[Path] | None = None) -> Iterator[SourceItem]:
        """Yield its items; with `only`, those of these files alone."""


# The first source that recognises a path reads it, so specific sources precede general ones.
SOURCE_NAMES = (
    "publii",
    "wordpress",
    "ghost",
    "blogger",
    "substack",
    "medium",
    "mastodon",
    "twitter",
    "bluesky",
    "dayone",
    "chatgpt",
    "notion",
    "feed",
    "epub",
    "mail",
    "office",
    "pdf",
    "markdown",
    "html",
    "text",
)


FILE_BY_FILE = frozenset({"office", "pdf", "markdown", "text"})


def load_source(name: str) -> Source:
    """Import the source module `name`, on demand because each brings its own parser."""
    return cast(Source, import_module(f"{__name__}.{name}"))


def readable_kinds() -> list[str]:
    """Return the names of all sources."""
    return [load_source(name).NAME for name in SOURCE_NAMES]


@cache
def text_suffixes() -> frozenset[str]:
    """Return the suffixes of all texts that are single files."""
    return frozenset().union(*(getattr(load_source(n), "SUFFIXES", ()) for n in SOURCE_NAMES))


# ---- the source of a path

_FIRST_FILES = 20
MEDIA = {"image": "a picture", "audio": "an audio file", "video": "a video"}
_NOT_READ = frozenset({".doc", ".rtf", ".pages", ".org", ".rst", ".adoc", ".tex"})
# What to do with common files that cannot be read as they are, by suffix.
_ADVICE = {
    **dict.fromkeys(
        _NOT_READ, "save it as plain text (.txt), Markdown or HTML, and give that file"
    ),
    **dict.fromkeys((".mobi", ".azw", ".azw3", ".fb2"), "give the book as EPUB"),
    **dict.fromkeys(
        (".zip", ".tar", ".tgz", ".gz", ".bz2", ".xz", ".7z", ".rar"),
        "it is not a complete zip or tar file; unpack it, and give the folder",
    ),
}


@dataclass(frozen=True, eq=False)
class DetectedSource:
    """A path, the name of the source that reads it, and the source's description of it.

    `folder` is the path itself, or a temporary folder with the texts that are packed in it, which
    is deleted with this object.
    """

    path: Path
    name: str
    label: str
    folder: Path

    def read(self) -> Iterator[SourceItem]:
        """Yield the items of the path."""
        with _errors_name(self.path, self.folder):
            yield from load_source(self.name).read(self.folder)


def detect_source(path: Path) -> DetectedSource:
    """Find the source that reads `path`; raises SourceError if there is none."""
    if not path.exists():
        hint = "give the path of a blog, export or folder"
        raise SourceError(f"{path} does not exist", hint=hint)
    for name in SOURCE_NAMES:
        if label := load_source(name).detect(path):
            return DetectedSource(path, name, label, path)
    if is_packed(path):
        return _detect_packed(path)
    kind = (mimetypes.guess_type(path.name)[0] or "").partition("/")[0]
    if path.is_file() and kind in MEDIA:
        hint = "give the file or the folder that holds your posts"
        raise SourceError(f"{path} is {MEDIA[kind]}", hint=hint)
    hint = _advice(path) or f"ownwords reads: {', '.join(readable_kinds())}"
    raise SourceError(f"{path} is not of a kind that ownwords can read", hint=hint)


def _advice(path: Path) -> str:
    """Return what to do with a path that no source recognises; "" if nothing is known."""
    if not path.is_dir():
        if not path.suffix:
            return "if it is a text, give it a name that ends in .txt or .md"
        return suffix_advice(path.name)
    try:
        inside = sorted(path.iterdir())
    except OSError as error:
        return f"the folder cannot be listed: {error.strerror}"
    if not inside:
        return "the folder is empty"
    for file in inside[:_FIRST_FILES]:
        if file.is_file() and any(load_source(name).detect(file) for name in SOURCE_NAMES):
            return (
                "the folder as a whole is not an export, but you can give a file in it, such as"
                f" {file}"
            )
    return ""


def suffix_advice(name: str) -> str:
    """Return what to do with a file that cannot be read as it is, by its name; "" if nothing."""
    return _ADVICE.get(PurePosixPath(name).suffix.lower(), "")


# ---- zips and tars that no source reads directly, such as one of Markdown files

# Files that are unpacked beside the texts, because they say which program made them.
_SETTINGS = frozenset({".xml", ".json", ".yml", ".yaml", ".toml"})
_NAMED_SUFFIXES = 4


def _detect_packed(path: Path) -> DetectedSource:
    """Unpack the texts into a temporary folder, and find the source that reads it."""
    temporary = Path(tempfile.mkdtemp(prefix="ownwords-"))
    folder = temporary / source_name(path)
    try:
        everything = temporary / ".everything"
        _unpack(path, everything)
        inside = [*everything.glob("[!.]*")]
        is_wrapped = len(inside) == 1 and inside[0].is_dir()
        (inside[0] if is_wrapped else everything).rename(folder)
        with _errors_name(path, folder):
            found = detect_source(folder)
        packed = DetectedSource(path, found.name, found.label, folder)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    weakref.finalize(packed, shutil.rmtree, temporary, ignore_errors=True)
    return packed


@contextmanager
def _errors_name(path: Path, folder: Path) -> Iterator[None]:
    """In errors about the folder, name the path from which it was unpacked."""
    try:
        yield
    except OwnwordsError as error:
        error.message = error.message.replace(str(folder), str(path))
        error.hint = error.hint.replace(str(folder), str(path))
        raise


def _unpack(path: Path, folder: Path) -> None:
    """Unpack the texts into the folder; SourceError if there are none."""
    with open_packed(path) as members:  # whose names do not lead out of the folder
        texts = [name for name in members.names if _is_text(name)]
        if not texts:
            raise _nothing_to_read(path, members.names)
        require_room(folder.parent, sum(members.sizes[name] for name in texts))
        for name in texts:
            target = folder / name.replace("\\", "/")
            try:
                target.parent.mkdir(parents=True, exist_ok=True)
                with members.open(name) as file, target.open("xb") as copy:
                    shutil.copyfileobj(file, copy)
            except (OSError, ValueError) as error:  # names that clash, are too long, or hold a NUL
                raise SourceError(f"{path} cannot be unpacked: {error}") from error


def _is_text(name: str) -> bool:
    path = PurePosixPath(name)
    is_hidden = any(part.startswith((".", "__MACOSX")) for part in path.parts)
    return path.suffix.lower() in text_suffixes() | _SETTINGS and not is_hidden


def _nothing_to_read(path: Path, names: tuple[str, ...]) -> SourceError:
    hint = "give an export of the blog, or a zip of its texts, such as Markdown or HTML files"
    if not names:
        return SourceError(f"there is nothing to read in {path}: it is empty", hint=hint)
    seen = Counter(PurePosixPath(name).suffix.lower() or "without a suffix" for name in names)
    kinds = [f"{number:,} {suffix}" for suffix, number in seen.most_common(_NAMED_SUFFIXES)]
    kinds += ["…"] if len(seen) > _NAMED_SUFFIXES else []
    files = f"{count(len(names), 'file')} ({', '.join(kinds)})"
    return SourceError(f"there is nothing to read in {path}: it holds {files}", hint=hint)


# ---- folders of texts


def holds_mostly(folder: Path, suffixes: Set[str]) -> bool:
    """Return whether a folder holds more files with these suffixes than other texts."""
    names = count_suffixes(folder)
    ours = sum(names[suffix] for suffix in suffixes)
    return ours > sum(names[suffix] for suffix in text_suffixes() - suffixes)


def list_texts(
    folder: Path,
    suffixes: frozenset[str],
    kind: str,
    leave: frozenset[str] = NOT_TEXTS,
    only: Set[Path] | None = None,
) -> list[Path | SkippedItem]:
    """List the files with one of `suffixes`; SourceError if there are none.

    What cannot be accessed is listed as a SkippedItem, and so are texts of other formats, because
    a folder is read as texts of one `kind` ("Markdown files").
    """
    files: list[Path | SkippedItem] = []
    read = suffixes | text_suffixes() | _NOT_READ | {".canvas"}
    for file in walk_files(folder, read, leave, only):
        if isinstance(file, Path) and (suffix := file.suffix.lower()) not in suffixes:
            apart = "; to read it, give its path as well" if suffix in text_suffixes() else ""
            reason = f"not {kind} ({suffix}){apart}"
            files.append(SkippedItem("file", reason, ref=relative_name(file, folder)))
        else:
            files.append(file)
    if only is None and not any(isinstance(file, Path) for file in files):
        raise SourceError(
            f"{folder} holds no {kind}", hint="give the folder that your texts are in"
        )
    return files


def read_texts(
    path: Path,
    suffixes: frozenset[str],
    read: Callable[[Path, str], Iterator[SourceItem]],
    kind: str,
    only: Set[Path] | None = None,
    *,
    leave: frozenset[str] = NOT_TEXTS,
    expected: Callable[[Path], int] = lambda _: 1,
) -> Iterator[SourceItem]:
    """Yield the items of `read(file, name)` for a single file, or for each file of a folder.

    The name is relative to the folder. Its files are those of `list_texts`, limited to `only` if
    given. A file for which `read` raises SourceError is skipped with that reason. `expected`
    estimates how many texts a file holds.
    """
    if not path.is_dir():
        yield ExpectedCount(expected(path))
        yield from read(path, normalize_filename(path.name))
        return
    files = list_texts(path, suffixes, kind, leave, only)
    yield ExpectedCount(sum(expected(file) for file in files if isinstance(file, Path)))
    for file in files:
        if isinstance(file, SkippedItem):
            yield file
            continue
        name = relative_name(file, path)
        try:
            yield from read(file, name)
        except SourceError as error:
            yield SkippedItem("file", error.message.removeprefix(f"{file} "), ref=name)
