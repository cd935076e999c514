"""A dimension of the search space."""

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class SearchAxis:
    """A range of values that includes the plan's value; ratios use a logarithmic scale."""

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
        """Map a share in [0, 1] to a value between low and high."""
        if self.is_ratio:
            value = self.low * math.pow(self.high / self.low, share)
        else:
            value = self.low + (self.high - self.low) * share
        return min(self.high, max(self.low, value))

    def share(self, value: float) -> float:
        """Map a value to its share in [0, 1] of the range, the inverse of `at`."""
        if self.is_ratio:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)
