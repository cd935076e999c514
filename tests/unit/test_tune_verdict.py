import random
import statistics
from collections.abc import Sequence

import pytest

from ownwords.tune.trial import TrialKind, TrialRecord, TrialStatus
from ownwords.tune.verdict import TuneVerdict, judge, winning_runs


def record(
    number: int, kind: TrialKind, score: float | None, seed: int = 1, of: int = 0, **more: object
) -> TrialRecord:
    state: TrialStatus = "failed" if score is None else "done"
    finalists: tuple[int, ...] = (2, 3) if kind == "again" else ()
    trial = TrialRecord(number, state, kind, seed, {}, score, 10.0, repeats=of, finalists=finalists)
    return trial if not more else TrialRecord(**{**vars(trial), **more})


def study(plan: Sequence[float], *rest: Sequence[float]) -> list[TrialRecord]:
    """Scores by seed, of the plan and of trials 2, 3, ...; the first seed is the search's."""
    trials = [record(1, "plan", plan[0])]
    trials += [record(i + 2, "spread", scores[0]) for i, scores in enumerate(rest)]
    number = len(trials)
    for of, scores in enumerate((plan, *rest), 1):
        for seed, score in enumerate(scores[1:], 2):
            number += 1
            trials.append(record(number, "again", score, seed, of))
    return trials


def test_the_figures_equal_a_computation_by_hand() -> None:
    verdict = judge(study([1.51, 1.50, 1.52, 1.51], [1.30, 1.40, 1.42, 1.41]))
    # The plan: mean 1.51 of four; the other: 1.41 of its three fresh seeds, its lucky 1.30 unsaid.
    assert verdict.kind == "better"
    assert verdict.winner == verdict.runner_up == 2
    assert verdict.score == pytest.approx(1.41)
    assert verdict.plan == pytest.approx(1.51)
    # Squares: .0001 + .0001 for the plan, the same for the other; 3 + 2 degrees of freedom.
    noise = (0.0004 / 5) ** 0.5
    assert verdict.noise == pytest.approx(noise / 1.51)
    around = 2.571 * noise * (1 / 4 + 1 / 3) ** 0.5
    assert verdict.gain == pytest.approx(0.10 / 1.51)
    assert verdict.low == pytest.approx((0.10 - around) / 1.51)
    assert verdict.high == pytest.approx((0.10 + around) / 1.51)
    assert verdict.seeds == {1: 4, 2: 3}


def test_the_interval_holds_the_true_gain_as_often_as_it_says() -> None:
    rng = random.Random(3)
    inside = 0
    for _ in range(2000):
        plan = [rng.gauss(1.5, 0.01) for _ in range(4)]
        repeats = [rng.gauss(1.47, 0.01) for _ in range(4)]
        verdict = judge(study(plan, repeats))
        assert verdict.low is not None and verdict.high is not None
        mean = statistics.fmean(plan)
        inside += verdict.low * mean < 0.03 < verdict.high * mean
    assert 0.94 < inside / 2000 < 0.96


def test_of_two_repeated_trials_the_better_one_wins() -> None:
    scores = [1.50, 1.50, 1.51, 1.49], [1.40, 1.46, 1.45, 1.47], [1.41, 1.43, 1.42, 1.44]
    trials = study(*scores)
    verdict = judge(trials)
    assert (verdict.kind, verdict.winner) == ("better", 3)
    runs = winning_runs(trials, verdict)
    assert [run.score for run in runs] == [1.41, 1.42, 1.43, 1.44]


def test_a_gain_within_the_noise_is_not_a_gain() -> None:
    trials = study([1.50, 1.51, 1.49, 1.50], [1.40, 1.49, 1.50, 1.48])
    verdict = judge(trials)
    assert (verdict.kind, verdict.winner, verdict.runner_up) == ("plan", 1, 2)
    assert verdict.score == verdict.plan
    assert verdict.low is not None and verdict.low < 0 < (verdict.gain or 0)
    first, second = verdict.sentences()
    assert first.startswith("The plan was already best: the one other choice has 0.7% fewer")
    assert "no more than seeds differ" in first
    assert "4 seeds of the plan and 3 fresh ones of trial 2" in second
    assert "95% interval" in second


def test_a_small_gain_is_called_small() -> None:
    verdict = judge(study([1.500, 1.501, 1.499, 1.500], [1.49, 1.490, 1.491, 1.489]))
    assert verdict.kind == "better"
    assert verdict.sentences()[0].startswith("The plan was within 1%.")


def test_without_repetitions_nothing_is_claimed() -> None:
    verdict = judge(study([1.5], [1.2]))
    assert (verdict.kind, verdict.winner, verdict.runner_up) == ("unsure", 1, 2)
    assert verdict.gain == pytest.approx(0.2)
    assert "no time to tell a real gain from chance" in verdict.sentences()[0]
    worse = judge(study([1.5], [1.6], [1.7])).sentences()
    assert worse[0].startswith("None of 2 other choices looked better than the plan")
    assert judge(study([1.5])).sentences() == (
        "Only the plan's own settings were tried, so they are kept.",
    )


def test_failures_are_counted_and_do_not_count() -> None:
    trials = [*study([1.5, 1.5, 1.51], [1.4, 1.41, 1.40]), record(99, "search", None)]
    verdict = judge(trials)
    assert (verdict.failed, verdict.trials) == (1, 2)
    assert verdict.sentences()[-1] == "1 trial failed; the list says why."
    assert judge([record(1, "plan", None), record(2, "spread", None)]) == TuneVerdict(
        "nothing", failed=2
    )
    assert judge([]).kind == "nothing"


def test_a_duplicate_repetition_does_not_count() -> None:
    trials = study([1.5, 1.5, 1.51], [1.4, 1.41, 1.40])
    twice = record(50, "again", 1.0, 2, 2)
    late = record(51, "again", 1.0, 2, 4, finalists=(4, 5))
    assert judge([*trials, twice, late]) == judge(trials)
