"""The charts of a search as inline SVG, sized in percent: they fit any width."""

import math
from collections.abc import Iterator, Sequence

from ownwords.archive.report.html import Html, join, tag
from ownwords.tune.axis import SearchAxis
from ownwords.tune.trial import TrialRecord, done, searched

_HEIGHT, _ABOVE, _BELOW = 230, 14, 24  # px: of the points, and of what stands around them
_ACROSS = (5.0, 97.0)  # percent of the width, from the first point to the last
_DOT = 5  # px
_WORST = 0.75  # of the trials: what is much worse than that stands at the upper edge
_BEYOND = 1.6  # times as far from the best as that
_LEAST = 0.004  # of the score: a smaller range would make noise look like something


class Scale:
    """Scores to heights: the best low on the page, the worst at the upper edge."""

    def __init__(self, tried: Sequence[TrialRecord]) -> None:
        scores = sorted(_score(one) for one in done(tried))
        self.low, worst = scores[0], scores[-1]
        usual = scores[round(_WORST * (len(scores) - 1))]
        far = self.low + _BEYOND * (usual - self.low)
        self.high = max(min(worst, far), self.low * (1 + _LEAST))
        room = 0.08 * (self.high - self.low)
        self.low, self.high = self.low - room, self.high + room

    def y(self, score: float) -> float:
        """In px from the top."""
        share = (score - self.low) / (self.high - self.low)
        return _ABOVE + _HEIGHT * (1 - min(1.0, max(0.0, share)))

    def is_beyond(self, score: float) -> bool:
        """Whether it is worse than what can be shown."""
        return score > self.high

    def marks(self) -> list[float]:
        """Round numbers in between, about four."""
        step = 10.0 ** math.floor(math.log10((self.high - self.low) / 3))
        while (self.high - self.low) / step > 6:
            step *= 2 if round(step / 10.0 ** math.floor(math.log10(step))) != 2 else 2.5
        first = math.ceil(self.low / step)
        last = math.floor(self.high / step)
        return [number * step for number in range(first, last + 1)]


def history(tried: Sequence[TrialRecord], winner: int) -> Html:
    """Every trial in its order, and the best so far."""
    scale = Scale(tried)
    count = len(tried)

    def x(number: float) -> float:
        return _across((number - 0.5) / max(1, count))

    parts: list[Html | None] = [*_ground(scale, tried)]
    best: TrialRecord | None = None
    choices = searched(tried)
    for i, one in enumerate(choices):
        if one.score is not None and (best is None or one.score < _score(best)):
            best = one
        if best is not None:
            end = choices[i + 1].number if i + 1 < len(choices) else one.number + 0.5
            y = scale.y(_score(best))
            parts.append(_line("best", x(one.number), y, x(end), y))
    parts += [_point(one, x(one.number), scale, winner) for one in tried]
    for number in _few(count):
        parts.append(_text(str(number), x(number), _ABOVE + _HEIGHT + 18, "middle"))
    title = "Bits a byte of every trial, in the order they were made"
    return _svg("history", title, _told(tried), parts)


def by_axis(axis: SearchAxis, tried: Sequence[TrialRecord], winner: int) -> Html:
    """Every trial by its value of one thing that was searched over."""
    scale = Scale(tried)
    parts: list[Html | None] = [*_ground(scale, tried)]
    plan = _across(axis.share(axis.plan))
    parts.append(_line("plan-line", plan, _ABOVE, plan, _ABOVE + _HEIGHT))
    parts += [
        _point(one, _across(axis.share(one.settings[axis.name])), scale, winner)
        for one in tried
        if axis.name in one.settings
    ]
    for value in (axis.low, axis.at(0.5), axis.high):
        said = f"×{value:.2g}" if axis.is_ratio else f"{value:.2g}"
        place = _across(axis.share(value))
        parts.append(_text(said, place, _ABOVE + _HEIGHT + 18, "middle"))
    title = f"Bits a byte by {axis.means}"
    return _svg(f"by-{axis.name}", title, _told(tried), parts)


