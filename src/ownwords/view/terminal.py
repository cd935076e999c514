"""Draws views in a terminal: margins, bars and columns that fit any width and encoding."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from rich.console import Console, OverflowMethod
from rich.style import Style
from rich.table import Table
from rich.text import Text

from ownwords.view import blocks as b
from ownwords.view.format import count, percent, plain

LOUD = Style(bold=True)
QUIET = Style(dim=True)
# Plain blue is unreadable on many black terminals.
ACCENT = Style(color="bright_blue")

_MARGIN = 2
_WIDEST = 104  # maximum comfortable line length
_FEW, _SAMPLES = 5, 2  # entries of a list
_QUOTE_CHARACTERS = 420
_BLOCKS = " ▏▎▍▌▋▊▉█"
# For terminals that cannot show typographic characters.
_ASCII = str.maketrans(
    {"“": '"', "”": '"', "’": "'", "–": "-", "…": "...", "·": "-", "×": "x", "─": "-"}
)


class TerminalWriter:
    """A console with a margin; replaces characters that its encoding cannot show.

    Lines fit the console, and text is never interpreted as markup.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        margin = _MARGIN if console.width >= 40 else 0
        self._margin = margin
        self.width = max(20, min(console.width - 2 * margin, _WIDEST))
        self._blocks = self._can_show(_BLOCKS)
        self._overflow: OverflowMethod = "ellipsis" if self._blocks else "crop"

    def bars(self, rows: Sequence[tuple[str, int, float, str]]) -> None:
        """Rows of (label, words, share, remark), the bar of the largest share being the longest."""
        most = max(share for _, _, share, _ in rows)
        widest = max(self.text(label).cell_len for label, _, _, _ in rows)
        bar = max(6, min(30, self.width // 4))
        grid = self.grid()
        remarks = any(remark for _, _, _, remark in rows) and self.width >= 60
        figures = max(len(count(words)) for _, words, _, _ in rows)
        taken = bar + figures + 4 + 2 * 3
        if remarks:
            taken += 2 + max(self.text(remark).cell_len for _, _, _, remark in rows)
        label_width = max(8, min(widest, self.width - taken))
        grid.add_column(no_wrap=True, width=label_width, overflow=self._overflow)
        grid.add_column(no_wrap=True, width=bar, overflow="crop")
        grid.add_column(no_wrap=True, justify="right", width=figures, overflow="crop")
        grid.add_column(no_wrap=True, justify="right", width=4, overflow="crop")
        if remarks:
            grid.add_column(no_wrap=True, overflow="crop")
        for label, words, share, remark in rows:
            look = QUIET if remark == "left out" else ACCENT
            grid.add_row(
                self.text(label),
                self.text(self._bar(share / most if most else 0.0, bar), look),
                self.text(count(words)),
                self.text(percent(share), LOUD),
                *([self.text(remark, QUIET)] if remarks else []),
            )
        self.put(grid)

    def _bar(self, part: float, width: int) -> str:
        eighths = round(max(0.0, min(1.0, part)) * width * 8)
        if not self._blocks:
            return "#" * max(1 if part > 0 else 0, eighths // 8)
        return "█" * (eighths // 8) + _BLOCKS[eighths % 8].strip() or ("▏" if part > 0 else "")

    def pairs(self, rows: Iterable[tuple[str, str]]) -> None:
        """Print labels and figures, aligned on a wide terminal."""
        if self.width < 60:
            for left, right in rows:
                self.line(f"{plain(left, 200)}: {plain(right, 300)}")
            return
        grid = self.grid()
        grid.add_column(max_width=30, overflow="fold")
        grid.add_column(overflow="fold")
        for left, right in rows:
            grid.add_row(self.text(plain(left, 200), QUIET), self.text(plain(right, 300)))
        self.put(grid)

    def two_columns(self, left: str, right: str) -> None:
        """Print two passages in two columns, or one below the other."""
        if self.width < 60:
            self.line(left, indent=2)
            self.line(right, QUIET, indent=2)
            return
        grid = self.grid()
        grid.add_column(ratio=1, overflow="fold")
        grid.add_column(ratio=1, overflow="fold")
        grid.add_row(self.text(left), self.text(right, QUIET))
        self.put(grid, indent=2)

    def grid(self) -> Table:
        """An empty table without grid lines."""
        return Table.grid(padding=(0, 2, 0, 0), pad_edge=False)

    def figures(self, rows: Iterable[b.Figure]) -> None:
        """Print headline figures, aligned, each with what it counts."""
        grid = self.grid()
        grid.add_column(justify="right", no_wrap=True, overflow="crop")
        grid.add_column(overflow="fold")
        for row in rows:
            about = ", ".join(part for part in (row.label, row.note) if part)
            grid.add_row(self.text(row.figure, LOUD), self.text(about))
        self.put(grid)

    def heading(self, text: str) -> None:
        """Print a section heading."""
        self.space()
        self.line(text, LOUD + ACCENT)

    def rest(self, total: int, shown: int, noun: str) -> None:
        """Print how many entries are not shown."""
        if total > shown:
            self.line(f"and {count(total - shown, f'more {noun}')}", QUIET)

    def rule(self) -> None:
        """Print a horizontal line."""
        self.space()
        self.line(("─" if self._blocks else "-") * self.width, QUIET)

    def space(self) -> None:
        """Print an empty line."""
        self._console.print()

    def line(self, text: str, style: Style | None = None, indent: int = 0) -> None:
        """Print a paragraph."""
        self.put(self.text(text, style), indent)

    def clipped(self, text: str) -> None:
        """Print one line, clipped to the width."""
        line = self.text(text, QUIET)
        line.truncate(self.width - 2, overflow=self._overflow)
        self.put(line, indent=2)

    def put(self, what: Text | Table, indent: int = 0) -> None:
        """Print within the margins, without trailing spaces."""
        options = self._console.options.update_width(self.width - indent)
        for line in self._console.render_lines(what, options, pad=False):
            text = Text(" " * (self._margin + indent))
            text.append_tokens((part.text, part.style) for part in line)
            text.rstrip()
            self._console.print(text, no_wrap=True, overflow="ignore", crop=False, highlight=False)

    def text(self, text: str, style: Style | None = None) -> Text:
        """Convert text to what this terminal can show."""
        # rich does not interpret a Text as markup, so "[red]" in a title is printed literally.
        text = plain(text)
        if not self._can_show(text):
            encoding = self._console.encoding
            text = text.translate(_ASCII).encode(encoding, "replace").decode(encoding)
        return Text(text, style=style or "")

    def _can_show(self, text: str) -> bool:
        try:
            text.encode(self._console.encoding)
        except (UnicodeEncodeError, LookupError):
            return False
        return True


def print_view(view: b.View, console: Console, page: str = "") -> None:
    """Print a view; `page` is the path of its HTML file."""
    _ViewPrinter(console).view(view, page)


class _ViewPrinter(TerminalWriter):
    """Prints blocks; of lists the first entries, of details nothing."""

    def view(self, view: b.View, page: str) -> None:
        self.space()
        self.line(view.kicker, QUIET)
        self.line(view.heading, LOUD)
        self.rule()
        for block in view.intro:
            self._block(block)
        for section in view.sections:
            shown = [block for block in section.blocks if not self._is_left_out(block)]
            if shown:
                self.heading(section.title)
                for block in shown:
                    self._block(block)
        self.rule()
        if page:
            self.line(f"The full {view.kind}, to read and print:", QUIET)
            self.line(page, ACCENT)
            self.space()

    @staticmethod
    def _is_left_out(block: b.Block) -> bool:
        return block.detail or isinstance(block, b.Fold)

    def _block(self, block: b.Block) -> None:
        if not self._is_left_out(block):
            draw: Callable[[Any], None] = getattr(self, f"_{type(block).__name__.lower()}")
            draw(block)

    def _paragraph(self, block: b.Paragraph) -> None:
        looks = {"lede": LOUD, "statement": LOUD, "quiet": QUIET}
        self.line(b.text_of(block.line), looks.get(block.style))

    def _heading(self, block: b.Heading) -> None:
        self.line(block.text, ACCENT)

    def _code(self, block: b.Code) -> None:
        for line in block.text.split("\n"):
            self.line(line, indent=2)

    def _figures(self, block: b.Figures) -> None:
        self.space()
        self.figures(block.rows)

    def _pairs(self, block: b.Pairs) -> None:
        if block.style != "answers":
            self.pairs((label, b.text_of(line)) for label, line in block.rows)
            return
        for label, line in block.rows:
            self.line(label, ACCENT)
            self.line(b.text_of(line), indent=2)

    def _items(self, block: b.Items) -> None:
        rows = block.rows[: _SAMPLES if block.style == "samples" else _FEW]
        if block.style == "phrases":
            self.line("; ".join(f"{b.text_of(row.title)} {row.aside}" for row in rows))
            return
        for row in rows:
            title = self.text(row.label, ACCENT if row.is_marked else QUIET)
            title.append("  " if row.label else "")
            title.append_text(
                self.text(b.text_of(row.title), None if block.style == "notes" else LOUD)
            )
            if row.aside:
                title.append("  ").append_text(self.text(row.aside, QUIET))
            self.put(title)
            for line in row.lines:
                self.line(b.text_of(line), indent=2)
            if row.code:
                self.clipped(row.code)
            for inner in row.blocks[:1]:
                self._block(inner)
        self.rest(max(block.total, len(block.rows)), len(rows), block.noun)

    def _table(self, block: b.Table) -> None:
        rows = [[b.text_of(cell) for cell in row] for row in block.rows[:_FEW]]
        if len(block.heads) == 2:
            self.pairs((left, right) for left, right in rows)
        else:
            for first, *others in rows:
                told = "; ".join(
                    f"{head.lower()} {cell}"
                    for head, cell in zip(block.heads[1:], others, strict=True)
                )
                self.line(f"{first}: {told}")
        self.rest(max(block.total, len(block.rows)), len(rows), block.noun)

    def _shares(self, block: b.Shares) -> None:
        total = sum(row.value for row in block.rows) or 1
        self.bars(
            [
                (
                    ", ".join((b.text_of(row.label), *row.cells)),
                    row.value,
                    row.value / total,
                    "left out" if row.tone == "out" else "",
                )
                for row in block.rows
            ]
        )

    def _years(self, block: b.Years) -> None:
        total = sum(year.words for year in block.rows) or 1
        rows = [
            (f"{year.year}, {count(year.posts, 'post')}", year.words, year.words / total, "")
            for year in block.rows
            if year.posts
        ]
        self.bars(rows)

    def _gauges(self, block: b.Gauges) -> None:
        """Print label, bar, figure and range, aligned."""
        self.line(block.title, QUIET)
        bar = max(6, min(20, self.width // 4))
        figures = max(len(row.text) for row in block.rows)
        ranges = [f"({row.span})" if row.span else "" for row in block.rows]
        widest = max(map(len, ranges)) if self.width >= 60 else 0
        label_width = self.width - bar - figures - widest - 2 * 4
        grid = self.grid()
        grid.add_column(no_wrap=True, width=max(8, min(34, label_width)), overflow=self._overflow)
        grid.add_column(no_wrap=True, width=bar, overflow="crop")
        grid.add_column(no_wrap=True, justify="right", width=figures, overflow="crop")
        if widest:
            grid.add_column(no_wrap=True, width=widest, overflow="crop")
        for row, span in zip(block.rows, ranges, strict=True):
            grid.add_row(
                self.text(row.label, LOUD if row.is_ours else None),
                self.text(self._bar(row.value / block.top, bar), ACCENT if row.is_ours else QUIET),
                self.text(row.text, LOUD),
                *([self.text(span, QUIET)] if widest else []),
            )
        self.put(grid)

    def _quote(self, block: b.Quote) -> None:
        if block.cite:
            self.line(f"{b.text_of(block.cite)}:", QUIET, indent=2)
        self.line(self._quoted(block), indent=2)

    @staticmethod
    def _quoted(block: b.Quote) -> str:
        return plain(" ".join(map(b.text_of, (*block.lines, *block.rest))), _QUOTE_CHARACTERS)

    def _beside(self, block: b.Beside) -> None:
        quotes = [inner for inner in block.blocks if isinstance(inner, b.Quote)]
        if len(quotes) == 2:
            left, right = (f"{b.text_of(q.cite)}: {self._quoted(q)}" for q in quotes)
            self.two_columns(left, right)
            return
        for inner in block.blocks:
            self._block(inner)

    def _aside(self, block: b.Aside) -> None:
        self.line(block.title, QUIET)
        for inner in block.blocks:
            self._block(inner)
