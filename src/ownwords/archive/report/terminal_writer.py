"""Terminal output: margins, bars and columns that fit any width and encoding."""

from collections.abc import Iterable

from rich.console import Console, OverflowMethod
from rich.style import Style
from rich.table import Table
from rich.text import Text

from ownwords.archive.report.formatting import count, percent, plain

LOUD = Style(bold=True)
QUIET = Style(dim=True)
# Plain blue is unreadable on many black terminals.
ACCENT = Style(color="bright_blue")

_MARGIN = 2
_WIDEST = 104  # maximum comfortable line length
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

    def bars(self, rows: list[tuple[str, int, float, str]], most: float) -> None:
        """Rows of (label, words, share, remark), each with a bar as long as its share of `most`."""
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
            left_out = remark == "left out"
            grid.add_row(
                self.text(label),
                self.text(
                    self._bar(share / most if most else 0.0, bar), QUIET if left_out else ACCENT
                ),
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
