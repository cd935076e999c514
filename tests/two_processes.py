"""What each process does in tests/unit/test_distributed.py: `torchrun two_processes.py FOLDER`.

Beside the shared training each process trains the same model alone on all rows: what they
must agree with. What was found goes into FOLDER as JSON; the tests judge it.
"""

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor, nn

from families import some_ids, tiny
from ownwords.models import lora
from ownwords.models.decoder import CausalLM
from ownwords.training.distributed import SINGLE_PROCESS, World, init_distributed

STEPS = 5
ROWS = 8


class LossModule(nn.Module):
    def __init__(self, model: CausalLM) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids_BT1: Tensor, targets_BT: Tensor) -> Tensor:
        loss, _ = self.model.loss(ids_BT1[:, :-1], targets_BT)
        return loss


def batch(step: int) -> tuple[Tensor, Tensor]:
    """Rows whose first half counts far fewer targets than the last."""
    ids_BT1 = some_ids(ROWS, 13, seed=step)
    targets_BT = ids_BT1[:, 1:].clone()
    for row in range(ROWS // 2):
        targets_BT[row, row + 2 :] = -100
    return ids_BT1, targets_BT


def train(family: str, world: World, *, adapter: bool = False) -> dict[str, object]:
    model = tiny(family)
    if adapter:
        lora.attach(model, lora.AdapterConfig(rank=2), seed=5)
    elif world.size > 1 and not world.is_first:
        model.init_weights(99)  # other weights, which must not survive
    task = world.wrap(LossModule(model))
    learned = {name: p for name, p in model.named_parameters() if p.requires_grad}
    optimizer = torch.optim.AdamW(learned.values(), lr=3e-3)
    share = slice(world.rank * ROWS // world.size, (world.rank + 1) * ROWS // world.size)
    losses = []
    for step in range(STEPS):
        ids_BT1, targets_BT = batch(step)
        total = int((targets_BT != -100).sum())
        parts = list(zip(ids_BT1[share].chunk(2), targets_BT[share].chunk(2), strict=True))
        nats = torch.zeros((), dtype=torch.float64)
        for number, part in enumerate(parts):
            with world.gradient_sync(task, number == len(parts) - 1):
                loss = task(*part)
                (loss * (world.size / total)).backward()
            nats += loss.detach()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(world.sum(nats)) / total)
    model.eval()
    held_out = [(some_ids(1, 13, seed=100 + n), some_ids(1, 12, seed=200 + n)) for n in range(5)]
    with torch.no_grad():
        losses_held_out = [task(*rows) for rows in held_out[world.rank :: world.size]]
    nats = world.sum(torch.stack(losses_held_out).double().sum())
    result: dict[str, object] = {"losses": losses, "held_out": float(nats), "weights": learned}
    if world.size > 1:
        # From a checkpoint: the first process alone has read it.
        stored = {name: 2 * weight.detach() for name, weight in learned.items()}
        shared = world.share(stored if world.is_first else {})
        result["shared"] = largest_difference(shared, stored)
    return result


def largest_difference(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> float:
    assert ours.keys() == theirs.keys()
    return max(float((ours[name] - theirs[name]).detach().abs().max()) for name in ours)


def compare(family: str, world: World, *, adapter: bool = False) -> dict[str, object]:
    together = train(family, world, adapter=adapter)
    if not world.is_first:
        return {"shared": together["shared"]}
    alone = train(family, SINGLE_PROCESS, adapter=adapter)
    weights = together.pop("weights")
    assert isinstance(weights, dict)
    truth = alone.pop("weights")
    assert isinstance(truth, dict)
    return {"together": together, "alone": alone, "furthest": largest_difference(weights, truth)}


def wait_for(world: World, folder: Path) -> Iterator[str]:
    with world.in_rank_order():
        if world.is_first:
            time.sleep(0.3)
            (folder / "cache").write_text("made by the first")
        yield (folder / "cache").read_text()


def main(folder: Path) -> None:
    world = init_distributed(torch.device("cpu"))
    result: dict[str, object] = {
        "rank": world.rank,
        "size": world.size,
        "first": world.is_first,
        "sum": float(world.sum(torch.tensor(world.rank + 0.5, dtype=torch.float64))),
        "least": world.min(7 - world.rank),
        "shared": world.broadcast(
            {"step": 3, "was": ["é", None]} if world.is_first else {"no": "!"}
        ),
        "in_turn": list(wait_for(world, folder)),
        "adapter": compare("qwen3", world, adapter=True),
        "head of its own": compare("qwen3-window", world),
    }
    (folder / f"{world.rank}.json").write_text(json.dumps(result), encoding="utf-8")
    world.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
