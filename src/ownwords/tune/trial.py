"""The trials of a search: what is run, its result, and its record."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from ownwords.core.errors import OwnwordsError

# plan: the plan's own settings; spread: a Sobol point; search: chosen from earlier results;
# again: an earlier trial with another seed.
TrialKind = Literal["plan", "spread", "search", "again"]
# dropped: no longer wanted when its turn came.
TrialStatus = Literal["waiting", "running", "done", "failed", "dropped"]

FIRST_SEED = 1  # of all trials but repetitions


class TrialFailedError(OwnwordsError):
    """These settings cannot be tried, or gave no result; the search continues."""


@dataclass(frozen=True)
class TrialResult:
    """The result of a trial; a lower score is better."""

    score: float
    seconds: float  # over all attempts
    model: str = ""  # name of the model it left
    figures: Mapping[str, object] = field(default_factory=dict)  # to show, as JSON has them


class TrialFunction(Protocol):
    """Runs a trial in about so many seconds at most, resuming one with the same settings and seed.

    TrialFailedError is recorded and the search continues; any other error ends it.
    """

    def __call__(self, settings: Mapping[str, float], seconds: float, seed: int) -> TrialResult: ...


@dataclass(frozen=True)
class TrialRecord:
    """A trial in the storage, `number` from 1."""

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
    worker: str = ""  # which ran or runs it
    attempts: int = 0
    started_at: float | None = None  # seconds since 1970
    repeats: int = 0  # the number of the trial that this one repeats
    finalists: tuple[int, ...] = ()  # of a repetition: all trials to repeat,
    seeds: int = 0  # and with how many seeds


def scored_trials(trials: Sequence[TrialRecord]) -> list[TrialRecord]:
    """Those with a score, the best first."""
    scored = [trial for trial in trials if trial.state == "done" and trial.score is not None]
    return sorted(scored, key=lambda trial: (trial.score, trial.number))


def choices(trials: Sequence[TrialRecord]) -> list[TrialRecord]:
    """All but repetitions."""
    return [trial for trial in trials if trial.kind != "again"]


def repetitions(trials: Sequence[TrialRecord]) -> list[TrialRecord]:
    """The repetitions that count.

    Two processes may close the search at the same moment: the first decides which trials are
    repeated, and of two equal repetitions the first counts.
    """
    again = [trial for trial in trials if trial.kind == "again" and trial.state != "dropped"]
    first: dict[tuple[int, int], TrialRecord] = {}
    for trial in again:
        if trial.finalists == again[0].finalists and trial.seeds == again[0].seeds:
            first.setdefault((trial.repeats, trial.seed), trial)
    return list(first.values())
