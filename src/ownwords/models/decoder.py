"""What the models of all families share.

Shapes: B batch, T tokens of this call, C width, V vocabulary.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ownwords.core.errors import ConfigError, OwnwordsError
from ownwords.models import fused
from ownwords.models.configs.config import ModelConfig
from ownwords.models.kv_cache import KVCache, KVCacheView, visible
from ownwords.models.layers import AttentionMask, Embedding, ResidualBlock
from ownwords.models.loss import IGNORED, chunked_cross_entropy
from ownwords.models.registry import model_class


@dataclass(frozen=True)
class ForwardContext:
    """Of one forward pass: the positions of its tokens, and what each may attend to."""

    positions_BT: Tensor  # [B, T], or [1, T] where all rows are alike
    masks: Mapping[int | None, AttentionMask]  # by window
    cache: KVCache | None = None
    counts: tuple[int, ...] = ()

    def finish(self) -> None:
        """All layers have run: the tokens belong to the cache."""
        if self.cache is not None:
            self.cache.advance(self.counts)


class CausalLM(nn.Module):
    """A language model of any family: ids in, hidden states out; logits and loss from those.

    A module that replaces `embedding` or `head` (a quantised one, say) must implement `as_head()`
    and `weight`, which the loss multiplies by.

    `gradient_checkpointing` trades time for memory in training: blocks are run again in the
    backward pass. `dropout` applies to the embedded ids and to what each block adds,
    drawn from PyTorch's random state.
    """

    embedding: Embedding
    blocks: nn.ModuleList
    final_norm: nn.Module
    head: nn.Linear | None  # None: tied, the embedding is the head

    def __init__(
        self,
        config: ModelConfig,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        """Allocate the parameters and leave them unfilled; on "meta" not even that."""
        super().__init__()
        self.config = config
        self.gradient_checkpointing = False
        self._dropout = 0.0
        # PyTorch's layers fill themselves from the global random state; on "meta" they cannot.
        with torch.device("meta"):
            self.assemble()
            self.head = None if config.tied else nn.Linear(config.width, config.vocabulary, False)
        self.to(dtype)
        device = torch.device("cpu" if device is None else device)
        if device.type != "meta":
            # As `to_empty` does, which for tensors on "meta" imports a library of algebra first.
            self._apply(  # type: ignore[no-untyped-call]
                lambda each: torch.empty(each.shape, dtype=each.dtype, device=device)
            )

    def assemble(self) -> None:
        """Make the family's parts, all but the head."""
        raise NotImplementedError

    def run_blocks(self, ids_BT: Tensor, context: ForwardContext) -> Tensor:
        """Hidden states [B, T, C] after the last block, before the final norm."""
        raise NotImplementedError

    def forward(
        self,
        ids_BT: Tensor,
        *,
        documents_BT: Tensor | None = None,
        cache: KVCache | None = None,
        lengths_B: Tensor | None = None,
    ) -> Tensor:
        """Hidden states after the final norm, [B, T, C].

        `documents_BT` numbers the documents packed into each row: attention never crosses a border
        and positions restart there. With a cache the tokens follow those it holds; `lengths_B` says
        how many of each row are real, the rest being padding on the right.
        """
        context = self.context(ids_BT, documents_BT, cache, lengths_B)
        x_BTC = self.run_blocks(ids_BT, context)
        context.finish()
        hidden_BTC: Tensor = self.final_norm(x_BTC)
        return hidden_BTC

    def initial(self, name: str, shape: torch.Size) -> tuple[float, float]:
        """Mean and standard deviation of a parameter before training."""
        raise NotImplementedError

    def init_weights(self, seed: int) -> None:
        """Fill every parameter from `seed`: the same values on any device, in any order.

        Each tensor has its own generator, seeded with its name, and is drawn in float32 on the CPU;
        PyTorch's global random state is neither read nor changed.
        """
        for name, parameter in self.named_parameters():
            mean, std = self.initial(name, parameter.shape)
            key = hashlib.blake2b(f"{seed}/{name}".encode(), digest_size=8).digest()
            generator = torch.Generator("cpu").manual_seed(int.from_bytes(key) >> 1)
            values = torch.empty(parameter.shape, dtype=torch.float32, device="cpu")
            with torch.no_grad():
                if std:
                    values.normal_(mean, std, generator=generator)
                else:
                    values.fill_(mean)
                parameter.copy_(values)

    def logits(self, hidden_BTC: Tensor) -> Tensor:
        """[B, T, V]. For training use `loss`, which never holds them whole."""
        if self.head is None:
            logits_BTV = self.embedding.as_head(hidden_BTC)
        else:
            logits_BTV = self.head(hidden_BTC)
        if softcap := self.config.logit_softcap:
            logits_BTV = (logits_BTV / softcap).tanh() * softcap
        return logits_BTV

    def loss(
        self,
        ids_BT: Tensor,
        targets_BT: Tensor,
        *,
        documents_BT: Tensor | None = None,
        z_weight: float = 0.0,
    ) -> tuple[Tensor, Tensor]:
        """Summed cross entropy in nats and the number of tokens; targets of -100 do not count.

        `targets_BT` are the ids that follow, already moved by one.
        """
        self._check_targets(targets_BT, ids_BT)
        hidden_BTC = self(ids_BT, documents_BT=documents_BT)
        return chunked_cross_entropy(
            hidden_BTC.flatten(0, 1),
            self.embedding.weight if self.head is None else self.head.weight,
            targets_BT.flatten(),
            softcap=self.config.logit_softcap,
            z_weight=z_weight,
        )

    def new_cache(self, batch: int, length: int, dtype: torch.dtype | None = None) -> KVCache:
        """A cache for `batch` texts of up to `length` tokens each."""
        if not 1 <= length <= self.config.context:
            raise OwnwordsError(
                f"a cache of {length} tokens was asked for; the context is {self.config.context}"
            )
        weight = next(self.final_norm.parameters())  # never quantised, as the embedding may be
        return KVCache(
            self.config.windows(),
            batch=batch,
            length=length,
            kv_heads=self.config.kv_heads,
            head_dim=self.config.head_dim,
            device=weight.device,
            dtype=weight.dtype if dtype is None else dtype,
        )

    def context(
        self,
        ids_BT: Tensor,
        documents_BT: Tensor | None,
        cache: KVCache | None,
        lengths_B: Tensor | None,
    ) -> ForwardContext:
        """Checks the input; computes, once for all layers, what each token may attend to."""
        self._check(ids_BT, documents_BT)
        batch, tokens = ids_BT.shape
        windows = set(self.config.windows())
        if cache is not None:
            if documents_BT is not None:
                raise OwnwordsError("packed documents cannot be read into a cache")
            counts = cache.counts(batch, tokens, lengths_B)
            views = {window: KVCacheView(cache, window, tokens, counts) for window in windows}
            masks = {window: AttentionMask(v.mask, v.causal, v) for window, v in views.items()}
            # Padding may lie beyond the last position there is; nothing ever looks at it.
            positions_BT = cache.positions(tokens).clamp(max=cache.length - 1)
            return ForwardContext(positions_BT, masks, cache, tuple(counts))
        row_1T = torch.arange(tokens, device=ids_BT.device)[None]
        if documents_BT is None:
            return ForwardContext(row_1T, {window: _causal(row_1T, window) for window in windows})
        borders_BT = torch.ones_like(documents_BT, dtype=torch.bool)
        borders_BT[:, 1:] = documents_BT[:, 1:] != documents_BT[:, :-1]
        starts_BT = torch.where(borders_BT, row_1T, 0).cummax(dim=1).values
        if fused.supports_attention(ids_BT):
            return ForwardContext(row_1T - starts_BT, _packed(row_1T, starts_BT, windows))
        same_B1TT = (starts_BT[:, :, None] == starts_BT[:, None, :])[:, None]
        masks = {
            window: AttentionMask(same_B1TT & visible(row_1T, row_1T, window)) for window in windows
        }
        return ForwardContext(row_1T - starts_BT, masks)

    @property
    def dropout(self) -> float:
        """See the class; 0 unless set."""
        return self._dropout

    @dropout.setter
    def dropout(self, share: float) -> None:
        if not 0 <= share < 1:
            raise ConfigError(f"a dropout of {share} must be from 0 to below 1")
        self._dropout = share
        for block in self.blocks:
            if isinstance(block, ResidualBlock):
                block.dropout = share

    def apply_dropout(self, x_BTC: Tensor) -> Tensor:
        """The embedded ids, in training with dropout."""
        return F.dropout(x_BTC, self._dropout, self.training)

    def run_block(self, block: nn.Module, *inputs: object) -> Tensor:
        """The output of a block; with gradient checkpointing its activations are not saved."""
        if self.gradient_checkpointing and torch.is_grad_enabled():
            out_BTC: Tensor = checkpoint(block, *inputs, use_reentrant=False)
        else:
            out_BTC = block(*inputs)
        return out_BTC

    def _check(self, ids_BT: Tensor, documents_BT: Tensor | None) -> None:
        if ids_BT.ndim != 2 or ids_BT.shape[1] == 0:
            raise OwnwordsError(f"ids must be [batch, tokens], not {list(ids_BT.shape)}")
        if documents_BT is not None and documents_BT.shape != ids_BT.shape:
            raise OwnwordsError(
                f"documents {list(documents_BT.shape)} are not shaped like ids {list(ids_BT.shape)}"
            )
        if ids_BT.shape[1] > self.config.context:
            raise OwnwordsError(
                f"{ids_BT.shape[1]} tokens do not fit the model's context ({self.config.context})"
            )
        self._check_range("id", ids_BT)

    def _check_targets(self, targets_BT: Tensor, ids_BT: Tensor) -> None:
        if targets_BT.shape != ids_BT.shape:
            raise OwnwordsError(
                f"targets {list(targets_BT.shape)} are not shaped like ids {list(ids_BT.shape)}"
            )
        self._check_range("target", targets_BT, ignored=IGNORED)

    def _check_range(self, name: str, ids_BT: Tensor, ignored: int = 0) -> None:
        if ids_BT.device.type != "cpu":  # there, looking at the values would wait for the device
            return
        lowest, highest = (int(end) for end in torch.aminmax(ids_BT))
        if lowest < min(0, ignored) or highest >= self.config.vocabulary:
            wrong = highest if highest >= self.config.vocabulary else lowest
            raise OwnwordsError(
                f"{name} {wrong} is not in the vocabulary ({self.config.vocabulary} tokens)",
                hint="use the tokenizer that belongs to this model",
            )


