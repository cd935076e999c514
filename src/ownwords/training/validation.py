"""How well a model in training does on held-out text; nothing of the training is changed by it."""

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from ownwords.training.batches import whole
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
    """Bits for each byte of text, every token predicted once from what its row shows before it.

    Rows begin where they fall, so that early tokens see little: a figure to compare a run with
    itself. `evaluation.bits` measures what is published.
    """
    losses: list[Tensor] = []
    with eval_mode(task), device.autocast(precision):
        for batch, counts in world.distribute(
            whole(shards, rows=rows, context=context, isolate=isolate)
        ):
            loss = task(batch.to(device.torch_device))
            losses.append(loss.float() if counts else torch.zeros_like(loss, dtype=torch.float32))
    # Added up in float64, which not every device has.
    nats = (
        torch.stack(losses).cpu().double().sum() if losses else torch.zeros((), dtype=torch.float64)
    )
    return float(world.sum(nats)) / math.log(2) / max(1, shards.text_bytes)


@contextmanager
def swapped_weights(model: nn.Module, weights: Mapping[str, Tensor]) -> Iterator[None]:
    """The model with other weights for a while; afterwards it has its own, to the bit."""
    parameters = {name: p for name, p in model.named_parameters() if name in weights}
    with torch.no_grad():
        kept = {name: parameter.detach().clone() for name, parameter in parameters.items()}
        try:
            for name, parameter in parameters.items():
                parameter.copy_(weights[name])
            yield
        finally:
            for name, parameter in parameters.items():
                parameter.copy_(kept[name])
