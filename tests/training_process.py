"""One process of a small training: `torchrun training_process.py FOLDER calm|disturbed`.

It trains in FOLDER and stores what its process has seen as JSON. Calm, it also trains an adapter,
with a head of its own, and in bfloat16 with blocks as large as the library's. Disturbed, the second
process gets a signal to stop, and is killed when the run is resumed.
"""

import json
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from families import EVEN
from ownwords.archive.corpus import TrainingText
from ownwords.models import fused_block, lora
from ownwords.models.decoder import CausalLM, build
from ownwords.tokenizers.bpe import ByteTokenizer
from ownwords.training.batches import Batch, Batches
from ownwords.training.checkpoint import Run
from ownwords.training.device import choose
from ownwords.training.distributed import World, init_distributed
from ownwords.training.loop import TrainingInterrupted, TrainJob, train
from ownwords.training.run import DivergenceDetector
from ownwords.training.settings import DataConfig, LoopConfig, OptimConfig, Recipe
from ownwords.training.token_dataset import build_dataset
from training_jobs import Objective, next_token, set_objective

STEPS = 20
# Muon and AdamW make tiny gradients large, and with them what rounding made of them: at full rates
# two ways of adding up the same batch are soon as far apart as two seeds are.
GENTLE = OptimConfig(
    muon_lr=0.005, learning_rate=1e-3, start_lr_scale=8.0, newton_schulz_dtype="float32"
)
TEXTS = [
    TrainingText(f"t{n}", f"Text {n}: " + "the hat, the cap and the rain. " * (n + 1))
    for n in range(9)
]


ODD = replace(EVEN, width=16, kv_heads=2, head_dim=8, hidden=24)


def job(
    folder: Path,
    world: World,
    objective: Objective = next_token,
    *,
    bfloat16_seed: int | None = None,
    adapter: bool = False,
    tied: bool = True,
) -> TrainJob:
    tokenizer = ByteTokenizer()
    texts, held_out = build_dataset(TEXTS, tokenizer), build_dataset(TEXTS[3:5], tokenizer)
    loop = LoopConfig(
        seed=bfloat16_seed or 3,
        steps=STEPS,
        batch_size=4,
        sequence_length=24,
        micro_batch_size=1,
        evaluations=2,
        checkpoint_every_s=0.0,
        precision="bf16" if bfloat16_seed else "float32",
    )
    shape = EVEN if bfloat16_seed else ODD
    model = build(replace(shape, vocabulary=texts.vocabulary, tied=tied))
    model.init_weights(1)
    if adapter:
        lora.attach(model, lora.AdapterConfig(rank=2), seed=5)
    batches = Batches(
        texts,
        rows=loop.batch_size,
        context=loop.sequence_length,
        seed=loop.seed,
        config=DataConfig(),
        rank=world.rank,
        world=world.size,
    )
    optim = replace(GENTLE, newton_schulz_dtype="bfloat16") if bfloat16_seed else GENTLE
    run_job = TrainJob(
        model=model,
        batches=batches,
        settings=Recipe(train=loop, optim=optim),
        run=Run.new(folder, f"run-{world.size}"),
        device=choose("cpu"),
        validation=held_out,
        world=world,
    )
    set_objective(run_job, objective)
    return run_job


class DisturbedObjective:
    """The objective; at one step the process sends itself a signal."""

    def __init__(self, at: int, number: signal.Signals) -> None:
        self.calls, self.at, self.number = 0, at, number

    def __call__(self, model: CausalLM, batch: Batch) -> tuple[Tensor, Tensor]:
        if model.training:
            self.calls += 1
            if self.calls == 2 * self.at:  # two rows of each step, one at a time
                os.kill(os.getpid(), self.number)
        return next_token(model, batch)


def observed(
    folder: Path,
    world: World,
    objective: Objective = next_token,
    seed: int | None = None,
    **options: bool,
) -> dict[str, Any]:
    """Train; returns every loss, the weights, and how many blocks the library computed.

    With a `seed` in bfloat16.
    """
    losses: list[float] = []
    by_library: list[bool] = []
    check, fusable = DivergenceDetector.check, fused_block.fusable_weights

    def record_loss(watch: DivergenceDetector, loss: float, gradient_norm: float) -> str:
        losses.append(loss)
        return check(watch, loss, gradient_norm)

    def record_block(*arguments: Any) -> fused_block.BlockWeights | None:  # noqa: ANN401
        weights = fusable(*arguments)
        by_library.append(weights is not None)
        return weights

    run_job = job(folder, world, objective, bfloat16_seed=seed, **options)
    with (
        patch.object(DivergenceDetector, "check", record_loss),
        patch.object(fused_block, "fusable_weights", record_block),
    ):
        try:
            outcome = train(run_job)
        except TrainingInterrupted as stopped:
            return {"stopped": str(stopped), "steps": len(losses)}
    return {
        "losses": losses,
        "blocks": [sum(by_library), len(by_library)],
        "bits_per_byte": outcome.bits_per_byte,
        "weights": {n: p.flatten().tolist() for n, p in run_job.model.named_parameters()},
    }


def main(folder: Path, what: str) -> None:
    torch.set_num_threads(1)
    world = init_distributed(torch.device("cpu"))

    def tell(name: str, result: dict[str, Any]) -> None:
        (folder / f"{name}-{world.rank}.json").write_text(json.dumps(result), encoding="utf-8")

    if what == "disturbed" and os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0":
        stop: Objective = next_token
        kill: Objective = next_token
        if world.rank == 1:
            stop = DisturbedObjective(5, signal.SIGTERM)
            kill = DisturbedObjective(8, signal.SIGKILL)
        tell("stopped", observed(folder, world, stop))
        observed(folder, world, kill)
    tell("ended", observed(folder, world))
    if what == "calm":
        tell("bfloat16", observed(folder / "bfloat16", world, seed=3))
        tell("adapter", observed(folder / "adapter", world, adapter=True))
        tell("untied", observed(folder / "untied", world, tied=False))
    world.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
