"""Parse a body in any markup into typed segments."""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Set
from itertools import pairwise
from textwrap import dedent
from typing import Literal

from selectolax.lexbor import LexborDocumentOptions, LexborNode

from ownwords.archive.document import Markup, ParsedBody, Segment, SegmentKind
from ownwords.archive.log_detection import is_log_line, separate_logs
from ownwords.archive.markup import (
    blocks_to_html,
    code_language,
    drop_reason,
    expand_shortcodes,
    is_caption,
    is_card,
    is_layout_table,
    is_verse,
    markdown_to_html,
    parse_html,
)
from ownwords.archive.text_repair import (
    BROKEN,
    may_be_mojibake,
    repair_surrogates,
    repair_text,
)

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
_UNCOUNTED_COMMENT = re.compile(r"\s*(?:/?wp:|more\b|nextpage|noteaser|kg-card-(?:begin|end))")
_BLANK_START = re.compile(r"\A(?:[ \t]*\n)+")
_ROOT = "<own-words>"  # a fragment needs one root; no text closes this tag by accident
_ANY_PARAGRAPH = re.compile(r"<p[\s>]", re.IGNORECASE)
_MAX_INDENT = 12


def parse_body(body: str, markup: Markup) -> ParsedBody:
    """Parse a body into cleaned, typed segments; removals are counted by reason.

    Never fails on HTML, Markdown or text, however broken. Raises SourceError for blocks that are
    not a JSON list.
    """
    body = body.replace("\r\n", "\n").replace("\r", "\n")
    parser = _BodyParser(is_markdown=markup == "markdown")
    if markup == "text":
        for lines in split_paragraphs(parser.repaired(body)):
            parser.emit("prose", "\n".join(lines))
    elif markup == "blocks":
        for html in blocks_to_html(body, parser.dropped) if body.strip() else []:
            parser.read_html(html)
    elif markup == "markdown":
        parser.read_html(markdown_to_html(body, parser.dropped))
    else:
        parser.read_html(body)
    dropped = {reason: count for reason, count in parser.dropped.items() if count}
    return ParsedBody(tuple(separate_logs(parser.segments)), dropped)


# The part of an element's method after its `yield` runs when the element is closed.
_Element = Iterator[None]
_Opened = list[tuple[int, _Element | None]]


