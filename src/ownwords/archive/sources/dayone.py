"""Source: a Day One export, a zip with a JSON file for each journal, or such a file."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ownwords.archive import untrusted_files
from ownwords.archive.dates import parse_iso_date
from ownwords.archive.document import ExpectedCount, RawDocument, SkippedItem, SourceItem
from ownwords.archive.sources.markdown import split_heading
from ownwords.archive.text_repair import text_value
from ownwords.core.errors import SourceError

NAME = "Day One"

_EXPORTS = untrusted_files.ExportFormat(
    re.compile(rb'\A(?:\xef\xbb\xbf)?\s*\{\s*"(?:metadata|entries|version)"\s*:'),
    ("*.json",),
    (".json",),
    anywhere=b'"creationDate"',
)
_ESCAPED = re.compile(r"\\([.!()+\-_#])")  # Day One escapes plain punctuation


def detect(path: Path) -> str | None:
    """Recognise JSON that begins as a journal does, or a folder or zip with it."""
    return "a Day One export" if _EXPORTS.count(path) else None


def read(path: Path) -> Iterator[SourceItem]:
    """Yield the entries of each journal."""
    is_journal = False
    for name, data in _EXPORTS.read(path):
        journal = untrusted_files.parse_json(name, data)
        entries = journal.get("entries") if isinstance(journal, dict) else None
        if not isinstance(entries, list):
            continue
        is_journal = True
        yield ExpectedCount(len(entries))
        for entry in entries:
            if isinstance(entry, dict) and text_value(entry, "uuid"):
                yield _document(entry)
            else:
                yield SkippedItem("post", "not a valid entry")
    if not is_journal:
        hint = "export again: File > Export > JSON, and give the zip"
        raise SourceError(f"{path} holds no Day One journal", hint=hint)


def _document(entry: dict[str, Any]) -> RawDocument:
    tags = entry.get("tags")
    text = _ESCAPED.sub(r"\1", text_value(entry, "text")).lstrip()
    title, body = split_heading("", text) if text.startswith("#") else ("", text)
    return RawDocument(
        ref=f"entry/{text_value(entry, 'uuid')}",
        title=title,
        body=body.strip("\n"),
        markup="markdown",
        date=parse_iso_date(text_value(entry, "creationDate")),
        tags=tuple(t for t in tags if isinstance(t, str)) if isinstance(tags, list) else (),
    )