def build(
    config: ModelConfig,
    *,
    device: torch.device | str | None = None,
    dtype: torch.dtype = torch.float32,
) -> CausalLM:
    """The model of a config: parameters allocated, not filled (`init_weights` or a file does)."""
    model: CausalLM = model_class(config)(config, device=device, dtype=dtype)
    return model


def embedding_std(width: int) -> float:
    """0.02, and less above a width of 256.

    Where the head is the embedding, a fresh model bets on repeating the token it has just read,
    with a logit of about spread * width: 5 is harmless, the 20 of width 1,024 would not be.
    """
    return 0.02 * min(1.0, 256 / width)


def _packed(
    row_1T: Tensor, starts_BT: Tensor, windows: Iterable[int | None]
) -> dict[int | None, AttentionMask]:
    """By window, of rows of several documents: the first token that each may look at."""
    near = {
        w: starts_BT if w is None else torch.maximum(starts_BT, row_1T - w + 1) for w in windows
    }
    return {
        w: AttentionMask(None, first_BT=first_BT.to(torch.int32)) for w, first_BT in near.items()
    }


def _causal(row_1T: Tensor, window: int | None) -> AttentionMask:
    if window is None or window >= row_1T.shape[1]:
        return AttentionMask(None, causal=True)
    if fused.supports_attention(row_1T):
        return AttentionMask(None, first_BT=(row_1T - window + 1).clamp(min=0).to(torch.int32))
    return AttentionMask(visible(row_1T, row_1T, window))
