"""llm.c's GPT-2 checkpoints and token shards, to compare our training with that program's.

A checkpoint is 256 int32 (magic, version, context, vocabulary, layers, heads, width, padded
vocabulary, zeros) and then the parameters, a kind at a time, each stacked over the layers and laid
out as (out, in). The embedding is padded with rows of zeros to a multiple of 128. A shard is 256
int32 (magic, version, count, zeros) and then the tokens. From `train_gpt2.py`, `train_gpt2.c` and
`llmc/dataloader.h` of llm.c at f1e2ace.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ownwords.models.configs.gpt2 import GPT2Config
from ownwords.models.decoder import CausalLM, build
from ownwords.models.weight_mapping import hf_names

CHECKPOINT, FLOAT32, SHARD, UINT16 = 20240326, 3, 20240520, 1
# In the order of the file; those of a block are repeated over the layers before the next begins.
_ENDS = (("wte.weight", "wpe.weight"), ("ln_f.weight", "ln_f.bias"))
_BLOCK = ("ln_1", "attn.c_attn", "attn.c_proj", "ln_2", "mlp.c_fc", "mlp.c_proj")


def _in_file_order(model: CausalLM) -> Iterator[tuple[str, Tensor]]:
    ours = {theirs: name for name, theirs, _ in hf_names(model.config)}
    block = [f"h.{{i}}.{part}.{kind}" for part in _BLOCK for kind in ("weight", "bias")]
    for name in (*_ENDS[0], *block, *_ENDS[1]):
        for layer in range(model.config.layers if "{i}" in name else 1):
            stored = f"transformer.{name.replace('{i}', str(layer))}"
            yield stored, model.get_parameter(ours[stored]).detach()


def _padded(vocabulary: int) -> int:
    return -(-vocabulary // 128) * 128


def save_checkpoint(path: Path, model: CausalLM) -> None:
    """Write a GPT-2 in float32."""
    c = model.config
    header = np.zeros(256, dtype="<i4")
    padded = _padded(c.vocabulary)
    header[:8] = CHECKPOINT, FLOAT32, c.context, c.vocabulary, c.layers, c.heads, c.width, padded
    with path.open("wb") as file:
        file.write(header.tobytes())
        for name, values in _in_file_order(model):
            file.write(values.numpy().tobytes())
            if "wte" in name:
                file.write(bytes(4 * (padded - c.vocabulary) * c.width))


def load_checkpoint(path: Path) -> CausalLM:
    """The inverse of `save_checkpoint`."""
    header = np.fromfile(path, "<i4", 256)
    _, _, context, vocabulary, layers, heads, width, padded = (int(x) for x in header[:8])
    model = build(
        GPT2Config(vocabulary=vocabulary, context=context, width=width, layers=layers, heads=heads)
    )
    numbers, at = torch.from_numpy(np.fromfile(path, "<f4", offset=1024)), 0
    for name, values in _in_file_order(model):
        values.copy_(numbers[at : at + values.numel()].view(values.shape))
        at += values.numel() + ((padded - vocabulary) * width if "wte" in name else 0)
    return model


def write_shard(path: Path, tokens: np.ndarray) -> None:
    """Write token ids below 65,536."""
    header = np.zeros(256, dtype="<i4")
    header[:3] = SHARD, UINT16, tokens.size
    path.write_bytes(header.tobytes() + tokens.astype("<u2").tobytes())
