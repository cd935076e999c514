"""Decides whether a trial is better than the plan by more than the noise of seeds."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from ownwords.tune.trial import TrialRecord, repetitions, scored_trials

# better: a trial beats the plan by more than the noise; plan: none does; unsure: too few seeds;
# instead: only the plan failed; nothing: every trial failed.
VerdictKind = Literal["better", "plan", "unsure", "instead", "nothing"]

CONFIDENCE = 0.95
# Two-sided Student's t: scipy.stats.t.ppf(0.975, df) for df = 1, 2, ...
_T = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
_NEGLIGIBLE = 0.01  # smallest gain worth mentioning


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
        sentences = _SENTENCES[self.kind](self)
        if self.failed:
            trials = "trial" if self.failed == 1 else "trials"
            sentences = (*sentences, f"{self.failed} {trials} failed; the list says why.")
        return sentences


def judge(trials: Sequence[TrialRecord]) -> TuneVerdict:
    """Compare the plan with the repeated trials, by the confidence interval of their difference.

    The repeated trials were selected for a good score, which is biased upwards: only their scores
    with new seeds count. The plan was not selected, so all of its scores count.
    """
    again = repetitions(trials)
    scored = scored_trials([trial for trial in trials if trial.kind != "again"])
    plans = [trial for trial in scored if trial.kind == "plan"]
    plans += [trial for trial in scored_trials(again) if trial.repeats == 1]
    others = [trial for trial in scored if trial.kind != "plan"]
    failed = sum(
        trial.state == "failed" for trial in trials if trial.kind != "again" or trial in again
    )
    counted = len(scored)
    if not plans and not others:
        return TuneVerdict("nothing", failed=failed)
    fresh: dict[int, list[float]] = {}
    for trial in scored_trials(again):
        if trial.repeats != 1:
            fresh.setdefault(trial.repeats, []).append(_score(trial))
    if not plans:
        return _without_a_plan(fresh, others, counted, failed)
    plan_scores = [_score(trial) for trial in plans]
    plan = statistics.fmean(plan_scores)
    groups = [plan_scores, *fresh.values()]
    degrees = sum(len(group) - 1 for group in groups)
    if not fresh or not degrees:
        runner_up = others[0] if others else None
        gain = 1 - _score(runner_up) / plan if runner_up else None
        number = runner_up.number if runner_up else 0
        return TuneVerdict("unsure", 1, plan, plan, number, gain, trials=counted, failed=failed)
    squares = sum(math.fsum((x - statistics.fmean(g)) ** 2 for x in g) for g in groups)
    noise = math.sqrt(squares / degrees)
    best = min(fresh, key=lambda number: (statistics.fmean(fresh[number]), number))
    score = statistics.fmean(fresh[best])
    gain = plan - score
    error = noise * math.sqrt(1 / len(plan_scores) + 1 / len(fresh[best]))
    half_width = _T[min(degrees, len(_T)) - 1] * error
    is_better = gain > half_width
    return TuneVerdict(
        kind="better" if is_better else "plan",
        winner=best if is_better else 1,
        score=score if is_better else plan,
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


def _without_a_plan(
    fresh: Mapping[int, Sequence[float]], others: Sequence[TrialRecord], count: int, failed: int
) -> TuneVerdict:
    means = {number: statistics.fmean(scores) for number, scores in fresh.items()}
    best = min(means, key=lambda number: means[number]) if means else others[0].number
    score = means.get(best, _score(others[0]))
    return TuneVerdict("instead", best, score, runner_up=best, trials=count, failed=failed)


def _score(trial: TrialRecord) -> float:
    assert trial.score is not None
    return trial.score


# --- in words -----------------------------------------------------------------------------------


def percent(share: float) -> str:
    """Format a share as a percentage with one decimal, such as "1.3%" or "-0.4%"."""
    return f"{share:.1%}".replace("-0.0%", "0.0%")


def _better(v: TuneVerdict) -> tuple[str, ...]:
    assert v.gain is not None and v.low is not None and v.score is not None
    first = (
        f"Trial {v.winner} is better than the plan: {percent(v.gain)} fewer bits per byte,"
        f" {v.score:.3f} against {v.plan:.3f}."
    )
    if v.gain < _NEGLIGIBLE:
        first = f"The plan was within 1%. {first}"
    return (first, _interval(v))


def _plan(v: TuneVerdict) -> tuple[str, ...]:
    assert v.gain is not None
    others = v.trials - 1
    what = "the one other choice" if others == 1 else f"the best of {others} other choices"
    reason = f"{what} has {percent(v.gain)} fewer bits per byte, no more than seeds differ."
    if v.gain < 0:
        reason = f"repeated, {what} has {percent(-v.gain)} more bits per byte."
    return (f"The plan was already best: {reason}", _interval(v))


def _interval(v: TuneVerdict) -> str:
    assert v.low is not None and v.high is not None and v.noise is not None
    plan, other = v.seeds[1], v.seeds[v.runner_up]
    return (
        f"The same settings differ by about {percent(v.noise)} from seed to seed. With {plan} seeds"
        f" of the plan and {other} fresh ones of trial {v.runner_up}, the gain lies between"
        f" {percent(v.low)} and {percent(v.high)} ({CONFIDENCE:.0%} interval)."
    )


def _unsure(v: TuneVerdict) -> tuple[str, ...]:
    if v.gain is None:
        return ("Only the plan's own settings were tried, so they are kept.",)
    more = "With more --minutes, the best trials are repeated with other seeds."
    if v.gain <= 0:
        return (
            f"None of {v.trials - 1} other choices looked better than the plan, which is kept. Each"
            " was tried with a single seed.",
            more,
        )
    return (
        "There was no time to tell a real gain from chance, so the plan is kept. Trial"
        f" {v.runner_up} had {percent(v.gain)} fewer bits per byte, with a single seed.",
        more,
    )


def _instead(v: TuneVerdict) -> tuple[str, ...]:
    return (
        "The plan's own settings could not be trained. The best other trial wins:"
        f" {v.winner}, with {v.score:.3f} bits per byte.",
    )


def _nothing(_: TuneVerdict) -> tuple[str, ...]:
    return ("Nothing could be trained.",)


_SENTENCES = {
    "better": _better,
    "plan": _plan,
    "unsure": _unsure,
    "instead": _instead,
    "nothing": _nothing,
}
