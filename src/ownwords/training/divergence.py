"""Whether a training is still well: no loss that is not a number, none that runs away."""

import math
import statistics
from collections.abc import Mapping

WINDOW = 64  # losses that the median and the spread are taken of
_LEAST = 32  # before so many nothing can be said: a fresh model's loss may rise before it falls
_IN_A_ROW = 4  # a single batch may be of an odd text; so many in a row are not
_NATS = 1.0
_SPREADS = 8.0
_NOT_FINITE_IN_A_ROW = 3


class DivergenceDetector:
    """Reads the loss of every step, in order, and says when something is wrong.

    A run-away: four losses in a row, each over the lowest median there was by a whole nat and by
    eight robust spreads (median absolute deviations, scaled to a normal distribution's). Compared
    with the lowest median rather than the last, so that a slow divergence does not hide itself.
    """

    def __init__(self) -> None:
        self._losses: list[float] = []
        self._lowest = math.inf
        self._high = 0
        self._without_gradient = 0

    def seen(self, loss: float, gradient_norm: float) -> str:
        """What is wrong after this step, as the beginning of a sentence; empty if nothing is."""
        if not math.isfinite(loss):
            return "the loss is not a number"
        # The optimizer leaves such a step out by itself: once is nothing, again and again is.
        finite = math.isfinite(gradient_norm)
        self._without_gradient = 0 if finite else self._without_gradient + 1
        if self._without_gradient >= _NOT_FINITE_IN_A_ROW:
            return f"the gradients of {_NOT_FINITE_IN_A_ROW} steps in a row are not finite"
        if len(self._losses) >= _LEAST and loss > self._bound():
            self._high += 1
            if self._high >= _IN_A_ROW:
                return f"the loss ran away, from {self._lowest:.2f} to {loss:.2f} nats"
            return ""
        self._high = 0
        self._losses = [*self._losses, loss][-WINDOW:]
        if len(self._losses) >= _LEAST:
            self._lowest = min(self._lowest, statistics.median(self._losses))
        return ""

    def _bound(self) -> float:
        middle = statistics.median(self._losses)
        spread = 1.4826 * statistics.median(abs(loss - middle) for loss in self._losses)
        return self._lowest + max(_NATS, _SPREADS * spread)

    def state(self) -> dict[str, object]:
        """For a checkpoint."""
        return {
            "losses": self._losses,
            "lowest": self._lowest if math.isfinite(self._lowest) else None,
            "high": self._high,
            "without_gradient": self._without_gradient,
        }

    @classmethod
    def restored(cls, state: Mapping[str, object]) -> "DivergenceDetector":
        """As it was when `state` was taken."""
        watch = cls()
        losses, lowest = state["losses"], state["lowest"]
        assert isinstance(losses, list)
        watch._losses = [float(loss) for loss in losses]
        watch._lowest = float(lowest) if isinstance(lowest, float | int) else math.inf
        watch._high = int(str(state["high"]))
        watch._without_gradient = int(str(state["without_gradient"]))
        return watch
