"""A line chart in characters."""

import math
from bisect import bisect_right
from collections.abc import Sequence

from rich.text import Text

# Colours that are readable on black and on white.
TRAINED, VALIDATED, QUIET, LOUD = "bright_blue", "magenta", "dim", "bold"

Point = tuple[float, float]  # (step, value)

_AXIS = 6  # columns of the scale on the left, its line included
# Braille: two columns of four dots in a character.
_ACROSS, _DOWN = 2, 4
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))


def line_chart(
    line: Sequence[Point],
    marks: Sequence[Point],
    *,
    steps: float,
    width: int,
    height: int,
    plain: bool = False,
) -> list[Text]:
    """Draw the line as dots with the marks on it: `height` rows and a row of steps, `width` wide.

    `steps` is where the run ends; what is still to come stays empty. `plain` uses ASCII. Returns no
    rows where there is nothing to draw or too little space.
    """
    columns = width - _AXIS
    if not (line or marks) or columns < 8 or height < 2:
        return []
    low, high = _range(line, marks)
    across, down = (1, 1) if plain else (_ACROSS, _DOWN)
    dots = _dots(line, steps, low, high, columns * across, height * down)
    places = {
        (
            min(columns - 1, int(step / max(steps, 1) * columns)),
            _row(value, low, high, height),
        )
        for step, value in marks
    }
    rows = []
    for y in range(height):
        label = {0: _figure(high), height - 1: _figure(low)}.get(y, "")
        row = Text(f"{label:>{_AXIS - 2}} ", style=QUIET)
        row.append("|" if plain else "┤" if label else "│", style=QUIET)
        for x in range(columns):
            if (x, y) in places:
                row.append("o" if plain else "●", style=VALIDATED)
            elif plain:
                row.append("." if (x, y) in dots else " ", style=TRAINED)
            else:
                row.append(_braille(dots, x, y), style=TRAINED)
        rows.append(row)
    rows.append(_scale(steps, columns))
    return rows


def _figure(value: float) -> str:
    """A number in four characters."""
    for digits, below in ((2, 9.995), (1, 99.95), (0, 9999.5)):
        if 0 <= value < below:
            return f"{value + 0.0:.{digits}f}"  # no minus before a zero
    return ">10k" if value > 0 else "< 0"


def _range(line: Sequence[Point], marks: Sequence[Point]) -> Point:
    """The range of values after the first tenth of the steps, whose fall would hide the rest."""
    later = [value for step, value in line if step >= 0.1 * line[-1][0]]
    values = [*later, *(value for step, value in marks if not later or step >= 0.1 * line[-1][0])]
    finite = [value for value in values if math.isfinite(value)] or [0.0]
    low, high = min(finite), max(finite)
    least = max(0.02, abs(high) * 0.01)  # less would magnify noise
    return low, max(high, low + least)


def _dots(
    line: Sequence[Point], steps: float, low: float, high: float, across: int, down: int
) -> set[tuple[int, int]]:
    points = [(step, value) for step, value in line if math.isfinite(value)]
    at = [step for step, _ in points]
    dots: set[tuple[int, int]] = set()
    before: int | None = None
    for x in range(across):
        step = (x + 0.5) / across * max(steps, 1)
        if not points or step < at[0] or step > at[-1]:
            continue
        y = _row(_value_at(points, at, step), low, high, down)
        # A steep curve stays one line.
        reached = range(min(y, before + 1), max(y, before - 1) + 1) if before is not None else (y,)
        dots.update((x, y) for y in reached)
        before = y
    return dots


def _value_at(points: Sequence[Point], at: Sequence[float], step: float) -> float:
    i = bisect_right(at, step)
    if i == len(at):
        return points[-1][1]
    (left, low), (right, high) = points[i - 1], points[i]
    return low + (high - low) * (step - left) / (right - left)


def _row(value: float, low: float, high: float, rows: int) -> int:
    """The row from the top, within the chart."""
    if not math.isfinite(value):
        return 0
    share = (value - low) / (high - low)
    return min(rows - 1, max(0, round((1 - share) * (rows - 1))))


def _braille(dots: set[tuple[int, int]], x: int, y: int) -> str:
    bits = sum(
        _DOTS[dy][dx]
        for dx in range(_ACROSS)
        for dy in range(_DOWN)
        if (x * _ACROSS + dx, y * _DOWN + dy) in dots
    )
    return chr(0x2800 + bits) if bits else " "


def _scale(steps: float, columns: int) -> Text:
    last = f"step {steps:,.0f}"
    first = "0" if len(last) < columns - 1 else ""
    shown = first + last.rjust(columns - len(first))[: columns - len(first)]
    return Text(" " * _AXIS + shown, style=QUIET)


def bar(share: float, width: int, *, plain: bool = False) -> str:
    """A horizontal bar of that share of the width."""
    eighths = round(max(0.0, min(1.0, share)) * width * 8) if math.isfinite(share) else 0
    if plain:
        return "#" * (eighths // 8)
    return "█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()
