"""Where texts come from: one file a source, and the choice between them.

A source is a module with
    LABEL                what it is, for a sentence: "a Publii site"
    detect(path)         whether `path` is one: a short description of what was seen, or None;
                         cheap, never raises for a bad file (that is for `read` to say)
    read(path)           its Items, streamed; raises SourceError for what cannot be read at all
"""

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Protocol, cast

from ownwords.archive.document import SourceItem
from ownwords.core.errors import SourceError


class Source(Protocol):
    """The contract every module in this folder meets."""

    LABEL: str

    def detect(self, path: Path) -> str | None: ...

    def read(self, path: Path) -> Iterator[SourceItem]: ...


# The first that recognises a path reads it, so the particular come before the general.
SOURCE_NAMES = (
    "publii",
    "wordpress",
    "ghost",
    "blogger",
    "substack",
    "medium",
    "feed",
    "epub",
    "gutenberg",
    "markdown",
    "html",
    "text",
)
_FIRST_FILES = 20


def load_source(name: str) -> Source:
    """The source of that name; imported only now, since each brings its own parser."""
    return cast(Source, import_module(f"{__name__}.{name}"))


# What people give that is nearly readable, and what makes it so.
_SAVE_AS_TEXT = "save it as plain text (.txt), Markdown or HTML, and give that file"
_ADVICE = {
    **dict.fromkeys((".docx", ".doc", ".odt", ".rtf", ".pages", ".pdf"), _SAVE_AS_TEXT),
    **dict.fromkeys((".org", ".rst", ".adoc", ".tex"), _SAVE_AS_TEXT),
    **dict.fromkeys((".mobi", ".azw", ".azw3", ".fb2"), "give the book as EPUB"),
    **dict.fromkeys(
        (".zip", ".tar", ".tgz", ".gz", ".bz2", ".xz", ".7z", ".rar"),
        "it holds no export that is known; unpack it, and give the folder",
    ),
}


def _advice(path: Path) -> str:
    """What to do with a path that nothing recognises; "" where all kinds had better be named."""
    if not path.is_dir():
        if not path.suffix:
            return "if it is a text, give it a name that ends in .txt or .md"
        return _ADVICE.get(path.suffix.lower(), "")
    try:
        inside = sorted(path.iterdir())
    except OSError as error:
        return f"the folder cannot be listed: {error.strerror}"
    if not inside:
        return "the folder is empty"
    for file in inside[:_FIRST_FILES]:
        if file.is_file() and any(load_source(name).detect(file) for name in SOURCE_NAMES):
            return f"the folder as a whole is no export, but files in it can be given, as {file}"
    return ""


def detect_source(path: Path) -> tuple[str, str]:
    """The name of the source that reads `path`, and what it took the path for."""
    if not path.exists():
        raise SourceError(
            f"{path} does not exist", hint="give the path of a blog, export or folder"
        )
    for name in SOURCE_NAMES:
        label = load_source(name).detect(path)
        if label:
            return name, label
    if advice := _advice(path):
        raise SourceError(f"{path} is none of the kinds that can be read", hint=advice)
    known = ", ".join(load_source(name).LABEL for name in SOURCE_NAMES)
    raise SourceError(f"{path} is none of the kinds that can be read", hint=f"they are: {known}")
