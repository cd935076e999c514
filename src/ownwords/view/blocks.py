"""Results as blocks: figures, sentences, tables and charts, independent of where they are shown.

`html` draws them as a file or as a part of the served page, `terminal` in a terminal.
"""

from collections.abc import Sequence
from typing import Literal
from urllib.parse import quote

import msgspec

Tone = Literal["own", "rest", "k1", "k2", "k3", "k4", "out"]


class Span(msgspec.Struct, frozen=True, omit_defaults=True):
    """A part of a line: `url` links it to the web, `page` to a place in the served page."""

    text: str
    style: Literal["", "title", "quiet", "code", "quote", "strong"] = ""
    url: str = ""
    page: str = ""


Line = str | Span | Sequence[str | Span]


class Block(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="block"):
    """A part of a view. A shortened view in the terminal leaves out a `detail`."""

    detail: bool = False


class Paragraph(Block, tag="paragraph", frozen=True):
    """One paragraph; a statement is the main sentence of a section."""

    line: Line = ""
    style: Literal["", "lede", "follow", "statement", "quiet"] = ""


class Heading(Block, tag="heading", frozen=True):
    """A heading within a section."""

    text: str = ""


class Figure(msgspec.Struct, frozen=True):
    """A large figure, what it counts, and a remark."""

    figure: str
    label: str
    note: str = ""


class Figures(Block, tag="figures", frozen=True):
    """Large figures, side by side."""

    rows: Sequence[Figure] = ()


class Pairs(Block, tag="pairs", frozen=True):
    """Labels and their values."""

    rows: Sequence[tuple[str, Line]] = ()


class Item(msgspec.Struct, frozen=True, omit_defaults=True):
    """An entry of a list: label and aside beside the title; lines, code and blocks below it."""

    title: Line
    label: str = ""
    aside: str = ""
    lines: Sequence[Line] = ()
    code: str = ""
    blocks: Sequence[Block] = ()
    is_marked: bool = False  # the label needs attention


class Items(Block, tag="items", frozen=True):
    """A list; `total` counts the entries that are not given, too."""

    rows: Sequence[Item] = ()
    style: Literal["stack", "decisions", "notes", "samples", "passages"] = "stack"
    total: int = 0


class Table(Block, tag="table", frozen=True):
    """A table whose first column names the row. The columns hold figures or words."""

    caption: str = ""
    heads: Sequence[str] = ()
    rows: Sequence[Sequence[Line]] = ()
    style: Literal["figures", "words"] = "figures"
    total: int = 0


class Share(msgspec.Struct, frozen=True, omit_defaults=True):
    """A part of a whole: its number, its colour, and cells between label and number."""

    label: Line
    value: int
    tone: Tone = "own"
    below: str = ""
    cells: Sequence[str] = ()


class Shares(Block, tag="shares", frozen=True):
    """Parts of a whole as a table, below a stacked bar or with a bar in each row."""

    title: str = ""
    rows: Sequence[Share] = ()
    heads: Sequence[str] = ()
    form: Literal["stack", "rows"] = "stack"


class Gauge(msgspec.Struct, frozen=True, omit_defaults=True):
    """A figure to compare with others, with its confidence interval if that is known."""

    label: str
    value: float
    text: str  # the value, formatted
    low: float | None = None
    high: float | None = None
    span: str = ""  # the range, formatted
    note: str = ""
    is_ours: bool = False


class Gauges(Block, tag="gauges", frozen=True):
    """Figures of one kind, as bars."""

    title: str = ""
    meaning: str = ""
    rows: Sequence[Gauge] = ()
    scale_end: float = 0.0  # 0: the largest value

    @property
    def top(self) -> float:
        largest = max((max(row.value, row.high or 0.0) for row in self.rows), default=0.0)
        return self.scale_end or largest or 1.0


class Quote(Block, tag="quote", frozen=True):
    """Quoted text with its source; `rest` is folded."""

    cite: Line = ""
    lines: Sequence[Line] = ()
    rest: Sequence[Line] = ()
    is_ours: bool = False


class Beside(Block, tag="beside", frozen=True):
    """Blocks side by side where there is room."""

    blocks: Sequence[Block] = ()


class Code(Block, tag="code", frozen=True):
    """Text to copy, or the output of a program."""

    text: str = ""


class Fold(Block, tag="fold", frozen=True):
    """Blocks that are folded under a summary; a terminal leaves them out."""

    summary: str = ""
    blocks: Sequence[Block] = ()
    is_long: bool = False  # not printed on paper


class Aside(Block, tag="aside", frozen=True):
    """A remark that is set apart, such as how to change something."""

    title: str = ""
    blocks: Sequence[Block] = ()


class Section(msgspec.Struct, frozen=True):
    """A part of a view with a heading."""

    anchor: str
    title: str
    blocks: Sequence[Block]


class View(msgspec.Struct, frozen=True, kw_only=True):
    """A whole result: its title, its main sentences and figures, its sections."""

    kind: Literal["report", "scorecard"]
    title: str  # of the document
    kicker: str  # the small line above the heading
    heading: Line
    is_bad: bool = False  # whether the heading is bad news
    intro: Sequence[Block] = ()
    sections: Sequence[Section] = ()
    footer: Sequence[Line] = ()
    command: str = ""  # prints, in a terminal, the entries left out here


def post_page(id_: str) -> str:
    """Return the place of a post in the served page."""
    return f"/posts/post/{quote(id_, safe='')}"


def spans(line: Line) -> list[Span]:
    """Return a line as a list of spans."""
    parts = [line] if isinstance(line, str | Span) else line
    return [Span(part) if isinstance(part, str) else part for part in parts]


def text_of(line: Line) -> str:
    """Return the text of a line, without its styles."""
    return "".join(f"“{s.text}”" if s.style == "quote" else s.text for s in spans(line))
