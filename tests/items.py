"""What a source handed over, sorted for the tests."""

from collections.abc import Iterable

from ownwords.archive.document import Item, Note, RawDocument


def documents(items: Iterable[Item]) -> dict[str, RawDocument]:
    """By their refs."""
    return {each.ref: each for each in items if isinstance(each, RawDocument)}


def notes(items: Iterable[Item]) -> str:
    """All sentences for the author, in a row."""
    return " ".join(each.text for each in items if isinstance(each, Note))
