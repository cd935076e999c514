"""NaN and loss-spike detection."""

import math
import statistics
from collections.abc import Mapping

WINDOW = 64  # number of losses for the median and the spread
_MIN_LOSSES = 32  # a new model's loss may rise before it falls
_IN_A_ROW = 4  # high losses in a row: a single one may come from an odd text
_NATS = 1.0
_SPREADS = 8.0
_NOT_FINITE_IN_A_ROW = 3


class DivergenceDetector:
    """Checks the loss of every step, in order.

    A run diverges if four losses in a row each exceed the lowest median so far by more than one nat
    and by more than eight robust standard deviations (scaled median absolute deviations). The
    lowest median is used, not the last one, so that a slow divergence is found too.
    """

    def __init__(self) -> None:
        self._losses: list[float] = []
        self._lowest = math.inf
        self._high = 0
        self._without_gradient = 0

    def check(self, loss: float, gradient_norm: float) -> str:
        """Check a step; returns the problem as the beginning of a sentence, or ""."""
        if not math.isfinite(loss):
            return "the loss is not a number"
        # The optimizer skips such a step; only several in a row are a problem.
        finite = math.isfinite(gradient_norm)
        self._without_gradient = 0 if finite else self._without_gradient + 1
        if self._without_gradient >= _NOT_FINITE_IN_A_ROW:
            return f"the gradients of {_NOT_FINITE_IN_A_ROW} steps in a row are not finite"
        if len(self._losses) >= _MIN_LOSSES and loss > self._bound():
            self._high += 1
            if self._high >= _IN_A_ROW:
                return f"the loss diverged, from {self._lowest:.2f} to {loss:.2f} nats"
            return ""
        self._high = 0
        self._losses = [*self._losses, loss][-WINDOW:]
        if len(self._losses) >= _MIN_LOSSES:
            self._lowest = min(self._lowest, statistics.median(self._losses))
        return ""

    def _bound(self) -> float:
        median = statistics.median(self._losses)
        spread = 1.4826 * statistics.median(abs(loss - median) for loss in self._losses)
        return self._lowest + max(_NATS, _SPREADS * spread)

    def state(self) -> dict[str, object]:
        """The state for a checkpoint."""
        return {
            "losses": self._losses,
            "lowest": self._lowest if math.isfinite(self._lowest) else None,
            "high": self._high,
            "without_gradient": self._without_gradient,
        }

    @classmethod
    def restored(cls, state: Mapping[str, object]) -> "DivergenceDetector":
        """Make a detector from the state in a checkpoint."""
        detector = cls()
        losses, lowest = state["losses"], state["lowest"]
        assert isinstance(losses, list)
        detector._losses = [float(loss) for loss in losses]
        detector._lowest = float(lowest) if isinstance(lowest, float | int) else math.inf
        detector._high = int(str(state["high"]))
        detector._without_gradient = int(str(state["without_gradient"]))
        return detector
