"""Parse a body in any markup into typed segments."""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice, pairwise
from textwrap import dedent
from typing import Literal

from selectolax.lexbor import LexborDocumentOptions, LexborHTMLParser, LexborNode

from ownwords.archive.document import Link, Markup, ParsedBody, Segment, SegmentKind
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
    limit_nesting,
    markdown_to_html,
)
from ownwords.archive.text_repair import (
    BROKEN,
    may_be_mojibake,
    repair_line,
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

_MIN_BREAKS = 8  # too few line breaks to infer a width
_MAX_BREAKS = 20_000
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
    breaks = list(islice(pairs, _MAX_BREAKS))
    if len(breaks) < _MIN_BREAKS:
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


# ---- walk HTML


Closer = Callable[[], None]
_Opened = list[tuple[int, Closer | None]]

_ROOT = "<own-words>"  # a fragment needs one root; no text closes this tag by accident
_ANY_PARAGRAPH = re.compile(r"<p[\s>]", re.IGNORECASE)
_BLANK_START = re.compile(r"\A(?:[ \t]*\n)+")
_UNCOUNTED_COMMENT = re.compile(r"\s*(?:/?wp:|more\b|nextpage|noteaser|kg-card-(?:begin|end))")
_MAX_INDENT = 12
_NEVER = 1 << 60


def parse_body(body: str, markup: Markup) -> ParsedBody:
    """Parse a body into cleaned, typed segments and links; removals are counted by reason.

    Never fails on HTML, Markdown or text, however broken. Raises SourceError for a block-editor
    body that is not a JSON list.
    """
    body = body.replace("\r\n", "\n").replace("\r", "\n")
    reader = _HtmlWalker(is_markdown=markup == "markdown")
    if markup == "text":
        reader.read_text(body)
    elif markup == "blocks":
        for html in blocks_to_html(body, reader.dropped) if body.strip() else []:
            reader.read_html(html)
    elif markup == "markdown":
        reader.read_html(markdown_to_html(body, reader.dropped))
    else:
        reader.read_html(body)
    links = tuple(Link(href, repair_line("".join(words))) for href, words in reader.links)
    dropped = {reason: count for reason, count in reader.dropped.items() if count}
    return ParsedBody(tuple(separate_logs(reader.segments)), links, dropped)


class _HtmlWalker(SegmentBuilder):
    """Walks HTML trees in document order; an element's opener may return its closing callback."""

    def __init__(self, is_markdown: bool) -> None:
        super().__init__(is_markdown)
        self.figure_from: int | None = None  # number of segments before the open figure
        self.rows: list[str] = []
        self.row: list[str] = []
        self.layout_tables = 0

    def read_html(self, html: str) -> None:
        html, broken = repair_surrogates(html)
        self.dropped[BROKEN] += broken
        html = limit_nesting(expand_shortcodes(html, self.dropped))
        # WordPress imports may lack <p>; there the author's newlines are visible breaks.
        self.newlines_show = "\n\n" in html and not _ANY_PARAGRAPH.search(html)
        options = LexborDocumentOptions.WO_EVENTS
        root = LexborHTMLParser(_ROOT + html, is_fragment=True, options=options).root
        if root is not None:
            self._walk(root)
            self.end_block()

    def _walk(self, root: LexborNode) -> None:
        # Not recursive: the tree may be deeper than Python's recursion limit.
        opened: _Opened = [(root.mem_id, None)]
        dropped_at = _NEVER
        for node in root.traverse(include_text=True):
            parent = node.parent
            if parent is None:
                continue
            _leave(opened, parent.mem_id)
            if len(opened) <= dropped_at:
                dropped_at = _NEVER
            leave: Closer | None = None
            if dropped_at == _NEVER:
                if node.is_text_node:
                    self.add_text(node.text_content or "")
                elif not node.is_element_node:
                    self._comment(node)
                elif reason := drop_reason(node):
                    self.dropped[reason] += 1
                    dropped_at = len(opened)
                else:
                    leave = self._open(node)
            if node.is_element_node:
                opened.append((node.mem_id, leave))
        _leave(opened, root.mem_id)

    def read_text(self, text: str) -> None:
        for lines in split_paragraphs(self.repaired(text)):
            self.emit("prose", "\n".join(lines))

    def _comment(self, node: LexborNode) -> None:
        comment = node.comment_content
        if comment is not None and not _UNCOUNTED_COMMENT.match(comment):
            self.dropped["comment in the markup"] += 1

    def _open(self, node: LexborNode) -> Closer | None:
        tag = node.tag or ""
        if self.mode == "pre" and tag not in ("a", "br"):
            return None
        if tag in ("div", "a") and is_card(node):
            return self._card(node)
        if opener := _OPENERS.get(tag):
            return opener(self, node)
        return self._block(node) if tag in BLOCKS else None

    # ---- elements

    def _block(self, node: LexborNode) -> Closer:
        self.end_block()
        loose, self.loose = self.loose, node.tag in LOOSE
        figure = self.figure_from
        if node.tag == "figure":
            self.figure_from = len(self.segments)

        def leave() -> None:
            self.end_block()
            self.loose, self.figure_from = loose, figure

        return leave

    def _line_break(self, _: LexborNode) -> None:
        for words in self.anchors:
            words.append(" ")
        self.parts.append(" " if self.mode == "line" else "\n")

    def _rule(self, _: LexborNode) -> None:
        self.end_block()

    def _image(self, node: LexborNode) -> None:
        if self.is_markdown and (title := node.attributes.get("title")):
            self.captions.append(title)

    def _inline_quote(self, _: LexborNode) -> Closer:
        self.add_text("“")
        return lambda: self.add_text("”")

    def _anchor(self, node: LexborNode) -> Closer | None:
        href = node.attributes.get("href")
        if not href:
            return None
        words: list[str] = []
        self.links.append((href, words))
        self.anchors.append(words)

        def leave() -> None:
            self.anchors.pop()

        return leave

    def _heading(self, node: LexborNode) -> Closer:
        return self._own_line(node, "heading", (node.tag or "")[1:])

    def _caption(self, node: LexborNode) -> Closer:
        return self._own_line(node, "caption", "")

    def _own_line(self, node: LexborNode, kind: SegmentKind, detail: str) -> Closer:
        if self.mode == "line" or (self.mode == "list" and kind == "heading"):
            return self._block(node)
        self.end_block()
        if self.mode == "list":
            self.end_list()
        mode, self.mode = self.mode, "line"

        def leave() -> None:
            text = self.take_line()
            self.mode = mode
            in_figure = self.figure_from is not None and self.figure_from < len(self.segments)
            last = self.segments[-1] if in_figure and kind == "caption" else None
            if last and last.kind == "quote" and not last.detail and len(text) <= LONGEST_NAME:
                self.segments[-1] = Segment("quote", last.text, text.lstrip(DASHES))
            else:
                self.emit(kind, text, detail)

        return leave

    def _list(self, node: LexborNode) -> Closer:
        if self.mode not in ("flow", "list"):
            return self._block(node)
        self.end_block()
        mode, self.mode = self.mode, "list"
        start = node.attributes.get("start") or ""
        first = int(start) if start.isdecimal() and len(start) < 10 else 1
        self.lists.append((node.tag == "ol", first))

        def leave() -> None:
            self.end_block()
            self.lists.pop()
            self.mode = mode
            if mode == "flow":
                self.end_list()
                self.end_block()

        return leave

    def _item(self, node: LexborNode) -> Closer:
        if self.mode != "list":
            return self._block(node)
        self.end_block()
        before = self.marker, self.indent, self.loose
        ordered, number = self.lists[-1]
        self.lists[-1] = ordered, number + 1
        self.marker = f"{number}. " if ordered else "  " if node.tag == "dd" else "- "
        self.indent = "  " * min(len(self.lists) - 1, _MAX_INDENT)
        self.loose = False

        def leave() -> None:
            self.end_block()
            self.marker, self.indent, self.loose = before

        return leave

    def _quotation(self, node: LexborNode) -> Closer:
        if self.mode not in ("flow", "list"):
            return self._block(node)
        self.end_block()
        if self.quote is not None and self.mode == "flow":
            return self._block(node)
        self.end_list()
        before = self.mode, self.lists, self.marker, self.indent, self.loose
        outer = self.quote
        if outer is None:
            self.quote, self.quote_author = [], ""
        first = len(self.segments)
        self.mode, self.lists, self.loose = "flow", [], True

        def leave() -> None:
            self.end_block()
            if outer is None:
                self.end_quote()
                self.quote = None
                for place in range(first, len(self.segments)):
                    segment = self.segments[place]
                    if segment.kind == "quote":
                        self.segments[place] = Segment("quote", segment.text, self.quote_author)
            self.mode, self.lists, self.marker, self.indent, self.loose = before

        return leave

    def _card(self, node: LexborNode) -> Closer:
        leave_link = self._anchor(node) if node.tag == "a" else None
        leave_quotation = self._quotation(node)

        def leave() -> None:
            leave_quotation()
            if leave_link:
                leave_link()
            # A caption below a card is the author's text, not the name of a quoted person.
            if self.figure_from is not None:
                self.figure_from = len(self.segments)

        return leave

    def _code(self, _: LexborNode) -> Closer:
        start = len(self.parts)

        def leave() -> None:
            code = "".join(self.parts[start:])
            self.spared = self.spared or (not code.isascii() and may_be_mojibake(code))

        return leave

    def _citation(self, node: LexborNode) -> Closer | None:
        if self.quote is None or self.mode != "flow":
            return None
        start = len(self.parts)
        direct = node.parent is not None and node.parent.tag == "blockquote"

        def leave() -> None:
            self.cite = start, len(self.parts), direct

        return leave

    def _footer(self, node: LexborNode) -> Closer:
        if self.quote is None or self.mode != "flow":
            return self._block(node)
        self.end_block()
        self.mode = "line"

        def leave() -> None:
            self.quote_author = self.take_line().lstrip(DASHES) or self.quote_author
            self.mode = "flow"

        return leave

    def _preformatted(self, node: LexborNode) -> Closer:
        if self.mode not in ("flow", "list"):
            return self._block(node)
        self.end_block()
        mode, self.mode = self.mode, "pre"
        verse = is_verse(node)

        def leave() -> None:
            self.mode = mode
            if verse:
                self.end_block()
                return
            code = self.repaired("".join(self.parts), encoding=False).replace("\xa0", " ")
            self.parts.clear()
            self.emit("code", _BLANK_START.sub("", code).rstrip(), code_language(node))

        return leave

    def _table(self, node: LexborNode) -> Closer:
        if self.mode not in ("flow", "list") or self.layout_tables > 8 or is_layout_table(node):
            self.layout_tables += 1
            leave_block = self._block(node)

            def leave_layout() -> None:
                self.layout_tables -= 1
                leave_block()

            return leave_layout
        self.end_block()
        mode, self.mode = self.mode, "table"
        self.rows = []

        def leave() -> None:
            self.parts.clear()
            self.mode = mode
            self.emit("table", "\n".join(self.rows))

        return leave

    def _row(self, node: LexborNode) -> Closer:
        if self.mode != "table":
            return self._block(node)
        self.row = []

        def leave() -> None:
            if any(self.row):
                self.rows.append(" | ".join(self.row))

        return leave

    def _cell(self, node: LexborNode) -> Closer:
        if self.mode != "table":
            return self._caption(node) if is_caption(node) else self._block(node)
        self.end_block()
        self.mode = "line"

        def leave() -> None:
            self.row.append(self.take_line())
            self.mode = "table"

        return leave


def _leave(opened: _Opened, holder: int) -> None:
    """Close the open elements, innermost first, until `holder` is the innermost."""
    while opened[-1][0] != holder:
        if leave := opened.pop()[1]:
            leave()


_OPENERS: dict[str, Callable[[_HtmlWalker, LexborNode], Closer | None]] = {
    **dict.fromkeys(("h1", "h2", "h3", "h4", "h5", "h6"), _HtmlWalker._heading),
    **dict.fromkeys(("figcaption", "caption"), _HtmlWalker._caption),
    **dict.fromkeys(("ul", "ol", "dl", "menu", "dir"), _HtmlWalker._list),
    **dict.fromkeys(("li", "dt", "dd"), _HtmlWalker._item),
    **dict.fromkeys(("pre", "listing", "xmp", "plaintext"), _HtmlWalker._preformatted),
    **dict.fromkeys(("td", "th"), _HtmlWalker._cell),
    "a": _HtmlWalker._anchor,
    "blockquote": _HtmlWalker._quotation,
    "br": _HtmlWalker._line_break,
    "cite": _HtmlWalker._citation,
    "code": _HtmlWalker._code,
    "footer": _HtmlWalker._footer,
    "hr": _HtmlWalker._rule,
    "img": _HtmlWalker._image,
    "q": _HtmlWalker._inline_quote,
    "table": _HtmlWalker._table,
    "tr": _HtmlWalker._row,
}
