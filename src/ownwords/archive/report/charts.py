"""Small inline SVG charts, sized in percent to fit any width without scaling the text."""

import math

from ownwords.archive.report.formatting import compact, count, percent, ratio
from ownwords.archive.report.html import Html, join, tag
from ownwords.archive.report.summary import Share, YearBar

# Heights in pixels: the tallest column, the number above it, the line of years, the longest column
# below the axis, the number below that.
_COLUMN_PX, _NUMBER_PX, _YEARS_PX, _POSTS_PX, _BELOW_PX = 132, 20, 26, 34, 16
_AXIS_PX = _NUMBER_PX + _COLUMN_PX
_WIDE_MAX, _NARROW_MAX = 18, 8  # numbers side by side on a wide page, on a phone


def stacked_bar(name: str, title: str, shares: list[Share]) -> Html:
    """A single stacked bar of all shares; `name` must be unique on the page."""
    total = sum(share.value for share in shares) or 1
    rects, left = [], 0.0
    for share in shares:
        width = 100 * share.value / total
        rects.append(
            tag(
                "rect",
                tag("title", share.label),
                class_=share.tone,
                x=_css_percent(left),
                width=_css_percent(width),
                height="100%",
                fill_opacity=None if share.strength == 1 else f"{share.strength:.2f}",
                fill=f"url(#{name}-hatch)" if share.tone == "out" else None,
            )
        )
        left += width
    description = ", ".join(f"{share.label} {percent(share.value / total)}" for share in shares)
    hatch = _hatch(name) if any(share.tone == "out" for share in shares) else None
    return _svg(name, "stack", title, f"{description}.", 44, hatch, *rects)


def _hatch(name: str) -> Html:
    """The hatch pattern for words that are left out of training."""
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


def share_labels(shares: list[Share], narrowest: float = 0.11) -> Html:
    """Labels aligned with the parts of a bar that are wide enough for one."""
    total = sum(share.value for share in shares) or 1
    cells: list[Html] = []
    narrow: list[Share] = []
    for share in [*shares, None]:
        if share and share.value / total < narrowest:
            narrow.append(share)
            continue
        if narrow:
            width = sum(part.value for part in narrow) / total
            # Adjacent parts too narrow for their own labels share one.
            label = f"{len(narrow)} texts" if width >= narrowest else ""
            cells.append(_label(label, width))
            narrow = []
        if share:
            cells.append(_label(share.label, share.value / total))
    return tag("div", *cells, class_="slice-labels", aria_hidden="true")


def _label(text: str, share: float) -> Html:
    figure = percent(share) if text else ""
    style = f"width:{_css_percent(100 * share)}"
    return tag("span", tag("b", figure), tag("bdi", text), style=style)


def share_line(share: float, tone: str) -> Html:
    """A thin decorative bar under a title, whose number is shown beside it."""
    width = max(0.0, min(1.0, share)) * 100
    return tag(
        "span",
        tag("i", class_=tone, style=f"width:{width:.2f}%"),
        class_="line",
        aria_hidden="true",
    )


def year_columns(name: str, title: str, description: str, years: list[YearBar]) -> Html:
    """A column chart by year: words above the axis of years, posts below it."""
    # With few years the columns keep a sensible width instead of filling the page.
    slot = 100 / max(len(years), 8)
    words = [bar.words for bar in years]
    posts = [bar.posts for bar in years]
    parts: list[Html | None] = [_hatch(name)] if any(bar.left_out for bar in years) else []
    for i, bar in enumerate(years):
        rise = _COLUMN_PX * bar.words / (max(words) or 1)
        hang = _POSTS_PX * bar.posts / (max(posts) or 1)
        x, width = _css_percent(slot * (i + 0.16)), _css_percent(slot * 0.68)
        parts += _column(name, bar, x, width, rise, hang)
        middle = _css_percent(slot * (i + 0.5))
        if (class_ := _number_class(words, i)) is not None:
            parts.append(_text(compact(words[i]), middle, _AXIS_PX - rise - 6, class_))
        if (class_ := _number_class(posts, i)) is not None:
            y = _AXIS_PX + _YEARS_PX + hang + 13
            parts.append(_text(f"{posts[i]:,}", middle, y, f"quiet {class_}"))
        if i % math.ceil(len(years) / _WIDE_MAX) == 0:
            class_ = "" if i % math.ceil(len(years) / _NARROW_MAX) == 0 else "wide"
            parts.append(_text(str(bar.year), middle, _AXIS_PX + 17, f"year {class_}"))
    rule = tag("line", x1="0", x2="100%", y1=str(_AXIS_PX), y2=str(_AXIS_PX), class_="axis")
    height = _AXIS_PX + _YEARS_PX + _POSTS_PX + _BELOW_PX
    return _svg(name, "columns", title, description, height, rule, *parts)


def _number_class(values: list[int], i: int) -> str | None:
    """The class of a column's number: "" shows it always, "wide" on wide pages; None hides it."""
    # If not all numbers fit, the highest is shown for scale.
    if values[i] and (len(values) <= _NARROW_MAX or i == values.index(max(values))):
        return ""
    return "wide" if values[i] and len(values) <= _WIDE_MAX else None


def _column(
    name: str, bar: YearBar, x: str, width: str, rise: float, hang: float
) -> list[Html | None]:
    out = rise * min(1.0, ratio(bar.left_out, bar.words))
    top = _AXIS_PX - rise

    def part(label: str, class_: str, y: float, height: float, fill: str | None = None) -> Html:
        return tag(
            "rect",
            tag("title", f"{bar.year}: {label}"),
            class_=class_,
            x=x,
            width=width,
            y=f"{y:.1f}",
            height=f"{height:.1f}",
            fill=fill,
        )

    hatch = f"url(#{name}-hatch)"
    left_out = f"{count(bar.left_out, 'word')} left out"
    return [
        part(count(bar.words, "word"), "own", top + out, rise - out),
        part(left_out, "out", top, out, hatch) if out else None,
        part(count(bar.posts, "post"), "posts", _AXIS_PX + _YEARS_PX, hang),
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


def _css_percent(value: float) -> str:
    return f"{value:.3f}".rstrip("0").rstrip(".") + "%"
