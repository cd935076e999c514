"""The search as a view: its verdict, its figures, the settings to keep, and every trial."""

from collections.abc import Sequence

from ownwords.core.progress import duration
from ownwords.core.version import __version__
from ownwords.tune.axis import SearchAxis
from ownwords.tune.trial import TrialRecord, scored_trials
from ownwords.tune.verdict import TuneVerdict, percent
from ownwords.view.blocks import Block, Code, Figure, Figures, Paragraph, Section, Table, View
from ownwords.view.format import plain

_KINDS = {
    "plan": "the plan's own settings",
    "spread": "spread evenly",
    "search": "from earlier results",
    "again": "again",
}
_HOW = (
    "Each trial is a whole training. Scores are bits per byte on the validation posts, lower is"
    " better; the test posts were not read. Settings with × are multiples of the plan's own."
)


def trials_view(
    name: str,
    axes: Sequence[SearchAxis],
    trials: Sequence[TrialRecord],
    verdict: TuneVerdict | None,
    settings: str = "",
) -> View:
    """The view; `verdict` is None while the search runs. `settings` are lines of TOML."""
    first, *others = verdict.sentences() if verdict else ("The search is running.",)
    sections = []
    if settings:
        use = "To use the winning settings from now on, add to ownwords.toml in the workspace:"
        blocks: list[Block] = [Paragraph(line=use), Code(text=settings)]
        sections.append(Section("settings", "Use these settings", blocks))
    heads = ("Trial", "Bits per byte", *(axis.name for axis in axes), "Seed", "Time", "What")
    table = Table(caption="All trials", heads=heads, rows=[_row(axes, t) for t in trials])
    sections.append(Section("table", "All trials", [Paragraph(line=_HOW), table]))
    return View(
        kind="search",
        title=f"{plain(name, 120)}: the search for settings",
        kicker="The search for settings",
        heading=plain(name, 120),
        intro=(
            Paragraph(line=first, style="lede"),
            *(Paragraph(line=sentence, style="follow") for sentence in others),
            Figures(rows=_figures(trials, verdict)),
        ),
        sections=sections,
        footer=[f"Made by ownwords {__version__}."],
    )


def _figures(trials: Sequence[TrialRecord], verdict: TuneVerdict | None) -> list[Figure]:
    scored = scored_trials(trials)
    plan = next((trial for trial in scored if trial.kind == "plan"), None)
    choices = [trial for trial in scored if trial.kind != "again"]
    again = len(scored) - len(choices)
    best = f"{choices[0].score:.3f}" if choices else "–"
    figures = [
        Figure(str(len(choices)), "choices tried", f"and {again} repetitions" if again else ""),
        Figure(duration(sum(trial.seconds for trial in trials)), "of training"),
        Figure(f"{plan.score:.3f}" if plan else "–", "bits per byte, the plan's first"),
        Figure(best, "bits per byte at best", "with one seed"),
    ]
    if verdict and verdict.gain is not None and verdict.low is not None:
        assert verdict.high is not None
        note = f"{percent(verdict.low)} to {percent(verdict.high)}"
        figures.append(Figure(percent(verdict.gain), "gained with fresh seeds", note))
    return figures


def _row(axes: Sequence[SearchAxis], trial: TrialRecord) -> list[str]:
    what = _KINDS[trial.kind] if trial.kind != "again" else f"trial {trial.repeats} again"
    if trial.state == "failed":
        what = f"{what}: failed, {plain(trial.error, 200)}"
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
