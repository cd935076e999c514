"""The request for a training, the planned training, and the trained model."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ownwords.core.progress import Progress
from ownwords.training.distributed import SINGLE_PROCESS, World
from ownwords.training.job import TrainOutcome
from ownwords.training.plan import Plan
from ownwords.training.run import Run


@dataclass(frozen=True)
class TrainRequest:
    """Where and how long to train, and the user's settings."""

    workspace: Path
    seconds: float  # from `began` to the saved model
    fixed: Mapping[str, object] = field(default_factory=dict)  # the user's settings by key
    progress: Progress = field(default_factory=Progress)
    device: str | None = None
    world: World = SINGLE_PROCESS  # the processes that train together
    own_share: float = 1.0  # fraction of the words found that are the author's own
    corpus: str = ""  # key of the archive's texts
    out: Path | None = None  # the model's folder; `model` in the workspace unless given
    began: float | None = None  # time.perf_counter() at which the user began to wait
    # Whether a run whose steps are set ends in time nevertheless.
    ends_in_time: bool = False
    is_comparison: bool = False  # of a model that another one is only compared with

    @property
    def folder(self) -> Path:
        return self.out or self.workspace / "model"


@dataclass(frozen=True)
class TrainedModel:
    """A saved model: its folder, its plan, and the outcome of the training."""

    folder: Path
    run: Run
    plan: Plan
    outcome: TrainOutcome
    bits_per_byte: float | None  # on the held-out texts
    judged: tuple[str, ...]  # the plan's forecast compared with the outcome
    share: float = 1.0  # position between the base's weights (0) and the trained ones (1)
    before: float | None = None  # the base's own bits per byte on the held-out texts


@dataclass(frozen=True)
class PlannedTraining:
    """A training with its plan and its run; `train` starts or resumes it."""

    plan: Plan
    run: Run
    train: Callable[[], TrainedModel]
