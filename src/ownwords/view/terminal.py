"""Draws views in a terminal."""

from collections.abc import Callable, Iterable
from typing import Any

from rich.bar import Bar
from rich.console import Console
from rich.style import Style
from rich.table import Table
from rich.text import Text

from ownwords.view import blocks as b
from ownwords.view.format import count, inline, percent, plain

BOLD = Style(bold=True)
DIM = Style(dim=True)
# Plain blue is unreadable on many black terminals.
ACCENT = Style(color="bright_blue")

_SPAN_STYLES = {"strong": BOLD, "quiet": DIM}
_WIDEST = 104  # maximum comfortable line length
_FEW, _SAMPLES = 5, 2  # entries of a list
_QUOTE_CHARACTERS = 420


class TerminalWriter:
    """Prints blocks and lines within a margin.

    Lines fit the console, and text is never interpreted as markup. With `shortens`, lists end after
    a few entries and details are left out.
    """

    margin = 2

    def __init__(self, console: Console, *, shortens: bool = False) -> None:
        self.console = console
        self.width = max(20, min(console.width - 2 * self.margin, _WIDEST))
        self._shortens = shortens
        self._indent = 0

    # --- lines ------------------------------------------------------------------------------------

    def text(self, line: b.Line, style: Style | None = None) -> Text:
        """Convert a line to rich's text, without control characters."""
        # rich does not interpret a Text as markup, so "[red]" in a title is printed literally.
        text = Text(style=style or "")
        for span in b.spans(line):
            shown = f"“{span.text}”" if span.style == "quote" else span.text
            text.append(inline(shown), _SPAN_STYLES.get(span.style))
        return text

    def put(self, what: Text | Table, indent: int = 0) -> None:
        """Print within the margins, without trailing spaces."""
        indent += self._indent
        options = self.console.options.update_width(self.width - indent)
        for line in self.console.render_lines(what, options, pad=False):
            text = Text(" " * (self.margin + indent))
            text.append_tokens((part.text, part.style) for part in line)
            text.rstrip()
            self.console.print(text, no_wrap=True, overflow="ignore", crop=False, highlight=False)

    def line(self, line: b.Line, style: Style | None = None, indent: int = 0) -> None:
        self.put(self.text(line, style), indent)

    def copied(self, line: str, label: str = "") -> None:
        """Print a line for copying, unbroken however long it is."""
        shown = Text(" " * self.margin).append(label, style=DIM).append_text(self.text(line))
        self.console.print(shown, soft_wrap=True)

    def space(self) -> None:
        self.console.print()

    def rule(self) -> None:
        self.space()
        self.line("─" * self.width, DIM)

    def heading(self, text: str) -> None:
        self.space()
        self.line(text, BOLD + ACCENT)

    def rest(self, total: int, shown: int) -> None:
        """Print how many entries are not shown."""
        if total > shown:
            self.line(f"and {count(total - shown)} more", DIM)

    def grid(self) -> Table:
        return Table.grid(padding=(0, 2, 0, 0), pad_edge=False)

    # --- blocks -----------------------------------------------------------------------------------

    def section(self, title: str, blocks: Iterable[b.Block]) -> None:
        """Print a heading and the blocks below it; nothing if all blocks are left out."""
        shown = [block for block in blocks if not self._is_left_out(block)]
        if shown:
            self.heading(title)
            self.blocks(shown)

    def blocks(self, blocks: Iterable[b.Block], indent: int = 0) -> None:
        self._indent += indent
        for block in blocks:
            if not self._is_left_out(block):
                draw: Callable[[Any], None] = getattr(self, f"_{type(block).__name__.lower()}")
                draw(block)
        self._indent -= indent

    def _is_left_out(self, block: b.Block) -> bool:
        return isinstance(block, b.Fold) or (block.detail and self._shortens)

    def _paragraph(self, block: b.Paragraph) -> None:
        looks = {"lede": BOLD, "statement": BOLD, "quiet": DIM}
        self.line(block.line, looks.get(block.style))

    def _heading(self, block: b.Heading) -> None:
        self.line(block.text, ACCENT)

    def _code(self, block: b.Code) -> None:
        for line in block.text.split("\n"):
            indentation = len(line) - len(line.lstrip())
            self.line(line, indent=2 + min(indentation, self.width // 2))

    def _figures(self, block: b.Figures) -> None:
        self.space()
        grid = self.grid()
        grid.add_column(justify="right", no_wrap=True, overflow="crop")
        grid.add_column(overflow="fold")
        for row in block.rows:
            about = ", ".join(part for part in (row.label, row.note) if part)
            grid.add_row(self.text(row.figure, BOLD), self.text(about))
        self.put(grid)

    def _pairs(self, block: b.Pairs) -> None:
        grid = self.grid()
        grid.add_column(max_width=30, overflow="fold")
        grid.add_column(overflow="fold")
        for label, line in block.rows:
            grid.add_row(self.text(label, DIM), self.text(line))
        self.put(grid)

    def _items(self, block: b.Items) -> None:
        few = _SAMPLES if block.style == "samples" else _FEW
        rows = block.rows[:few] if self._shortens else block.rows
        for row in rows:
            if block.style == "passages":
                self.space()
            title = self.text(row.label, ACCENT if row.is_marked else DIM)
            title.append("  " if row.label else "")
            title.append_text(self.text(row.title, None if block.style == "notes" else BOLD))
            if row.aside:
                title.append("  ").append_text(self.text(row.aside, DIM))
            self.put(title)
            for line in row.lines:
                self.line(line, indent=2)
            if row.code:
                code = self.text(row.code, DIM)
                code.truncate(self.width - 2, overflow="ellipsis")
                self.put(code, indent=2)
            self.blocks(row.blocks[:1] if self._shortens else row.blocks, indent=2)
        self.rest(max(block.total, len(block.rows)), len(rows))

    def _table(self, block: b.Table) -> None:
        """Print columns; if there are two, as labels and values."""
        rows = [list(row) for row in block.rows[: _FEW if self._shortens else None]]
        if len(block.heads) == 2:
            pairs = [(b.text_of(left), right) for left, right in rows]
            self._pairs(b.Pairs(rows=pairs))
        else:
            grid = self.grid()
            for cells in zip(*rows, strict=True):
                texts = [b.text_of(cell) for cell in cells]
                is_figure = all(text[:1].isdigit() or len(text) == 1 for text in texts)
                grid.add_column(justify="right" if is_figure else "left", overflow="fold")
            grid.add_row(*(self.text(head, DIM) for head in block.heads))
            for first, *others in rows:
                grid.add_row(self.text(first, BOLD), *map(self.text, others))
            self.put(grid)
        self.rest(max(block.total, len(block.rows)), len(rows))

    def _shares(self, block: b.Shares) -> None:
        """Print one row per value: label, bar, value and share."""
        values = [row.value for row in block.rows]
        most, total = max(values) or 1, sum(values) or 1
        chart = self._chart(figures=3)
        for row in block.rows:
            is_out = row.tone == "out"
            chart.add_row(
                self.text(", ".join((b.text_of(row.label), *row.cells))),
                self._bar(row.value / most, is_strong=not is_out),
                self.text(count(row.value)),
                self.text(percent(row.value / total), BOLD),
                self.text("left out" if is_out else "", DIM),
            )
        self.put(chart)

    def _gauges(self, block: b.Gauges) -> None:
        """Print label, bar, figure and range, aligned."""
        self.line(block.title, DIM)
        chart = self._chart(figures=2)
        for row in block.rows:
            chart.add_row(
                self.text(row.label, BOLD if row.is_ours else None),
                self._bar(row.value / block.top, is_strong=row.is_ours),
                self.text(row.text, BOLD),
                self.text(f"({row.span})" if row.span else "", DIM),
            )
        self.put(chart)

    def _chart(self, figures: int) -> Table:
        grid = self.grid()
        grid.add_column(overflow="fold")
        for _ in range(1 + figures):  # the bar, too, is never broken
            grid.add_column(no_wrap=True, justify="right")
        return grid

    def _bar(self, share: float, *, is_strong: bool) -> Bar:
        color = "bright_blue" if is_strong else "bright_black"
        return Bar(1.0, 0.0, share, width=self.width // 4, color=color)

    def _quote(self, block: b.Quote) -> None:
        indent = 0 if self._indent else 2
        if block.cite:
            self.line([*b.spans(block.cite), ":"], DIM, indent)
        words = " ".join(map(b.text_of, (*block.lines, *block.rest)))
        self.line(plain(words, _QUOTE_CHARACTERS), indent=indent)

    def _beside(self, block: b.Beside) -> None:
        self.blocks(block.blocks)

    def _aside(self, block: b.Aside) -> None:
        self.line(block.title, DIM)
        self.blocks(block.blocks)


def print_view(view: b.View, console: Console, page: str = "") -> None:
    """Print a shortened view; `page` is the path of its HTML file."""
    writer = TerminalWriter(console, shortens=True)
    writer.space()
    writer.line(view.kicker, DIM)
    writer.line(view.heading, BOLD)
    writer.rule()
    writer.blocks(view.intro)
    for section in view.sections:
        writer.section(section.title, section.blocks)
    writer.rule()
    if page:
        writer.line(f"The full {view.kind}, to read and print:", DIM)
        writer.line(page, ACCENT)
        writer.space()
