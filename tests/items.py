"""Items of a source, sorted for the tests."""

from collections.abc import Iterable

from ownwords.archive.document import RawDocument, SourceItem, SourceNote


def documents(items: Iterable[SourceItem]) -> dict[str, RawDocument]:
    """By their refs."""
    return {item.ref: item for item in items if isinstance(item, RawDocument)}


def notes(items: Iterable[SourceItem]) -> str:
    """All notes for the author, joined."""
    return " ".join(item.text for item in items if isinstance(item, SourceNote))
