"""Source: a plain-text file or a folder of them."""

from collections.abc import Iterator, Set
from pathlib import Path, PurePosixPath

from ownwords.archive import dates, untrusted_files
from ownwords.archive.document import RawDocument, SkippedItem, SourceItem
from ownwords.archive.sources import read_texts

NAME = "plain text"

SUFFIXES = frozenset({".txt", ".text"})
_PART_CHARACTERS = 1_000_000
_LONGEST_TITLE = 80


def detect(path: Path) -> str | None:
    """Recognise a text file, or a folder that holds at least one."""
    if path.is_dir():
        names = untrusted_files.count_suffixes(path)
        return "a folder of text files" if any(names[suffix] for suffix in SUFFIXES) else None
    return "a text file" if path.suffix.lower() in SUFFIXES and path.is_file() else None


def read(path: Path, only: Set[Path] | None = None) -> Iterator[SourceItem]:
    """Yield each file as a document; any over a million characters come in parts."""

    def expected(file: Path) -> int:
        return 1 + file.stat().st_size // _PART_CHARACTERS

    yield from read_texts(path, SUFFIXES, _documents, "plain text", only, expected=expected)


def _documents(file: Path, name: str) -> Iterator[SourceItem]:
    text = untrusted_files.read_lines(file, untrusted_files.MAX_EXPORT_BYTES)
    if not text.strip():
        yield SkippedItem("file", "empty", ref=name)
        return
    path = PurePosixPath(name)
    title, body = _titled(text)
    title = title or dates.title_from_filename(path.stem)
    parts = list(_parts(body))
    for number, part in enumerate(parts, 1):
        yield RawDocument(
            ref=f"{name}#{number}" if len(parts) > 1 else name,
            title=f"{title}, part {number}" if len(parts) > 1 else title,
            body=part.strip("\n"),
            markup="text",
            date=dates.date_in_name(path.name),
        )


def _parts(text: str) -> Iterator[str]:
    """Yield the text in parts that end after the last blank line, line or word that fits."""
    start = 0
    while len(text) - start > _PART_CHARACTERS:
        half, end = start + _PART_CHARACTERS // 2, start + _PART_CHARACTERS
        ends = (text.rfind(mark, half, end) + len(mark) for mark in ("\n\n", "\n", " "))
        end = next((each for each in ends if each > half), end)
        yield text[start:end]
        start = end
    yield text[start:]


def _titled(text: str) -> tuple[str, str]:
    """Return title and body; the title is a short first line above a blank line, or ""."""
    line, _, rest = text.lstrip("\n").partition("\n")
    below, _, _ = rest.partition("\n")
    if 0 < len(line.strip()) <= _LONGEST_TITLE and not below.strip() and rest.strip():
        return line.strip(), rest
    return "", text
