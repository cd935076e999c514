import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("optuna")

from optuna.storages import InMemoryStorage

from ownwords.core.errors import ConfigError
from ownwords.tune.axis import SearchAxis
from ownwords.tune.search import SearchBudget, SearchResult, search
from ownwords.tune.study import Study, open_storage
from ownwords.tune.trial import (
    TrialFailedError,
    TrialRecord,
    TrialResult,
    choices,
    repetitions,
    scored_trials,
)
from toy_search import AXES, PLAN, Toy, far

ELSEWHERE = {"rate": 2.8, "memory": 1.0, "dropout": 0.1, "size": 0.5}


def terms(folder: Path, **changes: object) -> SearchBudget:
    budget = SearchBudget(budget_s=300.0, each_s=12.0, worker="here", folder=folder, poll_s=0.01)
    return replace(budget, **changes)  # type: ignore[arg-type]


def run_search(
    toy: Toy, folder: Path, book: Study | None = None, **changes: object
) -> SearchResult:
    book = book or Study(InMemoryStorage(), "toy", AXES)
    return search(toy, book, terms(folder, **changes), clock=toy.clock)


# --- what is tried ------------------------------------------------------------------------------


def test_the_plan_is_tried_first_then_quasi_random_points(tmp_path: Path) -> None:
    toy = Toy()
    result = run_search(toy, tmp_path)
    assert toy.trials_run[0] == (PLAN, 1)
    kinds = [trial.kind for trial in choices(result.trials)]
    assert kinds[:10] == ["plan"] + ["spread"] * 8 + ["search"]
    spread = [trial.settings for trial in result.trials if trial.kind == "spread"]
    for axis in AXES:
        assert all(axis.low <= values[axis.name] <= axis.high for values in spread)
        # Of eight points of Sobol's, one is in each eighth of each axis.
        eighths = {int(8 * axis.share(values[axis.name])) for values in spread}
        assert eighths == set(range(8))
    assert {seed for _, seed in toy.trials_run[: len(kinds)]} == {1}


def test_a_search_finds_an_improvement_with_its_interval(tmp_path: Path) -> None:
    """Over ten searches: the winner's region, its true gain, and the noise of a seed."""
    distances, noises, covered = [], [], 0
    for noise_seed in range(10):
        toy = Toy(best=ELSEWHERE, noise_seed=noise_seed)
        result = run_search(toy, tmp_path, budget_s=400)
        verdict = result.verdict
        assert verdict.kind == "better"
        assert verdict.low is not None and verdict.high is not None and verdict.noise is not None
        winner = result.trials[verdict.winner - 1]
        gain = 1 - toy.true(winner.settings) / toy.true(PLAN)
        covered += verdict.low < gain < verdict.high
        distances.append(far(winner.settings, ELSEWHERE) / far(PLAN, ELSEWHERE))
        noises.append(verdict.noise * toy.true(PLAN) / toy.noise)
    assert sum(distances) / 10 < 0.5
    assert covered >= 8  # a 95% interval covers at least that many in 99 of 100 cases
    assert 0.75 < sum(noises) / 10 < 1.25


def test_later_trials_are_better_than_points_spread_evenly(tmp_path: Path) -> None:
    """What TPE is for; over five searches, so that chance does not decide."""
    gains = []
    for noise_seed in range(5):
        toy = Toy(best=ELSEWHERE, noise_seed=noise_seed)
        result = run_search(toy, tmp_path, budget_s=330)
        true = {kind: [] for kind in ("spread", "search")}  # type: dict[str, list[float]]
        for trial in choices(result.trials)[1:]:
            true[trial.kind].append(toy.true(trial.settings))
        gains.append(sum(true["spread"]) / 8 - sum(true["search"]) / len(true["search"]))
    assert sum(gains) / 5 > 0.05
    assert min(gains) > 0


def test_the_best_two_and_the_plan_are_repeated_with_three_new_seeds(tmp_path: Path) -> None:
    result = run_search(Toy(best=ELSEWHERE), tmp_path)
    best = [
        trial.number for trial in scored_trials(result.trials) if trial.kind in ("spread", "search")
    ][:2]
    repeats = repetitions(result.trials)
    assert {(trial.repeats, trial.seed) for trial in repeats} == {
        (number, seed) for number in (1, *best) for seed in (2, 3, 4)
    }
    # Seed by seed: when time runs out, what is there can be compared.
    assert [trial.seed for trial in repeats] == [2, 2, 2, 3, 3, 3, 4, 4, 4]
    by_number = {trial.number: trial for trial in result.trials}
    assert all(trial.settings == by_number[trial.repeats].settings for trial in repeats)


