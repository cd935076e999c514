"""The search: what is tried next, as long as there is time; knows nothing of what is trained.

First the plan's own choice, then points spread evenly, then what those suggest. Every trial is a
whole one, at the length at which the winner is wanted: what suits a short training (how much to
forget, how much to drop, which size) is not what suits a longer one. In the end the best two and
the plan are tried again with fresh seeds, and only those seeds say whether anything was gained.

Killed at any moment, the same search goes on from its record. Several processes may share one.
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
    done,
    repeated,
    searched,
)
from ownwords.tune.verdict import TuneVerdict, judge

# How many of the best are tried again, with how many fresh seeds, and how many trials as long as
# the plan's the budget must have room for: those, the plan's own, and some to choose from.
_REPETITIONS = ((2, 3, 14), (1, 3, 9), (1, 2, 7))
_LEAST = 2.0  # trials of full length that a budget must have room for
_IN_A_ROW = 8  # failures that end the search: something is wrong with all of them
_TIMES = 3  # that a trial is begun, where what makes it is killed each time
# Of another machine: a trial that old, in lengths of a trial and seconds, is given up.
_LOST, _LOST_S = 3.0, 600.0
_MOMENT_S = 60.0  # in which whoever was given a trial begins it, however slow the storage is


@dataclass(frozen=True)
class SearchBudget:
    """Within which bounds is searched, and where."""

    budget_s: float  # over all the times this search is begun here
    each_s: float  # of one trial, at most
    place: str  # of whoever searches: found again when it is resumed, unlike all others'
    folder: Path  # for locks
    is_shared: bool = False  # with other places
    most: int | None = None  # trials beside repetitions
    poll_s: float = 2.0  # how often others are asked for what they have


@dataclass(frozen=True)
class SearchResult:
    """What a search came to."""

    tried: tuple[TrialRecord, ...]
    verdict: TuneVerdict


def search(
    trial: TrialFunction,
    book: Study,
    terms: SearchBudget,
    *,
    told: Callable[[Sequence[TrialRecord]], None] = lambda _: None,
    clock: Callable[[], float] = time.monotonic,
    began: float | None = None,
) -> SearchResult:
    """Try as much as there is time for; `told` hears of all trials whenever one has ended.

    `began` is when the time of this process begins to count, by `clock`. ConfigError where the time
    leaves no choice.
    """
    if terms.budget_s < _LEAST * terms.each_s:
        raise ConfigError(
            f"in {terms.budget_s / 60:g} minutes there is no time for two trials of"
            f" {terms.each_s / 60:g} minutes",
            hint="give more --minutes, or fewer to --each trial",
        )
    return _Search(trial, book, terms, told, clock, clock() if began is None else began).run()


class _Search:
    def __init__(
        self,
        trial: TrialFunction,
        book: Study,
        terms: SearchBudget,
        told: Callable[[Sequence[TrialRecord]], None],
        clock: Callable[[], float],
        began: float,
    ) -> None:
        self.trial, self.book, self.terms = trial, book, terms
        self.told, self.clock, self.began = told, clock, began
        ended = [one for one in book.tried() if one.place == terms.place]
        self.earlier_s = sum(one.seconds for one in ended if one.state in ("done", "failed"))
        self.first_seen: dict[int, float] = {}
        with translate_os_errors(terms.folder):
            terms.folder.mkdir(parents=True, exist_ok=True)

    def run(self) -> SearchResult:
        while self.one_more():
            pass
        tried = self.book.tried()
        self.told(tried)
        return SearchResult(tuple(tried), judge(tried))

    @property
    def left_s(self) -> float:
        """Of the time there is."""
        return self.terms.budget_s - self.earlier_s - (self.clock() - self.began)

    # --- what is next ---------------------------------------------------------------------------

    def one_more(self) -> bool:
        """Make a trial, or wait for one of another process; False where nothing is left to do."""
        self.go_on()
        tried = self.book.tried()
        self.give_up_lost(tried)
        if not repeated(tried):
            if self.may_search(tried):
                self.take(self.book.ask(self.terms.place))
                return True
            if self.may_wait(tried, self.repeating_s(tried)):
                return True
            if not self.close(tried):
                return False
            tried = self.book.tried()
        self.complete_queue(tried)
        tried = self.book.tried()
        waiting = [one for one in repeated(tried) if one.state == "waiting"]
        if not waiting:
            return self.may_wait(tried, 0.0)
        if self.left_s < self.length_s(tried, waiting[0].of):
            return False
        self.take(self.book.ask(self.terms.place))
        return True

    def may_search(self, tried: Sequence[TrialRecord]) -> bool:
        """Whether there is time for another choice, and then for the repetitions."""
        so_far = [one for one in searched(tried) if one.state not in ("waiting", "dropped")]
        if self.terms.most is not None and len(so_far) >= self.terms.most:
            return False
        ended = [one for one in so_far if one.state in ("done", "failed")]
        if [one.state for one in ended[-_IN_A_ROW:]] == ["failed"] * _IN_A_ROW:
            return False
        if not so_far:
            return self.left_s > 0
        return self.left_s >= self.longest_s(tried) + self.repeating_s(tried)

    def may_wait(self, tried: Sequence[TrialRecord], needed_s: float) -> bool:
        """Wait a moment for another process's trial, where there is one and there is time."""
        if self.left_s <= needed_s or not any(one.state == "running" for one in tried):
            return False
        time.sleep(min(self.terms.poll_s, max(0.0, self.left_s)))
        return True

    # --- repetitions ----------------------------------------------------------------------------

    def close(self, tried: Sequence[TrialRecord]) -> bool:
        """Choose the best to be tried again, as many as there is time for; False if none are."""
        best = self.best(tried)
        for finalists, seeds in self.repetitions(tried):
            chosen = best[:finalists]
            if chosen and self.left_s >= self.cost_s(tried, chosen, seeds):
                self.queue(tried, [one.number for one in chosen], seeds, known=set())
                return True
        return False

    def complete_queue(self, tried: Sequence[TrialRecord]) -> None:
        """Where whoever closed the search was killed before all repetitions were in the queue."""
        again = repeated(tried)
        known = {(one.of, one.seed) for one in again}
        self.queue(tried, again[0].finalists, again[0].seeds, known)

    def queue(
        self,
        tried: Sequence[TrialRecord],
        finalists: Sequence[int],
        seeds: int,
        known: set[tuple[int, int]],
    ) -> None:
        settings = {one.number: one.settings for one in tried}
        settings[1] = {axis.name: axis.plan for axis in self.book.axes}
        # Seed by seed, so that whatever is done when the time is over can be compared.
        for seed in range(FIRST_SEED + 1, FIRST_SEED + 1 + seeds):
            for number in (1, *finalists):
                if (number, seed) not in known:
                    self.book.queue(number, seed, settings[number], finalists, seeds)

    def repetitions(self, tried: Sequence[TrialRecord]) -> list[tuple[int, int]]:
        """How many of the best with how many seeds: what the budget has room for, and less."""
        room = self.terms.budget_s / max(self.length_s(tried, 1), 1e-9)
        if self.terms.most is not None:
            room = float("inf")  # how many are chosen from is said; all other time is for these
        return [(best, seeds) for best, seeds, least in _REPETITIONS if room >= least]

    def repeating_s(self, tried: Sequence[TrialRecord]) -> float:
        """What is kept back for the repetitions."""
        wanted = self.repetitions(tried)
        if not wanted:
            return 0.0
        finalists, seeds = wanted[0]
        best = self.best(tried)[:finalists]
        missing = (finalists - len(best)) * seeds * self.longest_s(tried)
        return self.cost_s(tried, best, seeds) + missing

    def best(self, tried: Sequence[TrialRecord]) -> list[TrialRecord]:
        """The best of all but the plan."""
        return [one for one in done(tried) if one.kind in ("spread", "search")]

    def cost_s(
        self, tried: Sequence[TrialRecord], best: Sequence[TrialRecord], seeds: int
    ) -> float:
        plan = self.length_s(tried, 1)
        return seeds * (plan + sum(self.length_s(tried, one.number) for one in best))

    def length_s(self, tried: Sequence[TrialRecord], number: int) -> float:
        """How long a trial takes that is made again."""
        of = [one for one in tried if number in (one.number, one.of) and one.state == "done"]
        return max((one.seconds for one in of), default=self.longest_s(tried))

    def longest_s(self, tried: Sequence[TrialRecord]) -> float:
        """How long another may take, as far as that is known."""
        return max((one.seconds for one in done(tried)), default=self.terms.each_s)

    # --- a trial --------------------------------------------------------------------------------

    def go_on(self) -> None:
        """With the trials that a process here was making when it was killed."""
        for one in self.book.tried():
            if one.state != "running" or one.place != self.terms.place:
                continue
            if not one.times and self.terms.is_shared:
                # Any machine may have taken it from the queue, and be about to begin.
                seen = self.first_seen.setdefault(one.number, time.monotonic())
                if time.monotonic() - seen < _MOMENT_S:
                    continue
            self.make(one.number)

    def take(self, number: int) -> None:
        """Make a trial that was just given out, if it is still wanted."""
        tried = self.book.tried()
        again = {one.number for one in repeated(tried)}
        if number in again or (not again and tried[number - 1].kind != "again"):
            self.make(number)
        else:
            self.book.drop(number)

    def make(self, number: int) -> None:
        """Make a trial, unless another process here is at it."""
        with self.held(number) as is_ours:
            one = self.book.tried()[number - 1]
            if not is_ours or one.state != "running":
                return
            if one.times >= _TIMES:
                self.book.fail(number, f"what made it was killed {one.times} times")
                return
            if one.times and one.place != self.terms.place:
                return
            one = self.book.begin(one, self.terms.place)
            if self.terms.is_shared and not self.is_still_ours(number):
                return
            began = self.clock()
            try:
                result = self.trial(one.settings, self.terms.each_s, one.seed)
            except TrialFailedError as error:
                self.book.fail(number, error.message, self.clock() - began)
            else:
                # What was done of it before this process began has been paid for as well.
                self.earlier_s += max(0.0, result.seconds - (self.clock() - began))
                self.book.tell(number, result)
            self.told(self.book.tried())

    def is_still_ours(self, number: int) -> bool:
        """Whether no other machine was given the same: SQLite lets two take one from its queue."""
        time.sleep(self.terms.poll_s)
        return self.book.tried()[number - 1].place == self.terms.place

    @contextmanager
    def held(self, number: int) -> Iterator[bool]:
        """Whether this process alone is at a trial of this place, from here on."""
        path = self.terms.folder / f"trial-{number:04d}.lock"
        with ExitStack() as stack:
            with translate_os_errors(path):
                file = stack.enter_context(path.open("a+", encoding="utf-8"))
            yield try_lock(file.fileno())

    def give_up_lost(self, tried: Sequence[TrialRecord]) -> None:
        """Trials of machines that have not been heard of for long."""
        oldest = time.time() - _LOST * self.terms.each_s - _LOST_S
        for one in tried:
            is_elsewhere = one.state == "running" and one.place != self.terms.place
            if is_elsewhere and one.begun is not None and one.begun < oldest:
                why = "nothing more was heard of the machine that made it"
                self.book.fail(one.number, why, by_chance=True)
