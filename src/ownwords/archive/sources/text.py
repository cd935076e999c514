"""Source: a plain-text file or a folder of them."""

import re
from collections.abc import Iterator, Set
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from ownwords.archive import dates, untrusted_files
from ownwords.archive.document import RawDocument, SkippedItem, SourceItem
from ownwords.archive.sources import read_texts

NAME = "plain text"

SUFFIXES = frozenset({".txt", ".text"})
# A form feed ends a page; U+001C, the file separator, is followed by the next document's name.
_SEPARATOR = re.compile("[\f\x1c]")
_PART_CHARACTERS = 1_000_000
_LONGEST_TITLE = 80
_LONGEST_NAME = 300


class _TextPart(NamedTuple):
    """A document or a part of one: its name ("" for none) and part number (0 for all of it)."""

    name: str
    part: int
    text: str


def detect(path: Path) -> str | None:
    """Recognise a text file, or a folder that holds at least one."""
    if path.is_dir():
        names = untrusted_files.count_suffixes(path)
        return "a folder of text files" if any(names[suffix] for suffix in SUFFIXES) else None
    return "a text file" if path.suffix.lower() in SUFFIXES and path.is_file() else None


def read(path: Path, only: Set[Path] | None = None) -> Iterator[SourceItem]:
    """Yield the documents of each file in order; any over a million characters come in parts."""
    yield from read_texts(path, SUFFIXES, _documents, "plain text", only, expected=_expected)


def _expected(file: Path) -> int:
    """Estimate how many documents and parts a file yields."""
    try:
        with file.open("rb") as opened:
            separators = untrusted_files.count_bytes(b"\x1c", opened)
        return 1 + separators + file.stat().st_size // _PART_CHARACTERS
    except OSError:
        return 0  # `_documents` reports it


def _documents(file: Path, name: str) -> Iterator[SourceItem]:
    text = untrusted_files.read_lines(file, untrusted_files.MAX_EXPORT_BYTES)
    parts = [part for part in _parts(text) if part.text.strip()]
    if not parts:
        yield SkippedItem("file", "empty", ref=name)
    for number, part in enumerate(parts, 1):
        yield _document(name, part, number if len(parts) > 1 else 0)


def _parts(text: str) -> Iterator[_TextPart]:
    """Yield the documents of a file in parts of at most a million characters."""
    name, position = "", 0
    while True:
        separator = _SEPARATOR.search(text, position)
        end = separator.start() if separator else len(text)
        part = 0
        while end - position > _PART_CHARACTERS:
            cut = _end_of_part(text, position)
            part += 1
            yield _TextPart(name, part, text[position:cut])
            position = cut
        yield _TextPart(name, part + 1 if part else 0, text[position:end])
        if not separator:
            return
        name, position = "", separator.end()
        if separator[0] == "\x1c":
            line, newline, _ = text[position : position + _LONGEST_NAME].partition("\n")
            if newline or len(line) < _LONGEST_NAME:
                name, position = line.strip(), position + len(line) + len(newline)


def _end_of_part(text: str, start: int) -> int:
    """Return the index to cut at: after the last blank line, line or word that fits."""
    half, most = start + _PART_CHARACTERS // 2, start + _PART_CHARACTERS
    for mark in ("\n\n", "\n", " "):
        end = text.rfind(mark, half, most)
        if end >= 0:
            return end + len(mark)
    return most


def _document(file: str, piece: _TextPart, number: int) -> RawDocument:
    """Return a RawDocument; `number` counts the file's documents from 1, and is 0 for only one."""
    path = PurePosixPath(file)
    name = dates.title_from_filename(path.stem)
    title, body = piece.name, piece.text
    if not title and not piece.part:
        title, body = _titled(body)
    title = title or (f"{name}, {number}" if number and not piece.part else name)
    return RawDocument(
        ref=f"{file}#{number}" if number else file,
        title=f"{title}, part {piece.part}" if piece.part else title,
        body=body.strip("\n"),
        markup="text",
        date=dates.date_in_name(path.name),
    )


def _titled(text: str) -> tuple[str, str]:
    """Return title and body; the title is a short first line above a blank line, or ""."""
    line, _, rest = text.lstrip("\n").partition("\n")
    below, _, _ = rest.partition("\n")
    if 0 < len(line.strip()) <= _LONGEST_TITLE and not below.strip() and rest.strip():
        return line.strip(), rest
    return "", text