# --- whether it is chance -------------------------------------------------------------------------


def test_a_plan_that_is_best_is_reported(tmp_path: Path) -> None:
    result = run_search(Toy(), tmp_path)
    assert result.verdict.kind == "plan"
    assert result.verdict.winner == 1
    assert result.verdict.sentences()[0].startswith("The plan was already best")


def test_noise_is_hardly_ever_mistaken_for_a_gain(tmp_path: Path) -> None:
    """200 searches where all settings are equally good: the apparent best was lucky."""
    gains = 0
    for noise_seed in range(200):
        toy = Toy(steep=0.0, noise_seed=noise_seed)
        result = run_search(toy, tmp_path, max_trials=9)
        assert len(result.trials) == 9 + 9
        gains += result.verdict.kind == "better"
    assert gains <= 20  # 5% are the promise of the interval


# --- time ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("seconds", [3.0, 7.0, 12.0])
def test_the_number_of_trials_follows_from_their_length(seconds: float, tmp_path: Path) -> None:
    toy = Toy(seconds=seconds)
    result = run_search(toy, tmp_path)
    assert toy.clock.now - 100 <= 300
    assert toy.clock.now - 100 > 300 - seconds
    assert len(result.trials) == math.floor(300 / seconds)
    assert len(repetitions(result.trials)) == 9


@pytest.mark.parametrize(
    ("budget", "expected"), [(300, 9), (150, 9), (100, 6), (80, 4), (50, 0), (25, 0)]
)
def test_with_little_time_fewer_are_repeated(budget: float, expected: int, tmp_path: Path) -> None:
    toy = Toy(steep=0.0)
    result = run_search(toy, tmp_path, budget_s=budget)
    assert len(repetitions(result.trials)) == expected
    assert len(result.trials) == budget // 10
    if not expected:
        assert result.verdict.kind == "unsure"
        assert result.verdict.winner == 1


def test_a_number_of_trials_can_be_asked_for(tmp_path: Path) -> None:
    result = run_search(Toy(), tmp_path, max_trials=5, budget_s=1000)
    assert len(choices(result.trials)) == 5
    assert len(repetitions(result.trials)) == 9


def test_too_little_time_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="too few for two trials of 2 minutes"):
        run_search(Toy(), tmp_path, budget_s=180, each_s=120)


def test_trials_of_differing_length_keep_the_budget(tmp_path: Path) -> None:
    class Uneven(Toy):
        def __call__(self, settings: Mapping[str, float], seconds: float, seed: int) -> TrialResult:
            self.seconds = 2 + 10 * AXES[3].share(settings["size"])
            return super().__call__(settings, seconds, seed)

    for noise_seed in range(5):
        toy = Uneven(noise_seed=noise_seed, steep=0.0)
        result = run_search(toy, tmp_path)
        assert 280 < toy.clock.now - 100 <= 300
        assert len(repetitions(result.trials)) == 9


# --- failures -------------------------------------------------------------------------------------


def test_failed_trials_are_reported_and_the_search_continues(tmp_path: Path) -> None:
    toy = Toy(best={**PLAN, "rate": 0.4}, fails=["size"])
    result = run_search(toy, tmp_path, budget_s=400)
    failed = [trial for trial in result.trials if trial.state == "failed"]
    assert failed
    assert {trial.error for trial in failed} == {"size is too much"}
    assert all(trial.score is None for trial in failed)
    assert result.verdict.kind == "better"
    assert result.verdict.failed == len(failed)
    assert f"{len(failed)} trials failed" in result.verdict.sentences()[-1]


def test_the_search_avoids_failing_regions(tmp_path: Path) -> None:
    """Half of the ranges cannot be trained: hardly any later trial is there."""
    shares = []
    for noise_seed in range(5):
        result = run_search(
            Toy(best=ELSEWHERE, fails=["size"], noise_seed=noise_seed),
            tmp_path,
            max_trials=24,
            budget_s=1000,
        )
        assert len(choices(result.trials)) == 24
        later = [trial for trial in result.trials if trial.kind == "search"]
        shares.append(sum(trial.state == "failed" for trial in later) / len(later))
    assert sum(shares) / 5 < 0.25


