"""Tiny training jobs: a model of a few thousand parameters, a text of a few thousand bytes."""

import hashlib
import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from families import TINY
from ownwords.archive.corpus import TrainingText
from ownwords.models import lora
from ownwords.models.configs.config import ModelConfig
from ownwords.models.decoder import CausalLM, build
from ownwords.tokenizers.bpe import ByteTokenizer
from ownwords.training.batches import Batch, Batches
from ownwords.training.checkpoint import Run
from ownwords.training.device import choose
from ownwords.training.loop import TrainJob
from ownwords.training.settings import DataConfig, LoopConfig, OptimConfig, Recipe, ScheduleConfig
from ownwords.training.token_dataset import TokenDataset, build_dataset

WORDS = ("hat", "cap", "brim", "felt", "straw", "crown", "ribbon", "feather", "steam", "block")


def texts(count: int, seed: int) -> Iterable[TrainingText]:
    chosen = random.Random(seed)
    return [
        TrainingText(
            f"{seed}/{i}", " ".join(chosen.choices(WORDS, k=chosen.randrange(20, 60))) + "."
        )
        for i in range(count)
    ]


def dataset(count: int = 12, seed: int = 1) -> TokenDataset:
    return build_dataset(texts(count, seed), ByteTokenizer())


def model(seed: int = 1, shape: ModelConfig = TINY["qwen3"]) -> CausalLM:
    network = build(replace(shape, vocabulary=ByteTokenizer().vocabulary_size))
    network.init_weights(seed)
    return network


LOOP = LoopConfig(steps=12, batch_size=4, sequence_length=24, evaluations=3, checkpoint_every_s=1e9)


def job(
    folder: Path,
    loop: LoopConfig = LOOP,
    *,
    key: str = "run",
    held_out: bool = True,
    data: DataConfig | None = None,
    **options: Any,  # noqa: ANN401 - any field of a TrainJob, a section of its settings, `objective`
) -> TrainJob:
    """A job whose run is in `folder`; built from scratch by each call, as in a new process."""
    objective = options.pop("objective", None)
    recipe = Recipe(
        train=loop,
        optim=options.pop("optim", OptimConfig()),
        schedule=options.pop("schedule", ScheduleConfig()),
    )
    settings = {
        "model": model(),
        "batches": Batches(
            dataset(),
            rows=loop.batch_size,
            context=loop.sequence_length,
            seed=loop.seed,
            config=data or DataConfig(),
        ),
        "settings": recipe,
        "run": Run.new(folder / "runs", key),
        "device": choose("cpu"),
        "validation": dataset(count=4, seed=2) if held_out else None,
    }
    made = TrainJob(**{**settings, **options})
    if objective:
        set_objective(made, objective)
    return made


Objective = Callable[[CausalLM, Batch], tuple[Tensor, Tensor]]


def next_token(model: CausalLM, batch: Batch) -> tuple[Tensor, Tensor]:
    """The model's own loss."""
    return type(model).loss(
        model,
        batch.ids_BT,
        batch.targets_BT,
        documents_BT=batch.documents_BT,
        weights_BT=batch.weights_BT,
    )


def set_objective(job: TrainJob, objective: Objective) -> None:
    """Let the job's model compute another loss."""

    def loss(ids_BT: Tensor, targets_BT: Tensor, **more: Any) -> tuple[Tensor, Tensor]:  # noqa: ANN401
        batch = Batch(
            ids_BT, targets_BT, more.get("documents_BT"), (), weights_BT=more.get("weights_BT")
        )
        return objective(job.model, batch)

    job.model.loss = loss  # type: ignore[method-assign]


def attach_adapter(job: TrainJob, dropout: float = 0.0) -> lora.LoraAdapter:
    return lora.attach(job.model, lora.AdapterConfig(rank=2, dropout=dropout), seed=3)


def checksum(weights: Mapping[str, Tensor]) -> str:
    """A checksum of every byte of every tensor."""
    hasher = hashlib.blake2b()
    for name, weight in sorted(weights.items()):
        hasher.update(name.encode())
        hasher.update(weight.detach().flatten().view(torch.uint8).numpy().tobytes())
    return hasher.hexdigest()


def weights_of(job: TrainJob) -> str:
    return checksum(dict(job.model.named_parameters()))