class _BodyParser:
    """Walks HTML trees in document order; collects the block being built and finished segments.

    `mode` is the kind of the pieces in `parts`: "flow" (paragraphs), "list", "line" (a heading, a
    caption or a cell, where every break is a space), "table" (between cells) or "pre" (unchanged).
    """

    def __init__(self, is_markdown: bool) -> None:
        self.segments: list[Segment] = []
        self.dropped: Counter[str] = Counter()
        self.is_markdown = is_markdown
        self.mode: Literal["flow", "list", "line", "table", "pre"] = "flow"
        self.parts: list[str] = []
        self.captions: list[str] = []  # emitted at the end of the current paragraph
        self.loose = True  # outside <p>, where blank lines separate paragraphs
        self.newlines_show = False
        self.spared = False  # text that looks damaged is intended here: do not repair it
        self.lists: list[tuple[bool, int]] = []  # per open list: is ordered, next number
        self.list_lines: list[str] = []
        self.marker = self.indent = ""
        self.rows: list[str] = []
        self.row: list[str] = []
        self.quote: list[str] | None = None

    # ---- the tree

    def read_html(self, html: str) -> None:
        html, broken = repair_surrogates(html)
        self.dropped[BROKEN] += broken
        html = expand_shortcodes(html, self.dropped)
        # WordPress imports may lack <p>; there the author's newlines are visible breaks.
        self.newlines_show = "\n\n" in html and not _ANY_PARAGRAPH.search(html)
        options = LexborDocumentOptions.WO_EVENTS
        root = parse_html(_ROOT + html, is_fragment=True, options=options).root
        if root is not None:
            self._walk(root)
            self.end_block()

    def _walk(self, root: LexborNode) -> None:
        # Not recursive: the tree may be deeper than Python's recursion limit.
        opened: _Opened = [(root.mem_id, None)]
        dropped_at = 0  # the number of open elements around the one being dropped
        for node in root.traverse(include_text=True):
            parent = node.parent
            if parent is None:
                continue
            _leave(opened, parent.mem_id)
            if len(opened) <= dropped_at:
                dropped_at = 0
            element: _Element | None = None
            if not dropped_at:
                if node.is_text_node:
                    self._add_text(node.text_content or "")
                elif not node.is_element_node:
                    comment = node.comment_content
                    if comment is not None and not _UNCOUNTED_COMMENT.match(comment):
                        self.dropped["comment in the markup"] += 1
                elif reason := drop_reason(node):
                    self.dropped[reason] += 1
                    dropped_at = len(opened)
                elif element := self._element(node):
                    next(element, None)
            if node.is_element_node:
                opened.append((node.mem_id, element))
        _leave(opened, root.mem_id)

    def _element(self, node: LexborNode) -> _Element | None:
        tag = node.tag or ""
        if self.mode == "pre" and tag not in ("a", "br"):
            return None
        if tag in ("div", "a") and is_card(node):
            return self._card(node)
        if tag in _INLINE:
            return _INLINE[tag](self, node)
        if tag in _BY_MODE:
            method, modes = _BY_MODE[tag]
            return (method if self.mode in modes else _BodyParser._block)(self, node)
        return self._block(node) if tag in BLOCKS else None

    # ---- text and segments

    def _add_text(self, text: str) -> None:
        self.parts.append(text if self.mode == "pre" else text.replace("\n", "\r"))

    def repaired(self, text: str, encoding: bool = True) -> str:
        text, counts = repair_text(text, encoding=encoding and not self.spared)
        self.spared = False
        if counts:
            self.dropped.update(counts)
        return text

    def _take_line(self) -> str:
        text = self.repaired("".join(self.parts).replace("\r", " "))
        self.parts.clear()
        return " ".join(text.split())

    def end_block(self) -> None:
        """End the current paragraph or list line, according to `mode`."""
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
        if self.parts:
            for paragraph in _BLANK_LINES.split(self._shown()):
                lines = (" ".join(line.split()) for line in paragraph.split("\n"))
                self.emit("prose", "\n".join(line for line in lines if line))
        captions, self.captions = self.captions, []
        for caption in captions:
            self.emit("caption", " ".join(self.repaired(caption).split()))

    def _shown(self) -> str:
        """Return the collected text, repaired, with only the line breaks that a reader sees."""
        text = "".join(self.parts)
        self.parts.clear()
        if "\r" in text:
            if self.loose:
                text = _SOFT_BLANK_LINES.sub("\n\n", text)
                if self.newlines_show:
                    text = _SOFT_AFTER_BREAK.sub("\n", text).replace("\r", "\n")
            # Keep the lines of a log pasted without <pre>.
            lines = text.split("\r")
            if len(lines) > 7 and sum(map(is_log_line, lines)) >= 0.6 * len(lines):
                text = "\n".join(lines)
            text = text.replace("\r", " ")
        return self.repaired(text)

    def emit(self, kind: SegmentKind, text: str, detail: str = "") -> None:
        """Add a segment, or a part of the open quote; code and tables end lists and quotes."""
        if not text:
            return
        if kind in ("code", "table"):
            self._end_list()
            self._end_quote()
        elif self.quote is not None:
            self.quote.append(text)
            return
        self.segments.append(Segment(kind, text, detail))

    def _end_list(self) -> None:
        lines, self.list_lines = self.list_lines, []
        self.emit("list", dedent("\n".join(lines)))

    def _end_quote(self) -> None:
        if not self.quote:
            return
        paragraphs, self.quote = self.quote, []
        if self.is_markdown and (callout := _CALLOUT.match(paragraphs[0])):
            # "> [!note]" is a callout with the author's own words, not a quotation.
            paragraphs[0] = paragraphs[0][callout.end() :]
            self.segments += [Segment("prose", text) for text in paragraphs if text]
            return
        self.segments.append(Segment("quote", "\n\n".join(paragraphs)))

    # ---- inline elements

    def _line_break(self, _: LexborNode) -> None:
        self.parts.append(" " if self.mode == "line" else "\n")

    def _rule(self, _: LexborNode) -> None:
        self.end_block()

    def _image(self, node: LexborNode) -> None:
        if self.is_markdown and (title := node.attributes.get("title")):
            self.captions.append(title)

    def _inline_quote(self, _: LexborNode) -> _Element:
        self._add_text("“")
        yield
        self._add_text("”")

    def _code(self, _: LexborNode) -> _Element:
        start = len(self.parts)
        yield
        self.spared = self.spared or may_be_mojibake("".join(self.parts[start:]))

    # ---- block elements

    def _block(self, node: LexborNode) -> _Element:
        self.end_block()
        loose, self.loose = self.loose, node.tag in LOOSE
        yield
        self.end_block()
        self.loose = loose

    def _heading(self, node: LexborNode) -> _Element:
        return self._own_line("heading", (node.tag or "")[1:])

    def _caption(self, node: LexborNode) -> _Element:
        figure, before = node.parent, node.prev
        while before is not None and not before.is_element_node:
            before = before.prev
        tags = [found.tag for found in (figure, before) if found is not None]
        # Below a quotation, it names who is quoted.
        return self._own_line("quote" if tags == ["figure", "blockquote"] else "caption")

    def _own_line(self, kind: SegmentKind, detail: str = "") -> _Element:
        self.end_block()
        if self.mode == "list":
            self._end_list()
        mode, self.mode = self.mode, "line"
        yield
        text = self._take_line()
        self.mode = mode
        self.emit(kind, text, detail)

    def _list(self, node: LexborNode) -> _Element:
        self.end_block()
        mode, self.mode = self.mode, "list"
        start = node.attributes.get("start") or ""
        first = int(start) if start.isdecimal() and len(start) < 10 else 1
        self.lists.append((node.tag == "ol", first))
        yield
        self.end_block()
        self.lists.pop()
        self.mode = mode
        if mode == "flow":
            self._end_list()
            self.end_block()

    def _item(self, node: LexborNode) -> _Element:
        self.end_block()
        before = self.marker, self.indent, self.loose
        ordered, number = self.lists[-1]
        self.lists[-1] = ordered, number + 1
        self.marker = f"{number}. " if ordered else "  " if node.tag == "dd" else "- "
        self.indent = "  " * min(len(self.lists) - 1, _MAX_INDENT)
        self.loose = False
        yield
        self.end_block()
        self.marker, self.indent, self.loose = before

    def _quotation(self, node: LexborNode) -> _Element:
        if self.quote is not None and self.mode == "flow":
            yield from self._block(node)
            return
        self.end_block()
        self._end_list()
        before = self.mode, self.lists, self.marker, self.indent, self.loose
        is_outer = self.quote is None
        if is_outer:
            self.quote = []
        self.mode, self.lists, self.loose = "flow", [], True
        yield
        self.end_block()
        if is_outer:
            self._end_quote()
            self.quote = None
        self.mode, self.lists, self.marker, self.indent, self.loose = before

    def _card(self, node: LexborNode) -> _Element:
        return self._quotation(node) if self.mode in _FLOWING else self._block(node)

    def _preformatted(self, node: LexborNode) -> _Element:
        self.end_block()
        mode, self.mode = self.mode, "pre"
        yield
        self.mode = mode
        if is_verse(node):
            self.end_block()
            return
        code = self.repaired("".join(self.parts), encoding=False).replace("\xa0", " ")
        self.parts.clear()
        self.emit("code", _BLANK_START.sub("", code).rstrip(), code_language(node))

    def _table(self, node: LexborNode) -> _Element:
        if is_layout_table(node):
            yield from self._block(node)
            return
        self.end_block()
        mode, self.mode = self.mode, "table"
        self.rows = []
        yield
        self.parts.clear()
        self.mode = mode
        self.emit("table", "\n".join(self.rows))

    def _row(self, _: LexborNode) -> _Element:
        self.row = []
        yield
        if any(self.row):
            self.rows.append(" | ".join(self.row))

    def _cell(self, node: LexborNode) -> _Element:
        if self.mode != "table":
            is_own_line = is_caption(node) and self.mode != "line"
            yield from self._caption(node) if is_own_line else self._block(node)
            return
        self.end_block()
        self.mode = "line"
        yield
        self.row.append(self._take_line())
        self.mode = "table"


