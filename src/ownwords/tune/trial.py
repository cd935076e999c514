"""What was tried: one record a trial, as everything else here reads it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from ownwords.core.errors import OwnwordsError

# plan: the plan's own choice; spread: one of the points spread evenly over the ranges; search:
# chosen by what came of those before; again: one of those before, with another seed.
TrialKind = Literal["plan", "spread", "search", "again"]
# dropped: not wanted any more, when its turn came.
TrialStatus = Literal["waiting", "running", "done", "failed", "dropped"]

FIRST_SEED = 1  # of all trials but those that are made again


class TrialFailedError(OwnwordsError):
    """These settings cannot be tried, or nothing came of it; the search goes on."""


@dataclass(frozen=True)
class TrialResult:
    """What came of a trial; the lower its score, the better.

    `kept` is the name of what it left behind, `told` are figures (as JSON has them) to be shown.
    """

    score: float
    seconds: float  # over all the times it was begun
    kept: str = ""
    told: Mapping[str, object] = field(default_factory=dict)


class TrialFunction(Protocol):
    """What is searched over. It takes about so many seconds at most.

    What was begun before with the same settings and seed is gone on with. `TrialFailedError` is
    told, and the search goes on; anything else ends it.
    """

    def __call__(self, settings: Mapping[str, float], seconds: float, seed: int) -> TrialResult: ...


@dataclass(frozen=True)
class TrialRecord:
    """One trial as the record has it, `number` from 1 on."""

    number: int
    state: TrialStatus
    kind: TrialKind
    seed: int
    settings: Mapping[str, float]
    score: float | None = None
    seconds: float = 0.0
    kept: str = ""
    told: Mapping[str, object] = field(default_factory=dict)
    why: str = ""  # it failed
    place: str = ""  # where it was or is tried
    times: int = 0  # that it was begun
    begun: float | None = None  # in seconds since 1970
    of: int = 0  # the number of the trial that this one repeats
    finalists: tuple[int, ...] = ()  # said by a repetition: which trials are repeated,
    seeds: int = 0  # and with how many seeds


def done(tried: Sequence[TrialRecord]) -> list[TrialRecord]:
    """Those with a score, the best first."""
    scored = [one for one in tried if one.state == "done" and one.score is not None]
    return sorted(scored, key=lambda one: (one.score, one.number))


def searched(tried: Sequence[TrialRecord]) -> list[TrialRecord]:
    """All but repetitions."""
    return [one for one in tried if one.kind != "again"]


def repeated(tried: Sequence[TrialRecord]) -> list[TrialRecord]:
    """The repetitions that count.

    Two processes may close the search at the same moment: the first to have said which trials are
    repeated decides, and of two repetitions of the same the first counts.
    """
    again = [one for one in tried if one.kind == "again" and one.state != "dropped"]
    first: dict[tuple[int, int], TrialRecord] = {}
    for one in again:
        if one.finalists == again[0].finalists and one.seeds == again[0].seeds:
            first.setdefault((one.of, one.seed), one)
    return list(first.values())
