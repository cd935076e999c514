"""BERT, a bidirectional encoder, used here for sentence embeddings; inference only.

Devlin et al. 2018 (arXiv 1810.04805); pooled sentence embeddings as in Reimers and Gurevych 2019
(arXiv 1908.10084). Shapes: B texts, T tokens, C width, H heads, D dimensions of a head.
"""

import itertools
import re
from pathlib import Path
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ownwords.models.configs.bert import BertConfig
from ownwords.models.layers import AttentionMask, Embedding, attend, split_heads
from ownwords.models.safetensors import read_blocks
from ownwords.models.untrusted_files import open_file, read_json
from ownwords.models.weight_mapping import check_shapes, find_tensors, map_weights

Pooling = Literal["mean", "cls"]

# Stored tensors that embeddings do not need: position and token type ids, pooler and heads.
_BESIDE = re.compile(r"(bert\.)?(embeddings\.(position|token_type)_ids|pooler\..+)|cls\..+")


class BertAttention(nn.Module):
    """Bidirectional attention; the mask excludes padding."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.head_dim = config.head_dim
        self.query = nn.Linear(config.width, config.q_width)
        self.key = nn.Linear(config.width, config.kv_width)
        self.value = nn.Linear(config.width, config.kv_width)
        self.output = nn.Linear(config.q_width, config.width)

    def forward(self, x_BTC: Tensor, mask: AttentionMask) -> Tensor:
        query_BHTD, key_BHTD, value_BHTD = (
            split_heads(layer(x_BTC), self.head_dim) for layer in (self.query, self.key, self.value)
        )
        attended_BTC = attend(query_BHTD, key_BHTD, value_BHTD, mask, self.head_dim**-0.5)
        out_BTC: Tensor = self.output(attended_BTC)
        return out_BTC


class BertMLP(nn.Module):
    """Compute down(gelu(up(x)))."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.approximate = "tanh" if config.gelu_tanh else "none"
        self.up = nn.Linear(config.width, config.hidden)
        self.down = nn.Linear(config.hidden, config.width)

    def forward(self, x_BTC: Tensor) -> Tensor:
        out_BTC: Tensor = self.down(F.gelu(self.up(x_BTC), approximate=self.approximate))
        return out_BTC


class BertBlock(nn.Module):
    """Attention, then MLP, each with a residual connection followed by LayerNorm (post-norm)."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.attention = BertAttention(config)
        self.attention_norm = nn.LayerNorm(config.width, config.norm_eps)
        self.mlp = BertMLP(config)
        self.mlp_norm = nn.LayerNorm(config.width, config.norm_eps)

    def forward(self, x_BTC: Tensor, mask: AttentionMask) -> Tensor:
        x_BTC = self.attention_norm(x_BTC + self.attention(x_BTC, mask))
        normed_BTC: Tensor = self.mlp_norm(x_BTC + self.mlp(x_BTC))
        return normed_BTC


class Bert(nn.Module):
    """BERT without heads: ids in, hidden states or one embedding per text out; not trainable."""

    def __init__(self, config: BertConfig, *, device: torch.device | str = "cpu") -> None:
        """Allocate the parameters and leave them unfilled."""
        super().__init__()
        self.config = config
        # On "meta", PyTorch's layers do not initialise themselves from the global random state.
        with torch.device("meta"):
            self.embedding = Embedding(config.vocabulary, config.width)
            self.positions = Embedding(config.context, config.width)
            self.token_types = Embedding(config.token_types, config.width)
            self.embedding_norm = nn.LayerNorm(config.width, config.norm_eps)
            self.blocks = nn.ModuleList(BertBlock(config) for _ in range(config.layers))
        # Like `to_empty`, which for tensors on "meta" would first import SymPy.
        self._apply(  # type: ignore[no-untyped-call]
            lambda parameter: torch.empty(parameter.shape, dtype=parameter.dtype, device=device)
        )
        self.requires_grad_(False).eval()

    @classmethod
    def load(cls, folder: Path, *, device: torch.device | str = "cpu") -> "Bert":
        """Load a model from a Hugging Face directory, in float32.

        ModelError or ConfigError says what is missing, damaged or does not fit.
        """
        config = BertConfig.from_hf(read_json(folder / "config.json"))
        stored = {
            name: info for name, info in find_tensors(folder).items() if not _BESIDE.fullmatch(name)
        }
        fitted = map_weights(stored, config, folder)
        check_shapes(fitted, config, folder)
        model = cls(config, device=device)
        parameters = dict(model.named_parameters())
        for path, group in itertools.groupby(fitted, key=lambda mapped: mapped.stored.path):
            with open_file(path) as file:
                for mapped in group:
                    at = 0
                    for block in read_blocks(mapped.stored, file):
                        parameters[mapped.ours][at : at + len(block)] = block
                        at += len(block)
        return model

    def forward(self, ids_BT: Tensor, lengths_B: Tensor) -> Tensor:
        """Hidden states [B, T, C]; tokens of a row from `lengths_B` on are padding."""
        tokens = ids_BT.shape[1]
        mask_BT = torch.arange(tokens, device=ids_BT.device) < lengths_B[:, None]
        mask = AttentionMask(None if bool(mask_BT.all()) else mask_BT[:, None, None, :])
        here_TC = self.positions.weight[:tokens] + self.token_types.weight[0]
        x_BTC = self.embedding_norm(self.embedding(ids_BT) + here_TC)
        for block in self.blocks:
            x_BTC = block(x_BTC, mask)
        hidden_BTC: Tensor = x_BTC
        return hidden_BTC

    @torch.inference_mode()
    def vectors(
        self, ids_BT: Tensor, lengths_B: Tensor, pooling: Pooling, *, unit: bool = True
    ) -> Tensor:
        """Sentence embeddings [B, C]: the mean hidden state, or the first token's ("cls").

        With `unit` they are normalised to length 1.
        """
        hidden_BTC = self(ids_BT, lengths_B)
        if pooling == "cls":
            vector_BC = hidden_BTC[:, 0]
        else:
            real_BT1 = (
                torch.arange(ids_BT.shape[1], device=ids_BT.device) < lengths_B[:, None]
            ).unsqueeze(-1)
            vector_BC = (hidden_BTC * real_BT1).sum(1) / lengths_B[:, None]
        return F.normalize(vector_BC, dim=-1) if unit else vector_BC
