"""Everything that decides what a run does, as settings: the sections of a run's config.toml."""

import math
from dataclasses import dataclass, field
from typing import Literal

from ownwords.core.errors import ConfigError, OwnwordsError

# "bf16": bfloat16 weights, and float32 ones in the optimizer.
Precision = Literal["float32", "autocast", "bf16"]


@dataclass(frozen=True)
class DataConfig:
    """What training reads, and what is changed about it."""

    # Share of the rows that come from the base model's own text, so that it forgets less.
    replay: float = 0.0
    # Share of the tokens read that are replaced by random ones; what is to be learned stays.
    replacement: float = 0.0
    # Whether tokens see only their own document, not what was packed before it.
    document_masking: bool = True
    # Whether every epoch has its own order.
    shuffle: bool = True

    def __post_init__(self) -> None:
        for name in ("replay", "replacement"):
            share = getattr(self, name)
            if not 0 <= share < 1:
                raise ConfigError(f"data.{name} ({share}) must be from 0 to below 1")


@dataclass(frozen=True)
class OptimConfig:
    """How weights follow from gradients; rates are peaks, which the schedule scales."""

    kind: Literal["muon", "adamw"] = "muon"
    # Muon's, of the matrices inside the blocks.
    muon_lr: float = 0.02
    # AdamW's, of all the rest; of everything where the kind is adamw.
    learning_rate: float = 3e-3
    beta1: float = 0.9
    beta2: float = 0.95
    eps: float = 1e-8
    # Muon's momentum rises to this from `momentum_start` within so many steps.
    momentum: float = 0.95
    momentum_start: float = 0.85
    momentum_warmup_steps: int = 300
    # Rounds of Newton and Schulz's iteration, and what it is computed in. auto: bfloat16 where
    # the hardware multiplies that faster.
    newton_schulz_steps: int = 5
    newton_schulz_dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    # Of the matrices; times the rate, it is the share that a step takes from each weight.
    weight_decay: float = 0.1
    # Of the embedding, which is the head too where that is tied.
    embedding_weight_decay: float = 0.0
    # The norm of all gradients that a step may have; 0: any.
    grad_clip: float = 1.0

    def __post_init__(self) -> None:
        positive = ("eps",)
        shares = ("beta1", "beta2", "momentum", "momentum_start")
        counts = (
            "muon_lr",
            "learning_rate",
            "weight_decay",
            "embedding_weight_decay",
            "grad_clip",
            "momentum_warmup_steps",
            "newton_schulz_steps",
        )
        for name in positive:
            if not getattr(self, name) > 0:
                raise OwnwordsError(f"optim.{name} is {getattr(self, name)}, and must be above 0")
        for name in shares:
            if not 0 <= getattr(self, name) < 1:
                raise OwnwordsError(
                    f"optim.{name} is {getattr(self, name)}, and must be from 0 to below 1"
                )
        for name in counts:
            if not 0 <= getattr(self, name) < math.inf:
                raise OwnwordsError(f"optim.{name} is {getattr(self, name)}, and must be 0 or more")


@dataclass(frozen=True)
class ScheduleConfig:
    """Learning-rate schedule: linear warmup, constant, linear decay, as fractions of the steps."""

    warmup_fraction: float = 0.01
    decay_fraction: float = 0.6
    # The learning rate at the end, as a fraction of its peak.
    final_lr_fraction: float = 0.0

    def __post_init__(self) -> None:
        for name in ("warmup_fraction", "decay_fraction", "final_lr_fraction"):
            if not 0 <= getattr(self, name) <= 1:
                raise OwnwordsError(
                    f"schedule.{name} is {getattr(self, name)}, and must be from 0 to 1"
                )
        if self.warmup_fraction + self.decay_fraction > 1:
            raise OwnwordsError(
                f"schedule.warmup_fraction ({self.warmup_fraction}) and schedule.decay_fraction"
                f" ({self.decay_fraction}) add up to more than 1"
            )


@dataclass(frozen=True)
class LoopConfig:
    """How long is trained, in which portions, and how often is looked at what came of it."""

    seed: int = 1
    # Batches that are learned from.
    steps: int = 1000
    # Rows of a batch, of all processes together.
    batch_size: int = 16
    # Tokens of a row.
    sequence_length: int = 256
    # Rows that are computed at once; 0: as many as fit.
    micro_batch_size: int = 0
    # "float32", "autocast" (products in bfloat16), "bf16" (weights too, float32 ones beside).
    precision: Precision = "float32"
    compile: bool = False
    # Compute blocks twice rather than keep what is inside of them: slower, in less memory.
    gradient_checkpointing: bool = False
    dropout: float = 0.0
    # Weight of log(sum(exp(logits)))**2 in the loss, which keeps logits from drifting.
    z_loss_weight: float = 0.0
    # Half-life of the averaged weights, as a share of all steps; 0: none are kept.
    ema_half_life: float = 0.0
    # How often the held-out text is read, evenly spread; the last time is at the end.
    evaluations: int = 10
    # End after so many evaluations without a better one; 0: never.
    patience: int = 3
    # End where more than this share of the training text can be called up word by word; 0: never.
    memorised_limit: float = 0.1
    checkpoint_every_s: float = 180.0

    def __post_init__(self) -> None:
        for name in ("steps", "batch_size", "sequence_length"):
            if getattr(self, name) < 1:
                raise ConfigError(f"train.{name} ({getattr(self, name)}) must be at least 1")
        for name in ("seed", "micro_batch_size", "z_loss_weight", "evaluations", "patience"):
            if getattr(self, name) < 0:
                raise ConfigError(f"train.{name} ({getattr(self, name)}) must not be negative")
        for name in ("dropout", "ema_half_life"):
            if not 0 <= getattr(self, name) < 1:
                raise ConfigError(f"train.{name} ({getattr(self, name)}) must be from 0 to below 1")
        if self.checkpoint_every_s < 0 or self.memorised_limit < 0:
            raise ConfigError("train.checkpoint_every_s and memorised_limit must not be negative")


@dataclass(frozen=True)
class ModelSizeConfig:
    """The shape of a model trained from nothing; one that is tuned has its own already."""

    # About so many in all, the embedding included; the nearest good shape is taken.
    parameters: int = 1_000_000
    # Tokens of the vocabulary; 0: each byte is a token.
    vocab_size: int = 0
    # Tokens it can look back on.
    context_length: int = 256

    def __post_init__(self) -> None:
        for name, least in (("parameters", 1), ("vocab_size", 0), ("context_length", 1)):
            if getattr(self, name) < least:
                raise ConfigError(f"model.{name} ({getattr(self, name)}) must be at least {least}")


@dataclass(frozen=True)
class LoraConfig:
    """A small matrix pair beside each layer, in place of all weights."""

    rank: int = 16
    alpha: float = 32.0

    def __post_init__(self) -> None:
        if self.rank < 1:
            raise ConfigError(f"lora.rank ({self.rank}) must be at least 1")
        if not 0 < self.alpha < math.inf:
            raise ConfigError(f"lora.alpha ({self.alpha}) must be above 0")


@dataclass(frozen=True)
class Recipe:
    """All settings of one run."""

    model: ModelSizeConfig = field(default_factory=ModelSizeConfig)
    data: DataConfig = field(default_factory=DataConfig)
    optim: OptimConfig = field(default_factory=OptimConfig)
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    train: LoopConfig = field(default_factory=LoopConfig)
    lora: LoraConfig = field(default_factory=LoraConfig)
