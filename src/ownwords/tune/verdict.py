"""Whether anything found is better than the plan, or was only lucky."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from ownwords.tune.trial import TrialRecord, done, repeated

# better: beyond what other seeds explain; plan: nothing is; unsure: too few seeds to tell;
# instead: the plan's own could not be trained; nothing: nor could anything else.
VerdictKind = Literal["better", "plan", "unsure", "instead", "nothing"]

SURE = 0.95
# Student's t, two-sided, at that: scipy.stats.t.ppf(0.975, df) for df from 1 on.
_T = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
_HARDLY = 0.01  # what recipes differ by without anybody noticing


@dataclass(frozen=True)
class TuneVerdict:
    """What came of a search. Gains are shares of the plan's score, and positive where it is beaten.

    `noise` is the spread (standard deviation) over seeds of one and the same settings, as a share.
    """

    kind: VerdictKind
    winner: int = 0  # the number of the trial whose settings are taken
    score: float | None = None  # of the settings taken, on average
    plan: float | None = None  # the plan's, on average
    rival: int = 0  # the number of the best trial that is not the plan's
    gain: float | None = None  # of that one over the plan
    low: float | None = None
    high: float | None = None
    noise: float | None = None
    seeds: Mapping[int, int] = field(default_factory=dict)  # by trial: seeds that were compared
    tried: int = 0  # settings that were tried, the plan's among them
    failed: int = 0

    def sentences(self) -> tuple[str, ...]:
        """The same in plain words, the most important first."""
        said = _SAID[self.kind](self)
        if self.failed:
            trials = "trial" if self.failed == 1 else "trials"
            said = (*said, f"{self.failed} {trials} failed; the list says why.")
        return said


def judge(tried: Sequence[TrialRecord]) -> TuneVerdict:
    """Compare the plan with the trials that were repeated.

    Those were chosen for a good score, part of which was luck: only their fresh seeds count. The
    plan was not chosen for anything, and all of its seeds do.
    """
    again = repeated(tried)
    scored = done([one for one in tried if one.kind != "again"])
    plans = [one for one in scored if one.kind == "plan"]
    plans += [one for one in done(again) if one.of == 1]
    others = [one for one in scored if one.kind != "plan"]
    failed = sum(one.state == "failed" for one in tried if one.kind != "again" or one in again)
    counted = len(scored)
    if not plans and not others:
        return TuneVerdict("nothing", failed=failed)
    fresh: dict[int, list[float]] = {}
    for one in done(again):
        if one.of != 1:
            fresh.setdefault(one.of, []).append(_score(one))
    if not plans:
        return _without_a_plan(fresh, others, counted, failed)
    plan_scores = [_score(one) for one in plans]
    plan = statistics.fmean(plan_scores)
    groups = [plan_scores, *fresh.values()]
    degrees = sum(len(group) - 1 for group in groups)
    if not fresh or not degrees:
        rival = others[0] if others else None
        gain = 1 - _score(rival) / plan if rival else None
        number = rival.number if rival else 0
        return TuneVerdict("unsure", 1, plan, plan, number, gain, tried=counted, failed=failed)
    squares = sum(math.fsum((x - statistics.fmean(g)) ** 2 for x in g) for g in groups)
    noise = math.sqrt(squares / degrees)
    best = min(fresh, key=lambda number: (statistics.fmean(fresh[number]), number))
    score = statistics.fmean(fresh[best])
    gain = plan - score
    error = noise * math.sqrt(1 / len(plan_scores) + 1 / len(fresh[best]))
    around = _T[min(degrees, len(_T)) - 1] * error
    is_better = gain > around
    return TuneVerdict(
        kind="better" if is_better else "plan",
        winner=best if is_better else 1,
        score=score if is_better else plan,
        plan=plan,
        rival=best,
        gain=gain / plan,
        low=(gain - around) / plan,
        high=(gain + around) / plan,
        noise=noise / plan,
        seeds={1: len(plan_scores), **{number: len(group) for number, group in fresh.items()}},
        tried=counted,
        failed=failed,
    )


def winning_runs(tried: Sequence[TrialRecord], verdict: TuneVerdict) -> list[TrialRecord]:
    """The trials with the settings that are taken, whatever their seed; the best first."""
    return [one for one in done(tried) if verdict.winner in (one.number, one.of)]


def _without_a_plan(
    fresh: Mapping[int, Sequence[float]], others: Sequence[TrialRecord], tried: int, failed: int
) -> TuneVerdict:
    means = {number: statistics.fmean(scores) for number, scores in fresh.items()}
    best = min(means, key=lambda number: means[number]) if means else others[0].number
    score = means.get(best, _score(others[0]))
    return TuneVerdict("instead", best, score, rival=best, tried=tried, failed=failed)


def _score(one: TrialRecord) -> float:
    assert one.score is not None
    return one.score


# --- in words -----------------------------------------------------------------------------------


def percent(share: float) -> str:
    """To a tenth: "1.3%", "-0.4%"."""
    return f"{share:.1%}".replace("-0.0%", "0.0%")


def _better(said: TuneVerdict) -> tuple[str, ...]:
    assert said.gain is not None and said.low is not None and said.score is not None
    first = (
        f"Trial {said.winner} is better than the plan: {percent(said.gain)} fewer bits a byte,"
        f" {said.score:.3f} against {said.plan:.3f}."
    )
    if said.gain < _HARDLY:
        first = f"The plan was within 1%. {first}"
    return (first, _interval(said))


def _plan(said: TuneVerdict) -> tuple[str, ...]:
    assert said.gain is not None
    others = said.tried - 1
    what = "the one other choice" if others == 1 else f"the best of {others} other choices"
    luck = f"{what} has {percent(said.gain)} fewer bits a byte, which is no more than luck."
    if said.gain < 0:
        luck = f"tried again, {what} has {percent(-said.gain)} more bits a byte."
    return (f"The plan was already best: {luck}", _interval(said))


def _interval(said: TuneVerdict) -> str:
    assert said.low is not None and said.high is not None and said.noise is not None
    plan, rival = said.seeds[1], said.seeds[said.rival]
    return (
        f"With other seeds the same settings differ by about {percent(said.noise)}. From {plan}"
        f" seeds of the plan and {rival} fresh ones of trial {said.rival}, the gain lies between"
        f" {percent(said.low)} and {percent(said.high)} ({SURE:.0%} interval)."
    )


def _unsure(said: TuneVerdict) -> tuple[str, ...]:
    if said.gain is None:
        return ("Nothing but the plan's own choice was tried, so that is kept.",)
    more = "With more --minutes, the best are tried again with other seeds."
    if said.gain <= 0:
        return (
            f"None of {said.tried - 1} other choices looked better than the plan's own, which is"
            " kept; each was tried with a single seed.",
            more,
        )
    return (
        "There was no time to tell a gain from luck, so the plan's own choice is kept. Trial"
        f" {said.rival} had {percent(said.gain)} fewer bits a byte, with a single seed.",
        more,
    )


def _instead(said: TuneVerdict) -> tuple[str, ...]:
    return (
        "The plan's own choice could not be trained; the best of the others is taken, trial"
        f" {said.winner} with {said.score:.3f} bits a byte.",
    )


def _nothing(_: TuneVerdict) -> tuple[str, ...]:
    return ("Nothing could be trained.",)


_SAID = {
    "better": _better,
    "plan": _plan,
    "unsure": _unsure,
    "instead": _instead,
    "nothing": _nothing,
}
