"""Items of a source, sorted for the tests."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from ownwords.archive.document import RawDocument, SkippedItem, SourceItem, SourceNote


def documents(items: Iterable[SourceItem]) -> dict[str, RawDocument]:
    """By their refs."""
    return {item.ref: item for item in items if isinstance(item, RawDocument)}


def notes(items: Iterable[SourceItem]) -> str:
    """All notes for the author, joined."""
    return " ".join(item.text for item in items if isinstance(item, SourceNote))


def skipped(items: Iterable[SourceItem]) -> list[SkippedItem]:
    """What was left out, equal items as one with their count."""
    counts: Counter[SkippedItem] = Counter()
    for item in items:
        if isinstance(item, SkippedItem):
            counts[replace(item, count=1)] += item.count
    return [replace(item, count=count) for item, count in counts.items()]
