"""The search loop: chooses and runs trials until the time is used up, independent of training.

Trial 1 has the plan's own settings; Sobol points follow, then suggestions of TPE. Every trial has
the full length, since the best settings depend on the length of a training. At the end the plan and
the best one or two trials are repeated with new seeds, and those scores decide.

A killed search resumes from its storage, which several processes can share.
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

# (finalists, new seeds, minimum number of trials in the budget), the most thorough first.
_REPETITIONS = ((2, 3, 14), (1, 3, 9), (1, 2, 7))
_LEAST_TRIALS = 2.0
_MOST_FAILURES = 8  # consecutive failures that end the search
_MOST_ATTEMPTS = 3  # per trial, if its process is killed each time
# A trial of another worker fails after this many trial lengths plus this many seconds.
_LOST_LENGTHS, _LOST_S = 3.0, 600.0
_START_TIMEOUT_S = 60.0  # allowed between taking a trial and starting it, for slow storages


@dataclass(frozen=True)
class SearchBudget:
    """Time, number of trials, and the worker that runs them."""

    budget_s: float  # over all sessions of this worker
    each_s: float  # maximum length of one trial
    worker: str  # a name unique to this worker, the same when the search is resumed
    folder: Path  # for the lock files
    is_shared: bool = False  # whether workers elsewhere use the same storage
    max_trials: int | None = None  # not counting repetitions
    poll_s: float = 2.0  # interval between polls of the storage for other workers' trials


@dataclass(frozen=True)
class SearchResult:
    """All trials of a search, and the verdict."""

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
    """Run as many trials as the budget allows. Raises ConfigError if it is too short for two.

    `on_trial_end` is called with all trials whenever one has ended. `began` is the reading of
    `clock` from which the time of this process counts; by default the time of the call.
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
        """Run a trial or wait for another process's trial; return False when the search is over."""
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
        """Whether there is time for another new trial and then for the repetitions."""
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
        """Wait for another process's running trial; False if there is none, or no time."""
        if self.left_s <= needed_s or not any(trial.state == "running" for trial in trials):
            return False
        time.sleep(min(self.budget.poll_s, max(0.0, self.left_s)))
        return True

    # --- repetitions ------------------------------------------------------------------------------

    def enqueue_finalists(self, trials: Sequence[TrialRecord]) -> bool:
        """Enqueue repetitions of the best trials, as time allows; False if there are none."""
        best = self.best(trials)
        for finalists, seeds in self.affordable(trials):
            chosen = best[:finalists]
            if chosen and self.left_s >= self.cost_s(trials, chosen, seeds):
                self.enqueue(trials, [trial.number for trial in chosen], seeds, known=set())
                return True
        return False

    def complete_queue(self, trials: Sequence[TrialRecord]) -> None:
        """Enqueue the repetitions that are missing after a process was killed while enqueueing."""
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
        # Seed by seed, so that the finished repetitions are comparable when time runs out.
        for seed in range(FIRST_SEED + 1, FIRST_SEED + 1 + seeds):
            for number in (1, *finalists):
                if (number, seed) not in known:
                    self.study.enqueue_repetition(number, seed, settings[number], finalists, seeds)

    def affordable(self, trials: Sequence[TrialRecord]) -> list[tuple[int, int]]:
        """The pairs (finalists, seeds) that the budget allows, the most thorough first."""
        count = self.budget.budget_s / max(self.length_s(trials, 1), 1e-9)
        if self.budget.max_trials is not None:
            count = float("inf")  # all time left after the requested trials goes to repetitions
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
        """The scored trials without the plan and the repetitions, the best first."""
        return [trial for trial in scored_trials(trials) if trial.kind in ("spread", "search")]

    def cost_s(
        self, trials: Sequence[TrialRecord], best: Sequence[TrialRecord], seeds: int
    ) -> float:
        plan = self.length_s(trials, 1)
        return seeds * (plan + sum(self.length_s(trials, trial.number) for trial in best))

    def length_s(self, trials: Sequence[TrialRecord], number: int) -> float:
        """The estimated seconds to repeat a trial."""
        same = [t for t in trials if number in (t.number, t.repeats) and t.state == "done"]
        return max((trial.seconds for trial in same), default=self.longest_s(trials))

    def longest_s(self, trials: Sequence[TrialRecord]) -> float:
        """The estimated seconds of a new trial: the longest so far, or the maximum length."""
        seconds = (trial.seconds for trial in scored_trials(trials))
        return max(seconds, default=self.budget.each_s)

    # --- running a trial --------------------------------------------------------------------------

    def resume_own(self) -> None:
        """Resume the trials that a killed process of this worker was running.

        A repetition whose process was killed right after taking it names no worker: anyone may
        resume it.
        """
        for trial in self.study.trials():
            if trial.state != "running" or trial.worker not in (self.budget.worker, ""):
                continue
            if not trial.attempts and self.budget.is_shared:
                # Another worker may have taken it from the queue, too, and be about to start it.
                seen = self.first_seen.setdefault(trial.number, time.monotonic())
                if time.monotonic() - seen < _START_TIMEOUT_S:
                    continue
            self.run(trial.number)

    def take(self, number: int) -> None:
        """Run a trial that was just taken, or drop it if it is no longer wanted."""
        trials = self.study.trials()
        again = {trial.number for trial in repetitions(trials)}
        if number in again or (not again and trials[number - 1].kind != "again"):
            self.run(number)
        else:
            self.study.drop(number)

    def run(self, number: int) -> None:
        """Run a trial and store its result, unless another process here is running it."""
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
                # Time that an earlier process spent on this trial counts against the budget, too.
                self.earlier_s += max(0.0, result.seconds - (self.clock() - began))
                self.study.complete(number, result)
            self.on_trial_end(self.study.trials())

    def is_still_ours(self, number: int) -> bool:
        """Whether this worker still owns the trial: with SQLite, two can take the same one."""
        time.sleep(self.budget.poll_s)
        return self.study.trials()[number - 1].worker == self.budget.worker

    @contextmanager
    def locked(self, number: int) -> Iterator[bool]:
        """Try to lock the trial's lock file for the block; yields whether that succeeded."""
        path = self.budget.folder / f"trial-{number:04d}.lock"
        with ExitStack() as stack:
            with translate_os_errors(path):
                file = stack.enter_context(path.open("a+", encoding="utf-8"))
            yield try_lock(file.fileno())

    def give_up_lost(self, trials: Sequence[TrialRecord]) -> None:
        """Fail running trials of other workers that started too long ago to be alive."""
        oldest = time.time() - _LOST_LENGTHS * self.budget.each_s - _LOST_S
        for trial in trials:
            is_elsewhere = trial.state == "running" and trial.worker != self.budget.worker
            if is_elsewhere and trial.started_at is not None and trial.started_at < oldest:
                self.study.fail(trial.number, "its worker went silent", by_chance=True)
