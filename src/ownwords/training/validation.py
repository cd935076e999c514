"""Bits per byte of a model in training on held-out text."""

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from ownwords.training.batches import sequential_batches
from ownwords.training.device import Device, eval_mode
from ownwords.training.distributed import World
from ownwords.training.settings import Precision
from ownwords.training.shards import Shards


def bits_per_byte(
    task: nn.Module,
    shards: Shards,
    *,
    rows: int,
    context: int,
    isolate: bool,
    device: Device,
    precision: Precision,
    world: World,
) -> float:
    """Bits per byte of text; each token is predicted once from the tokens before it in its row.

    Rows start anywhere in a text, so their first tokens have little context: use the result only to
    compare weights of one run. `evaluation.bits_per_byte` measures published scores.
    """
    losses: list[Tensor] = []
    with eval_mode(task), device.autocast(precision):
        for batch, counts in world.distribute(
            sequential_batches(shards, rows=rows, context=context, isolate=isolate)
        ):
            loss = task(batch.to(device.torch_device))
            losses.append(loss.float() if counts else torch.zeros_like(loss, dtype=torch.float32))
    # Sum on the CPU in float64, which not every device supports.
    nats = (
        torch.stack(losses).cpu().double().sum() if losses else torch.zeros((), dtype=torch.float64)
    )
    return float(world.sum(nats)) / math.log(2) / max(1, shards.text_bytes)


@contextmanager
def swapped_weights(model: nn.Module, weights: Mapping[str, Tensor]) -> Iterator[None]:
    """Give the model other weights within the block, then restore its own bit for bit."""
    parameters = {name: p for name, p in model.named_parameters() if name in weights}
    with torch.no_grad():
        original = {name: parameter.detach().clone() for name, parameter in parameters.items()}
        try:
            for name, parameter in parameters.items():
                parameter.copy_(weights[name])
            yield
        finally:
            for name, parameter in parameters.items():
                parameter.copy_(original[name])
