"""Where text comes together: pieces become paragraphs, lines, lists, quotes; segments at last."""

import re
from collections import Counter
from textwrap import dedent
from typing import Literal

from ownwords.archive.document import Segment, SegmentKind
from ownwords.archive.log_detection import is_log_line
from ownwords.archive.text_repair import repair_line, repair_text

# Elements that part what is in them from what is around; loose text stands in some as it is.
LOOSE = frozenset(
    {"div", "section", "article", "main", "center", "aside", "header", "footer", "details"}
    | {"figure", "blockquote", "td", "publii-non-amp"}
)
BLOCKS = LOOSE | frozenset(
    {"p", "address", "dd", "dt", "dialog", "fieldset", "hgroup", "legend", "summary", "search"}
    | {"tbody", "thead", "tfoot", "tr", "th", "li"}
)

_BLANK_LINES = re.compile(r"\n\s*\n")
# While gathered, "\n" is a break that shows and "\r" a newline that shows as a space.
_SOFT_BLANK_LINES = re.compile(r"\r\s*\r")
_SOFT_AFTER_BREAK = re.compile(r"\n[ \t]*\r")
_CALLOUT = re.compile(r"\[!(?!quote|cite)\w+\][-+]?\s*", re.IGNORECASE)
_SENTENCE = (".", "!", "?", "…", ",", ";", ":", "”", "»")
_SENTENCE_ENDS = tuple(".!?…\"”»’'")
DASHES = "-–—―~ \r\n\t\xa0"
LONGEST_NAME = 150  # of who said a quote, with the work it is from
# "— Ann" on a quote's last line says who is quoted; it is no sentence.
_SIGNED = re.compile(r"(?:[—–―]|--)\s*([^\W\d_].*)")
_SIGNS = ("—", "–", "―", "--")


class SegmentBuilder:
    """The text of a body as it is gathered: what is open, and what has become a segment.

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
        self.anchors: list[list[str]] = []  # the words of the links now open
        self.captions: list[str] = []  # waiting for the end of the paragraph they stand in
        self.loose = True  # text outside <p>, where blank lines part paragraphs
        self.newlines_show = False
        self.spared = False  # what looks damaged in the text open now is there to be looked at
        self.lists: list[tuple[bool, int]] = []  # of each open list: ordered, number of the next
        self.list_lines: list[str] = []
        self.marker = self.indent = ""
        self.quote: list[str] | None = None
        self.quote_author = ""
        # The latest citation in a quote: from, to in `parts`, and whether directly in the quote.
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
        """The end of a paragraph, an item's line, or of nothing, as the mode has it."""
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
        """The gathered text with only those line breaks that a reader sees, repaired."""
        text = "".join(self.parts)
        self.parts.clear()
        if "\r" in text:
            if self.loose:
                text = _SOFT_BLANK_LINES.sub("\n\n", text)
                if self.newlines_show:
                    text = _SOFT_AFTER_BREAK.sub("\n", text).replace("\r", "\n")
            if text.count("\r") >= 7:
                # A log pasted without <pre>: its lines would be lost in one long paragraph.
                lines = text.split("\r")
                if sum(map(is_log_line, lines)) >= 0.6 * len(lines):
                    text = "\n".join(lines)
            text = text.replace("\r", " ")
        return self.repaired(text)

    def emit(self, kind: SegmentKind, text: str, detail: str = "") -> None:
        """A segment, within the quote around it if any; code and tables stand by themselves."""
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
            # "> [!note]" is a box for the author's own remarks, not a quotation.
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
        # In a dialogue every speech may begin with a dash.
        if any(line.startswith(_SIGNS) for line in quoted.split("\n")):
            return quote
        if signed := _SIGNED.fullmatch(last):
            self.quote_author = signed[1]
            return quoted.rstrip()
        return quote

    def _take_cite(self, start: int, end: int, directly: bool) -> None:
        """The cited author out of a quote, where the citation ends it outside any sentence."""
        self.cite = None
        words = "".join(self.parts[start:end])
        before = "".join(self.parts[:start])
        quoted = before.rstrip(DASHES)
        apart = quoted != before.rstrip() or quoted.endswith(_SENTENCE_ENDS)
        alone = not quoted.strip(DASHES)
        if not "".join(self.parts[end:]).strip() and (alone or (directly and apart)):
            self.quote_author = repair_line(words).lstrip(DASHES)
            self.parts = [quoted]
