"""What a source handed over, sorted for the tests."""

from collections.abc import Iterable

from ownwords.archive.document import RawDocument, SourceItem, SourceNote


def documents(items: Iterable[SourceItem]) -> dict[str, RawDocument]:
    """By their refs."""
    return {each.ref: each for each in items if isinstance(each, RawDocument)}


def notes(items: Iterable[SourceItem]) -> str:
    """All sentences for the author, in a row."""
    return " ".join(each.text for each in items if isinstance(each, SourceNote))
