"""The search loop: which trial runs next, as long as there is time; it knows nothing of training.

First the plan's own settings, then Sobol points, then what TPE suggests. Every trial has the full
length: what suits a short training does not suit a longer one. At the end the best two and the plan
are repeated with fresh seeds, and only those decide.

A killed search resumes from its storage, which several processes may share.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from ownwords.core.errors import ConfigError
from ownwords.core.workspace import translate_os_errors, try_lock
from ownwords.tune.study import Study
from ownwords.tune.trial import (
    FIRST_SEED,
    TrialFailedError,
    TrialFunction,
    TrialRecord,
    choices,
    repetitions,
    scored_trials,
)
from ownwords.tune.verdict import TuneVerdict, judge

# (finalists, fresh seeds, least number of trials in the budget): the first that fits is taken.
_REPETITIONS = ((2, 3, 14), (1, 3, 9), (1, 2, 7))
_LEAST_TRIALS = 2.0
_MOST_FAILURES = 8  # in a row, which end the search
_MOST_ATTEMPTS = 3  # at a trial whose process is killed each time
# A trial of another worker that is this old, in trial lengths plus seconds, is given up.
_LOST_LENGTHS, _LOST_S = 3.0, 600.0
_START_TIMEOUT_S = 60.0  # between taking a trial and starting it, however slow the storage is


@dataclass(frozen=True)
class SearchBudget:
    """Time, number of trials, and the worker that runs them."""

    budget_s: float  # over all sessions of this search here
    each_s: float  # of one trial, at most
    worker: str  # the same when the search is resumed, unlike any other worker's
    folder: Path  # for locks
    is_shared: bool = False  # with workers elsewhere
    max_trials: int | None = None  # without repetitions
    poll_s: float = 2.0  # between looks at what other workers have


@dataclass(frozen=True)
class SearchResult:
    """All trials, and the verdict."""

    trials: tuple[TrialRecord, ...]
    verdict: TuneVerdict


def search(
    run_trial: TrialFunction,
    study: Study,
    budget: SearchBudget,
    *,
    on_trial_end: Callable[[Sequence[TrialRecord]], None] = lambda _: None,
    clock: Callable[[], float] = time.monotonic,
    began: float | None = None,
) -> SearchResult:
    """Run as many trials as there is time for; ConfigError where there is time for one at most.

    `on_trial_end` gets all trials whenever one has ended. `began` is when the time of this process
    starts to count, by `clock`.
    """
    if budget.budget_s < _LEAST_TRIALS * budget.each_s:
        raise ConfigError(
            f"{budget.budget_s / 60:g} minutes are too few for two trials of"
            f" {budget.each_s / 60:g} minutes",
            hint="give more --minutes, or fewer to --each trial",
        )
    loop = _SearchLoop(
        run_trial, study, budget, on_trial_end, clock, clock() if began is None else began
    )
    while loop.run_next():
        pass
    trials = study.trials()
    on_trial_end(trials)
    return SearchResult(tuple(trials), judge(trials))


class _SearchLoop:
    def __init__(
        self,
        run_trial: TrialFunction,
        study: Study,
        budget: SearchBudget,
        on_trial_end: Callable[[Sequence[TrialRecord]], None],
        clock: Callable[[], float],
        began: float,
    ) -> None:
        self.run_trial, self.study, self.budget = run_trial, study, budget
        self.on_trial_end, self.clock, self.began = on_trial_end, clock, began
        own = [trial for trial in study.trials() if trial.worker == budget.worker]
        self.earlier_s = sum(trial.seconds for trial in own if trial.state in ("done", "failed"))
        self.first_seen: dict[int, float] = {}
        with translate_os_errors(budget.folder):
            budget.folder.mkdir(parents=True, exist_ok=True)

    @property
    def left_s(self) -> float:
        """Seconds left of the budget."""
        return self.budget.budget_s - self.earlier_s - (self.clock() - self.began)

    # --- which trial is next ----------------------------------------------------------------------

    def run_next(self) -> bool:
        """Run a trial, or wait for one of another process; False when the search is over."""
        self.resume_own()
        trials = self.study.trials()
        self.give_up_lost(trials)
        if not repetitions(trials):
            if self.may_search(trials):
                self.take(self.study.next_trial(self.budget.worker))
                return True
            if self.may_wait(trials, self.repetition_s(trials)):
                return True
            if not self.enqueue_finalists(trials):
                return False
            trials = self.study.trials()
        self.complete_queue(trials)
        trials = self.study.trials()
        waiting = [trial for trial in repetitions(trials) if trial.state == "waiting"]
        if not waiting:
            return self.may_wait(trials, 0.0)
        if self.left_s < self.length_s(trials, waiting[0].repeats):
            return False
        self.take(self.study.next_trial(self.budget.worker))
        return True

    def may_search(self, trials: Sequence[TrialRecord]) -> bool:
        """Whether there is time for another choice and then for the repetitions."""
        begun = [t for t in choices(trials) if t.state not in ("waiting", "dropped")]
        if self.budget.max_trials is not None and len(begun) >= self.budget.max_trials:
            return False
        ended = [trial.state for trial in begun if trial.state in ("done", "failed")]
        if ended[-_MOST_FAILURES:] == ["failed"] * _MOST_FAILURES:
            return False
        if not begun:
            return self.left_s > 0
        return self.left_s >= self.longest_s(trials) + self.repetition_s(trials)

    def may_wait(self, trials: Sequence[TrialRecord], needed_s: float) -> bool:
        """Wait a moment for the trial of another process, if one runs and there is time."""
        if self.left_s <= needed_s or not any(trial.state == "running" for trial in trials):
            return False
        time.sleep(min(self.budget.poll_s, max(0.0, self.left_s)))
        return True

    # --- repetitions ------------------------------------------------------------------------------

    def enqueue_finalists(self, trials: Sequence[TrialRecord]) -> bool:
        """Choose the best to repeat, as many as there is time for; False if none."""
        best = self.best(trials)
        for finalists, seeds in self.affordable(trials):
            chosen = best[:finalists]
            if chosen and self.left_s >= self.cost_s(trials, chosen, seeds):
                self.enqueue(trials, [trial.number for trial in chosen], seeds, known=set())
                return True
        return False

    def complete_queue(self, trials: Sequence[TrialRecord]) -> None:
        """Enqueue what is missing where a process was killed while it enqueued the finalists."""
        again = repetitions(trials)
        known = {(trial.repeats, trial.seed) for trial in again}
        self.enqueue(trials, again[0].finalists, again[0].seeds, known)

    def enqueue(
        self,
        trials: Sequence[TrialRecord],
        finalists: Sequence[int],
        seeds: int,
        known: set[tuple[int, int]],
    ) -> None:
        settings = {trial.number: trial.settings for trial in trials}
        settings[1] = {axis.name: axis.plan for axis in self.study.axes}
        # Seed by seed, so that whatever is done when time runs out can be compared.
        for seed in range(FIRST_SEED + 1, FIRST_SEED + 1 + seeds):
            for number in (1, *finalists):
                if (number, seed) not in known:
                    self.study.enqueue_repetition(number, seed, settings[number], finalists, seeds)

    def affordable(self, trials: Sequence[TrialRecord]) -> list[tuple[int, int]]:
        """(finalists, seeds) that the budget allows, the most thorough first."""
        count = self.budget.budget_s / max(self.length_s(trials, 1), 1e-9)
        if self.budget.max_trials is not None:
            count = float("inf")  # all time beyond the trials asked for is for repetitions
        return [(best, seeds) for best, seeds, least in _REPETITIONS if count >= least]

    def repetition_s(self, trials: Sequence[TrialRecord]) -> float:
        """Seconds reserved for the repetitions."""
        wanted = self.affordable(trials)
        if not wanted:
            return 0.0
        finalists, seeds = wanted[0]
        best = self.best(trials)[:finalists]
        missing = (finalists - len(best)) * seeds * self.longest_s(trials)
        return self.cost_s(trials, best, seeds) + missing

    def best(self, trials: Sequence[TrialRecord]) -> list[TrialRecord]:
        """The scored choices but the plan, the best first."""
        return [trial for trial in scored_trials(trials) if trial.kind in ("spread", "search")]

    def cost_s(
        self, trials: Sequence[TrialRecord], best: Sequence[TrialRecord], seeds: int
    ) -> float:
        plan = self.length_s(trials, 1)
        return seeds * (plan + sum(self.length_s(trials, trial.number) for trial in best))

    def length_s(self, trials: Sequence[TrialRecord], number: int) -> float:
        """How long it takes to repeat a trial."""
        same = [t for t in trials if number in (t.number, t.repeats) and t.state == "done"]
        return max((trial.seconds for trial in same), default=self.longest_s(trials))

    def longest_s(self, trials: Sequence[TrialRecord]) -> float:
        """How long another trial may take."""
        seconds = (trial.seconds for trial in scored_trials(trials))
        return max(seconds, default=self.budget.each_s)

    # --- running a trial --------------------------------------------------------------------------

    def resume_own(self) -> None:
        """Resume the trials that a killed process of this worker was running."""
        for trial in self.study.trials():
            if trial.state != "running" or trial.worker != self.budget.worker:
                continue
            if not trial.attempts and self.budget.is_shared:
                # Another worker may have taken it from the queue, and be about to start it.
                seen = self.first_seen.setdefault(trial.number, time.monotonic())
                if time.monotonic() - seen < _START_TIMEOUT_S:
                    continue
            self.run(trial.number)

    def take(self, number: int) -> None:
        """Run a trial that was just taken, if it is still wanted."""
        trials = self.study.trials()
        again = {trial.number for trial in repetitions(trials)}
        if number in again or (not again and trials[number - 1].kind != "again"):
            self.run(number)
        else:
            self.study.drop(number)

    def run(self, number: int) -> None:
        """Run a trial, unless another process here does."""
        with self.locked(number) as is_ours:
            trial = self.study.trials()[number - 1]
            if not is_ours or trial.state != "running":
                return
            if trial.attempts >= _MOST_ATTEMPTS:
                self.study.fail(number, f"its process was killed {trial.attempts} times")
                return
            if trial.attempts and trial.worker != self.budget.worker:
                return
            trial = self.study.start(trial, self.budget.worker)
            if self.budget.is_shared and not self.is_still_ours(number):
                return
            began = self.clock()
            try:
                result = self.run_trial(trial.settings, self.budget.each_s, trial.seed)
            except TrialFailedError as error:
                self.study.fail(number, error.message, self.clock() - began)
            else:
                # What an earlier process spent on it counts, too.
                self.earlier_s += max(0.0, result.seconds - (self.clock() - began))
                self.study.complete(number, result)
            self.on_trial_end(self.study.trials())

    def is_still_ours(self, number: int) -> bool:
        """Whether no other worker took the same trial: SQLite lets two take one from its queue."""
        time.sleep(self.budget.poll_s)
        return self.study.trials()[number - 1].worker == self.budget.worker

    @contextmanager
    def locked(self, number: int) -> Iterator[bool]:
        """Whether this process alone runs the trial here, from now on."""
        path = self.budget.folder / f"trial-{number:04d}.lock"
        with ExitStack() as stack:
            with translate_os_errors(path):
                file = stack.enter_context(path.open("a+", encoding="utf-8"))
            yield try_lock(file.fileno())

    def give_up_lost(self, trials: Sequence[TrialRecord]) -> None:
        """Fail the trials of workers that have been silent for long."""
        oldest = time.time() - _LOST_LENGTHS * self.budget.each_s - _LOST_S
        for trial in trials:
            is_elsewhere = trial.state == "running" and trial.worker != self.budget.worker
            if is_elsewhere and trial.started_at is not None and trial.started_at < oldest:
                self.study.fail(trial.number, "its worker went silent", by_chance=True)
