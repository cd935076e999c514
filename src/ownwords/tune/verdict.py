"""The trials of a search, whether one is better than the plan, and both as a page and a table."""

import csv
import io
import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ownwords.core.progress import duration
from ownwords.core.version import __version__
from ownwords.evaluation.intervals import student_t
from ownwords.view.blocks import Block, Code, Figure, Figures, Paragraph, Section, Table, View
from ownwords.view.format import plain

# better: a trial beats the plan by more than the noise; plan: none does; unsure: too few seeds;
# instead: only the plan failed; nothing: every trial failed.
VerdictKind = Literal["better", "plan", "unsure", "instead", "nothing"]

_NEGLIGIBLE = 0.01  # smallest gain worth mentioning
_HOW = (
    "Each trial is a whole training. Scores are bits per byte on the validation posts, lower is"
    " better; the test posts were not read. Settings with x are multiples of the plan's own."
)
_BEFORE = ("trial", "state", "kind", "repeats", "seed")
_AFTER = ("bits_per_byte", "seconds", "tokens", "steps", "set", "why")

# plan: the plan's own settings; search: the sampler's; again: an earlier trial with another seed.
TrialKind = Literal["plan", "search", "again"]
TrialStatus = Literal["running", "done", "failed"]


@dataclass(frozen=True)
class SearchAxis:
    """A range of values that includes the plan's value; ratios use a logarithmic scale."""

    name: str
    low: float
    high: float
    plan: float
    is_ratio: bool


@dataclass
class TrialRecord:
    """A trial as the record of a search holds it; `number` starts at 1."""

    number: int
    kind: TrialKind
    seed: int
    settings: dict[str, float]  # by axis
    state: TrialStatus = "running"
    score: float | None = None
    seconds: float = 0.0
    figures: dict[str, Any] = field(default_factory=dict)
    error: str = ""
    attempts: int = 0
    repeats: int = 0  # number of the trial that this one repeats; 0 if it is no repetition

    @property
    def name(self) -> str:
        """The name of its model's folder."""
        return f"trial-{self.number}"


def scored_trials(trials: Sequence[TrialRecord]) -> list[TrialRecord]:
    """The finished trials with a score, the best first."""
    scored = [trial for trial in trials if trial.state == "done" and trial.score is not None]
    return sorted(scored, key=lambda trial: (trial.score, trial.number))


def best_trials(trials: Sequence[TrialRecord]) -> list[TrialRecord]:
    """The scored trials without the plan and the repetitions, the best first."""
    return [trial for trial in scored_trials(trials) if trial.kind == "search"]


@dataclass(frozen=True)
class TuneVerdict:
    """The outcome of a search; gains are shares of the plan's score, positive for an improvement.

    `noise` is the standard deviation over seeds of the same settings, as a share.
    """

    kind: VerdictKind
    winner: int = 0  # number of the trial
    score: float | None = None  # mean score of the winner
    plan: float | None = None  # mean score of the plan
    runner_up: int = 0  # number of the best trial apart from the plan
    gain: float | None = None  # of the runner-up over the plan
    low: float | None = None
    high: float | None = None
    noise: float | None = None
    seeds: Mapping[int, int] = field(default_factory=dict)  # number of seeds compared, by trial
    trials: int = 0  # scored trials, including the plan, without repetitions
    failed: int = 0

    def sentences(self) -> tuple[str, ...]:
        """The verdict in plain words, the most important first."""
        sentences = _sentences(self)
        if self.failed:
            trials = "trial" if self.failed == 1 else "trials"
            sentences.append(f"{self.failed} {trials} failed; the list says why.")
        return tuple(sentences)


