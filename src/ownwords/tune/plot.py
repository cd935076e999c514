"""The charts of a search as inline SVG, in percent of the width."""

import math
from collections.abc import Iterator, Sequence

from ownwords.archive.report.html import Html, join, tag
from ownwords.tune.axis import SearchAxis
from ownwords.tune.trial import TrialRecord, choices, scored_trials

_HEIGHT, _ABOVE, _BELOW = 230, 14, 24  # px: the plot area, and the margins above and below it
_ACROSS = (5.0, 97.0)  # percent of the width: the first and the last point
_DOT = 5  # px
_USUAL_SHARE = 0.75  # quantile of the scores that the scale is fitted to
_FARTHEST = 1.6  # times the range up to that quantile; worse scores are drawn at the upper edge
_LEAST_RANGE = 0.004  # share of the best score; a smaller range would magnify noise


class Scale:
    """Map scores to y coordinates: lower scores, which are better, are lower on the page."""

    def __init__(self, trials: Sequence[TrialRecord]) -> None:
        scores = sorted(_score(trial) for trial in scored_trials(trials))
        self.low, worst = scores[0], scores[-1]
        usual = scores[round(_USUAL_SHARE * (len(scores) - 1))]
        far = self.low + _FARTHEST * (usual - self.low)
        self.high = max(min(worst, far), self.low * (1 + _LEAST_RANGE))
        margin = 0.08 * (self.high - self.low)
        self.low, self.high = self.low - margin, self.high + margin

    def y(self, score: float) -> float:
        """The y coordinate of a score, in px from the top."""
        share = (score - self.low) / (self.high - self.low)
        return _ABOVE + _HEIGHT * (1 - min(1.0, max(0.0, share)))

    def is_beyond(self, score: float) -> bool:
        """Whether the score is above the scale, so that it is drawn at the upper edge."""
        return score > self.high

    def marks(self) -> list[float]:
        """About four round numbers in the range, for the grid lines."""
        step = 10.0 ** math.floor(math.log10((self.high - self.low) / 3))
        while (self.high - self.low) / step > 6:
            step *= 2 if round(step / 10.0 ** math.floor(math.log10(step))) != 2 else 2.5
        first = math.ceil(self.low / step)
        last = math.floor(self.high / step)
        return [number * step for number in range(first, last + 1)]


def history(trials: Sequence[TrialRecord], winner: int) -> Html:
    """Plot every trial's score in order, with a line for the best so far."""
    scale = Scale(trials)
    count = len(trials)

    def x(number: float) -> float:
        return _across((number - 0.5) / max(1, count))

    parts: list[Html | None] = [*_ground(scale, trials)]
    best: TrialRecord | None = None
    choice_list = choices(trials)
    for i, trial in enumerate(choice_list):
        if trial.score is not None and (best is None or trial.score < _score(best)):
            best = trial
        if best is not None:
            end = choice_list[i + 1].number if i + 1 < len(choice_list) else trial.number + 0.5
            y = scale.y(_score(best))
            parts.append(_line("best", x(trial.number), y, x(end), y))
    parts += [_point(trial, x(trial.number), scale, winner) for trial in trials]
    for number in _few(count):
        parts.append(_text(str(number), x(number), _ABOVE + _HEIGHT + 18, "middle"))
    title = "Bits per byte of every trial, in order"
    return _svg("history", title, _description(trials), parts)


def by_axis(axis: SearchAxis, trials: Sequence[TrialRecord], winner: int) -> Html:
    """Plot every trial's score against its value on one axis."""
    scale = Scale(trials)
    parts: list[Html | None] = [*_ground(scale, trials)]
    plan = _across(axis.share(axis.plan))
    parts.append(_line("plan-line", plan, _ABOVE, plan, _ABOVE + _HEIGHT))
    parts += [
        _point(trial, _across(axis.share(trial.settings[axis.name])), scale, winner)
        for trial in trials
        if axis.name in trial.settings
    ]
    for value in (axis.low, axis.at(0.5), axis.high):
        label = f"×{value:.2g}" if axis.is_ratio else f"{value:.2g}"
        place = _across(axis.share(value))
        parts.append(_text(label, place, _ABOVE + _HEIGHT + 18, "middle"))
    title = f"Bits per byte by {axis.means}"
    return _svg(f"by-{axis.name}", title, _description(trials), parts)


