"""trials.html: the search as one page that needs nothing else, in the look of the report."""

from collections.abc import Sequence

from ownwords.archive.report import formatting as say
from ownwords.archive.report.html import Html, folded, join, table, tag
from ownwords.archive.report.page_template import render_page
from ownwords.archive.report.sections import PageSection
from ownwords.core.progress import duration
from ownwords.core.version import __version__
from ownwords.tune import plot
from ownwords.tune.axis import SearchAxis
from ownwords.tune.trial import TrialRecord, done
from ownwords.tune.verdict import TuneVerdict, percent

_AT_ONCE = 30  # rows of the table that are open
_KINDS = {
    "plan": "the plan's own",
    "spread": "spread evenly",
    "search": "from what came before",
    "again": "again",
}


def render(
    name: str,
    axes: Sequence[SearchAxis],
    tried: Sequence[TrialRecord],
    verdict: TuneVerdict | None,
    settings: str = "",
) -> str:
    """The page; without a verdict the search is under way. `settings` are lines of TOML."""
    parts = [PageSection("trials", "Trial by trial", _history(tried, verdict))]
    if done(tried):
        parts.append(PageSection("ranges", "What each thing does", _ranges(axes, tried, verdict)))
    if settings:
        parts.append(PageSection("settings", "To keep them", _settings(settings)))
    parts.append(PageSection("table", "All trials", _table(axes, tried)))
    return render_page(
        f"{say.plain(name, 120)}: the search for settings",
        "search",
        _masthead(name, tried, verdict),
        parts,
        tag("footer", tag("p", f"Made by ownwords {__version__}.")),
        more_style=__package__,
    )


def _masthead(name: str, tried: Sequence[TrialRecord], verdict: TuneVerdict | None) -> Html:
    sentences = verdict.sentences() if verdict else ("The search is under way.",)
    return tag(
        "header",
        tag("p", "The search for settings", class_="kicker"),
        tag("h1", tag("bdi", say.plain(name, 120))),
        tag("p", sentences[0], class_="lede"),
        *(tag("p", sentence, class_="follow") for sentence in sentences[1:]),
        _totals(tried, verdict),
    )


def _totals(tried: Sequence[TrialRecord], verdict: TuneVerdict | None) -> Html:
    scored = done(tried)
    plan = next((one for one in scored if one.kind == "plan"), None)
    choices = [one for one in scored if one.kind != "again"]
    again = len(scored) - len(choices)
    spent = duration(sum(one.seconds for one in tried))
    figures = [
        (str(len(choices)), "choices tried", f"and {again} repetitions" if again else ""),
        (spent, "of training", ""),
        (f"{plan.score:.3f}" if plan else "–", "bits a byte, the plan's first", ""),
        (f"{choices[0].score:.3f}" if choices else "–", "bits a byte at best", "with one seed"),
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


def _history(tried: Sequence[TrialRecord], verdict: TuneVerdict | None) -> Html:
    if not done(tried):
        return tag("p", "No trial has a score yet.")
    return join(
        tag(
            "p",
            "Lower is better. Each point is a whole training; the line is the best so far, the"
            " dashed one the plan's own choice. Scores are bits a byte of the validation posts;"
            " the test posts were not read.",
        ),
        tag("figure", plot.history(tried, verdict.winner if verdict else 0)),
        plot.key(),
    )


def _ranges(
    axes: Sequence[SearchAxis], tried: Sequence[TrialRecord], verdict: TuneVerdict | None
) -> Html:
    charts = (
        tag(
            "figure",
            tag("h3", axis.means[:1].upper() + axis.means[1:]),
            plot.by_axis(axis, tried, verdict.winner if verdict else 0),
        )
        for axis in axes
    )
    return join(
        tag("p", "The dashed upright line is what the plan chose."),
        tag("div", *charts, class_="charts"),
    )


def _settings(lines: str) -> Html:
    return join(
        tag("p", "The settings that were taken, as lines for ownwords.toml in the workspace:"),
        # A line is a text of its own: inside one, breaks would be tidied away.
        tag("pre", *_lines(lines)),
    )


def _lines(text: str) -> list[Html]:
    return [Html(tag("code", line) + "\n") if line else Html("\n") for line in text.splitlines()]


def _table(axes: Sequence[SearchAxis], tried: Sequence[TrialRecord]) -> Html:
    heads = ["Trial", "Bits a byte", *(axis.name for axis in axes), "Seed", "Time", "What it is"]
    rows = [_row(axes, one) for one in tried]
    more = rows[_AT_ONCE:]
    parts = [tag("div", table("All trials", heads, rows[:_AT_ONCE], ""), class_="across")]
    if more:
        further = tag("div", table("Further trials", heads, more, ""), class_="across")
        parts.append(folded(f"{len(more)} more", further))
    return join(*parts)


def _row(axes: Sequence[SearchAxis], one: TrialRecord) -> list[str]:
    what = _KINDS[one.kind] if one.kind != "again" else f"trial {one.of} again"
    if one.state == "failed":
        what = f"{what}: failed, {say.plain(one.why, 200)}"
    elif one.state != "done":
        what = f"{what}: {one.state}"
    values = [
        ("×" if axis.is_ratio else "") + f"{one.settings[axis.name]:.3g}"
        if axis.name in one.settings
        else ""
        for axis in axes
    ]
    return [
        str(one.number),
        f"{one.score:.4f}" if one.score is not None else "–",
        *values,
        str(one.seed),
        duration(one.seconds) if one.seconds else "",
        what,
    ]
