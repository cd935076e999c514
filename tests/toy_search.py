"""A toy objective with a known optimum and known noise."""

import hashlib
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ownwords.tune.search import TrialFailedError, TrialResult
from ownwords.tune.verdict import SearchAxis, TrialRecord

AXES = (
    SearchAxis("rate", 0.25, 4.0, 1.0, True),
    SearchAxis("memory", 0.25, 4.0, 1.0, True),
    SearchAxis("dropout", 0.0, 0.3, 0.1, False),
    SearchAxis("size", 0.25, 4.0, 1.0, True),
)
PLAN = {axis.name: axis.plan for axis in AXES}


def share(axis: SearchAxis, value: float) -> float:
    """The place of a value in its range, from 0 to 1."""
    if axis.is_ratio:
        return math.log(value / axis.low) / math.log(axis.high / axis.low)
    return (value - axis.low) / (axis.high - axis.low)


class Clock:
    """Time that passes only on demand."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Toy:
    """1.5 bits at `best`, more by `steep` for each doubling away from it, squared, and noise."""

    clock: Clock = field(default_factory=Clock)
    best: Mapping[str, float] = field(default_factory=lambda: PLAN)
    steep: float = 0.03
    noise: float = 0.004  # standard deviation, in bits
    seconds: float = 10.0
    noise_seed: int = 0
    fails: Sequence[str] = ()  # axes along which the upper half cannot be tried
    trials_run: list[tuple[dict[str, float], int]] = field(default_factory=list)

    def true(self, settings: Mapping[str, float]) -> float:
        far = 0.0
        for axis in AXES:
            width = 4.0  # an axis is four doublings wide
            steps = share(axis, settings[axis.name]) - share(axis, self.best[axis.name])
            far += (width * steps) ** 2
        return 1.5 + self.steep * far

    def __call__(self, trial: TrialRecord) -> TrialResult:
        self.trials_run.append((trial.settings, trial.seed))
        self.clock.now += self.seconds
        for name in self.fails:
            if trial.settings[name] > PLAN[name]:
                raise TrialFailedError(f"{name} is too much")
        noise = normal(self.noise_seed, trial.settings, trial.seed)
        score = self.true(trial.settings) + self.noise * noise
        return TrialResult(score, self.seconds, {"tokens": 1000})


def normal(*parts: object) -> float:
    """A normal draw determined by its arguments."""
    digest = hashlib.sha256(repr(parts).encode()).digest()
    share = (int.from_bytes(digest[:8], "big") + 0.5) / 2**64
    return statistics.NormalDist().inv_cdf(share)


def far(first: Mapping[str, float], second: Mapping[str, float]) -> float:
    """The distance of two points, with each axis scaled to 1."""
    steps = (share(axis, first[axis.name]) - share(axis, second[axis.name]) for axis in AXES)
    return math.sqrt(sum(step**2 for step in steps))
