"""The search on a toy objective: what it finds, its honesty about noise, time, failures, kills."""

import random
import statistics
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("optuna")

from ownwords.tune.search import Search, TrialFailedError, TrialResult
from ownwords.tune.verdict import TrialRecord, judge, scored_trials, winning_runs
from toy_search import AXES, PLAN, Toy, far

ELSEWHERE = {"rate": 2.8, "memory": 1.0, "dropout": 0.1, "size": 0.5}


@pytest.fixture
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of a search; not flushed to the disk, for there are many."""
    monkeypatch.setattr("os.fsync", lambda _: None)
    return tmp_path / "search.json"


def run_search(toy: Toy, record: Path, **changes: float) -> list[TrialRecord]:
    options: dict[str, Any] = {"budget_s": 300.0, "each_s": 12.0, **changes}
    search = Search(record, AXES, clock=toy.clock, **options)
    search.run(toy)
    return search.trials


def run_new(toy: Toy, record: Path, **changes: float) -> list[TrialRecord]:
    record.unlink(missing_ok=True)
    return run_search(toy, record, **changes)


def without_repetitions(trials: Sequence[TrialRecord]) -> list[TrialRecord]:
    return [trial for trial in trials if trial.kind != "again"]


def repetitions(trials: Sequence[TrialRecord]) -> list[TrialRecord]:
    return [trial for trial in trials if trial.kind == "again"]


# --- what is found --------------------------------------------------------------------------------


def test_a_search_finds_an_improvement_with_its_interval(record: Path) -> None:
    """Over five searches: the winner's region, its true gain, and the noise of a seed."""
    distances, noises, covered = [], [], 0
    for noise_seed in range(5):
        toy = Toy(best=ELSEWHERE, noise_seed=noise_seed)
        trials = run_new(toy, record, budget_s=400)
        assert toy.trials_run[0] == (PLAN, 1)
        verdict = judge(trials)
        assert verdict.kind == "better"
        assert verdict.low is not None and verdict.high is not None and verdict.noise is not None
        winner = trials[verdict.winner - 1]
        gain = 1 - toy.true(winner.settings) / toy.true(PLAN)
        covered += verdict.low < gain < verdict.high
        distances.append(far(winner.settings, ELSEWHERE) / far(PLAN, ELSEWHERE))
        noises.append(verdict.noise * toy.true(PLAN) / toy.noise)
    assert sum(distances) / 5 < 0.5
    assert covered >= 4  # a 95% interval covers at least that many in 98 of 100 cases
    assert 0.75 < sum(noises) / 5 < 1.25


def test_the_best_two_and_the_plan_are_repeated_with_three_new_seeds(record: Path) -> None:
    trials = run_new(Toy(best=ELSEWHERE), record)
    best = [trial.number for trial in scored_trials(trials) if trial.kind == "search"][:2]
    repeats = repetitions(trials)
    assert {(trial.repeats, trial.seed) for trial in repeats} == {
        (number, seed) for number in (1, *best) for seed in (2, 3, 4)
    }
    # Seed by seed: when time runs out, what is there can be compared.
    assert [trial.seed for trial in repeats] == [2, 2, 2, 3, 3, 3, 4, 4, 4]
    assert all(trial.settings == trials[trial.repeats - 1].settings for trial in repeats)


def test_noise_is_hardly_ever_mistaken_for_a_gain(record: Path) -> None:
    """40 searches where all settings are equally good: the apparent best was lucky."""
    gains = 0
    for noise_seed in range(40):
        trials = run_new(Toy(steep=0.0, noise_seed=noise_seed), record, max_trials=9)
        assert len(trials) == 9 + 9
        gains += judge(trials).kind == "better"
    assert gains <= 6  # 5% are the promise of the interval


# --- time ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("budget", "expected"), [(300, 9), (100, 6), (80, 4), (25, 0)])
def test_with_little_time_fewer_are_repeated(budget: float, expected: int, record: Path) -> None:
    trials = run_new(Toy(steep=0.0), record, budget_s=budget)
    assert len(repetitions(trials)) == expected
    assert len(trials) == budget // 10
    assert expected or judge(trials).kind == "unsure"