def judge(trials: Sequence[TrialRecord]) -> TuneVerdict:
    """Compare the plan with the repeated trials, by the confidence interval of their difference.

    The repeated trials were selected for a good score, which is biased upwards: only their scores
    with new seeds count. The plan was not selected, so all of its scores count.
    """
    scored, others = scored_trials(trials), best_trials(trials)
    counted = sum(trial.kind != "again" for trial in scored)
    failed = sum(trial.state == "failed" for trial in trials)
    fresh: dict[int, list[float]] = {}
    for trial in scored:
        if trial.repeats or trial.number == 1:
            fresh.setdefault(trial.repeats or 1, []).append(trial.score or 0.0)
    plan_scores = fresh.pop(1, [])
    means = {number: statistics.fmean(scores) for number, scores in fresh.items()}
    means = means or {trial.number: trial.score or 0.0 for trial in others[:1]}
    best = min(means, key=lambda number: (means[number], number), default=0)
    if not plan_scores:
        if not best:
            return TuneVerdict("nothing", failed=failed)
        return TuneVerdict(
            "instead", best, means[best], runner_up=best, trials=counted, failed=failed
        )
    plan = statistics.fmean(plan_scores)
    groups = [plan_scores, *fresh.values()]
    degrees = sum(len(group) - 1 for group in groups)
    gain = plan - means[best] if best else 0.0
    if not fresh or not degrees:
        share = gain / plan if best else None
        return TuneVerdict("unsure", 1, plan, plan, best, share, trials=counted, failed=failed)
    squares = sum(math.fsum((x - statistics.fmean(g)) ** 2 for x in g) for g in groups)
    noise = math.sqrt(squares / degrees)
    error = noise * math.sqrt(1 / len(plan_scores) + 1 / len(fresh[best]))
    half_width = student_t(degrees) * error
    is_better = gain > half_width
    return TuneVerdict(
        kind="better" if is_better else "plan",
        winner=best if is_better else 1,
        score=means[best] if is_better else plan,
        plan=plan,
        runner_up=best,
        gain=gain / plan,
        low=(gain - half_width) / plan,
        high=(gain + half_width) / plan,
        noise=noise / plan,
        seeds={1: len(plan_scores), **{number: len(group) for number, group in fresh.items()}},
        trials=counted,
        failed=failed,
    )


def winning_runs(trials: Sequence[TrialRecord], verdict: TuneVerdict) -> list[TrialRecord]:
    """The trials with the winning settings, whatever their seed; the best first."""
    return [
        trial for trial in scored_trials(trials) if verdict.winner in (trial.number, trial.repeats)
    ]


def percent(share: float) -> str:
    """Format a share as a percentage with one decimal, such as "1.3%" or "-0.4%"."""
    return f"{share:.1%}".replace("-0.0%", "0.0%")


def outcome(verdict: TuneVerdict) -> str:
    """What won, in a few words."""
    if verdict.kind == "better" and verdict.gain is not None:
        fewer = percent(verdict.gain)
        return f"trial {verdict.winner} has {fewer} fewer bits per byte than the plan"
    if verdict.kind == "instead":
        return f"trial {verdict.winner} is the best of {verdict.trials}"
    return f"the plan's own settings, out of {verdict.trials} choices"


def _sentences(v: TuneVerdict) -> list[str]:
    others = v.trials - 1
    more = "With more --minutes, the best trials are repeated with other seeds."
    if v.kind == "nothing":
        return ["Nothing could be trained."]
    if v.kind == "instead":
        return [
            "The plan's own settings could not be trained. The best other trial wins:"
            f" {v.winner}, with {v.score:.3f} bits per byte."
        ]
    if v.gain is None:
        return ["Only the plan's own settings were tried, so they are kept."]
    if v.kind == "unsure" and v.gain <= 0:
        return [
            f"None of {others} other choices looked better than the plan, which is kept. Each was"
            " tried with a single seed.",
            more,
        ]
    if v.kind == "unsure":
        return [
            "There was no time to tell a real gain from chance, so the plan is kept. Trial"
            f" {v.runner_up} had {percent(v.gain)} fewer bits per byte, with a single seed.",
            more,
        ]
    assert v.low is not None and v.high is not None and v.noise is not None
    interval = (
        f"The same settings differ by about {percent(v.noise)} from seed to seed. With"
        f" {v.seeds[1]} seeds of the plan and {v.seeds[v.runner_up]} fresh ones of trial"
        f" {v.runner_up}, the gain lies between {percent(v.low)} and {percent(v.high)}"
        " (95% interval)."
    )
    if v.kind == "better":
        small = "The plan was within 1%. " if v.gain < _NEGLIGIBLE else ""
        return [
            f"{small}Trial {v.winner} is better than the plan: {percent(v.gain)} fewer bits per"
            f" byte, {v.score:.3f} against {v.plan:.3f}.",
            interval,
        ]
    what = "the one other choice" if others == 1 else f"the best of {others} other choices"
    reason = f"{what} has {percent(v.gain)} fewer bits per byte, no more than seeds differ."
    if v.gain < 0:
        reason = f"repeated, {what} has {percent(-v.gain)} more bits per byte."
    return [f"The plan was already best: {reason}", interval]


# --- as a page and as a table ---------------------------------------------------------------------


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
    table = Table(caption="All trials", heads=heads, rows=rows)
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
    return ", ".join(
        f"{axis.name} {'x' if axis.is_ratio else ''}{trial.settings[axis.name]:.2g}"
        for axis in axes
    )


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
