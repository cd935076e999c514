"""What a source handed over, sorted for the tests."""

from collections.abc import Iterable

from ownwords.archive.document import RawDocument, SourceItem, SourceNote


def documents(items: Iterable[SourceItem]) -> dict[str, RawDocument]:
    """By their refs."""
    return {item.ref: item for item in items if isinstance(item, RawDocument)}


def notes(items: Iterable[SourceItem]) -> str:
    """All sentences for the author, in a row."""
    return " ".join(item.text for item in items if isinstance(item, SourceNote))