def _leave(opened: _Opened, holder: int) -> None:
    """Close the open elements, innermost first, until `holder` is the innermost."""
    while opened[-1][0] != holder:
        if element := opened.pop()[1]:
            next(element, None)


_Method = Callable[[_BodyParser, LexborNode], _Element | None]

_FLOWING = frozenset({"flow", "list"})
_ALL_MODES = frozenset({"flow", "list", "line", "table"})
_INLINE: dict[str, _Method] = {
    "br": _BodyParser._line_break,
    "code": _BodyParser._code,
    "hr": _BodyParser._rule,
    "img": _BodyParser._image,
    "q": _BodyParser._inline_quote,
}
# Block elements with a meaning in some modes only; in other modes they are plain blocks.
_BY_MODE: dict[str, tuple[_Method, Set[str]]] = {
    tag: (method, modes)
    for tags, method, modes in (
        ("h1 h2 h3 h4 h5 h6", _BodyParser._heading, {"flow", "table"}),
        ("figcaption caption", _BodyParser._caption, _FLOWING | {"table"}),
        ("ul ol dl menu dir", _BodyParser._list, _FLOWING),
        ("li dt dd", _BodyParser._item, {"list"}),
        ("pre listing xmp plaintext", _BodyParser._preformatted, _FLOWING),
        ("td th", _BodyParser._cell, _ALL_MODES),
        ("blockquote", _BodyParser._quotation, _FLOWING),
        ("table", _BodyParser._table, _FLOWING),
        ("tr", _BodyParser._row, {"table"}),
    )
    for tag in tags.split()
}


