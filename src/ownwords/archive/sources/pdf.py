"""Source: a PDF with text in it, or a folder of them.

    python -m ownwords.archive.sources.pdf FILE

prints the text of a file as JSON. A separate process reads each file, with limits on memory and
time, because a PDF can keep any reader busy forever.
"""

import json
import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from html import escape
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path, PurePosixPath
from statistics import median
from typing import Any, NamedTuple

from ownwords.archive import dates, untrusted_files
from ownwords.archive.document import RawDocument, SkippedItem, SourceItem
from ownwords.archive.sources import holds_mostly, read_texts
from ownwords.core.errors import SourceError
from ownwords.core.packages import install_command

NAME = "PDF"

SUFFIXES = frozenset({".pdf"})
_MAX_PAGES = 2_000
_MAX_CHARACTERS = 10_000_000
_MAX_SECONDS = 120
_MAX_MEMORY_BYTES = 2 << 30
_EDGE_LINES = 2  # at the top and the bottom of a page, which may be headers and footers
_MIN_EDGE_SHARE = 0.3  # of the pages must have the same line there
_EDGE_POINTS = 6.0  # by which the place of a repeated line may differ
_HEADING_SIZE = 1.15  # times the size of most of the text
_LONGEST_HEADING = 200
_ENDS = re.compile(r"[.!?…:][\"'”’»)]*$")
_DIVIDED = re.compile(r"(\w*[^\W\d_])[-‐\xad]$")
_LEADERS = re.compile(r"(?:\. ?){5,}\s*\w+$")  # of a table of contents
_FILE_NAME = re.compile(r"\.\w{2,4}$|^untitled", re.IGNORECASE)  # in place of a title
_PAGE_NUMBER = re.compile(r"[\W_]*(?:\d{1,4}|[ivxlc]{1,7})[\W_]*", re.IGNORECASE)


def detect(path: Path) -> str | None:
    """Recognise a file by its beginning, and a folder that holds more of them than other texts."""
    if path.is_dir():
        return "a folder of PDFs" if holds_mostly(path, SUFFIXES) else None
    return "a PDF" if b"%PDF-" in untrusted_files.read_head(path, 1024) else None


def read(path: Path, only: Set[Path] | None = None) -> Iterator[SourceItem]:
    """Yield a document for each file."""
    if find_spec("pypdf") is None:
        raise SourceError(
            f"{path} is a PDF, and reading it needs the package pypdf", hint=install_command("pdf")
        )
    yield from read_texts(path, SUFFIXES, _document, "PDFs", only)


def _document(file: Path, name: str) -> Iterator[SourceItem]:
    answer = _extracted(file)
    if "error" in answer:
        raise SourceError(f"{file} {answer['error']}", hint=answer["hint"])
    pages = [[_Line(*line) for line in page] for page in answer["pages"]]
    scanned = sum(not page for page in pages)
    if scanned == len(pages):
        raise SourceError(
            f"{file} is a scan: its pages are pictures without text",
            hint="add the text with a text-recognition program such as ocrmypdf",
        )
    if scanned:
        yield SkippedItem("page", "a picture without text", scanned, ref=name)
    if answer["more"]:
        yield SkippedItem("page", f"after the first {_MAX_PAGES:,} pages", answer["more"], ref=name)
    blocks = list(_blocks(_without_edges(pages)))
    title = answer["title"]
    if blocks and blocks[0][0] == "h2":
        title = blocks.pop(0)[1]
    path = PurePosixPath(name)
    yield RawDocument(
        ref=name,
        title=title or dates.title_from_filename(path.stem),
        body="\n".join(f"<{tag}>{escape(text, quote=False)}</{tag}>" for tag, text in blocks),
        markup="html",
        date=dates.date_in_name(path.name) or dates.parse_date(answer["date"]),
        author=answer["author"],
    )


