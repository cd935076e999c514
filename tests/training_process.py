"""One process of a small training: `torchrun training_process.py FOLDER [WHAT STEP]`.

It trains once with DDP and once with FSDP, each a run of its own in FOLDER, and writes down what
its process has seen. KILLED_AT kills the second process at a step, in each of the two runs;
ASKED_AT sends it a signal to stop, after which the same run is gone on with. BFLOAT16 disturbs
nothing: it is the weights' type, and the sides of the model are those of the library's blocks.
"""

import json
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from families import EVEN
from ownwords.archive.corpus import TrainingText
from ownwords.models import fused_block
from ownwords.models.decoder import CausalLM, build
from ownwords.tokenizers.bpe import ByteTokenizer
from ownwords.training.batches import Batch, Batches
from ownwords.training.checkpoint import Run
from ownwords.training.device import choose
from ownwords.training.distributed import World, full_tensor, init_distributed
from ownwords.training.loop import TrainingInterrupted, TrainJob, TrainOutcome, train
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


HEARD: list[float] = []  # every loss of the run that is in progress
BLOCKS: list[bool] = []  # of each that was computed: whether the library did it
_check, _block_forward = DivergenceDetector.check, fused_block.forward


def record_loss(watch: DivergenceDetector, loss: float, gradient_norm: float) -> str:
    HEARD.append(loss)
    return _check(watch, loss, gradient_norm)


def record_block(*arguments: Any) -> Tensor | None:  # noqa: ANN401
    output = _block_forward(*arguments)
    BLOCKS.append(output is not None)
    return output


ODD = replace(EVEN, width=16, kv_heads=2, head_dim=8, hidden=24)


def job(
    folder: Path,
    world: World,
    objective: Objective = next_token,
    *,
    bfloat16_seed: int | None = None,
) -> TrainJob:
    tokenizer = ByteTokenizer()
    with world.in_rank_order():
        texts = build_dataset(TEXTS, tokenizer, folder / "tokens")
        held_out = build_dataset(TEXTS[3:5], tokenizer, folder / "tokens")
    loop = LoopConfig(
        seed=bfloat16_seed or 3,
        steps=STEPS,
        batch_size=4,
        sequence_length=24,
        micro_batch_size=1,
        ema_half_life=0.1,
        evaluations=2,
        checkpoint_every_s=0.0,
        precision="bf16" if bfloat16_seed else "float32",
    )
    model = build(replace(EVEN if bfloat16_seed else ODD, vocabulary=texts.vocabulary))
    model.init_weights(1)
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
        run=Run.new(folder, f"{world.mode}-{world.size}"),
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

    def __call__(self, model: CausalLM, batch: Batch, z_weight: float) -> tuple[Tensor, Tensor]:
        if model.training:
            self.calls += 1
            if self.calls == 2 * self.at:  # two rows of each step, one at a time
                os.kill(os.getpid(), self.number)
        return next_token(model, batch, z_weight)


def run(
    folder: Path, world: World, objective: Objective, bfloat16_seed: int | None
) -> tuple[TrainOutcome, dict[str, Tensor]]:
    run_job = job(folder, world, objective, bfloat16_seed=bfloat16_seed)
    outcome = train(run_job)
    weights = {
        name: full_tensor(p.detach()).clone() for name, p in run_job.model.named_parameters()
    }
    return outcome, weights


def main(folder: Path, disturbance: str, at: str) -> None:
    torch.set_num_threads(1)
    setattr(DivergenceDetector, "check", record_loss)  # noqa: B010
    setattr(fused_block, "forward", record_block)  # noqa: B010
    world = init_distributed(torch.device("cpu"), "fsdp")
    restarts = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
    for number, mode in enumerate(("ddp", "fsdp") if world.size > 1 else ("ddp",)):
        here = replace(world, mode=mode)  # type: ignore[arg-type]
        HEARD.clear()
        BLOCKS.clear()
        result: dict[str, object] = {"restarts": restarts}
        objective: Objective = next_token
        seed = int(at) if disturbance == "BFLOAT16" else None
        if disturbance == "KILLED_AT" and world.rank == 1 and number == restarts:
            objective = DisturbedObjective(int(at), signal.SIGKILL)
        elif disturbance == "ASKED_AT" and world.rank == 1:
            objective = DisturbedObjective(int(at), signal.SIGTERM)
        try:
            outcome, weights = run(folder, here, objective, seed)
        except TrainingInterrupted as stopped:
            result["stopped"] = str(stopped)
            result["steps_before"] = len(HEARD)
            outcome, weights = run(folder, here, next_token, seed)
        result["losses"] = HEARD
        result["blocks"] = {"in all": len(BLOCKS), "by the library": sum(BLOCKS)}
        result["bits_per_byte"] = outcome.bits_per_byte
        result["weights"] = {name: tensor.flatten().tolist() for name, tensor in weights.items()}
        name = f"{mode}-{world.size}-{world.rank}.json"
        (folder / name).write_text(json.dumps(result), encoding="utf-8")
    world.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *(sys.argv[2:] or ["", "0"]))
