"""Draws views as HTML: as a file without scripts or network access, or as a part of a page."""

from collections.abc import Callable, Sequence
from functools import cache
from html import escape
from itertools import count as numbers_from
from pathlib import Path
from typing import Any, Final

from ownwords.view import blocks as b
from ownwords.view.format import count, inline, percent, plain

STYLE: Final = Path(__file__).with_name("view.css")  # also for the page of `ownwords serve`
_DOCUMENT_STYLE = Path(__file__).with_name("document.css")
# Content security policy: nothing is loaded, even if a title were not escaped.
_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; "
    "base-uri 'none'; form-action 'none'"
)
_OPEN_ROWS = 8  # of a list; the others are folded


# --- markup as values ---------------------------------------------------------------------------


class Html(str):
    """Markup that needs no escaping; any other string is text."""

    __slots__ = ()


def tag(name: str, /, *children: str | None, **attributes: str | bool | None) -> Html:
    """Return an element; `aria_label` is the attribute aria-label. Omits None and False."""
    opening = [name]
    for key, value in attributes.items():
        attribute = key.rstrip("_").replace("_", "-")
        if value is True:
            opening.append(attribute)
        elif value is not None and value is not False:
            opening.append(f'{attribute}="{escape(plain(value))}"')
    return Html(f"<{' '.join(opening)}>{join(*children)}</{name}>")


def join(*parts: str | None) -> Html:
    """Concatenate the parts; any that are not Html are cleaned and escaped."""
    return Html(
        "".join(
            part if isinstance(part, Html) else escape(inline(part), quote=False)
            for part in parts
            if part
        )
    )


# --- views --------------------------------------------------------------------------------------


