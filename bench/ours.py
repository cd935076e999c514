"""A model trained through our own training code from a table of settings."""

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ownwords.archive.corpus import TrainingText
from ownwords.models.configs.llama import Qwen3Config
from ownwords.models.decoder import CausalLM, build
from ownwords.tokenizers import bpe
from ownwords.tokenizers.bpe import ByteTokenizer
from ownwords.tokenizers.tokenizer import Tokenizer
from ownwords.training import device
from ownwords.training.batches import Batches
from ownwords.training.checkpoint import Run
from ownwords.training.loop import TrainJob, TrainOutcome, train
from ownwords.training.settings import DataConfig, LoopConfig, OptimConfig, Recipe, ScheduleConfig
from ownwords.training.token_dataset import build_dataset


@dataclass(frozen=True)
class Setting:
    """A whole recipe; with a `vocabulary` of 0, each byte is a token."""

    shape: dict[str, Any]  # of a Qwen3Config, without the vocabulary and the context
    loop: LoopConfig
    vocabulary: int = 0
    optim: OptimConfig = field(default_factory=OptimConfig)
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    data: DataConfig = field(default_factory=DataConfig)


@dataclass(frozen=True)
class TrainedModel:
    """The result of a training."""

    model: CausalLM
    tokenizer: Tokenizer
    outcome: TrainOutcome
    parameters: int


def make(
    training: Sequence[TrainingText],
    setting: Setting,
    validation: Sequence[TrainingText] = (),
    prepare: Callable[[CausalLM], None] | None = None,
) -> TrainedModel:
    """Make a model from texts: tokenizer, shards, training, which held-out texts can end early.

    `prepare` is called with the untrained model.
    """
    loop = setting.loop
    tokenizer: Tokenizer = (
        bpe.train([text.text for text in training], setting.vocabulary)
        if setting.vocabulary
        else ByteTokenizer()
    )
    chosen_device = device.choose("cpu")
    with tempfile.TemporaryDirectory(prefix="ownwords-bench-") as folder:
        shards = build_dataset(training, tokenizer)
        held_out = build_dataset(validation, tokenizer) if validation else None
        shape = Qwen3Config(
            vocabulary=tokenizer.vocabulary_size, context=loop.sequence_length, **setting.shape
        )
        model = build(shape)
        model.init_weights(loop.seed)
        if prepare:
            prepare(model)
        job = TrainJob(
            model=model,
            batches=Batches(
                shards,
                rows=loop.batch_size,
                context=loop.sequence_length,
                seed=loop.seed,
                config=setting.data,
            ),
            settings=Recipe(train=loop, optim=setting.optim, schedule=setting.schedule),
            run=Run.new(Path(folder) / "runs", "bench"),
            device=chosen_device,
            validation=held_out,
        )
        outcome = train(job)
    return TrainedModel(
        model, tokenizer, outcome, sum(parameter.numel() for parameter in model.parameters())
    )
