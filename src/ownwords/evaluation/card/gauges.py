"""Figures as bars with confidence intervals, in table rows that screen readers can read."""

from collections.abc import Sequence
from dataclasses import dataclass

from ownwords.archive.report.html import Html, join, tag


@dataclass(frozen=True, slots=True)
class Gauge:
    """A figure to compare with others; `low` and `high` are None if they are unknown."""

    label: str
    value: float
    text: str  # the value, formatted
    low: float | None = None
    high: float | None = None
    span: str = ""  # the range, formatted
    note: str = ""
    is_ours: bool = False


@dataclass(frozen=True, slots=True)
class Panel:
    """Gauges under one heading, with one sentence on what they mean."""

    title: str
    meaning: str
    gauges: tuple[Gauge, ...]
    scale_end: float = 0.0  # 0: the largest value

    @property
    def top(self) -> float:
        largest = max((max(row.value, row.high or 0.0) for row in self.gauges), default=0.0)
        return self.scale_end or largest or 1.0


def render_panels(panels: Sequence[Panel]) -> Html:
    """Render heading, sentence and table of each panel, side by side on wide pages."""
    return tag("div", *(tag("div", *_render(panel)) for panel in panels), class_="panels")


def render_panels_stacked(panels: Sequence[Panel]) -> Html:
    """Render panels below each other, for panels that are compared."""
    return join(*(part for panel in panels for part in _render(panel)))


def _render(panel: Panel) -> tuple[Html, Html, Html]:
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
            tag("td", row.text, class_="ours" if row.is_ours else None),
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
