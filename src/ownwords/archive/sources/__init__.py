"""The sources of texts, one module each, and the choice between them.

A source is a module with
    LABEL                its name within a sentence: "a Publii site"
    detect(path)         a short description if `path` is of this kind, else None; cheap, and
                         never raises for a bad file (`read` reports it)
    read(path)           its SourceItems, streamed; raises SourceError if nothing can be read
"""

import mimetypes
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Protocol, cast

from ownwords.archive.document import SourceItem
from ownwords.core.errors import SourceError


class Source(Protocol):
    """The interface of every source module."""

    LABEL: str

    def detect(self, path: Path) -> str | None: ...

    def read(self, path: Path) -> Iterator[SourceItem]: ...


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
    "notion",
    "feed",
    "epub",
    "gutenberg",
    "mail",
    "office",
    "markdown",
    "html",
    "text",
)
_FIRST_FILES = 20


def load_source(name: str) -> Source:
    """The source module `name`, imported on demand because each brings its own parser."""
    return cast(Source, import_module(f"{__name__}.{name}"))


_PACKED = "packed"  # what no other source reads, but one that reads what is packed in it
_MEDIA = {"image": "a picture", "audio": "a recording", "video": "a film"}
# Advice on common files that cannot be read as they are, by suffix.
_SAVE_AS_TEXT = "save it as plain text (.txt), Markdown or HTML, and give that file"
_ADVICE = {
    **dict.fromkeys((".doc", ".rtf", ".pages", ".pdf"), _SAVE_AS_TEXT),
    **dict.fromkeys((".org", ".rst", ".adoc", ".tex"), _SAVE_AS_TEXT),
    **dict.fromkeys((".mobi", ".azw", ".azw3", ".fb2"), "give the book as EPUB"),
    **dict.fromkeys(
        (".zip", ".tar", ".tgz", ".gz", ".bz2", ".xz", ".7z", ".rar"),
        "it is no whole zip or tar; unpack it, and give the folder",
    ),
}


def _advice(path: Path) -> str:
    """What to do with a path that no source recognises; "" to list all kinds instead."""
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
    """The name of the source that reads `path`, and its description of the path."""
    if not path.exists():
        raise SourceError(
            f"{path} does not exist", hint="give the path of a blog, export or folder"
        )
    for name in (*SOURCE_NAMES, _PACKED):
        label = load_source(name).detect(path)
        if label:
            return name, label
    kind = (mimetypes.guess_type(path.name)[0] or "").partition("/")[0]
    if path.is_file() and kind in _MEDIA:
        hint = "give the file or the folder that holds your posts"
        raise SourceError(f"{path} is {_MEDIA[kind]}", hint=hint)
    if advice := _advice(path):
        raise SourceError(f"{path} is none of the kinds that can be read", hint=advice)
    known = ", ".join(load_source(name).LABEL for name in SOURCE_NAMES)
    raise SourceError(f"{path} is none of the kinds that can be read", hint=f"they are: {known}")
