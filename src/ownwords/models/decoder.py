"""The base class of all language models: forward pass, loss, initialisation, KV cache.

Shapes: B batch, T tokens of this call, C width, V vocabulary.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ownwords.models import fused, fused_block
from ownwords.models.configs.config import ModelConfig
from ownwords.models.kv_cache import KVCache, KVCacheView
from ownwords.models.layers import (
    Angles,
    AttentionMask,
    Embedding,
    LoraLinear,
    ResidualBlock,
    computing_dtype,
    join_adapters,
    supports_varlen,
)
from ownwords.models.loss import chunked_cross_entropy
from ownwords.models.registry import model_class


@dataclass(frozen=True)
class ForwardContext:
    """The positions and attention masks of one forward pass."""

    positions_BT: Tensor  # [B, T], or [1, T] if all rows have the same positions
    masks: Mapping[int | None, AttentionMask]  # by window


class CausalLM(nn.Module):
    """A language model of any family: computes hidden states from ids, logits and loss from those.

    `gradient_checkpointing` trades time for memory in training: the backward pass recomputes each
    block. `dropout` applies to the embedded ids and to what each block adds, and is drawn from
    PyTorch's random state.
    """

    embedding: Embedding
    blocks: nn.ModuleList
    final_norm: nn.Module
    head: nn.Linear | None  # None: tied, the embedding is the head
    # The layers with adapters, if any: by product, block, and layer of the product.
    adapter_groups: Sequence[Sequence[Sequence[LoraLinear]]] = ()

    def __init__(
        self,
        config: ModelConfig,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        """Allocate the parameters without initialising them (on "meta", without allocating)."""
        super().__init__()
        self.config = config
        self.gradient_checkpointing = False
        self._dropout = 0.0
        # On "meta", PyTorch's layers do not initialise themselves from the global random state.
        with torch.device("meta"):
            self.assemble()
            self.head = None if config.tied else nn.Linear(config.width, config.vocabulary, False)
        self.to(dtype)
        device = torch.device("cpu" if device is None else device)
        if device.type != "meta":
            # Like `to_empty`, which for tensors on "meta" would first import SymPy.
            self._apply(  # type: ignore[no-untyped-call]
                lambda parameter: torch.empty(parameter.shape, dtype=parameter.dtype, device=device)
            )

    def assemble(self) -> None:
        """Create the modules of the family, except the head."""
        raise NotImplementedError

    def run_blocks(self, ids_BT: Tensor, context: ForwardContext) -> Tensor:
        """Return the hidden states [B, T, C] after the last block, before the final norm."""
        raise NotImplementedError

    def forward(
        self,
        ids_BT: Tensor,
        *,
        documents_BT: Tensor | None = None,
        max_documents: int = 0,
        cache: KVCacheView | None = None,
    ) -> Tensor:
        """Return the hidden states after the final norm, [B, T, C].

        `documents_BT` numbers the documents packed into each row: attention never crosses a
        document border, and positions restart there. If no row has more than `max_documents`, some
        devices need no mask (0: unknown). With a cache, the tokens follow the cached ones.
        """
        self.prepare_adapters(ids_BT, is_cached=cache is not None)
        x_BTC = self.run_blocks(ids_BT, self.context(ids_BT, documents_BT, max_documents, cache))
        hidden_BTC: Tensor = self.final_norm(x_BTC)
        return hidden_BTC

    def initial(self, name: str, shape: torch.Size) -> tuple[float, float]:
        """Return the mean and standard deviation to initialise a parameter with."""
        raise NotImplementedError

    def init_weights(self, seed: int) -> None:
        """Initialise every parameter from `seed`, with the same values on any device.

        Each tensor has its own generator, seeded with its name, and is drawn in float32 on the CPU,
        so order does not matter; PyTorch's global random state is neither read nor changed.
        """
        for name, parameter in self.named_parameters():
            mean, std = self.initial(name, parameter.shape)
            generator = torch.Generator("cpu").manual_seed(seed_of(seed, name))
            values = torch.empty(parameter.shape, dtype=torch.float32, device="cpu")
            with torch.no_grad():
                if std:
                    values.normal_(mean, std, generator=generator)
                else:
                    values.fill_(mean)
                parameter.copy_(values)

    def logits(self, hidden_BTC: Tensor) -> Tensor:
        """Return logits [B, T, V]; for training use `loss`, which computes them in chunks."""
        head = self.embedding if self.head is None else self.head
        logits_BTV = F.linear(hidden_BTC, head.weight)
        if softcap := self.config.logit_softcap:
            logits_BTV = (logits_BTV / softcap).tanh() * softcap
        return logits_BTV

    def loss(
        self,
        ids_BT: Tensor,
        targets_BT: Tensor,
        *,
        documents_BT: Tensor | None = None,
        max_documents: int = 0,
        weights_BT: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return the summed cross entropy in nats, and the number of targets; -100 is ignored.

        `targets_BT` are the next token ids, already shifted by one; `weights_BT` multiplies their
        losses. The rest is as for `forward`.
        """
        head = self.embedding.weight if self.head is None else self.head.weight
        # In a model that is already in bfloat16, autocast would only widen the norms.
        kind, is_narrow = ids_BT.device.type, head.dtype == torch.bfloat16
        with torch.autocast(kind, enabled=False) if is_narrow else nullcontext():
            hidden_BTC = self(ids_BT, documents_BT=documents_BT, max_documents=max_documents)
            return chunked_cross_entropy(
                hidden_BTC.flatten(0, 1),
                head,
                targets_BT.flatten(),
                weights_N=None if weights_BT is None else weights_BT.flatten(),
                softcap=self.config.logit_softcap,
            )

    def new_cache(self, batch: int, length: int) -> KVCache:
        """Allocate a KV cache for `batch` texts of up to `length` tokens each."""
        weight = next(self.final_norm.parameters())
        return KVCache(
            self.config.layers,
            batch=batch,
            length=length,
            kv_heads=self.config.kv_heads,
            head_dim=self.config.head_dim,
            device=weight.device,
            dtype=weight.dtype,
        )

    def prepare_adapters(self, ids_BT: Tensor, *, is_cached: bool) -> None:
        """Add the adapters to the weights for a whole forward pass, where that is possible.

        It is not with a cache, with dropout in the adapters, or for the blocks in C++.
        """
        groups = self.adapter_groups
        if not groups:
            return
        for group in groups:
            for product in group:
                product[0].joined = None
        if not (is_cached or fused.runs_blocks(ids_BT) or groups[0][0][0].active_dropout):
            join_adapters(groups, computing_dtype(self.embedding.weight))

    def context(
        self,
        ids_BT: Tensor,
        documents_BT: Tensor | None,
        max_documents: int,
        cache: KVCacheView | None,
    ) -> ForwardContext:
        """Compute positions and attention masks once for all layers."""
        tokens, windows = ids_BT.shape[1], set(self.config.windows())
        if cache is not None:
            masks = {each: AttentionMask(cache.mask(each), view=cache) for each in windows}
            return ForwardContext(cache.positions_BT, masks)
        row_1T = torch.arange(tokens, device=ids_BT.device)[None]
        if documents_BT is None:
            return ForwardContext(row_1T, {window: _causal(row_1T, window) for window in windows})
        borders_BT = torch.ones_like(documents_BT, dtype=torch.bool)
        borders_BT[:, 1:] = documents_BT[:, 1:] != documents_BT[:, :-1]
        starts_BT = torch.where(borders_BT, row_1T, 0).cummax(dim=1).values
        limits = None
        if max_documents and supports_varlen(ids_BT):
            # The maximum number of borders, so that shapes depend only on the batch's shape.
            count, tokens = borders_BT.numel(), max_documents * len(borders_BT)
            places = torch.where(
                borders_BT.flatten(), torch.arange(count, device=ids_BT.device), count
            )
            limits = F.pad(places.sort().values[:tokens], (0, 1), value=count).to(torch.int32)
        masks = {}
        for window in windows:
            first_BT = starts_BT
            if window is not None:
                first_BT = torch.maximum(starts_BT, row_1T - window + 1)
            masks[window] = AttentionMask(
                None, first_BT=first_BT.to(torch.int32), borders=limits, window=window
            )
        return ForwardContext(row_1T - starts_BT, masks)

    @property
    def dropout(self) -> float:
        """The dropout probability, 0 by default; see the class."""
        return self._dropout

    @dropout.setter
    def dropout(self, share: float) -> None:
        self._dropout = share
        for block in self.blocks:
            cast(ResidualBlock, block).dropout = share

    def apply_dropout(self, x_BTC: Tensor) -> Tensor:
        return F.dropout(x_BTC, self._dropout, self.training)

    def run_block(
        self,
        block: Any,  # noqa: ANN401 - a ResidualBlock, which a ModuleList does not say
        x_BTC: Tensor,
        mask: AttentionMask,
        angles: Angles | None = None,
    ) -> Tensor:
        """Run a block, in C++ if possible; gradient checkpointing saves none of its activations."""
        forward, weights = block, fused_block.fusable_weights(block, x_BTC, mask)
        if weights is not None:
            forward = partial(fused_block.forward, block, weights)
        if self.gradient_checkpointing and torch.is_grad_enabled():
            out_BTC: Tensor = checkpoint(forward, x_BTC, mask, angles, use_reentrant=False)
        else:
            out_BTC = forward(x_BTC, mask, angles)
        return out_BTC


def build(
    config: ModelConfig,
    *,
    device: torch.device | str | None = None,
    dtype: torch.dtype = torch.float32,
) -> CausalLM:
    """Build the model of a config with uninitialised parameters, for `init_weights` or a file."""
    model: CausalLM = model_class(config)(config, device=device, dtype=dtype)
    return model


@contextmanager
def eval_mode(model: nn.Module) -> Iterator[None]:
    """Disable gradients and dropout in the block, then restore the mode of every module."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module, mode in modes:
            module.training = mode


def seed_of(seed: int, what: str) -> int:
    """Return the seed of one tensor, from the model's seed and the tensor's name."""
    key = hashlib.blake2b(f"{seed}/{what}".encode(), digest_size=8).digest()
    return int.from_bytes(key) >> 1


def _causal(row_1T: Tensor, window: int | None) -> AttentionMask:
    if window is None or window >= row_1T.shape[1]:
        return AttentionMask(None, causal=True)
    return AttentionMask(None, first_BT=(row_1T - window + 1).clamp(min=0).to(torch.int32))
