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

from ownwords.archive.document import Item
from ownwords.core.errors import SourceError


class Source(Protocol):
    """The contract every module in this folder meets."""

    LABEL: str

    def detect(self, path: Path) -> str | None: ...

    def read(self, path: Path) -> Iterator[Item]: ...


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


def source(name: str) -> Source:
    """The source of that name; imported only now, since each brings its own parser."""
    return cast(Source, import_module(f"{__name__}.{name}"))


def recognise(path: Path) -> tuple[str, str]:
    """The name of the source that reads `path`, and what it took the path for."""
    if not path.exists():
        raise SourceError(
            f"{path} does not exist", hint="give the path of a blog, export or folder"
        )
    for name in SOURCE_NAMES:
        seen = source(name).detect(path)
        if seen:
            return name, seen
    known = ", ".join(source(name).LABEL for name in SOURCE_NAMES)
    raise SourceError(f"{path} is none of the kinds that can be read", hint=f"they are: {known}")
