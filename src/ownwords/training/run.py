"""A run: its folder with metrics, samples and checkpoints, and the record of its progress."""

import json
import math
import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ownwords.core.errors import OwnwordsError, WorkspaceError
from ownwords.core.progress import JsonLines, Progress, printable
from ownwords.core.workspace import locked, translate_os_errors, write_atomically
from ownwords.models.untrusted_files import read_json
from ownwords.training.checkpoint import Checkpoints

_LIMITS = "limits.json"

# The time moves the schedule by at most this much a step: after the machine was asleep, too, the
# learning rate decays over several steps.
_MOST_PROGRESS = 0.1
_ROUNDING = 1e-9  # ten times a tenth may be a little less than one
_PRIOR = 0.05  # weight of the planned steps in an estimate, as a share of the run

# Of the detection of divergence:
WINDOW = 64  # number of losses for the median and the spread
_MIN_LOSSES = 32  # a new model's loss may rise before it falls
_IN_A_ROW = 4  # high losses in a row: a single one may come from an odd text
_NATS = 1.0
_SPREADS = 8.0
_NOT_FINITE_IN_A_ROW = 3


class Run:
    """The folder of a run: `config.toml`, `metrics.jsonl`, `samples.txt`, `checkpoints/`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config = folder / "config.toml"
        self.metrics = folder / "metrics.jsonl"
        self.samples = folder / "samples.txt"
        self.checkpoints = Checkpoints(folder / "checkpoints")

    @classmethod
    def new(cls, runs: Path, key: str) -> "Run":
        """Create the run of a key, or open it with its checkpoints if it was started before."""
        if not re.fullmatch(r"[\w.-]{1,100}", key) or not key.strip("."):
            raise WorkspaceError(f"{key!r:.120} cannot be the name of a run")
        with translate_os_errors(runs / key):
            (runs / key / "checkpoints").mkdir(parents=True, exist_ok=True)
        return cls(runs / key)

    def write_config(self, toml: str) -> None:
        """Store the settings, as `core.config.Resolved.to_toml` returns them."""
        write_atomically(self.config, toml)

    @contextmanager
    def opened(self, progress: Progress, *, writes: bool = True) -> Iterator[Progress]:
        """Lock the run within the block, and record its events in `metrics.jsonl`.

        WorkspaceError if another process has the lock. In distributed training only the process
        with `writes` locks and records.
        """
        if not writes:
            yield progress
            return
        with translate_os_errors(self.folder):
            self.checkpoints.folder.mkdir(parents=True, exist_ok=True)
        with locked(
            self.folder / ".lock",
            f"another process is training the run {self.folder}",
            "wait for it to end, or stop it: it saves what it has",
        ):
            self.checkpoints.clear()
            with closing(JsonLines(self.metrics)) as log:
                yield Progress(*progress.subscribers, log)

    def add_samples(self, step: int, texts: Sequence[str]) -> None:
        """Append what the model wrote at that step to `samples.txt`."""
        shown = "".join(f"\n--- step {step}\n{printable(text)}\n" for text in texts)
        with translate_os_errors(self.samples), self.samples.open("a", encoding="utf-8") as file:
            file.write(shown)

    def micro_batch_limit(self, rows: int) -> int:
        """The number of rows to compute at once: `rows`, or fewer if so many did not fit before."""
        try:
            limit = read_json(self.folder / _LIMITS).get("rows")
        except OwnwordsError:  # there is none
            limit = None
        return min(rows, limit) if isinstance(limit, int) and limit > 0 else rows

    def limit_micro_batch(self, rows: int) -> None:
        """Record that at most `rows` rows fit into memory, so that the run resumes with as many."""
        write_atomically(self.folder / _LIMITS, json.dumps({"rows": rows}))


@dataclass(frozen=True)
class Evaluation:
    """The scores of one evaluation after `step` steps."""

    step: int
    tokens: int  # trained on by then
    bits_per_byte: float | None  # None: nothing is held out
    averaged_bits_per_byte: float | None = None  # of the averaged weights, if there are any
    memorised: float | None = None  # fraction of the training text that the model can recite
    progress: float = 0.0  # of the run, at this step

    @property
    def best(self) -> float | None:
        """The lower bits per byte of the weights and of their average."""
        scores = (self.bits_per_byte, self.averaged_bits_per_byte)
        return min((score for score in scores if score is not None), default=None)

    @property
    def is_averaged_better(self) -> bool:
        return self.best is not None and self.best != self.bits_per_byte


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


@dataclass
class RunRecord:
    """The progress of a run, which each checkpoint stores; `step` is the number of steps done.

    A run ends after its steps or when its time is up, whichever comes first, and its learning rate
    follows the same measure. So a machine that becomes slower or faster needs no other plan.
    """

    step: int = 0
    tokens: int = 0
    seconds: float = 0.0
    elapsed: float = 0.0  # share of the run's time that is used; 0 where only the steps count
    progress: float = 0.0  # share of the schedule that lies behind; it never decreases
    lr_factor: float = 1.0
    setbacks: int = 0
    stopped: str = ""  # the reason, once the run has ended
    evaluations: list[Evaluation] = field(default_factory=list)
    divergence: DivergenceDetector = field(default_factory=DivergenceDetector)

    def update_progress(self, max_steps: int, elapsed: float) -> None:
        """Set the progress from the steps done and the share of the time used.

        Call it once before each step, and after the last.
        """
        self.elapsed = elapsed
        by_time = min(elapsed, self.progress + _MOST_PROGRESS)
        progress = max(self.progress, self.step / max_steps, by_time)
        self.progress = progress if progress < 1 - _ROUNDING else 1.0

    @property
    def is_over(self) -> bool:
        return self.progress >= 1

    def total_steps(self, planned: int) -> int:
        """How many steps the run will have: at first as planned, then more and more at its pace."""
        pace = (self.step + _PRIOR * planned) / (self.progress + _PRIOR)
        return self.step + round((1 - self.progress) * pace)

    def is_evaluation_due(self, count: int) -> bool:
        """Whether to evaluate now, for `count` evaluations evenly spaced, the last at the end."""
        before = self.evaluations[-1].progress if self.evaluations else 0.0
        return int(self.progress * count + _ROUNDING) > int(before * count + _ROUNDING)

    def best(self, memorised_limit: float) -> Evaluation | None:
        """The evaluation with the fewest bits per byte, the earlier of two equal ones.

        Evaluations that exceed the memorisation limit are ignored, unless all exceed it.
        """
        scored = [each for each in self.evaluations if each.best is not None]
        fair = [each for each in scored if not exceeds(each, memorised_limit)]
        return min(fair or scored, key=lambda each: each.best or 0.0, default=None)

    def stop_reason(self, patience: int, memorised_limit: float) -> str:
        """ "early" or "memorised" if the last evaluation ends the run; else empty."""
        if self.evaluations and exceeds(self.evaluations[-1], memorised_limit):
            return "memorised"
        scores = [each.best for each in self.evaluations if each.best is not None]
        if patience and scores and len(scores) - scores.index(min(scores)) > patience:
            return "early"
        return ""

    def state(self) -> dict[str, object]:
        """The state for a checkpoint."""
        return {
            **{name: getattr(self, name) for name in _PLAIN},
            "evaluations": [asdict(each) for each in self.evaluations],
            "divergence": self.divergence.state(),
        }

    @classmethod
    def restored(cls, state: Mapping[str, Any]) -> "RunRecord":
        """Make a record from the state in a checkpoint."""
        return cls(
            **{name: state[name] for name in _PLAIN},
            evaluations=[Evaluation(**each) for each in state["evaluations"]],
            divergence=DivergenceDetector.restored(state["divergence"]),
        )


_PLAIN = ("step", "tokens", "seconds", "elapsed", "progress", "lr_factor", "setbacks", "stopped")


def exceeds(evaluation: Evaluation, memorised_limit: float) -> bool:
    """Whether the model memorised more than the limit; 0 means no limit."""
    return bool(memorised_limit) and (evaluation.memorised or 0.0) > memorised_limit