def test_if_every_trial_fails_the_search_ends_soon(tmp_path: Path) -> None:
    class Broken(Toy):
        def __call__(self, settings: Mapping[str, float], seconds: float, seed: int) -> TrialResult:
            raise TrialFailedError("out of memory")

    result = run_search(Broken(), tmp_path)
    assert len(result.trials) == 8
    assert result.verdict.kind == "nothing"


def test_if_the_plan_fails_the_best_other_trial_is_used(tmp_path: Path) -> None:
    class NoPlan(Toy):
        def __call__(self, settings: Mapping[str, float], seconds: float, seed: int) -> TrialResult:
            if settings == PLAN:
                raise TrialFailedError("out of memory")
            return super().__call__(settings, seconds, seed)

    result = run_search(NoPlan(), tmp_path)
    assert result.verdict.kind == "instead"
    assert result.verdict.winner in {trial.repeats for trial in repetitions(result.trials)} - {1}


def test_other_errors_than_a_failed_trial_end_the_search(tmp_path: Path) -> None:
    class NoDisk(Toy):
        def __call__(self, settings: Mapping[str, float], seconds: float, seed: int) -> TrialResult:
            raise ConfigError("the disk is full")

    with pytest.raises(ConfigError):
        run_search(NoDisk(), tmp_path)


# --- interrupted ----------------------------------------------------------------------------------


class ProcessKilledError(BaseException):
    pass


class DyingToy(Toy):
    """Simulates the death of the process in the middle of its nth trial."""

    dies_at: tuple[int, ...] = ()
    trials_begun = 0

    def __call__(self, settings: Mapping[str, float], seconds: float, seed: int) -> TrialResult:
        self.trials_begun += 1
        if self.trials_begun in self.dies_at:
            self.trials_run.append((dict(settings), seed))
            raise ProcessKilledError
        return super().__call__(settings, seconds, seed)


@pytest.mark.parametrize("kind", ["sqlite", "journal"])
def test_a_killed_search_resumes(kind: str, tmp_path: Path) -> None:
    """In the plan's trial, among quasi-random points, with TPE, and among repetitions."""
    record: Path | str = tmp_path / "trials #1 {x}.db"
    if kind == "journal":
        record = str(tmp_path / "trials.journal")
    calm = run_search(Toy(best=ELSEWHERE), tmp_path / "calm")
    toy = DyingToy(best=ELSEWHERE)
    toy.dies_at = (1, 5, 14, 25)
    result = None
    for _ in range(5):
        book = Study(open_storage(record), "toy", AXES)
        try:
            result = run_search(toy, tmp_path / "locks", book)
        except ProcessKilledError:
            toy.clock.now += 1000  # however long it lay there
    assert result is not None
    assert [trial.number for trial in result.trials] == [*range(1, len(calm.trials) + 1)]
    same = [
        (trial.kind, trial.repeats, trial.seed, trial.settings, trial.score)
        for trial in result.trials
    ]
    assert same == [
        (trial.kind, trial.repeats, trial.seed, trial.settings, trial.score)
        for trial in calm.trials
    ]
    assert result.verdict == calm.verdict
    for death in toy.dies_at:  # the same again, at once
        assert toy.trials_run[death - 1] == toy.trials_run[death]
    # Once more the same command: nothing is left to do.
    count = len(toy.trials_run)
    assert run_search(toy, tmp_path / "locks", Study(open_storage(record), "toy", AXES)) == result
    assert len(toy.trials_run) == count