def key() -> Html:
    """The legend of the points."""
    looks = (
        ("plan", "the plan's own settings"),
        ("", "another choice"),
        ("again", "repeated with another seed"),
        ("winner", "the winner"),
    )
    items = (
        tag(
            "span",
            tag("svg", _circle(look, "7", 7.0), class_="plot", width="14", height="14"),
            label,
        )
        for look, label in looks
    )
    return tag("p", *items, class_="quiet key")


def _ground(scale: Scale, trials: Sequence[TrialRecord]) -> Iterator[Html]:
    digits = 3 if scale.high - scale.low < 0.06 else 2
    for mark in scale.marks():
        y = scale.y(mark)
        yield tag("line", x1="0", x2="100%", y1=_px(y), y2=_px(y), class_="grid")
        yield tag("text", f"{mark:.{digits}f}", x="0", y=_px(y - 4))
    for trial in trials:
        if trial.kind == "plan" and trial.score is not None:
            y = scale.y(trial.score)
            yield tag("line", x1="0", x2="100%", y1=_px(y), y2=_px(y), class_="plan-line")


def _point(trial: TrialRecord, x: float, scale: Scale, winner: int) -> Html | None:
    if trial.score is None:
        if trial.state != "failed":
            return None
        y = _ABOVE + _HEIGHT
        failed = _line("failed", x, y - 9, x, y)
        return tag("g", tag("title", f"Trial {trial.number} failed: {trial.error}"), failed)
    look = []
    if winner in (trial.number, trial.repeats):
        look.append("winner" if trial.kind != "again" else "")
    if trial.kind == "plan" or trial.repeats == 1:
        look.append("plan")
    if trial.kind == "again":
        look.append("again")
    if scale.is_beyond(trial.score):
        look.append("beyond")
    title = f"Trial {trial.number}, seed {trial.seed}: {trial.score:.4f}"
    return _circle(" ".join(filter(None, look)), _percent(x), scale.y(trial.score), title)


def _circle(look: str, x: str, y: float, title: str = "") -> Html:
    inside = tag("title", title) if title else None
    return tag("circle", inside, class_=look or None, cx=x, cy=_px(y), r=str(_DOT))


def _svg(name: str, title: str, description: str, parts: Sequence[Html | None]) -> Html:
    return tag(
        "svg",
        tag("title", title, id=f"{name}-title"),
        tag("desc", description, id=f"{name}-desc"),
        join(*parts),
        class_="plot",
        role="img",
        aria_labelledby=f"{name}-title {name}-desc",
        width="100%",
        height=str(_ABOVE + _HEIGHT + _BELOW),
    )


def _description(trials: Sequence[TrialRecord]) -> str:
    scored = scored_trials(trials)
    return (
        f"{len(scored)} trials with a score, from {_score(scored[0]):.3f} to"
        f" {_score(scored[-1]):.3f} bits per byte. The table below has them all."
    )


def _few(count: int) -> list[int]:
    """Numbers to label: the first, the last, and some in between."""
    step = max(1, math.ceil(count / 6))
    return sorted({1, *range(step, count + 1, step)} - ({count} if count < step else set()))


def _line(look: str, x1: float, y1: float, x2: float, y2: float) -> Html:
    return tag("line", class_=look, x1=_percent(x1), y1=_px(y1), x2=_percent(x2), y2=_px(y2))


def _text(text: str, x: float, y: float, anchor: str) -> Html:
    return tag("text", text, x=_percent(x), y=_px(y), text_anchor=anchor)


def _across(share: float) -> float:
    low, high = _ACROSS
    return low + (high - low) * share


def _score(trial: TrialRecord) -> float:
    assert trial.score is not None
    return trial.score


def _percent(value: float) -> str:
    return f"{value:.3f}".rstrip("0").rstrip(".") + "%"


def _px(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
