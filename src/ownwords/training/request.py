"""One training as it is ordered, as it went, and what was made by it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from ownwords.core.progress import Progress
from ownwords.models import lora
from ownwords.models.decoder import CausalLM
from ownwords.training.job import TrainOutcome
from ownwords.training.plan import Plan
from ownwords.training.run import Run


@dataclass(frozen=True)
class TrainRequest:
    """Where and within which bounds is worked; texts must bear being gone through repeatedly."""

    workspace: Path
    seconds: float  # from `began` to the saved model
    fixed: Mapping[str, object] = field(default_factory=dict)  # the user's settings by key
    progress: Progress = field(default_factory=Progress)
    device: str | None = None
    mode: Literal["ddp", "fsdp"] = "ddp"  # of several processes
    own_share: float = 1.0
    corpus: str = ""  # a key of the archive the texts come from
    out: Path | None = None  # the model's folder; `model` in the workspace unless given
    began: float | None = None  # of time.perf_counter(), where the user began to wait
    # Called with the plan before anything is trained; what it raises ends the work there.
    planned: Callable[[Plan], None] | None = None
    # Whether it ends in time even where the steps are set, with fewer of them than that.
    ends_in_time: bool = False

    @property
    def folder(self) -> Path:
        return self.out or self.workspace / "model"


@dataclass(frozen=True)
class TrainedModel:
    """A model that was made: where it is, how it was planned, what came of it."""

    folder: Path
    run: Run
    plan: Plan
    outcome: TrainOutcome
    bits_per_byte: float | None  # on the held-out texts
    judged: tuple[str, ...]  # how right the plan was
    share: float = 1.0  # of the way from a base
    before: float | None = None  # the base's own bits a byte on the held-out texts


@dataclass(frozen=True)
class TrainResult:
    """A training that has ended, with the plan it went by in the end."""

    model: CausalLM  # with the best weights
    adapter: lora.LoraAdapter | None
    plan: Plan
    outcome: TrainOutcome
