"""The data types of a trial: the function that runs it, its result, and its stored record."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from ownwords.core.errors import OwnwordsError

# plan: the plan's own settings; spread: a Sobol point; search: chosen from earlier results;
# again: an earlier trial with another seed.
TrialKind = Literal["plan", "spread", "search", "again"]
# dropped: taken from the queue, but no longer needed.
TrialStatus = Literal["waiting", "running", "done", "failed", "dropped"]

FIRST_SEED = 1  # the seed of all trials except repetitions


class TrialFailedError(OwnwordsError):
    """A trial failed because of its settings; the search continues."""


@dataclass(frozen=True)
class TrialResult:
    """The result of a trial; a lower score is better."""

    score: float
    seconds: float  # over all attempts
    model: str = ""  # name of the saved model
    figures: Mapping[str, object] = field(default_factory=dict)  # JSON values for the tables


class TrialFunction(Protocol):
    """Runs a trial within about `seconds`, resuming an interrupted one of the same arguments.

    After TrialFailedError the search continues with the next trial; any other error ends it.
    """

    def __call__(self, settings: Mapping[str, float], seconds: float, seed: int) -> TrialResult: ...


@dataclass(frozen=True)
class TrialRecord:
    """A trial as the storage holds it; `number` starts at 1."""

    number: int
    state: TrialStatus
    kind: TrialKind
    seed: int
    settings: Mapping[str, float]
    score: float | None = None
    seconds: float = 0.0
    model: str = ""
    figures: Mapping[str, object] = field(default_factory=dict)
    error: str = ""
    worker: str = ""  # the worker that ran or runs it
    attempts: int = 0
    started_at: float | None = None  # Unix time
    repeats: int = 0  # number of the trial that this one repeats; 0 if it is no repetition
    finalists: tuple[int, ...] = ()  # of a repetition: the numbers of all trials to repeat,
    seeds: int = 0  # and the number of seeds for each


def scored_trials(trials: Sequence[TrialRecord]) -> list[TrialRecord]:
    """The finished trials with a score, the best first."""
    scored = [trial for trial in trials if trial.state == "done" and trial.score is not None]
    return sorted(scored, key=lambda trial: (trial.score, trial.number))


def choices(trials: Sequence[TrialRecord]) -> list[TrialRecord]:
    """All trials except repetitions."""
    return [trial for trial in trials if trial.kind != "again"]


def repetitions(trials: Sequence[TrialRecord]) -> list[TrialRecord]:
    """The repetitions that count, without duplicates.

    Two processes may enqueue repetitions at the same time. The choice of the first one applies, and
    of two repetitions with the same trial and seed the first counts.
    """
    again = [trial for trial in trials if trial.kind == "again" and trial.state != "dropped"]
    first: dict[tuple[int, int], TrialRecord] = {}
    for trial in again:
        if trial.finalists == again[0].finalists and trial.seeds == again[0].seeds:
            first.setdefault((trial.repeats, trial.seed), trial)
    return list(first.values())