# ---- split plain text into paragraphs, and rejoin lines that were wrapped at a fixed width

_MIN_BREAKS = 8  # too few line breaks to infer a width
_WIDTHS = range(55, 101)
_RAGGED = 8  # columns by which a full line may fall short of the width
_ITEM = re.compile(r"\s*(?:[-*+•·]|\d{1,3}[.)])\s")
_IN_COLUMNS = re.compile(r"\s*[>|]|.*\S(?: {3}|\t)")  # also lines quoted with ">"


def split_paragraphs(text: str) -> Iterator[list[str]]:
    """Yield the lines of each paragraph, stripped.

    Line breaks stay unless most of the document's lines fill a common width of 55 to 100 columns.
    Even then verse, list items, columns, logs and lines that end early keep their breaks.
    """
    paragraphs = [
        [line.rstrip() for line in block.split("\n") if line.strip()]
        for block in _BLANK_LINES.split(text)
    ]
    width = _width([pair for lines in paragraphs for pair in pairwise(lines)])
    for lines in paragraphs:
        if width and _is_wrapped(lines, width):
            yield list(_rejoined(lines, width))
        elif lines:
            yield [" ".join(line.split()) for line in lines]


def _width(breaks: list[tuple[str, str]]) -> int:
    """Return the width at which the document's lines were wrapped, or 0."""
    if len(breaks) < _MIN_BREAKS:
        return 0
    lengths = sorted(len(line) for line, _ in breaks)
    width = lengths[int(0.98 * (len(lengths) - 1))]
    full = sum(_is_full(line, following, width) for line, following in breaks)
    return width if width in _WIDTHS and full >= 0.6 * len(breaks) else 0


def _is_full(line: str, following: str, width: int) -> bool:
    """Return whether the next word would not have fitted on the line."""
    return len(line) + 1 + len(following.split(None, 1)[0]) > width - _RAGGED


def _is_wrapped(lines: list[str], width: int) -> bool:
    breaks = len(lines) - 1
    full = sum(_is_full(line, following, width) for line, following in pairwise(lines))
    if breaks < 1 or full < 0.6 * breaks or _ITEM.match(lines[0]):
        return False
    if any(map(_IN_COLUMNS.match, lines)):
        return False
    capitals = sum(line.lstrip("\"'“‘«—- \t")[:1].isupper() for line in lines[1:])
    if breaks >= 3 and capitals > 0.7 * breaks:
        return False  # verse
    if sum(map(len, lines)) > 20 * sum(len(line.split()) for line in lines):
        return False  # a script without spaces between words, so do not join lines with one
    return sum(map(is_log_line, lines)) < 0.4 * len(lines)


def _rejoined(lines: list[str], width: int) -> Iterator[str]:
    has_items = sum(1 for line in lines if _ITEM.match(line)) > 1
    joined = " ".join(lines[0].split())
    for line, following in pairwise(lines):
        words = " ".join(following.split())
        goes_on = _is_full(line, following, width) or words[0].islower()
        if not goes_on or (has_items and _ITEM.match(following)):
            yield joined
            joined = words
        else:
            is_divided = joined.endswith("-") and joined[-2:-1].isalpha()
            joined += words if is_divided else f" {words}"
    yield joined