# --- failures -------------------------------------------------------------------------------------


def test_failed_trials_are_counted_and_their_region_avoided(record: Path) -> None:
    """Half of the ranges cannot be trained: few later trials are there."""
    shares = []
    for noise_seed in range(2):
        toy = Toy(best=ELSEWHERE, fails=["size"], noise_seed=noise_seed)
        trials = run_new(toy, record, max_trials=24, budget_s=1000)
        failed = [trial for trial in trials if trial.state == "failed"]
        assert {(trial.error, trial.score) for trial in failed} == {("size is too much", None)}
        verdict = judge(trials)
        assert (verdict.kind, verdict.failed) == ("better", len(failed))
        later = without_repetitions(trials)[9:]
        assert len(later) == 15
        shares.append(sum(trial.state == "failed" for trial in later) / len(later))
    assert sum(shares) / 2 < 0.35


def test_if_every_trial_fails_the_search_ends_soon(record: Path) -> None:
    class Broken(Toy):
        def __call__(self, trial: TrialRecord) -> TrialResult:
            raise TrialFailedError("out of memory")

    trials = run_new(Broken(), record)
    assert len(trials) == 8
    assert judge(trials).kind == "nothing"


def test_if_the_plan_fails_the_best_other_trial_is_used(record: Path) -> None:
    class NoPlan(Toy):
        def __call__(self, trial: TrialRecord) -> TrialResult:
            if trial.settings == PLAN:
                raise TrialFailedError("out of memory")
            return super().__call__(trial)

    trials = run_new(NoPlan(), record)
    verdict = judge(trials)
    assert verdict.kind == "instead"
    assert verdict.winner in {trial.repeats for trial in repetitions(trials)} - {1}


# --- interrupted ----------------------------------------------------------------------------------


class ProcessKilledError(BaseException):
    pass


class DyingToy(Toy):
    """Simulates the death of the process in the middle of its nth trial."""

    dies_at: tuple[int, ...] = ()
    trials_begun = 0

    def __call__(self, trial: TrialRecord) -> TrialResult:
        self.trials_begun += 1
        if self.trials_begun in self.dies_at:
            self.trials_run.append((trial.settings, trial.seed))
            raise ProcessKilledError
        return super().__call__(trial)


def test_a_killed_search_resumes(record: Path) -> None:
    """In the plan's trial, among the first points, with TPE, and among repetitions."""
    calm = run_search(Toy(best=ELSEWHERE), record.with_name("calm.json"))
    toy = DyingToy(best=ELSEWHERE)
    toy.dies_at = (1, 5, 14, 25)
    trials = None
    for _ in range(5):
        try:
            trials = run_search(toy, record)
        except ProcessKilledError:
            toy.clock.now += 1000  # however long it lay there
    assert trials is not None
    assert [replace(trial, attempts=1) for trial in trials] == calm
    for death in toy.dies_at:  # the same again, at once
        assert toy.trials_run[death - 1] == toy.trials_run[death]
    # Once more the same command: nothing is left to do.
    count = len(toy.trials_run)
    assert run_search(toy, record) == trials
    assert len(toy.trials_run) == count


def test_a_trial_that_always_kills_its_process_is_abandoned(record: Path) -> None:
    class Deadly(Toy):
        def __call__(self, trial: TrialRecord) -> TrialResult:
            if trial.settings["size"] > 2:
                raise ProcessKilledError
            return super().__call__(trial)

    toy, deaths = Deadly(), 0
    while True:
        try:
            trials = run_search(toy, record)
        except ProcessKilledError:
            deaths += 1
        else:
            break
    failed = [trial for trial in trials if trial.state == "failed"]
    assert failed
    assert deaths == 3 * len(failed)


# --- the verdict ----------------------------------------------------------------------------------


def study_of(plan: Sequence[float], *rest: Sequence[float]) -> list[TrialRecord]:
    """Scores by seed, of the plan and of trials 2, 3, ...; the first seed is the search's."""
    trials = [TrialRecord(1, "plan", 1, {}, "done", plan[0])]
    for scores in rest:
        trials.append(TrialRecord(len(trials) + 1, "search", 1, {}, "done", scores[0]))
    for of, scores in enumerate((plan, *rest), 1):
        for seed, score in enumerate(scores[1:], 2):
            number = len(trials) + 1
            trials.append(TrialRecord(number, "again", seed, {}, "done", score, repeats=of))
    return trials


