"""Parse a body in any markup into typed segments."""

import re
from collections.abc import Callable

from selectolax.lexbor import LexborDocumentOptions, LexborHTMLParser, LexborNode

from ownwords.archive.document import Link, Markup, ParsedBody, Segment, SegmentKind
from ownwords.archive.log_detection import separate_logs
from ownwords.archive.segments.elements import (
    code_language,
    drop_reason,
    is_caption,
    is_card,
    is_layout_table,
    is_verse,
    limit_nesting,
)
from ownwords.archive.segments.markdown_html import expand_shortcodes, markdown_to_html
from ownwords.archive.segments.publii_blocks import blocks_to_html
from ownwords.archive.segments.segment_builder import (
    BLOCKS,
    DASHES,
    LONGEST_NAME,
    LOOSE,
    SegmentBuilder,
    split_paragraphs,
)
from ownwords.archive.text_repair import BROKEN, may_be_mojibake, repair_line, repair_surrogates

Closer = Callable[[], None]
_Opened = list[tuple[int, Closer | None]]

_ROOT = "<own-words>"  # a fragment needs one root; no text closes this tag by accident
_ANY_PARAGRAPH = re.compile(r"<p[\s>]", re.IGNORECASE)
_BLANK_START = re.compile(r"\A(?:[ \t]*\n)+")
_UNCOUNTED_COMMENT = re.compile(r"\s*(?:/?wp:|more\b|nextpage|noteaser|kg-card-(?:begin|end))")
_MOST_INDENT = 12
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
        self.indent = "  " * min(len(self.lists) - 1, _MOST_INDENT)
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
