"""llm.c's GPT-2 checkpoints, and token shards as llm.c and nanoGPT keep them: read and written.

A checkpoint is 256 int32 (magic, version, context, vocabulary, layers, heads, width, padded
vocabulary, zeros) and then the parameters, a kind at a time, each stacked over the layers and laid
out as (out, in). Version 3 is float32, version 5 bfloat16. The embedding is padded with rows of
zeros to a multiple of 128. A shard of tokens is 256 int32 (magic, version, count, zeros) and then
the tokens; nanoGPT's has no header. All of it is little-endian. From `train_gpt2.py`,
`train_gpt2.c`, `llmc/dataloader.h` and `dev/data/data_common.py` of llm.c at f1e2ace, and
`data/*/prepare.py` of nanoGPT.
"""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Final, NamedTuple

import numpy as np
import torch

from ownwords.core.workspace import writing_atomically
from ownwords.models.configs.gpt2 import GPT2Config
from ownwords.models.decoder import CausalLM, build
from ownwords.models.untrusted_files import ModelError, open_file
from ownwords.models.weight_mapping import hf_names

_HEADER: Final = 256
_HEADER_BYTES: Final = 4 * _HEADER

_CHECKPOINT: Final = 20240326
_DTYPES: Final = {3: torch.float32, 5: torch.bfloat16}
_PADDED_TO: Final = 128
_BLOCK_BYTES: Final = 4 << 20
# In the order of the file; "{i}" is repeated over the layers before the next kind begins.
_ORDER: Final = (
    "transformer.wte.weight",
    "transformer.wpe.weight",
    "transformer.h.{i}.ln_1.weight",
    "transformer.h.{i}.ln_1.bias",
    "transformer.h.{i}.attn.c_attn.weight",
    "transformer.h.{i}.attn.c_attn.bias",
    "transformer.h.{i}.attn.c_proj.weight",
    "transformer.h.{i}.attn.c_proj.bias",
    "transformer.h.{i}.ln_2.weight",
    "transformer.h.{i}.ln_2.bias",
    "transformer.h.{i}.mlp.c_fc.weight",
    "transformer.h.{i}.mlp.c_fc.bias",
    "transformer.h.{i}.mlp.c_proj.weight",
    "transformer.h.{i}.mlp.c_proj.bias",
    "transformer.ln_f.weight",
    "transformer.ln_f.bias",
)


class ShardKind(NamedTuple):
    """What llm.c writes at the head of a shard, and the type of the tokens behind it."""

    magic: int
    version: int
    dtype: np.dtype[np.unsignedinteger]


UINT16: Final = ShardKind(20240520, 1, np.dtype("<u2"))  # made for GPT-2's vocabulary
UINT32: Final = ShardKind(20240801, 7, np.dtype("<u4"))  # made for Llama 3's


class _Sizes(NamedTuple):
    """The sizes in a checkpoint's header."""

    context: int
    vocabulary: int
    layers: int
    heads: int
    width: int
    padded: int

    @property
    def parameters(self) -> int:
        """How many numbers follow the header."""
        a_layer = 12 * self.width**2 + 13 * self.width
        return (self.padded + self.context + 2) * self.width + self.layers * a_layer


def load_checkpoint(
    path: Path, *, device: torch.device | str = "cpu", dtype: torch.dtype | None = None
) -> CausalLM:
    """The GPT-2 that llm.c wrote, in the file's type if no other is asked for.

    Memory is the model and one block. ModelError for a file that is damaged, of another kind, or
    that holds something GPT-2 has no place for.
    """
    with open_file(path) as file:
        sizes, stored = _read_header(path, file)
        model = build(_config(sizes), device=device, dtype=dtype or stored)
        for name, rows in _in_file_order(model):
            _fill(path, file, rows, stored)
            if name == _ORDER[0]:
                padding = file.read(
                    (sizes.padded - sizes.vocabulary) * sizes.width * stored.itemsize
                )
                if any(padding):
                    raise ModelError(
                        f"{path} has numbers in the rows that pad its embedding from"
                        f" {sizes.vocabulary} to {sizes.padded}, and llm.c keeps them at zero",
                        hint="the file is damaged, or of a program with another layout",
                    )
    return model