def test_the_figures_equal_a_computation_by_hand() -> None:
    verdict = judge(study_of([1.51, 1.50, 1.52, 1.51], [1.30, 1.40, 1.42, 1.41]))
    # The plan: mean 1.51 of four; the other: 1.41 of its three fresh seeds, its lucky 1.30 unsaid.
    assert (verdict.kind, verdict.winner, verdict.runner_up) == ("better", 2, 2)
    assert verdict.score == pytest.approx(1.41)
    assert verdict.plan == pytest.approx(1.51)
    # Squares: .0001 + .0001 for the plan, the same for the other; 3 + 2 degrees of freedom.
    noise = (0.0004 / 5) ** 0.5
    assert verdict.noise == pytest.approx(noise / 1.51)
    around = 2.571 * noise * (1 / 4 + 1 / 3) ** 0.5
    assert verdict.gain == pytest.approx(0.10 / 1.51)
    assert verdict.low == pytest.approx((0.10 - around) / 1.51, rel=1e-3)
    assert verdict.high == pytest.approx((0.10 + around) / 1.51, rel=1e-3)
    assert verdict.seeds == {1: 4, 2: 3}


def test_the_interval_holds_the_true_gain_as_often_as_it_says() -> None:
    rng = random.Random(3)
    inside = 0
    for _ in range(2000):
        plan = [rng.gauss(1.5, 0.01) for _ in range(4)]
        repeats = [rng.gauss(1.47, 0.01) for _ in range(4)]
        verdict = judge(study_of(plan, repeats))
        assert verdict.low is not None and verdict.high is not None
        mean = statistics.fmean(plan)
        inside += verdict.low * mean < 0.03 < verdict.high * mean
    assert 0.94 < inside / 2000 < 0.96


def test_of_two_repeated_trials_the_better_one_wins() -> None:
    trials = study_of([1.50, 1.50, 1.51, 1.49], [1.40, 1.46, 1.45, 1.47], [1.41, 1.43, 1.42, 1.44])
    verdict = judge(trials)
    assert (verdict.kind, verdict.winner) == ("better", 3)
    assert [run.score for run in winning_runs(trials, verdict)] == [1.41, 1.42, 1.43, 1.44]


def test_a_gain_within_the_noise_is_not_a_gain() -> None:
    verdict = judge(study_of([1.50, 1.51, 1.49, 1.50], [1.40, 1.49, 1.50, 1.48]))
    assert (verdict.kind, verdict.winner, verdict.runner_up) == ("plan", 1, 2)
    assert verdict.score == verdict.plan
    assert verdict.low is not None and verdict.low < 0 < (verdict.gain or 0)


def test_without_repetitions_nothing_is_claimed() -> None:
    verdict = judge(study_of([1.5], [1.2]))
    assert (verdict.kind, verdict.winner, verdict.runner_up) == ("unsure", 1, 2)
    assert verdict.gain == pytest.approx(0.2)
    assert judge(study_of([1.5])).gain is None


@pytest.mark.parametrize(
    ("scores", "start"),
    [
        (([1.5, 1.5, 1.51], [1.4, 1.41, 1.40]), "Trial 2 is better than the plan"),
        (([1.500, 1.501, 1.499], [1.49, 1.49, 1.491]), "The plan was within 1%. Trial 2"),
        (([1.5, 1.51, 1.49], [1.4, 1.49, 1.5]), "The plan was already best: the one other"),
        (([1.5, 1.5, 1.51], [1.4, 1.6, 1.61]), "The plan was already best: repeated"),
        (([1.5], [1.2]), "There was no time to tell"),
        (([1.5], [1.6], [1.7]), "None of 2 other choices"),
        (([1.5],), "Only the plan's own settings"),
    ],
)
def test_the_verdict_in_words(scores: tuple[list[float], ...], start: str) -> None:
    assert judge(study_of(*scores)).sentences()[0].startswith(start)