def key() -> Html:
    """What the points stand for."""
    looks = (
        ("plan", "the plan's own choice"),
        ("", "another choice"),
        ("again", "tried again with another seed"),
        ("winner", "what is taken"),
    )
    items = (
        tag(
            "span",
            tag("svg", _circle(look, "7", 7.0), class_="plot", width="14", height="14"),
            said,
        )
        for look, said in looks
    )
    return tag("p", *items, class_="quiet key")


def _ground(scale: Scale, tried: Sequence[TrialRecord]) -> Iterator[Html]:
    digits = 3 if scale.high - scale.low < 0.06 else 2
    for mark in scale.marks():
        y = scale.y(mark)
        yield tag("line", x1="0", x2="100%", y1=_px(y), y2=_px(y), class_="grid")
        yield tag("text", f"{mark:.{digits}f}", x="0", y=_px(y - 4))
    for one in tried:
        if one.kind == "plan" and one.score is not None:
            y = scale.y(one.score)
            yield tag("line", x1="0", x2="100%", y1=_px(y), y2=_px(y), class_="plan-line")


def _point(one: TrialRecord, x: float, scale: Scale, winner: int) -> Html | None:
    if one.score is None:
        if one.state != "failed":
            return None
        y = _ABOVE + _HEIGHT
        failed = _line("failed", x, y - 9, x, y)
        return tag("g", tag("title", f"Trial {one.number} failed: {one.why}"), failed)
    look = []
    if winner in (one.number, one.of):
        look.append("winner" if one.kind != "again" else "")
    if one.kind == "plan" or one.of == 1:
        look.append("plan")
    if one.kind == "again":
        look.append("again")
    if scale.is_beyond(one.score):
        look.append("beyond")
    said = f"Trial {one.number}, seed {one.seed}: {one.score:.4f}"
    return _circle(" ".join(filter(None, look)), _percent(x), scale.y(one.score), said)


def _circle(look: str, x: str, y: float, said: str = "") -> Html:
    inside = tag("title", said) if said else None
    return tag("circle", inside, class_=look or None, cx=x, cy=_px(y), r=str(_DOT))


def _svg(name: str, title: str, told: str, parts: Sequence[Html | None]) -> Html:
    return tag(
        "svg",
        tag("title", title, id=f"{name}-title"),
        tag("desc", told, id=f"{name}-desc"),
        join(*parts),
        class_="plot",
        role="img",
        aria_labelledby=f"{name}-title {name}-desc",
        width="100%",
        height=str(_ABOVE + _HEIGHT + _BELOW),
    )


def _told(tried: Sequence[TrialRecord]) -> str:
    scored = done(tried)
    return (
        f"{len(scored)} trials with a score, from {_score(scored[0]):.3f} to"
        f" {_score(scored[-1]):.3f} bits a byte. The table below has them all."
    )


def _few(count: int) -> list[int]:
    """Numbers to write below the points: the first, the last, and some between."""
    step = max(1, math.ceil(count / 6))
    return sorted({1, *range(step, count + 1, step)} - ({count} if count < step else set()))


def _line(look: str, x1: float, y1: float, x2: float, y2: float) -> Html:
    return tag("line", class_=look, x1=_percent(x1), y1=_px(y1), x2=_percent(x2), y2=_px(y2))


def _text(text: str, x: float, y: float, anchor: str) -> Html:
    return tag("text", text, x=_percent(x), y=_px(y), text_anchor=anchor)


def _across(share: float) -> float:
    low, high = _ACROSS
    return low + (high - low) * share


def _score(one: TrialRecord) -> float:
    assert one.score is not None
    return one.score


def _percent(value: float) -> str:
    return f"{value:.3f}".rstrip("0").rstrip(".") + "%"


def _px(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
