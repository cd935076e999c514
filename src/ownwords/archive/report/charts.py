"""Small charts as inline SVG, sized in percent: they fit any width without shrinking type."""

import math
from dataclasses import dataclass

from ownwords.archive.report.formatting import compact, count, percent, ratio
from ownwords.archive.report.html import Html, join, tag

_COLUMNS = 132  # px: height of the tallest column
_ABOVE = 20  # px: room for the number above it
_AXIS_AT = _ABOVE + _COLUMNS
_AXIS = 26  # px: the line of years
_HANGING = 34  # px: height of the longest column below the axis
_BELOW = 16
_MOST_WIDE, _MOST_NARROW = 18, 8  # numbers side by side on a wide page, on a phone


@dataclass(frozen=True, slots=True)
class YearColumn:
    """A year: its posts, its words, and how many of these words were left out."""

    year: int
    posts: int
    words: int
    out: int


@dataclass(frozen=True, slots=True)
class BarSlice:
    """A part of a bar: its value, its look (a class of the stylesheet), its depth of colour."""

    label: str
    value: float
    tone: str = "own"
    strength: float = 1.0
    note: str = ""  # its share, for people


def stacked_bar(name: str, title: str, description: str, slices: list[BarSlice]) -> Html:
    """One bar of all slices. `name` is unique on the page; its numbers stand near it as text."""
    total = sum(part.value for part in slices) or 1.0
    rects, at = [], 0.0
    for part in slices:
        width = 100 * part.value / total
        rects.append(
            tag(
                "rect",
                tag("title", part.label),
                class_=part.tone,
                x=_percent(at),
                width=_percent(width),
                height="100%",
                fill_opacity=None if part.strength == 1 else f"{part.strength:.2f}",
                fill=f"url(#{name}-hatch)" if part.tone == "out" else None,
            )
        )
        at += width
    hatch = _hatch(name) if any(part.tone == "out" for part in slices) else None
    return _svg(name, "stack", title, description, 44, hatch, *rects)


def _hatch(name: str) -> Html:
    """What is left out is hatched, not coloured: it is there, and it does not count."""
    return tag(
        "defs",
        tag(
            "pattern",
            tag("rect", width="6", height="6", class_="hatch-ground"),
            tag("path", d="M-1,7 L7,-1 M-1,1 L1,-1 M5,7 L7,5", class_="hatch-line"),
            id=f"{name}-hatch",
            width="6",
            height="6",
            patternUnits="userSpaceOnUse",
        ),
    )


def slice_labels(slices: list[BarSlice], room: float = 0.11) -> Html:
    """Labels in line with the slices of a bar, where there is the room for them."""
    total = sum(part.value for part in slices) or 1.0
    cells: list[Html] = []
    narrow: list[BarSlice] = []
    for part in [*slices, None]:
        if part and part.value / total < room:
            narrow.append(part)
            continue
        if narrow:
            share = sum(each.value for each in narrow) / total
            # Several slices too narrow for a label of their own share one.
            together = (percent(share), f"{len(narrow)} texts") if share >= room else ("", "")
            cells.append(_label(*together, share))
            narrow = []
        if part:
            cells.append(_label(part.note, part.label, part.value / total))
    return tag("div", *cells, class_="slice-labels", aria_hidden="true")


def _label(figure: str, name: str, share: float) -> Html:
    return tag("span", tag("b", figure), tag("bdi", name), style=f"width:{_percent(100 * share)}")


def share_line(share: float, tone: str) -> Html:
    """A thin bar under a title; decoration, as its number stands beside it."""
    width = max(0.0, min(1.0, share)) * 100
    return tag(
        "span",
        tag("i", class_=tone, style=f"width:{width:.2f}%"),
        class_="line",
        aria_hidden="true",
    )


def year_columns(name: str, title: str, description: str, years: list[YearColumn]) -> Html:
    """Words rise above the line of years, posts hang below it."""
    # With few years the columns keep a sensible width instead of filling the page.
    slot = 100 / max(len(years), 8)
    words = [column.words for column in years]
    posts = [column.posts for column in years]
    parts: list[Html | None] = [_hatch(name)] if any(column.out for column in years) else []
    for i, column in enumerate(years):
        rise = _COLUMNS * column.words / (max(words) or 1)
        hang = _HANGING * column.posts / (max(posts) or 1)
        x, width = _percent(slot * (i + 0.16)), _percent(slot * 0.68)
        parts += _column(name, column, x, width, rise, hang)
        middle = _percent(slot * (i + 0.5))
        if (room := _room(words, i)) is not None:
            parts.append(_text(compact(words[i]), middle, _AXIS_AT - rise - 6, room))
        if (room := _room(posts, i)) is not None:
            y = _AXIS_AT + _AXIS + hang + 13
            parts.append(_text(f"{posts[i]:,}", middle, y, f"quiet {room}"))
        if i % math.ceil(len(years) / _MOST_WIDE) == 0:
            room = "" if i % math.ceil(len(years) / _MOST_NARROW) == 0 else "wide"
            parts.append(_text(str(column.year), middle, _AXIS_AT + 17, f"year {room}"))
    rule = tag("line", x1="0", x2="100%", y1=str(_AXIS_AT), y2=str(_AXIS_AT), class_="axis")
    height = _AXIS_AT + _AXIS + _HANGING + _BELOW
    return _svg(name, "columns", title, description, height, rule, *parts)


def _room(values: list[int], i: int) -> str | None:
    """Where the number of a column is shown: "" everywhere, "wide" on wide pages, None nowhere."""
    # Where there is no room for every number, the highest speaks for the scale.
    if values[i] and (len(values) <= _MOST_NARROW or i == values.index(max(values))):
        return ""
    return "wide" if values[i] and len(values) <= _MOST_WIDE else None


def _column(
    name: str, column: YearColumn, x: str, width: str, rise: float, hang: float
) -> list[Html | None]:
    out = rise * min(1.0, ratio(column.out, column.words))
    top = _AXIS_AT - rise

    def part(said: str, look: str, y: float, height: float, fill: str | None = None) -> Html:
        return tag(
            "rect",
            tag("title", f"{column.year}: {said}"),
            class_=look,
            x=x,
            width=width,
            y=f"{y:.1f}",
            height=f"{height:.1f}",
            fill=fill,
        )

    hatch = f"url(#{name}-hatch)"
    return [
        part(count(column.words, "word"), "own", top + out, rise - out),
        part(f"{count(column.out, 'word')} left out", "out", top, out, hatch) if out else None,
        part(count(column.posts, "post"), "posts", _AXIS_AT + _AXIS, hang),
    ]


def _text(text: str, x: str, y: float, class_: str) -> Html:
    return tag("text", text, x=x, y=f"{y:.1f}", class_=class_.strip())


def _svg(
    name: str, class_: str, title: str, description: str, height: int, *children: Html | None
) -> Html:
    return tag(
        "svg",
        tag("title", title, id=f"{name}-title"),
        tag("desc", description, id=f"{name}-desc"),
        join(*children),
        class_=class_,
        role="img",
        aria_labelledby=f"{name}-title {name}-desc",
        width="100%",
        height=str(height),
    )


def _percent(value: float) -> str:
    return f"{value:.3f}".rstrip("0").rstrip(".") + "%"