def save_checkpoint(path: Path, model: CausalLM, *, dtype: torch.dtype | None = None) -> None:
    """Write a GPT-2 so that llm.c goes on from it: version 3 for float32, version 5 for bfloat16.

    Without `dtype` in the type that the model has. Whole or not at all; ModelError if the model is
    not a GPT-2 exactly as llm.c computes it.
    """
    sizes = _sizes_of(model)
    dtype = dtype or next(model.parameters()).dtype
    version = next((number for number, kind in _DTYPES.items() if kind is dtype), None)
    if version is None:
        raise ModelError(
            f"llm.c has no checkpoints of {dtype}", hint="write float32 or bfloat16 instead"
        )
    with writing_atomically(path) as file:
        file.write(_header(_CHECKPOINT, version, *sizes))
        for name, rows in _in_file_order(model):
            for block in torch.split(rows, _rows_at_once(rows, dtype)):
                file.write(block.to("cpu", dtype).contiguous().view(torch.uint8).numpy().data)
            if name == _ORDER[0]:
                row_bytes = sizes.width * dtype.itemsize
                file.write(bytes((sizes.padded - sizes.vocabulary) * row_bytes))


def _read_header(path: Path, file: IO[bytes]) -> tuple[_Sizes, torch.dtype]:
    header = _read_ints(path, file, "checkpoint")
    magic, version = header[:2]
    if magic != _CHECKPOINT:
        raise ModelError(
            f"{path} is no checkpoint of llm.c: it begins with {magic} and not {_CHECKPOINT}"
        )
    if version not in _DTYPES:
        raise ModelError(
            f"{path} is a checkpoint of version {version}; 3 (float32) and 5 (bfloat16) are known",
            hint="llm.c's current train_gpt2.py writes both",
        )
    sizes = _Sizes(*header[2:8])
    for name, value in sizes._asdict().items():
        if value < 1:
            raise ModelError(f"{path} is damaged: its header says {name} {value}")
    if sizes.width % sizes.heads:
        raise ModelError(
            f"{path} is damaged: a width of {sizes.width} does not divide into {sizes.heads} heads"
        )
    if sizes.padded != _padded(sizes.vocabulary):
        raise ModelError(
            f"{path} pads a vocabulary of {sizes.vocabulary} to {sizes.padded}, and llm.c to"
            f" {_padded(sizes.vocabulary)}"
        )
    _check_size(path, file, sizes.parameters * _DTYPES[version].itemsize)
    return sizes, _DTYPES[version]


def _config(sizes: _Sizes) -> GPT2Config:
    """The model that llm.c computes: its other settings are GPT-2's own."""
    return GPT2Config(
        vocabulary=sizes.vocabulary,
        context=sizes.context,
        width=sizes.width,
        layers=sizes.layers,
        heads=sizes.heads,
    )


def _sizes_of(model: CausalLM) -> _Sizes:
    config = model.config
    if not isinstance(config, GPT2Config):
        raise ModelError(f"llm.c's checkpoints are of gpt2, and this is a {config.MODEL_TYPE}")
    sizes = _Sizes(
        config.context,
        config.vocabulary,
        config.layers,
        config.heads,
        config.width,
        _padded(config.vocabulary),
    )
    fixed = _config(sizes)
    for field in ("hidden", "norm_eps", "tied"):
        ours, theirs = getattr(config, field), getattr(fixed, field)
        if ours != theirs:
            raise ModelError(f"llm.c computes GPT-2 with {field} {theirs}, and this has {ours}")
    return sizes


