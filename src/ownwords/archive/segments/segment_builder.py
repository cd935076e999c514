"""Collect pieces of text into paragraphs, lists, quotes and other segments."""

import re
from collections import Counter
from collections.abc import Iterator
from itertools import islice, pairwise
from textwrap import dedent
from typing import Literal

from ownwords.archive.document import Segment, SegmentKind
from ownwords.archive.log_detection import is_log_line
from ownwords.archive.text_repair import repair_line, repair_text

# Block elements; those in LOOSE may contain text directly, without <p>.
LOOSE = frozenset(
    {"div", "section", "article", "main", "center", "aside", "header", "footer", "details"}
    | {"figure", "blockquote", "td", "publii-non-amp"}
)
BLOCKS = LOOSE | frozenset(
    {"p", "address", "dd", "dt", "dialog", "fieldset", "hgroup", "legend", "summary", "search"}
    | {"tbody", "thead", "tfoot", "tr", "th", "li"}
)

_BLANK_LINES = re.compile(r"\n\s*\n")
# In collected text "\n" is a visible break, and "\r" a newline that is rendered as a space.
_SOFT_BLANK_LINES = re.compile(r"\r\s*\r")
_SOFT_AFTER_BREAK = re.compile(r"\n[ \t]*\r")
_CALLOUT = re.compile(r"\[!(?!quote|cite)\w+\][-+]?\s*", re.IGNORECASE)
_SENTENCE = (".", "!", "?", "…", ",", ";", ":", "”", "»")
_SENTENCE_ENDS = tuple(".!?…\"”»’'")
DASHES = "-–—―~ \r\n\t\xa0"
LONGEST_NAME = 150  # of a quoted author with the work's title
# "— Ann" on a quote's last line names its author.
_SIGNED = re.compile(r"(?:[—–―]|--)\s*([^\W\d_].*)")
_SIGNS = ("—", "–", "―", "--")


class SegmentBuilder:
    """Collects the text of a body: the block being built, and the finished segments.

    `mode` says what the pieces in `parts` are: "flow" (paragraphs), "list", "line" (a heading, a
    caption or a cell, where every break is a space), "table" (between cells) or "pre" (left as is).
    """

    def __init__(self, is_markdown: bool) -> None:
        self.segments: list[Segment] = []
        self.links: list[tuple[str, list[str]]] = []
        self.dropped: Counter[str] = Counter()
        self.is_markdown = is_markdown
        self.mode: Literal["flow", "list", "line", "table", "pre"] = "flow"
        self.parts: list[str] = []
        self.anchors: list[list[str]] = []  # texts of the open links
        self.captions: list[str] = []  # emitted at the end of the current paragraph
        self.loose = True  # outside <p>, where blank lines separate paragraphs
        self.newlines_show = False
        self.spared = False  # damaged-looking text is intended here: do not repair its encoding
        self.lists: list[tuple[bool, int]] = []  # per open list: is ordered, next number
        self.list_lines: list[str] = []
        self.marker = self.indent = ""
        self.quote: list[str] | None = None
        self.quote_author = ""
        # The latest <cite> in a quote: its range in `parts`, and whether it is a direct child.
        self.cite: tuple[int, int, bool] | None = None

    def add_text(self, text: str) -> None:
        for words in self.anchors:
            words.append(text)
        self.parts.append(text if self.mode == "pre" else text.replace("\n", "\r"))

    def repaired(self, text: str, encoding: bool = True) -> str:
        text, counts = repair_text(text, encoding=encoding and not self.spared)
        self.spared = False
        if counts:
            self.dropped.update(counts)
        return text

    def take_line(self) -> str:
        text = self.repaired("".join(self.parts).replace("\r", " "))
        self.parts.clear()
        return " ".join(text.split())

    def end_block(self) -> None:
        """End the current paragraph or list line, according to `mode`."""
        for words in self.anchors:
            words.append(" ")
        if self.mode == "line":
            self.parts.append(" ")
        elif self.mode == "table":
            self.parts.clear()
        elif self.mode == "flow":
            self._end_paragraphs()
        elif self.mode == "list":
            for line in self._shown().split("\n"):
                if words := line.split():
                    self.list_lines.append(self.indent + self.marker + " ".join(words))
                    self.marker = " " * len(self.marker)

    def _end_paragraphs(self) -> None:
        if self.cite:
            self._take_cite(*self.cite)
        if self.parts:
            if self.quote is not None and self.is_markdown:
                text = "".join(self.parts).rstrip()
                quoted, _, last = text.rpartition("\r")
                if last.lstrip().startswith(_SIGNS):
                    self.parts = [quoted, "\n", last]
            for paragraph in _BLANK_LINES.split(self._shown()):
                lines = (" ".join(line.split()) for line in paragraph.split("\n"))
                self.emit("prose", "\n".join(line for line in lines if line))
        captions, self.captions = self.captions, []
        for caption in captions:
            self.emit("caption", " ".join(self.repaired(caption).split()))

    def _shown(self) -> str:
        """The collected text, repaired, with only the line breaks that a reader sees."""
        text = "".join(self.parts)
        self.parts.clear()
        if "\r" in text:
            if self.loose:
                text = _SOFT_BLANK_LINES.sub("\n\n", text)
                if self.newlines_show:
                    text = _SOFT_AFTER_BREAK.sub("\n", text).replace("\r", "\n")
            if text.count("\r") >= 7:
                # Keep the lines of a log pasted without <pre>.
                lines = text.split("\r")
                if sum(map(is_log_line, lines)) >= 0.6 * len(lines):
                    text = "\n".join(lines)
            text = text.replace("\r", " ")
        return self.repaired(text)

    def emit(self, kind: SegmentKind, text: str, detail: str = "") -> None:
        """Add a segment, or a part of the open quote; code and tables end lists and quotes."""
        if not text:
            return
        if kind in ("code", "table"):
            self.end_list()
            self.end_quote()
        elif self.quote is not None:
            self.quote.append(text)
            return
        self.segments.append(Segment(kind, text, detail))

    def end_list(self) -> None:
        lines, self.list_lines = self.list_lines, []
        self.emit("list", dedent("\n".join(lines)))

    def end_quote(self) -> None:
        if not self.quote:
            return
        paragraphs, self.quote = self.quote, []
        if self.is_markdown and (callout := _CALLOUT.match(paragraphs[0])):
            # "> [!note]" is a callout with the author's own words, not a quotation.
            paragraphs[0] = paragraphs[0][callout.end() :]
            self.segments += [Segment("prose", text) for text in paragraphs if text]
        else:
            self.segments.append(Segment("quote", self._without_name("\n\n".join(paragraphs))))

    def _without_name(self, quote: str) -> str:
        quoted, _, last = quote.rpartition("\n")
        if (
            not self.is_markdown
            or self.quote_author
            or not quoted
            or len(last) > LONGEST_NAME
            or last.endswith(_SENTENCE)
        ):
            return quote
        # In a dialogue lines may begin with a dash.
        if any(line.startswith(_SIGNS) for line in quoted.split("\n")):
            return quote
        if signed := _SIGNED.fullmatch(last):
            self.quote_author = signed[1]
            return quoted.rstrip()
        return quote

    def _take_cite(self, start: int, end: int, directly: bool) -> None:
        """Remove the cited author from a quote if the citation ends it, apart from any sentence."""
        self.cite = None
        words = "".join(self.parts[start:end])
        before = "".join(self.parts[:start])
        quoted = before.rstrip(DASHES)
        apart = quoted != before.rstrip() or quoted.endswith(_SENTENCE_ENDS)
        alone = not quoted.strip(DASHES)
        if not "".join(self.parts[end:]).strip() and (alone or (directly and apart)):
            self.quote_author = repair_line(words).lstrip(DASHES)
            self.parts = [quoted]


