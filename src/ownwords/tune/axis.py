"""A dimension of the search space."""

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class SearchAxis:
    """A range of values that includes the plan's own; a ratio is searched by its logarithm."""

    name: str
    low: float
    high: float
    plan: float
    is_ratio: bool
    means: str  # for the user: "learning rate, times the plan's"

    def __post_init__(self) -> None:
        if not self.low <= self.plan <= self.high or self.low == self.high:
            raise ValueError(
                f"{self.name}: {self.plan} is not in a range {self.low} to {self.high}"
            )
        if self.is_ratio and self.low <= 0:
            raise ValueError(f"{self.name}: a ratio is above 0")

    def at(self, share: float) -> float:
        """The value at that share of the way from low to high."""
        if self.is_ratio:
            value = self.low * math.pow(self.high / self.low, share)
        else:
            value = self.low + (self.high - self.low) * share
        return min(self.high, max(self.low, value))

    def share(self, value: float) -> float:
        """The inverse of `at`: how far a value is from low to high."""
        if self.is_ratio:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)
