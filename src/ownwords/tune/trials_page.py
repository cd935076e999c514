"""The search as a view, with its verdict, settings and trials, and as a CSV table."""

import csv
import io
import json
from collections.abc import Sequence

from ownwords.core.progress import duration
from ownwords.core.version import __version__
from ownwords.tune.search_space import SearchAxis, values_text
from ownwords.tune.verdict import TrialRecord, TuneVerdict, best_trials, percent, scored_trials
from ownwords.view.blocks import Block, Code, Figure, Figures, Paragraph, Section, Table, View
from ownwords.view.format import plain

_HOW = (
    "Each trial is a whole training. Scores are bits per byte on the validation posts, lower is"
    " better; the test posts were not read. Settings with x are multiples of the plan's own."
)
_BEFORE = ("trial", "state", "kind", "repeats", "seed")
_AFTER = ("bits_per_byte", "seconds", "tokens", "steps", "set", "why")


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
    # The plan, then the best first.
    ordered = sorted(trials, key=lambda t: (t.number > 1, t.score is None, t.score or 0, t.number))
    heads = ("Trial", "Bits per byte", "Settings", "Seed", "Time")
    rows = [_row(axes, trial) for trial in ordered]
    table = Table(caption="All trials", heads=heads, rows=rows, noun="trial")
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


def trials_csv(axes: Sequence[SearchAxis], trials: Sequence[TrialRecord]) -> str:
    """The trials as CSV: a header and one line per trial, with unknown values empty.

    The column `set` holds the settings in which a trial differs from the plan, as JSON.
    """
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow([*_BEFORE, *(axis.name for axis in axes), *_AFTER])
    for trial in trials:
        figures, score = trial.figures, trial.score
        start = (trial.number, trial.state, trial.kind, trial.repeats or "", trial.seed)
        values = (f"{trial.settings[axis.name]:.6g}" for axis in axes)
        result = ("" if score is None else f"{score:.6g}", f"{trial.seconds:.1f}")
        settings = json.dumps(figures["settings"], sort_keys=True) if "settings" in figures else ""
        counts = (figures.get("tokens", ""), figures.get("steps", ""))
        rows.writerow([*start, *values, *result, *counts, settings, " ".join(trial.error.split())])
    return text.getvalue()


def trial_text(axes: Sequence[SearchAxis], trial: TrialRecord) -> str:
    """What a trial tries: "rate x1.7, dropout 0.12"."""
    if trial.kind == "again":
        return f"trial {trial.repeats} again, seed {trial.seed}"
    if trial.kind == "plan":
        return "the plan's own settings"
    return values_text(axes, trial.settings)


def _figures(trials: Sequence[TrialRecord], verdict: TuneVerdict | None) -> list[Figure]:
    scored = scored_trials(trials)
    choices = [trial for trial in scored if trial.kind != "again"]
    again = len(scored) - len(choices)
    figures = [
        Figure(str(len(choices)), "choices tried", f"and {again} repetitions" if again else ""),
        Figure(duration(sum(trial.seconds for trial in trials)), "of training"),
    ]
    for kept, label in (
        ([trial for trial in scored if trial.kind == "plan"], "bits per byte, the plan's first"),
        (best_trials(trials), "bits per byte at best, with one seed"),
    ):
        if kept:
            figures.append(Figure(f"{kept[0].score:.3f}", label))
    if verdict and verdict.gain is not None and verdict.low is not None:
        assert verdict.high is not None
        note = f"{percent(verdict.low)} to {percent(verdict.high)}"
        figures.append(Figure(percent(verdict.gain), "gained with fresh seeds", note))
    return figures


def _row(axes: Sequence[SearchAxis], trial: TrialRecord) -> list[str]:
    what = trial_text(axes, trial)
    if trial.state == "failed":
        what = f"{what}: failed, {plain(trial.error, 200)}"
    elif trial.state != "done":
        what = f"{what}: {trial.state}"
    score = f"{trial.score:.4f}" if trial.score is not None else ""
    time = duration(trial.seconds) if trial.seconds else ""
    return [str(trial.number), score, what, str(trial.seed), time]