# ---- split plain text into paragraphs, and rejoin lines that were wrapped at a fixed width

_LEAST_BREAKS = 8  # too few line breaks to infer a width
_MOST_BREAKS = 20_000
_WIDTHS = range(55, 101)
_RAGGED = 8  # columns by which a full line may fall short of the width
_ITEM = re.compile(r"\s*(?:[-*+•·]|\d{1,3}[.)])\s")
_IN_COLUMNS = re.compile(r"\s*[>|]|.*\S(?: {3}|\t)")  # also lines quoted with ">"


def split_paragraphs(text: str) -> Iterator[list[str]]:
    """Yield the lines of each paragraph, stripped.

    Line breaks stay unless most of the document's lines fill a common width of 55 to 100 columns.
    Even then verse, list items, columns, logs and lines that end early keep their breaks.
    """
    blocks = list(_blocks(text))
    width = _width(blocks)
    for lines in blocks:
        wrapped = width and len(lines) > 1 and _is_wrapped(lines, width)
        yield list(_flowing(lines, width)) if wrapped else [" ".join(s.split()) for s in lines]


def _blocks(text: str) -> Iterator[list[str]]:
    lines: list[str] = []
    for line in [*text.split("\n"), ""]:
        if line and not line.isspace():
            lines.append(line.rstrip())
        elif lines:
            yield lines
            lines = []


def _width(blocks: list[list[str]]) -> int:
    """The width at which the document's lines were wrapped, or 0."""
    pairs = ((lines[n], lines[n + 1]) for lines in blocks for n in range(len(lines) - 1))
    breaks = list(islice(pairs, _MOST_BREAKS))
    if len(breaks) < _LEAST_BREAKS:
        return 0
    lengths = sorted(len(line) for line, _ in breaks)
    width = lengths[int(0.98 * (len(lengths) - 1))]
    if width not in _WIDTHS:
        return 0
    full = sum(_is_full(line, following, width) for line, following in breaks)
    return width if full >= 0.6 * len(breaks) else 0


def _is_full(line: str, following: str, width: int) -> bool:
    """Whether the next word would not have fitted on the line."""
    return len(line) + 1 + len(following.split(None, 1)[0]) > width - _RAGGED


def _is_wrapped(lines: list[str], width: int) -> bool:
    breaks = len(lines) - 1
    full = sum(_is_full(lines[n], lines[n + 1], width) for n in range(breaks))
    if full < 0.6 * breaks or any(map(_IN_COLUMNS.match, lines)):
        return False
    capitals = sum(line.lstrip("\"'“‘«—- \t")[:1].isupper() for line in lines[1:])
    if breaks >= 3 and capitals > 0.7 * breaks:
        return False  # verse
    if sum(map(len, lines)) > 20 * sum(len(line.split()) for line in lines):
        return False  # a script without spaces between words, so lines must not be joined with one
    return sum(map(is_log_line, lines)) < 0.4 * len(lines)


def _flowing(lines: list[str], width: int) -> Iterator[str]:
    items = sum(1 for line in lines if _ITEM.match(line))
    listed = items > 1 or _ITEM.match(lines[0])
    flowing = " ".join(lines[0].split())
    for line, following in pairwise(lines):
        words = " ".join(following.split())
        goes_on = _is_full(line, following, width) or words[0].islower()
        deeper = _indent(following) > _indent(line) and not (listed and _ITEM.match(line))
        if not goes_on or deeper or (listed and _ITEM.match(following)):
            yield flowing
            flowing = words
        elif flowing.endswith("-") and flowing[-2:-1].isalpha():
            flowing += words
        else:
            flowing += " " + words
    yield flowing


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())
