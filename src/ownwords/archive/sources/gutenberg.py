"""Source: Project Gutenberg's plain texts, without the licence."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from ownwords.archive import dates, untrusted_files
from ownwords.archive.document import RawDocument, SkippedItem, SourceItem, SourceNote
from ownwords.archive.sources import read_texts
from ownwords.core.errors import SourceError

NAME = "Project Gutenberg"

SUFFIXES = frozenset({".txt"})
_START = re.compile(r"\* ?START\s+OF\s+TH(?:E|IS)\s+PROJECT\s+GUTENBERG.*\n?", re.I)
# Before 2000 the licence came first and ended with this line.
_OLD_START = re.compile(r"END\s?\*\s?THE SMALL PRINT.*\n?", re.I)
_END = re.compile(r"END\s+OF\s+(?:TH(?:E|IS)\s+)?PROJECT\s+GUTENBERG", re.I)
_COPYRIGHTED = re.compile(r"COPYRIGHTED\s+Project\s+Gutenberg\s+e(?:Book|text)", re.I)
_NAMED = re.compile(
    r"(Project\s+Gutenberg.{0,40}\be-?(?:book|text)\b)|gutenberg\.(org|net)", re.I | re.S
)
_ANY_MENTION = re.compile(r"Gutenberg", re.I)
_CREDITS = re.compile(
    r"\s*(?:(?:this )?e-?(?:book|text) (?:was )?)?(?:produced|prepared|transcribed|scanned)"
    r" (?:for )?(?:by|from)\b",
    re.I,
)
_FIELD = re.compile(r"^(Title|Author):[ \t]*(.+(?:\n[ \t]+\S.*)*)", re.M)
_OLD_TITLE = re.compile(
    r"^\**\s*(?:The )?Project Gutenberg(?:'s)? (?:E-?text|E-?book),? (?:of )?(.{2,100}?)\**\s*$",
    re.M | re.I,
)
_ILLUSTRATION = re.compile(r"\[Illustration(?::[^\[\]]{0,2000})?\]")
_CHAPTER = re.compile(
    r"\s*(?:(?:CHAPTER|BOOK|PART|ACT|CANTO|LETTER|STAVE)\s+[\dIVXLC]+\b.{0,80}|[IVXLC]{1,7}\.?)\s*",
    re.I,
)
_ITALICS = re.compile(r"(?<![\w_])_(?=\S)([^_]{1,2000}?)(?<=\S)_(?![\w_])")
_LOOK_BYTES = 32 << 10
_FIRST_FILES = 5
_CREDITS_STAND_WITHIN = 8
_PART_CHARACTERS = 100_000


@dataclass(frozen=True, slots=True)
class _BookText:
    """A book without its licence: title and author from the header, and the text."""

    title: str
    author: str
    text: str
    doubt: str  # a clause on which markers are missing or implausible; "" for none


def detect(path: Path) -> str | None:
    """Recognise a text with Project Gutenberg's header, or a folder of mostly such texts."""
    if path.is_dir():
        texts = (
            file for file in untrusted_files.first_files(path) if file.suffix.lower() in SUFFIXES
        )
        ours = [_is_ours(file) for file in islice(texts, _FIRST_FILES)]
        return "a folder of Project Gutenberg texts" if sum(ours) * 2 > len(ours) else None
    is_ours = path.suffix.lower() in SUFFIXES and _is_ours(path)
    return "a Project Gutenberg text" if is_ours else None


def _is_ours(path: Path) -> bool:
    data = untrusted_files.read_head(path, _LOOK_BYTES)
    if untrusted_files.is_binary(data):
        return False
    text = untrusted_files.decode_text(data)
    return _START.search(text) is not None or _NAMED.search(text[:2000]) is not None


def read(path: Path) -> Iterator[SourceItem]:
    """Yield each book in parts of about 100,000 characters, cut before a chapter if possible."""
    yield from read_texts(path, SUFFIXES, _parts, "plain text")
    yield SourceNote(
        "Project Gutenberg's texts are free of copyright in the United States; readers elsewhere"
        " must check their own law. The licence and the project's name were taken off."
    )


def _parts(file: Path, name: str) -> Iterator[SourceItem]:
    text = untrusted_files.read_lines(file)
    if _COPYRIGHTED.search(text[: _LOOK_BYTES // 2]):
        raise SourceError(
            f"{file} is a COPYRIGHTED Project Gutenberg eBook: its author keeps the rights",
            hint="leave it out, or ask its author",
        )
    book = _book(text, dates.title_from_filename(file.stem))
    if book.doubt:
        yield SourceNote(f"{name}: {book.doubt}; the text was kept whole there, so check it.")
    parts = list(_cut(_paragraphs(book.text)))
    if not parts:
        yield SkippedItem("file", "empty but for its licence", ref=name)
    for number, body in enumerate(parts, 1):
        several = len(parts) > 1
        yield RawDocument(
            ref=f"{name}#{number}" if several else name,
            title=f"{book.title}, part {number}" if several else book.title,
            body=body,
            markup="text",
            author=book.author,
        )


def _book(text: str, name: str) -> _BookText:
    fields = {key: " ".join(value.split()) for key, value in _FIELD.findall(text[:_LOOK_BYTES])}
    named = _OLD_TITLE.search(text[:2000])
    old = re.sub(r",? by .*", "", named[1]).strip() if named else name
    start = _START.search(text) or _OLD_START.search(text)
    begin = start.end() if start else 0
    end_mark = _END.search(text, begin)
    end = text.rfind("\n", 0, end_mark.start()) + 1 if end_mark else len(text)
    doubts = [] if start else ["the line where the licence ends and the book starts is missing"]
    if not end_mark:
        doubts.append("the line where the book ends is missing")
    if (end - begin) * 2 < len(text):
        doubts, begin, end = ["its markers would leave under half of it"], 0, len(text)
    return _BookText(
        fields.get("Title") or old, fields.get("Author", ""), text[begin:end], "; ".join(doubts)
    )


def _paragraphs(text: str) -> Iterator[str]:
    """Yield the paragraphs, without those that name the project."""
    blocks = (_ILLUSTRATION.sub("", block) for block in re.split(r"\n[ \t]*\n", text))
    for number, block in enumerate(block.strip("\n") for block in blocks if block.strip()):
        is_credit = number < _CREDITS_STAND_WITHIN and _CREDITS.match(block)
        if not is_credit and not _ANY_MENTION.search(block):
            yield _ITALICS.sub(r"\1", block)


def _cut(paragraphs: Iterator[str]) -> Iterator[str]:
    held: list[str] = []
    size = 0
    for paragraph in paragraphs:
        chapter = size > _PART_CHARACTERS * 0.7 and _CHAPTER.fullmatch(paragraph.partition("\n")[0])
        if chapter or size > _PART_CHARACTERS * 1.3:
            yield "\n\n".join(held)
            held, size = [], 0
        held.append(paragraph)
        size += len(paragraph)
    if held:
        yield "\n\n".join(held)
