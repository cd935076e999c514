"""Source: a plain-text file or a folder of them, read in chunks so that size does not matter."""

import codecs
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from ownwords.archive.document import ExpectedCount, RawDocument, SkippedItem, SourceItem
from ownwords.archive.files import dates, folders, untrusted_files
from ownwords.core.errors import SourceError

LABEL = "plain text files"

SUFFIXES = frozenset({".txt", ".text"})
# A form feed ends a page; U+001C, the file separator, is followed by the next document's name.
_SEPARATOR = re.compile("[\f\x1c]")
_CHUNK = 64 << 10
_PART_CHARACTERS = 1_000_000
_LONGEST_TITLE = 80
_LONGEST_NAME = 300


class _TextPart(NamedTuple):
    """A document or a part of one: its name ("" for none) and part number (0: all of it)."""

    name: str
    part: int
    text: str


def detect(path: Path) -> str | None:
    """Recognise a text file, or a folder that holds at least one."""
    if path.is_dir():
        names = folders.count_suffixes(path)
        return "a folder of text files" if any(names[suffix] for suffix in SUFFIXES) else None
    return "a text file" if path.suffix.lower() in SUFFIXES and path.is_file() else None


def read(path: Path) -> Iterator[SourceItem]:
    """Yield the documents of each file in order; any over a million characters come in parts."""
    if not path.is_dir():
        yield ExpectedCount(_expected(path))
        yield from _documents(path, untrusted_files.normalize_filename(path.name))
        return
    missing = SourceError(f"{path} holds no text files", hint="give a folder with .txt files")
    yield from folders.read_texts(
        path,
        SUFFIXES,
        folders.NOT_TEXTS,
        _documents,
        missing,
        kind="plain text",
        expected=_expected,
    )


def _expected(file: Path) -> int:
    """An estimate of how many documents and parts a file yields."""
    try:
        with file.open("rb") as opened:
            separators = untrusted_files.count_bytes(b"\x1c", opened)
        return 1 + separators + file.stat().st_size // _PART_CHARACTERS
    except OSError:
        return 0  # `_documents` reports it


def _documents(file: Path, name: str) -> Iterator[SourceItem]:
    if folders.is_binary(folders.read_head(file, _CHUNK)):
        raise SourceError(f"{file} is a binary file, not text")
    number = 0
    waiting: _TextPart | None = None
    for piece in _pieces(_chunks(file)):
        if not piece.text.strip():
            continue
        if waiting:
            yield _document(name, waiting, number)
        waiting = piece
        number += 1
    if waiting is None:
        yield SkippedItem("file", "empty", ref=name)
    else:
        yield _document(name, waiting, number if number > 1 else 0)


def _chunks(file: Path) -> Iterator[str]:
    """Yield the text of a file in small chunks."""
    try:
        encoding = _encoding(file)
        with file.open(encoding=encoding, errors="replace", newline=None) as opened:
            while chunk := opened.read(_CHUNK):
                yield chunk.replace("\0", "").removeprefix("\ufeff")
    except OSError as error:
        raise SourceError(f"{file} cannot be read: {error.strerror or error}") from error


def _encoding(file: Path) -> str:
    """The encoding `untrusted_files.decode_text` would use, found without loading all the file."""
    with file.open("rb") as opened:
        start = opened.read(4)
        for mark, encoding in untrusted_files.BOMS:
            if start.startswith(mark):
                return encoding
        opened.seek(0)
        decoder = codecs.getincrementaldecoder("utf-8")()
        while data := opened.read(_CHUNK):
            held = len(decoder.getstate()[0])
            try:
                decoder.decode(data)
            except UnicodeDecodeError as error:
                opened.seek(opened.tell() - len(data) - held + error.start)
                window = opened.read(untrusted_files.WINDOW_BYTES)
                return "utf-8" if untrusted_files.is_damaged_utf8(window) else "cp1252"
    return "utf-8"


def _pieces(chunks: Iterator[str]) -> Iterator[_TextPart]:
    """Yield the documents of a file in parts of at most about a million characters."""
    name, part, held, looked, naming = "", 0, "", 0, False
    for chunk in chunks:
        held += chunk
        while True:
            if naming:
                line, newline, rest = held.partition("\n")
                if not newline and len(held) < _LONGEST_NAME:
                    break
                if newline and len(line) < _LONGEST_NAME:
                    name, held = line.strip(), rest
                naming = False
            if separator := _SEPARATOR.search(held, looked):
                yield _TextPart(name, part + 1 if part else 0, held[: separator.start()])
                name, part, held, looked = "", 0, held[separator.end() :], 0
                naming = separator[0] == "\x1c"
            elif len(held) >= _PART_CHARACTERS:
                part += 1
                end = _end_of_part(held)
                yield _TextPart(name, part, held[:end])
                held, looked = held[end:], 0
            else:
                looked = len(held)
                break
    if naming:
        name, _, held = held.partition("\n")
    yield _TextPart(name.strip(), part + 1 if part else 0, held)


def _end_of_part(text: str) -> int:
    """The index to cut at: after the last blank line that fits, else the last line, else word."""
    for mark in ("\n\n", "\n", " "):
        end = text.rfind(mark, _PART_CHARACTERS // 2, _PART_CHARACTERS)
        if end >= 0:
            return end + len(mark)
    return _PART_CHARACTERS


def _document(file: str, piece: _TextPart, number: int) -> RawDocument:
    """Make a RawDocument; `number` counts a file's documents and parts from 1 (0: only one)."""
    path = PurePosixPath(file)
    name = dates.title_from_filename(path.stem)
    title, body = piece.name, piece.text
    if not title and not piece.part:
        title, body = _titled(body)
    title = title or (f"{name}, {number}" if number and not piece.part else name)
    aliases = (piece.name,) if number else (str(path.with_suffix("")), path.stem, piece.name)
    return RawDocument(
        ref=f"{file}#{number}" if number else file,
        title=f"{title}, part {piece.part}" if piece.part else title,
        body=body.strip("\n"),
        markup="text",
        date=dates.date_in_name(path.name),
        base=file,
        aliases=tuple(dict.fromkeys(alias for alias in aliases if alias)),
    )


def _titled(text: str) -> tuple[str, str]:
    """Title and body; the title is a short first line followed by a blank line, else ""."""
    line, _, rest = text.lstrip("\n").partition("\n")
    below, _, _ = rest.partition("\n")
    if 0 < len(line.strip()) <= _LONGEST_TITLE and not below.strip() and rest.strip():
        return line.strip(), rest
    return "", text
