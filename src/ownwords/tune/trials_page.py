"""Renders trials.html: the search as one self-contained page, in the style of the report."""

from collections.abc import Sequence

from ownwords.archive.report import formatting as say
from ownwords.archive.report.html import Html, folded, join, table, tag
from ownwords.archive.report.page_template import render_page
from ownwords.archive.report.sections import PageSection
from ownwords.core.progress import duration
from ownwords.core.version import __version__
from ownwords.tune import plot
from ownwords.tune.axis import SearchAxis
from ownwords.tune.trial import TrialRecord, scored_trials
from ownwords.tune.verdict import TuneVerdict, percent

_OPEN_ROWS = 30
_KINDS = {
    "plan": "the plan's own settings",
    "spread": "spread evenly",
    "search": "from earlier results",
    "again": "again",
}


def render(
    name: str,
    axes: Sequence[SearchAxis],
    trials: Sequence[TrialRecord],
    verdict: TuneVerdict | None,
    settings: str = "",
) -> str:
    """Render the page; `verdict` is None while the search runs. `settings` are lines of TOML."""
    parts = [PageSection("trials", "Trial by trial", _history(trials, verdict))]
    if scored_trials(trials):
        parts.append(
            PageSection("ranges", "What each setting does", _ranges(axes, trials, verdict))
        )
    if settings:
        parts.append(PageSection("settings", "Use these settings", _settings(settings)))
    parts.append(PageSection("table", "All trials", _table(axes, trials)))
    return render_page(
        f"{say.plain(name, 120)}: the search for settings",
        "search",
        _masthead(name, trials, verdict),
        parts,
        tag("footer", tag("p", f"Made by ownwords {__version__}.")),
        more_style=__package__,
    )


def _masthead(name: str, trials: Sequence[TrialRecord], verdict: TuneVerdict | None) -> Html:
    sentences = verdict.sentences() if verdict else ("The search is running.",)
    return tag(
        "header",
        tag("p", "The search for settings", class_="kicker"),
        tag("h1", tag("bdi", say.plain(name, 120))),
        tag("p", sentences[0], class_="lede"),
        *(tag("p", sentence, class_="follow") for sentence in sentences[1:]),
        _totals(trials, verdict),
    )


def _totals(trials: Sequence[TrialRecord], verdict: TuneVerdict | None) -> Html:
    scored = scored_trials(trials)
    plan = next((trial for trial in scored if trial.kind == "plan"), None)
    choices = [trial for trial in scored if trial.kind != "again"]
    again = len(scored) - len(choices)
    spent = duration(sum(trial.seconds for trial in trials))
    figures = [
        (str(len(choices)), "choices tried", f"and {again} repetitions" if again else ""),
        (spent, "of training", ""),
        (f"{plan.score:.3f}" if plan else "–", "bits per byte, the plan's first", ""),
        (f"{choices[0].score:.3f}" if choices else "–", "bits per byte at best", "with one seed"),
    ]
    if verdict and verdict.gain is not None and verdict.low is not None:
        assert verdict.high is not None
        note = f"{percent(verdict.low)} to {percent(verdict.high)}"
        figures.append((percent(verdict.gain), "gained with fresh seeds", note))
    cells = (
        tag(
            "div",
            tag("dt", label),
            tag("dd", tag("b", figure), tag("small", note) if note else None),
        )
        for figure, label, note in figures
    )
    return tag("dl", *cells, class_="totals")


def _history(trials: Sequence[TrialRecord], verdict: TuneVerdict | None) -> Html:
    if not scored_trials(trials):
        return tag("p", "No trial has a score yet.")
    return join(
        tag(
            "p",
            "Lower is better. Each point is a whole training; the line shows the best so far, the"
            " dashed line the plan's own settings. Scores are bits per byte on the validation"
            " posts; the test posts were not read.",
        ),
        tag("figure", plot.history(trials, verdict.winner if verdict else 0)),
        plot.key(),
    )


def _ranges(
    axes: Sequence[SearchAxis], trials: Sequence[TrialRecord], verdict: TuneVerdict | None
) -> Html:
    charts = (
        tag(
            "figure",
            tag("h3", axis.means[:1].upper() + axis.means[1:]),
            plot.by_axis(axis, trials, verdict.winner if verdict else 0),
        )
        for axis in axes
    )
    return join(
        tag("p", "The dashed vertical line is the plan's choice."),
        tag("div", *charts, class_="charts"),
    )


def _settings(lines: str) -> Html:
    return join(
        tag("p", "To use the winning settings from now on, add to ownwords.toml in the workspace:"),
        # One element per line: line breaks inside an element would be removed.
        tag("pre", *_lines(lines)),
    )


def _lines(text: str) -> list[Html]:
    return [Html(tag("code", line) + "\n") if line else Html("\n") for line in text.splitlines()]


def _table(axes: Sequence[SearchAxis], trials: Sequence[TrialRecord]) -> Html:
    heads = ["Trial", "Bits per byte", *(axis.name for axis in axes), "Seed", "Time", "What"]
    rows = [_row(axes, trial) for trial in trials]
    more = rows[_OPEN_ROWS:]
    parts = [tag("div", table("All trials", heads, rows[:_OPEN_ROWS], ""), class_="across")]
    if more:
        further = tag("div", table("Further trials", heads, more, ""), class_="across")
        parts.append(folded(f"{len(more)} more", further))
    return join(*parts)


def _row(axes: Sequence[SearchAxis], trial: TrialRecord) -> list[str]:
    what = _KINDS[trial.kind] if trial.kind != "again" else f"trial {trial.repeats} again"
    if trial.state == "failed":
        what = f"{what}: failed, {say.plain(trial.error, 200)}"
    elif trial.state != "done":
        what = f"{what}: {trial.state}"
    values = [
        ("×" if axis.is_ratio else "") + f"{trial.settings[axis.name]:.3g}"
        if axis.name in trial.settings
        else ""
        for axis in axes
    ]
    return [
        str(trial.number),
        f"{trial.score:.4f}" if trial.score is not None else "–",
        *values,
        str(trial.seed),
        duration(trial.seconds) if trial.seconds else "",
        what,
    ]