def _extracted(file: Path) -> dict[str, Any]:
    """Return the JSON printed by the process that reads a file."""
    try:
        answer: dict[str, Any] = json.loads(
            subprocess.run(
                [sys.executable, "-P", "-m", __name__, str(file)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                timeout=_MAX_SECONDS,
                check=False,
            ).stdout
        )
    except subprocess.TimeoutExpired:
        reason = f"takes more than {_MAX_SECONDS // 60} minutes to read"
        return {"error": reason, "hint": "print it to a new PDF, and give that file"}
    except ValueError:  # the process was killed
        return {"error": "takes too much memory to read", "hint": "give a smaller file"}
    return answer


# ---- lines to paragraphs


class _Line(NamedTuple):
    """A line of a page; points are counted from the lower left corner."""

    x: float
    y: float
    size: float
    text: str


def _without_edges(pages: Sequence[Sequence[_Line]]) -> list[list[_Line]]:
    """Remove headers, footers and page numbers: lines in the same place on many pages."""
    edges: dict[str, list[tuple[int, _Line]]] = defaultdict(list)
    for number, page in enumerate(pages):
        heights = sorted({line.y for line in page})
        outer = {*heights[:_EDGE_LINES], *heights[-_EDGE_LINES:]}
        for line in page:
            if line.y in outer:
                key = "#" if _PAGE_NUMBER.fullmatch(line.text) else re.sub(r"\d+", "#", line.text)
                edges[key].append((number, line))
    least = max(2, _MIN_EDGE_SHARE * sum(map(bool, pages)))
    repeated = {*edges.pop("#", ())}
    for lines in edges.values():
        for entry in lines:
            near = {n for n, line in lines if abs(line.y - entry[1].y) <= _EDGE_POINTS}
            if len(near) >= least:
                repeated.add(entry)
    return [
        [line for line in page if (number, line) not in repeated]
        for number, page in enumerate(pages)
    ]


def _blocks(pages: Sequence[Sequence[_Line]]) -> Iterator[tuple[str, str]]:
    """Yield the headings and paragraphs, as the names of HTML's elements and their texts."""
    lines = [(number, line) for number, page in enumerate(pages) for line in page]
    sizes: Counter[float] = Counter()
    for _, line in lines:
        sizes[line.size] += len(line.text)
    usual = sizes.most_common(1)[0][0] if sizes else 0.0
    body = [line for _, line in lines if abs(line.size - usual) < 0.5]
    gaps = [above.y - line.y for above, line in pairwise(body) if 0 < above.y - line.y < 4 * usual]
    leading = min(median(gaps), 2 * usual) if gaps else usual
    full = median(sorted(len(line.text) for line in body)[len(body) // 2 :]) if body else 0
    words = Counter(word for _, line in lines for word in re.findall(r"[\w-]+", line.text))
    block: list[str] = []
    for (before, above), (number, line) in pairwise([(-1, _Line(0, 0, 0, "")), *lines]):
        gap = above.y - line.y if before == number else 0.0
        is_new = abs(line.size - above.size) > 0.1 * usual or gap > 1.3 * leading
        is_short = len(above.text) < 0.8 * full and _ENDS.search(above.text)
        is_indented = 0.8 * usual < line.x - above.x < 5 * usual and gap > 0
        if block and (is_new or is_short or is_indented):
            yield _block(block, above.size > _HEADING_SIZE * usual, words)
            block = []
        block.append(line.text)
    if block:
        yield _block(block, lines[-1][1].size > _HEADING_SIZE * usual, words)


def _block(lines: Sequence[str], is_large: bool, words: Mapping[str, int]) -> tuple[str, str]:
    """Join the lines, and words that were divided at their ends."""
    text = ""
    for line in lines:
        divided = _DIVIDED.search(text)
        following = re.match(r"\w+", line)
        if divided and following and following[0][0].islower():
            # A word like "well-known" keeps its hyphen if it has one elsewhere.
            whole = f"{divided[1]}-{following[0]}"
            is_compound = words[whole] > 0 and not words[whole.replace("-", "")]
            text = f"{text[:-1]}{'-' if is_compound else ''}{line}"
        else:
            text = f"{text} {line}" if text else line
    is_heading = is_large and len(text) <= _LONGEST_HEADING
    return "h2" if is_heading else "p", text


# ---- the process that reads a file


class _PageText:
    """Collects the lines of a page from what pypdf visits."""

    def __init__(self) -> None:
        self.lines: list[_Line] = []
        self._parts: list[str] = []
        self._place: tuple[float, float, float] | None = None

    def visit(
        self, text: str, matrix: Sequence[float], of: Sequence[float], _: object, size: float
    ) -> None:
        for number, part in enumerate(text.split("\n")):
            if number:
                self.end_line()
            if part.strip() and self._place is None:
                x = of[4] * matrix[0] + of[5] * matrix[2] + matrix[4]
                y = of[4] * matrix[1] + of[5] * matrix[3] + matrix[5]
                scale = abs(of[3] * matrix[3]) or abs(of[1] * matrix[2]) or 1.0
                self._place = round(x, 1), round(y, 1), round(size * scale, 1)
            self._parts.append(part)

    def end_line(self) -> None:
        text = " ".join("".join(self._parts).split())
        if text and self._place and not _LEADERS.search(text):
            self.lines.append(_Line(*self._place, text))
        self._parts, self._place = [], None


def _extract(path: Path) -> dict[str, Any]:
    from pypdf import PdfReader  # noqa: PLC0415 - an extra

    if path.stat().st_size > untrusted_files.MAX_EXPORT_BYTES:
        limit = f"{untrusted_files.MAX_EXPORT_BYTES >> 20} MiB"
        return {"error": f"is larger than {limit}", "hint": "give a smaller file"}
    with path.open("rb") as file:
        reader = PdfReader(file)
        if reader.is_encrypted and not reader.decrypt(""):
            return {"error": "is protected by a password", "hint": "save it without a password"}
        pages, characters = [], 0
        for page in reader.pages[:_MAX_PAGES]:
            found = _PageText()
            page.extract_text(visitor_text=found.visit)
            found.end_line()
            pages.append(found.lines)
            characters += sum(len(line.text) for line in found.lines)
            if characters > _MAX_CHARACTERS:
                return {"error": f"holds more than {_MAX_CHARACTERS:,} characters", "hint": ""}
        known = {key: str(value) for key, value in (reader.metadata or {}).items()}
        title = " ".join(known.get("/Title", "").split())
        day = re.match(r"D:(\d{4})(\d\d)(\d\d)", known.get("/CreationDate", ""))
        return {
            "pages": pages,
            "more": max(0, len(reader.pages) - _MAX_PAGES),
            "title": "" if _FILE_NAME.search(title) else title,
            "author": known.get("/Author", ""),
            "date": "-".join(day.groups()) if day else "",
        }


def _main(path: Path) -> None:
    untrusted_files.bound_memory(_MAX_MEMORY_BYTES)
    try:
        answer = _extract(path)
    except MemoryError:
        raise
    except Exception as error:
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        answer = {"error": f"is damaged, or cannot be read: {reason}", "hint": "save it again"}
    sys.stdout.write(json.dumps(answer))


if __name__ == "__main__":
    _main(Path(sys.argv[1]))
