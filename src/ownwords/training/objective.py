"""What training makes small. Recipes differ by this and by their data, not by their loop."""

from typing import Protocol

from torch import Tensor, nn

from ownwords.models.decoder import CausalLM
from ownwords.training.batches import Batch


class Objective(Protocol):
    """The loss of some rows: summed nats, and over how many tokens, both [].

    Summed, not averaged: the loop divides by the tokens of the whole batch, so that neither
    micro-batches nor processes change the gradient.
    """

    def __call__(self, model: CausalLM, batch: Batch, z_weight: float) -> tuple[Tensor, Tensor]: ...


def next_token(model: CausalLM, batch: Batch, z_weight: float) -> tuple[Tensor, Tensor]:
    """Cross entropy of each token that follows, where the batch counts it."""
    return model.loss(
        batch.ids_BT, batch.targets_BT, documents_BT=batch.documents_BT, z_weight=z_weight
    )


class LossModule(nn.Module):
    """A model and what is asked of it as one module: DDP and FSDP act where `forward` is called."""

    def __init__(self, model: CausalLM, objective: Objective) -> None:
        super().__init__()
        self.model = model
        self._objective = objective

    def forward(self, batch: Batch, z_weight: float = 0.0) -> Tensor:
        """The summed loss in nats, []."""
        return self._objective(self.model, batch, z_weight)[0]
