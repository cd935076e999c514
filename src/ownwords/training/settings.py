"""Every setting of a training run, by section."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from ownwords.core.validation import Meta

# "autocast": matrix products in bfloat16. "bf16": bfloat16 weights, with float32 master weights
# in the optimizer.
Precision = Literal["float32", "autocast", "bf16", "int16"]
Fraction = Annotated[float, Meta(ge=0, le=1)]
BelowOne = Annotated[float, Meta(ge=0, lt=1)]
AtLeastOne = Annotated[float, Meta(ge=1, le=1000)]
NonNegative = Annotated[float, Meta(ge=0, le=1000)]
Count = Annotated[int, Meta(ge=0)]
Positive = Annotated[int, Meta(ge=1)]


@dataclass(frozen=True)
class DataConfig:
    """What training reads."""

    # Fraction of the rows that are not the author's texts: replayed text of the base model, so that
    # it forgets less, or notes with the text written from them.
    replay: BelowOne = 0.0
    # Weight of a text's first token in the training loss, so that texts without a prompt begin as
    # the author's do; the n-th token has this / n, at least 1.
    opening_weight: AtLeastOne = 1.0


@dataclass(frozen=True)
class OptimConfig:
    """The optimizer. Learning rates are peaks, which the schedule scales."""

    kind: Literal["muon", "adamw"] = "muon"
    # Muon's learning rate, for the matrices inside the blocks.
    muon_lr: NonNegative = 0.02
    # AdamW's learning rate, for all other parameters; for all of them if the kind is adamw.
    learning_rate: NonNegative = 3e-3
    # Times `learning_rate`, for the embedding of the token that texts begin with: a soft prompt
    # that learns fast how they begin.
    start_lr_scale: NonNegative = 1.0
    beta2: BelowOne = 0.95
    # Muon's momentum rises to `momentum` over `momentum_warmup_steps`.
    momentum: BelowOne = 0.95
    momentum_warmup_steps: Count = 300
    # Precision of Muon's Newton-Schulz iterations; auto: bfloat16 if the hardware multiplies it
    # faster.
    newton_schulz_dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    # For matrices: each step shrinks a weight by learning rate times weight decay.
    weight_decay: NonNegative = 0.1
    # For the embedding, which is also the output head if the two are tied.
    embedding_weight_decay: NonNegative = 0.0
    # Maximum norm of all gradients together; 0: no clipping.
    grad_clip: NonNegative = 1.0


@dataclass(frozen=True)
class ScheduleConfig:
    """Learning-rate schedule: linear warmup, constant, linear decay."""

    # Fraction of the steps in which the learning rate rises.
    warmup_fraction: Fraction = 0.01
    # Fraction of the run, of its time or its steps, over which the learning rate decays.
    decay_fraction: Fraction = 0.6

    def __post_init__(self) -> None:
        if self.warmup_fraction + self.decay_fraction > 1:
            raise ValueError(
                f"warmup_fraction ({self.warmup_fraction}) and decay_fraction"
                f" ({self.decay_fraction}) add up to more than 1"
            )


@dataclass(frozen=True)
class LoopConfig:
    """The length of the training, its batches, and its evaluations."""

    seed: Count = 1
    # Only an estimate in a timed run: the minutes decide.
    steps: Positive = 1000
    # Maximum number of steps in a timed run; 0: `train.steps`.
    max_steps: Count = 0
    # Rows per batch, over all processes.
    batch_size: Positive = 16
    # Tokens per row.
    sequence_length: Positive = 256
    # Rows computed at once; 0: as many as fit into memory.
    micro_batch_size: Count = 0
    precision: Precision = "float32"
    # Recompute each block's activations in the backward pass: slower, but uses less memory.
    gradient_checkpointing: bool = False
    dropout: BelowOne = 0.0
    # Evaluations on held-out text, evenly spaced; the last is at the end.
    evaluations: Count = 10
    # Stop after this many evaluations without a better one; 0: never.
    patience: Count = 3
    checkpoint_every_s: Annotated[float, Meta(ge=0)] = 180.0


@dataclass(frozen=True)
class ModelSizeConfig:
    """The size of a model trained from scratch; a fine-tuned model keeps its base's."""

    # Approximate number of parameters, embedding included; the nearest good shape is used.
    parameters: Positive = 1_000_000
    # Tokens of the vocabulary; 0: each byte is a token.
    vocab_size: Count = 0
    # Tokens of context.
    context_length: Positive = 256


@dataclass(frozen=True)
class LoraSettings:
    """LoRA: a pair of low-rank matrices beside each layer, trained instead of all weights."""

    # 0: no LoRA; all weights are trained.
    rank: Count = 0
    alpha: Annotated[float, Meta(gt=0, le=1000)] = 32.0


@dataclass(frozen=True)
class Recipe:
    """All settings of one run."""

    model: ModelSizeConfig = field(default_factory=ModelSizeConfig)
    data: DataConfig = field(default_factory=DataConfig)
    optim: OptimConfig = field(default_factory=OptimConfig)
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    train: LoopConfig = field(default_factory=LoopConfig)
    lora: LoraSettings = field(default_factory=LoraSettings)


def settings_key(fixed: Mapping[str, object]) -> str:
    """Return the user's settings as text; equal settings give equal text."""
    return repr(sorted(fixed.items()))
