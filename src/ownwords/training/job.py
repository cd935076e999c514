"""The definition of a training loop's job, and its outcome."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

import torch
from torch import Tensor, nn

from ownwords.core.errors import ConfigError
from ownwords.core.fingerprint import digest
from ownwords.core.progress import Progress
from ownwords.models import lora
from ownwords.models.decoder import CausalLM
from ownwords.tokenizers.tokenizer import Tokenizer
from ownwords.training.batches import Batch, Batches
from ownwords.training.device import Device
from ownwords.training.distributed import SINGLE_PROCESS, World
from ownwords.training.run import Evaluation, Run
from ownwords.training.settings import LoopConfig, OptimConfig, ScheduleConfig
from ownwords.training.token_dataset import TokenDataset


class Objective(Protocol):
    """The loss of some rows: its sum in nats, and the number of tokens, both [].

    It is a sum, because the loop divides by the tokens of the whole batch, so that splitting it
    into micro-batches or among processes does not change the gradient.
    """

    def __call__(self, model: CausalLM, batch: Batch, z_weight: float) -> tuple[Tensor, Tensor]: ...


def next_token(model: CausalLM, batch: Batch, z_weight: float) -> tuple[Tensor, Tensor]:
    """Cross-entropy of the next token, over the targets that are not masked."""
    return model.loss(
        batch.ids_BT,
        batch.targets_BT,
        documents_BT=batch.documents_BT,
        weights_BT=batch.weights_BT,
        z_weight=z_weight,
    )


class LossModule(nn.Module):
    """A model and its objective as one module: DDP and FSDP act when `forward` is called."""

    def __init__(self, model: CausalLM, objective: Objective) -> None:
        super().__init__()
        self.model = model
        self._objective = objective

    def forward(self, batch: Batch, z_weight: float = 0.0) -> Tensor:
        """The summed loss in nats, []."""
        return self._objective(self.model, batch, z_weight)[0]


# Settings that may change when a run resumes: they affect its speed and length only.
_CHANGEABLE = {
    "micro_batch_size",
    "compile",
    "gradient_checkpointing",
    "patience",
    "memorised_limit",
    "checkpoint_every_s",
}


@dataclass
class TrainJob:
    """Everything that `train` needs. Afterwards `model` has the best weights."""

    model: CausalLM
    batches: Batches
    loop: LoopConfig
    optim: OptimConfig
    schedule: ScheduleConfig
    run: Run
    device: Device
    tokenizer: Tokenizer
    validation: TokenDataset | None = None
    world: World = SINGLE_PROCESS
    objective: Objective = next_token
    progress: Progress = field(default_factory=Progress)
    adapter: lora.LoraAdapter | None = None  # attached to the model; only it is trained
    # Called at every evaluation:
    samples: Callable[[CausalLM], Sequence[str]] | None = None
    memorised: Callable[[CausalLM], float] | None = None  # fraction of the text, from 0 to 1
    peak_flops: float | None = None  # of the device, per second, as measured
    # Time for training, interruptions excluded; the run then ends when it is up, or after
    # `loop.max_steps`. None: after `loop.steps`.
    seconds: float | None = None


@dataclass(frozen=True)
class TrainOutcome:
    """The outcome of a training; `stopped` is "done" at the end of the schedule, else why before.

    "early" is early stopping, "memorised" means that too much text was memorised. The model has the
    weights of `best_step`, averaged if `averaged`; without held-out text these are the last ones.
    """

    steps: int = 0
    stopped: Literal["done", "early", "memorised"] = "done"
    best_step: int = 0
    averaged: bool = False
    bits_per_byte: float | None = None  # of the best weights, on the held-out text
    evaluations: tuple[Evaluation, ...] = ()
    tokens: int = 0
    seconds: float = 0.0  # evaluations included, interruptions excluded
    setbacks: int = 0
    micro_batch_size: int = 0  # at the end


def identity(job: TrainJob) -> dict[str, object]:
    """What must not change when a run resumes, by the name that error messages use."""
    settings: dict[str, object] = {}
    for section, config in (("train", job.loop), ("optim", job.optim), ("schedule", job.schedule)):
        for name, value in dataclasses.asdict(config).items():
            if section != "train" or name not in _CHANGEABLE:
                settings[f"{section}.{name}"] = list(value) if isinstance(value, tuple) else value
    return {
        "texts": job.batches.key,
        "held-out texts": job.validation.key if job.validation else "",
        "tokenizer": job.tokenizer.fingerprint(),
        "model": _model_key(job.model),
        "adapter": repr(job.adapter.settings) if job.adapter else "",
        **settings,
    }


def _model_key(model: CausalLM) -> str:
    """A hash of the shapes of all tensors and the values of frozen ones, not in checkpoints."""
    parts = [repr(model.config)]
    tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    for name, tensor in sorted(tensors.items()):
        parts.append(f"{name} {list(tensor.shape)} {tensor.requires_grad}")
    frozen = [t for _, t in sorted(tensors.items()) if not t.requires_grad]
    values = [t.detach().cpu().contiguous().flatten() for t in frozen]
    return digest(*parts, *(each.view(torch.uint8).numpy().tobytes() for each in values))


def check_same(then: Mapping[str, object], now: Mapping[str, object], run: Run) -> None:
    """Raise ConfigError if a run was started with other inputs or settings."""
    changed = [key for key in {**then, **now} if then.get(key) != now.get(key)]
    inputs = [key for key in changed if "." not in key]
    if inputs:
        verb = "has" if inputs in (["model"], ["tokenizer"], ["adapter"]) else "have"
        raise ConfigError(
            f"the {' and the '.join(inputs)} {verb} changed since the run {run.folder} was started",
            hint="start another run, or restore what this one was started with",
        )
    if changed:
        changes = ", ".join(f"{k} = {then.get(k)}, now {now.get(k)}" for k in changed[:3])
        raise ConfigError(
            f"the run {run.folder} was started with other settings: {changes}",
            hint="give the same settings to resume it, or start another run",
        )
