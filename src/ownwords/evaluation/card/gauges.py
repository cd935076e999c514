"""Figures as bars with the range they are sure to: rows of a table, for those who listen too."""

from collections.abc import Sequence
from dataclasses import dataclass

from ownwords.archive.report.html import Html, join, tag


@dataclass(frozen=True, slots=True)
class Gauge:
    """A figure beside others of its kind; `low` and `high` are None where nobody can say."""

    label: str
    value: float
    said: str  # the figure as it is written
    low: float | None = None
    high: float | None = None
    span: str = ""  # the range as it is written
    note: str = ""
    is_ours: bool = False


@dataclass(frozen=True, slots=True)
class Panel:
    """Some of them under one heading, with one plain sentence of what they mean."""

    title: str
    meaning: str
    gauges: tuple[Gauge, ...]
    most: float = 0.0  # where the scale ends; at the largest unless given

    @property
    def top(self) -> float:
        largest = max((max(one.value, one.high or 0.0) for one in self.gauges), default=0.0)
        return self.most or largest or 1.0


def drawn(panels: Sequence[Panel]) -> Html:
    """Heading, sentence and table of each, side by side where there is the room."""
    return tag("div", *(tag("div", *_drawn(panel)) for panel in panels), class_="panels")


def drawn_wide(panels: Sequence[Panel]) -> Html:
    """The same one below the other, for what is compared from panel to panel."""
    return join(*(part for panel in panels for part in _drawn(panel)))


def _drawn(panel: Panel) -> tuple[Html, Html, Html]:
    return tag("h3", panel.title), tag("p", panel.meaning), _table(panel)


def _table(panel: Panel) -> Html:
    body = (
        tag(
            "tr",
            tag(
                "th",
                tag("span", row.label, class_="label ours" if row.is_ours else "label"),
                _bar(row, panel.top),
                tag("span", _below(row), class_="quiet") if _below(row) else None,
                scope="row",
            ),
            tag("td", row.said, class_="ours" if row.is_ours else None),
        )
        for row in panel.gauges
    )
    heads = tag("tr", tag("th", "Of", scope="col"), tag("th", "Figure", scope="col"))
    return tag(
        "table",
        tag("caption", panel.title),
        tag("thead", heads),
        tag("tbody", *body),
        class_="gauges",
    )


def _below(row: Gauge) -> str:
    return " · ".join(part for part in (row.span, row.note) if part)


def _bar(row: Gauge, top: float) -> Html:
    whisker = None
    if row.low is not None and row.high is not None:
        low, high = _percent(row.low, top), _percent(row.high, top)
        whisker = tag("b", style=f"left:{low:.2f}%;width:{high - low:.2f}%")
    width = f"width:{_percent(row.value, top):.2f}%"
    return tag(
        "span",
        tag("i", class_="own" if row.is_ours else "k3", style=width),
        whisker,
        class_="gauge",
        aria_hidden="true",
    )


def _percent(value: float, top: float) -> float:
    return 100 * min(1.0, max(0.0, value / top))