def document(view: b.View) -> str:
    """Return the view as an HTML file; the same view gives the same bytes."""
    writer = _Writer(view.command, in_page=False)
    head = tag(
        "head",
        Html('<meta charset="utf-8">'),
        Html(f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'),
        Html('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        Html('<meta name="color-scheme" content="light dark">'),
        Html('<meta name="referrer" content="no-referrer">'),
        tag("title", view.title),
        tag("style", _styles()),
    )
    contents = (tag("li", tag("a", s.title, href=f"#{s.anchor}")) for s in view.sections)
    body = tag(
        "body",
        tag("a", f"To the {view.kind}", href=f"#{view.kind}", class_="skip"),
        writer.masthead(view),
        tag("nav", tag("ol", *contents), aria_label=f"In this {view.kind}"),
        tag("main", *map(writer.section, view.sections), id=view.kind),
        writer.footer(view),
    )
    return f"<!DOCTYPE html>\n{tag('html', head, body, lang='en')}\n"


def fragment(view: b.View) -> str:
    """Return the view as a part of the served page, with links to other places of it."""
    writer = _Writer("", in_page=True)
    return join(writer.masthead(view), *map(writer.section, view.sections), writer.footer(view))


def drawn(blocks: Sequence[b.Block]) -> str:
    """Return blocks alone as a part of the served page."""
    return str(join(*map(_Writer("", in_page=True).block, blocks)))


@cache
def _styles() -> Html:
    return Html("\n".join(path.read_text("utf-8") for path in (STYLE, _DOCUMENT_STYLE)))


class _Writer:
    def __init__(self, command: str, *, in_page: bool) -> None:
        self._command, self._in_page = command, in_page
        self._ids = numbers_from(1)

    def masthead(self, view: b.View) -> Html:
        return tag(
            "header",
            tag("p", view.kicker, class_="kicker"),
            tag(
                "h1",
                *self._line(view.heading),
                class_="bad" if view.is_bad else None,
                tabindex="-1",
            ),
            *map(self.block, view.intro),
            class_="masthead",
        )

    def section(self, section: b.Section) -> Html:
        return tag(
            "section",
            tag("h2", section.title, id=f"{section.anchor}-heading"),
            tag("div", *map(self.block, section.blocks), class_="body"),
            id=section.anchor,
            class_="part",
            aria_labelledby=f"{section.anchor}-heading",
        )

    def footer(self, view: b.View) -> Html:
        lines = (tag("p", *self._line(line)) for line in view.footer)
        return tag("footer", *lines, class_="colophon")

    def block(self, block: b.Block) -> Html:
        draw: Callable[[Any], Html] = getattr(self, f"_{type(block).__name__.lower()}")
        return draw(block)

    # --- lines ----------------------------------------------------------------------------------

    def _line(self, line: b.Line) -> list[Html]:
        return [self._span(span) for span in b.spans(line)]

    def _span(self, span: b.Span) -> Html:
        text = join(span.text)
        if self._in_page and span.page:
            name = tag("bdi", text) if span.style == "title" else text
            text = tag("a", name, href=f"#{span.page}")
        # Any other scheme (javascript:, data:) would run in the reader's browser.
        elif span.url.lower().startswith(("https://", "http://")):
            text = tag("a", tag("bdi", text), href=span.url, rel="noreferrer")
        elif span.style == "title":
            text = tag("bdi", text)
        match span.style:
            case "code":
                return tag("code", text)
            case "quote":
                return tag("q", tag("bdi", text))
            case "strong":
                return tag("strong", text)
            case "title" | "quiet":
                return tag("span", text, class_=span.style)
        return text

    # --- text -----------------------------------------------------------------------------------

    def _paragraph(self, block: b.Paragraph) -> Html:
        return tag("p", *self._line(block.line), class_=block.style or None)

    def _heading(self, block: b.Heading) -> Html:
        return tag("h3", block.text)

    def _code(self, block: b.Code) -> Html:
        # One element per line: `tag` removes line breaks within an element.
        lines = (tag("code", line) if line else "" for line in block.text.split("\n"))
        return tag("pre", Html("".join(f"{line}\n" for line in lines)), tabindex="0")

    def _quote(self, block: b.Quote) -> Html:
        return tag(
            "blockquote",
            tag("cite", *self._line(block.cite)) if block.cite else None,
            *(tag("p", *self._line(line)) for line in block.lines),
            self._details("The rest", *(tag("p", *self._line(line)) for line in block.rest)),
            class_="ours" if block.is_ours else None,
            dir="auto",
        )

    def _beside(self, block: b.Beside) -> Html:
        class_ = "panels" if isinstance(block.blocks[0], b.Gauges) else "two"
        return tag("div", *map(self.block, block.blocks), class_=class_)

    def _aside(self, block: b.Aside) -> Html:
        return tag("div", tag("h3", block.title), *map(self.block, block.blocks), class_="aside")

    def _fold(self, block: b.Fold) -> Html:
        class_ = "long" if block.is_long else None
        return self._details(block.summary, *map(self.block, block.blocks), class_=class_)

    def _details(self, summary: str, *children: Html, class_: str | None = None) -> Html:
        """Return a <details> element, which unfolds without a script; nothing without children."""
        if not children:
            return Html("")
        return tag("details", tag("summary", summary), *children, class_=class_)

    # --- lists and tables -----------------------------------------------------------------------

    def _figures(self, block: b.Figures) -> Html:
        cells = (
            tag(
                "div",
                tag("dt", row.label),
                tag("dd", tag("b", row.figure), tag("small", row.note) if row.note else None),
            )
            for row in block.rows
        )
        return tag("dl", *cells, class_="totals")

    def _pairs(self, block: b.Pairs) -> Html:
        rows = (
            tag("div", tag("dt", label), tag("dd", *self._line(line))) for label, line in block.rows
        )
        return tag("dl", *rows, class_="answers")

    def _items(self, block: b.Items) -> Html:
        items = [self._item(item, block.style) for item in block.rows]
        opened = len(items) if block.style == "notes" else _OPEN_ROWS
        more = items[opened:]
        return join(
            tag("ul", *items[:opened], class_=block.style),
            self._details(f"{count(len(more))} more", tag("ul", *more, class_=block.style))
            if more
            else None,
            self._rest(block.total, len(items)),
        )

    def _item(self, item: b.Item, style: str) -> Html:
        aside = tag("span", item.aside, class_="quiet") if item.aside else None
        if style == "notes":
            lines = (tag("small", *self._line(line)) for line in item.lines)
            return tag("li", *self._line(item.title), " " if aside else None, aside, *lines)
        label = "verdict on" if item.is_marked else "verdict"
        heading = "h3" if style == "samples" else "p"
        return tag(
            "li",
            tag("span", item.label, class_=label) if item.label else None,
            tag(
                "div",
                tag(heading, *self._line(item.title), " " if aside else None, aside),
                *(tag("p", *self._line(line)) for line in item.lines),
                tag("pre", tag("code", item.code)) if item.code else None,
                *map(self.block, item.blocks),
            ),
        )

    def _table(self, block: b.Table) -> Html:
        rows = [[join(*self._line(cell)) for cell in row] for row in block.rows]
        class_ = "words" if block.style == "words" else ""
        more = rows[_OPEN_ROWS:]
        further = table(f"{block.caption}: the rest", block.heads, more, class_) if more else None
        return join(
            table(block.caption, block.heads, rows[:_OPEN_ROWS], class_),
            self._details(f"{count(len(more))} more", further) if further else None,
            self._rest(block.total, len(rows)),
        )

    def _rest(self, total: int, shown: int) -> Html | None:
        """Return a line with the number of entries not shown."""
        if total <= shown:
            return None
        more = f"And {count(total - shown)} more"
        if not self._command:
            return tag("p", f"{more}.", class_="quiet")
        return tag("p", f"{more}; ", tag("code", self._command), " lists all.", class_="quiet")

    # --- charts: SVG sized in percent, which fits any width without scaling the text --------------

    def _shares(self, block: b.Shares) -> Html:
        total = sum(row.value for row in block.rows) or 1
        most = max((row.value for row in block.rows), default=0) or 1
        rows = [
            [
                self._share_label(row, block, most),
                *row.cells,
                count(row.value),
                percent(row.value / total),
            ]
            for row in block.rows
        ]
        if block.form == "rows":
            return table(block.title, block.heads, rows, "shares titled")
        stack = tag("figure", self._stacked_bar(block, total))
        return join(stack, table(block.title, block.heads, rows, "legend"))

    def _share_label(self, row: b.Share, block: b.Shares, most: int) -> Html:
        label = join(*self._line(row.label))
        if block.form == "stack":
            return join(tag("i", class_=f"swatch {row.tone}", aria_hidden="true"), label)
        return join(
            label,
            tag("span", row.below, class_="quiet") if row.below else None,
            _thin_bar(row.value / most, "k3" if row.tone == "out" else row.tone),
        )

    def _stacked_bar(self, block: b.Shares, total: int) -> Html:
        name = f"stack-{next(self._ids)}"
        rects, left = [], 0.0
        for row in block.rows:
            width = 100 * row.value / total
            label = f"{b.text_of(row.label)}: {percent(row.value / total)}"
            rects.append(
                tag(
                    "rect",
                    tag("title", label),
                    class_=row.tone,
                    x=_css_percent(left),
                    width=_css_percent(width),
                    height="100%",
                )
            )
            left += width
        parts = (f"{b.text_of(row.label)} ({percent(row.value / total)})" for row in block.rows)
        return tag(
            "svg",
            tag("title", block.title, id=f"{name}-title"),
            tag("desc", f"{', '.join(parts)}.", id=f"{name}-desc"),
            *rects,
            class_="stack",
            role="img",
            aria_labelledby=f"{name}-title {name}-desc",
            width="100%",
            height="28",
        )

    def _gauges(self, block: b.Gauges) -> Html:
        rows = [
            [
                join(
                    tag("span", row.label, class_="label ours" if row.is_ours else "label"),
                    _gauge(row, block.top),
                    tag("span", below, class_="quiet")
                    if (below := " · ".join(part for part in (row.span, row.note) if part))
                    else None,
                ),
                tag("span", row.text, class_="ours") if row.is_ours else row.text,
            ]
            for row in block.rows
        ]
        return tag(
            "div",
            tag("h3", block.title),
            tag("p", block.meaning) if block.meaning else None,
            table(block.title, ("Of", "Figure"), rows, "gauges"),
        )


def table(caption: str, heads: Sequence[str], rows: Sequence[Sequence[str]], class_: str) -> Html:
    """Return a table with column headers; the first cell of a row is its header."""
    head = tag("tr", *(tag("th", text, scope="col") for text in heads))
    body = (
        tag("tr", tag("th", row[0], scope="row"), *(tag("td", cell) for cell in row[1:]))
        for row in rows
    )
    parts = (tag("caption", caption), tag("thead", head), tag("tbody", *body))
    return tag("div", tag("table", *parts, class_=class_), class_="scrolled")


def _thin_bar(share: float, tone: str) -> Html:
    """Return a decorative bar under a title; its number is shown beside it."""
    width = _css_percent(100 * max(0.0, min(1.0, share)))
    rect = tag("rect", width=width, height="4", class_=tone)
    return tag("svg", rect, class_="line", width="100%", height="4", aria_hidden="true")


def _gauge(row: b.Gauge, top: float) -> Html:
    """Return a bar with its confidence interval as a whisker."""

    def place(value: float) -> str:
        return _css_percent(100 * min(1.0, max(0.0, value / top)))

    bar = tag("rect", width=place(row.value), height="9", class_="own" if row.is_ours else "k3")
    whisker = None
    if row.low is not None and row.high is not None:
        low, high = place(row.low), place(row.high)
        whisker = join(
            tag("line", x1=low, x2=high, y1="4.5", y2="4.5"),
            *(tag("line", x1=x, x2=x, y1="0", y2="9") for x in (low, high)),
        )
    ground = tag("rect", width="100%", height="9", class_="ground")
    parts = (ground, bar, whisker)
    return tag("svg", *parts, class_="gauge", width="100%", height="9", aria_hidden="true")


def _css_percent(value: float) -> str:
    return f"{value:.3f}".rstrip("0").rstrip(".") + "%"