def test_a_repetition_killed_right_after_it_was_taken_is_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It names no worker yet, so that nobody else can be running it."""
    stored, toy = InMemoryStorage(), Toy(best=ELSEWHERE)
    start = Study.start

    def die(book: Study, trial: TrialRecord, worker: str) -> TrialRecord:
        if trial.repeats:
            raise ProcessKilledError
        return start(book, trial, worker)

    with monkeypatch.context() as patch, pytest.raises(ProcessKilledError):
        patch.setattr(Study, "start", die)
        run_search(toy, tmp_path, Study(stored, "toy", AXES))

    def never(_: float) -> None:
        pytest.fail("the search waits for a process that is dead")

    monkeypatch.setattr("time.sleep", never)
    result = run_search(toy, tmp_path, Study(stored, "toy", AXES))
    assert {trial.state for trial in repetitions(result.trials)} == {"done"}
    assert result.verdict == run_search(Toy(best=ELSEWHERE), tmp_path / "calm").verdict


def test_a_trial_that_always_kills_its_process_is_abandoned(tmp_path: Path) -> None:
    stored = InMemoryStorage()

    class Deadly(Toy):
        def __call__(self, settings: Mapping[str, float], seconds: float, seed: int) -> TrialResult:
            if settings["size"] > 2:
                raise ProcessKilledError
            return super().__call__(settings, seconds, seed)

    toy, deaths = Deadly(), 0
    while True:
        try:
            result = run_search(toy, tmp_path, Study(stored, "toy", AXES))
        except ProcessKilledError:
            deaths += 1
        else:
            break
    failed = [trial for trial in result.trials if trial.state == "failed"]
    assert deaths == 3 * len(failed)
    assert failed[0].error == "its process was killed 3 times"


def test_a_lost_trial_of_another_machine_is_abandoned(tmp_path: Path) -> None:
    stored = InMemoryStorage()
    toy = DyingToy()
    toy.dies_at = (3,)
    with pytest.raises(ProcessKilledError):
        run_search(toy, tmp_path / "a", Study(stored, "toy", AXES), worker="a")
    # Recently begun, it may still be at it; then the time runs out and it is not waited for.
    second_toy = Toy()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "time.sleep", lambda _: setattr(second_toy.clock, "now", second_toy.clock.now + 20)
        )
        result = run_search(
            second_toy, tmp_path / "b", Study(stored, "toy", AXES), worker="b", max_trials=4
        )
        assert result.trials[2].state == "running"
        patch.setattr("ownwords.tune.search._LOST_S", -1e9)
        result = run_search(
            second_toy, tmp_path / "b", Study(stored, "toy", AXES), worker="b", max_trials=4
        )
    assert result.trials[2].state == "failed"
    assert "went silent" in result.trials[2].error


def test_two_processes_agree_on_the_repetitions(tmp_path: Path) -> None:
    """Both name the trials to repeat: the first counts, and nothing is done twice."""
    stored = InMemoryStorage()
    book = Study(stored, "toy", AXES)
    for _ in range(4):
        book.complete(book.next_trial("here"), TrialResult(1.5, 10.0))
    settings = {trial.number: trial.settings for trial in book.trials()}
    for finalists in ((2, 3), (4, 3)):
        for seed in (2, 3):
            for of in (1, *finalists):
                book.enqueue_repetition(of, seed, settings[of], finalists, 2)
    toy = Toy()
    result = run_search(toy, tmp_path, book)
    repeats = repetitions(result.trials)
    assert {(trial.repeats, trial.seed) for trial in repeats} == {
        (n, s) for n in (1, 2, 3) for s in (2, 3)
    }
    assert len(toy.trials_run) == 6
    void = [trial for trial in result.trials if trial.kind == "again" and trial not in repeats]
    assert {trial.state for trial in void} == {"waiting"}
    assert result.verdict.failed == 0


def test_a_search_that_has_no_fresh_start_counts_its_time(tmp_path: Path) -> None:
    """The budget covers the whole search, however often it is resumed."""
    stored, toy = InMemoryStorage(), DyingToy(steep=0.0)
    toy.dies_at = (6,)
    with pytest.raises(ProcessKilledError):
        run_search(toy, tmp_path, Study(stored, "toy", AXES))
    result = run_search(toy, tmp_path, Study(stored, "toy", AXES))
    assert sum(trial.seconds for trial in result.trials) == 300


def test_axes_round_trip() -> None:
    ratio, share = AXES[0], AXES[2]
    assert ratio.at(0.5) == pytest.approx(1.0)
    assert ratio.at(0.75) == pytest.approx(2.0)
    assert share.at(0.5) == pytest.approx(0.15)
    for axis in AXES:
        assert axis.at(0) == axis.low
        assert axis.at(1) == axis.high
        assert axis.share(axis.at(0.3)) == pytest.approx(0.3)
    with pytest.raises(ValueError, match="is not in a range"):
        SearchAxis("x", 0.0, 1.0, 2.0, False, "")


def test_records_are_complete(tmp_path: Path) -> None:
    result = run_search(Toy(), tmp_path, max_trials=2)
    trial: TrialRecord = result.trials[1]
    assert (trial.number, trial.state, trial.kind, trial.seed, trial.attempts) == (
        2,
        "done",
        "spread",
        1,
        1,
    )
    assert (trial.seconds, trial.model, trial.figures) == (10.0, "kept-2", {"tokens": 1000})
    assert trial.worker == "here"