def _padded(vocabulary: int) -> int:
    return -(-vocabulary // _PADDED_TO) * _PADDED_TO


def _in_file_order(model: CausalLM) -> Iterator[tuple[str, torch.Tensor]]:
    """The parameters as matrices (a vector is a column), under the name they have in `_ORDER`.

    Ours are laid out as (out, in), like llm.c's; Hugging Face's are not.
    """
    parameters = dict(model.named_parameters())
    ours = {theirs: name for name, theirs, _ in hf_names(model.config)}
    if set(ours.values()) != parameters.keys():
        raise ModelError(
            "the model is not a plain GPT-2: something is attached to it, or it is quantised",
            hint="merge an adapter into its model before it is saved",
        )
    layers = model.config.layers
    for name in _ORDER:
        for layer in range(layers if "{i}" in name else 1):
            parameter = parameters[ours[name.replace("{i}", str(layer))]].detach()
            yield name, parameter.view(len(parameter), -1)


def _rows_at_once(rows: torch.Tensor, dtype: torch.dtype) -> int:
    return max(1, _BLOCK_BYTES // (rows.shape[1] * dtype.itemsize))


def _fill(path: Path, file: IO[bytes], rows: torch.Tensor, stored: torch.dtype) -> None:
    for block in torch.split(rows, _rows_at_once(rows, stored)):
        data = bytearray(file.read(block.numel() * stored.itemsize))
        if len(data) != block.numel() * stored.itemsize:
            raise ModelError(f"{path} ended while it was read")
        block.copy_(torch.frombuffer(data, dtype=stored).view(block.shape))


def _header(*numbers: int) -> bytes:
    header = np.zeros(_HEADER, dtype="<i4")
    header[: len(numbers)] = numbers
    return header.tobytes()


def _read_ints(path: Path, file: IO[bytes], what: str) -> list[int]:
    data = file.read(_HEADER_BYTES)
    if len(data) < _HEADER_BYTES:
        raise ModelError(
            f"{path} has {len(data)} bytes, and the header of a {what} alone {_HEADER_BYTES:,}",
            hint="copy or download it again",
        )
    return [int(number) for number in np.frombuffer(data, dtype="<i4")]


def _check_size(path: Path, file: IO[bytes], behind_the_header: int) -> None:
    size, expected = os.fstat(file.fileno()).st_size, _HEADER_BYTES + behind_the_header
    if size != expected:
        raise ModelError(
            f"{path} has {size:,} bytes, and its header describes {expected:,}",
            hint="copy or download it again",
        )


def read_shard(path: Path, vocabulary: int) -> np.ndarray:
    """The tokens of llm.c's shard, mapped from the disk; ModelError if one is not of `vocabulary`.

    All of them are looked at once, block by block. The file must not change while it is mapped.
    """
    with open_file(path) as file:
        magic, version, count, *_ = _read_ints(path, file, "shard")
        kind = next((kind for kind in (UINT16, UINT32) if kind.magic == magic), None)
        if kind is None:
            raise ModelError(
                f"{path} is no token shard of llm.c: it begins with {magic}",
                hint="llm.c's older data files have no header, and nanoGPT's neither",
            )
        if version != kind.version:
            raise ModelError(
                f"{path} is a shard of version {version}, and {kind.version} is the one known"
            )
        if count < 1:
            raise ModelError(f"{path} is damaged: its header says {count} tokens")
        _check_size(path, file, count * kind.dtype.itemsize)
        return _mapped(path, file, kind.dtype, _HEADER_BYTES, count, vocabulary)


def read_headerless(path: Path, vocabulary: int) -> np.ndarray:
    """The tokens of a nanoGPT `.bin`, uint16 from its first byte on; else as `read_shard`."""
    with open_file(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size < 2 or size % 2:
            raise ModelError(f"{path} has {size:,} bytes, which are no whole tokens of two")
        magic = int.from_bytes(file.read(4), "little")
        if magic in (UINT16.magic, UINT32.magic):
            raise ModelError(f"{path} has llm.c's header", hint="read it as a shard of llm.c")
        return _mapped(path, file, UINT16.dtype, 0, size // 2, vocabulary)


def _mapped(
    path: Path,
    file: IO[bytes],
    dtype: np.dtype[np.unsignedinteger],
    offset: int,
    count: int,
    vocabulary: int,
) -> np.ndarray:
    tokens = np.memmap(file, dtype=dtype, mode="r", offset=offset, shape=(count,))
    step = _BLOCK_BYTES // dtype.itemsize
    for first in range(0, count, step):
        largest = int(tokens[first : first + step].max())
        if largest >= vocabulary:
            raise ModelError(
                f"{path} holds the token {largest}, and the vocabulary has {vocabulary:,}",
                hint="it was made with another tokenizer, or is no file of tokens",
            )
    return tokens


def write_shard(path: Path, blocks: Iterable[np.ndarray], kind: ShardKind = UINT16) -> int:
    """Write llm.c's shard, a block at a time; how many tokens it has. Whole or not at all."""
    with writing_atomically(path) as file:
        file.write(bytes(_HEADER_BYTES))
        count = _write_tokens(file, blocks, kind.dtype)
        if not 0 < count < 1 << 31:
            raise ModelError(f"a shard of llm.c has between 1 and 2**31 - 1 tokens, not {count}")
        file.seek(0)
        file.write(_header(kind.magic, kind.version, count))
    return count


def write_headerless(path: Path, blocks: Iterable[np.ndarray]) -> int:
    """Write a nanoGPT `.bin`; else as `write_shard`."""
    with writing_atomically(path) as file:
        return _write_tokens(file, blocks, UINT16.dtype)


def _write_tokens(
    file: IO[bytes], blocks: Iterable[np.ndarray], dtype: np.dtype[np.unsignedinteger]
) -> int:
    count, largest = 0, int(np.iinfo(dtype).max)
    for block in blocks:
        if block.size and not 0 <= int(block.min()) <= int(block.max()) <= largest:
            raise ModelError(
                f"a token is not between 0 and {largest:,}, the last that {dtype} can count",
                hint="a vocabulary over 65,536 needs shards of uint32",
            )
        file.write(block.astype(dtype).tobytes())
        count += block.size
    return count
