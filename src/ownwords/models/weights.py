"""A model's weights between its files and its memory: found, fitted by name, copied in blocks.

Loading needs the model and one block of memory; so does writing.
"""

import dataclasses
import itertools
import json
import math
import re
from collections.abc import Iterator, Mapping
from functools import reduce
from pathlib import Path

import torch

from ownwords.models import quantize, quantized_file, staging
from ownwords.models.family import CausalLM, Config, build, hf_names
from ownwords.models.safely import ModelError, opened, read_object, shown
from ownwords.models.safetensors import (
    BLOCK_BYTES,
    FLOATS,
    Stored,
    Writable,
    read_header,
    write_tensors,
)

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
SHARD = "model-{:05d}-of-{:05d}.safetensors"

HEAD, EMBEDDING = "lm_head.weight", "embedding.weight"

# What older programs stored beside the weights and every reader computes for itself.
KNOWN_BUFFERS = (
    r"(transformer\.)?h\.\d+\.attn\.bias",  # GPT-2: the causal mask
    r"(transformer\.)?h\.\d+\.attn\.masked_bias",  # GPT-2: what stands for minus infinity
    r"(model\.)?layers\.\d+\.self_attn\.rotary_emb\.inv_freq",  # Llama: rotary frequencies
    r"(model\.)?rotary_emb(_local)?\.(original_)?inv_freq",  # the same, once for all layers
)
_KNOWN_BUFFER = re.compile("|".join(KNOWN_BUFFERS))
_SHARD_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,120}\.safetensors")

_PICKLES = ("*.bin", "*.bin.index.json", "*.pt", "*.pth", "*.ckpt", "*.pkl")
# The sizes in a config that are a dimension, or part of one, of some tensor.
_DIMENSIONS = ("vocabulary", "width", "hidden", "heads", "kv_heads", "head_dim")


@dataclasses.dataclass(frozen=True)
class Fitted:
    """A tensor in a file, with the name of the parameter that it fills."""

    ours: str
    stored: Stored
    transposed: bool


def find(folder: Path) -> dict[str, Stored]:
    """Every tensor of a model directory by name, in one file or many; only headers are read."""
    if (folder / SINGLE).is_symlink() or (folder / SINGLE).exists():
        return read_header(folder / SINGLE)
    if not (folder / INDEX).exists():
        raise _no_weights(folder)
    index = read_object(folder / INDEX)
    places = index.get("weight_map")
    if not isinstance(places, dict) or not places:
        raise ModelError(f"{folder / INDEX} has no weight_map of tensors to files")
    for name, file in places.items():
        if not isinstance(file, str) or not _SHARD_NAME.fullmatch(file):
            raise ModelError(
                f"{folder / INDEX} puts {shown([name])} into {file!r:.80}, which is no"
                " safetensors file beside it"
            )
    found: dict[str, Stored] = {}
    for file in sorted(set(places.values())):
        here = read_header(folder / file)
        said = {name for name, place in places.items() if place == file}
        if here.keys() != said:
            raise ModelError(
                f"{folder / file} and {INDEX} disagree on {shown(said ^ here.keys())}",
                hint="the files are of two models, or a download is unfinished: get them again",
            )
        found |= here
    return found


def _no_weights(folder: Path) -> ModelError:
    pickles = sorted({path.name for mark in _PICKLES for path in folder.glob(mark)})
    if pickles:
        return ModelError(
            f"{folder} has its weights only as a pickle ({shown(pickles)}), which can run any"
            " program when it is opened, and so is not",
            hint="where you trust it, load it with transformers and write it again with"
            " save_pretrained(folder, safe_serialization=True)",
        )
    return ModelError(f"{folder} holds no {SINGLE}", hint="is it the folder of a whole model?")


def load(folder: Path, config: Config, device: str, dtype: torch.dtype | None) -> CausalLM:
    """The model of `config` with the weights of `folder`, all of them checked before the first is
    read; ModelError names what does not fit.

    Without `dtype` the model has the type of its files, the narrowest that holds all of them
    exactly where they are mixed.
    """
    stored = find(folder)
    if any(name.endswith(".packed") for name in stored):
        return _load_quantized(folder, stored, config, device, dtype)
    fitted = fit(stored, config, folder)
    _check_shapes(fitted, config, folder)
    dtypes = {FLOATS[each.stored.dtype] for each in fitted}
    model = build(config, device=device, dtype=dtype or reduce(torch.promote_types, dtypes))
    _fill(model, fitted)
    return model


def _load_quantized(
    folder: Path,
    stored: Mapping[str, Stored],
    config: Config,
    device: str,
    dtype: torch.dtype | None,
) -> CausalLM:
    """The same for small integers and their scales; `dtype` is what is computed in."""
    _check_plausible(stored, config, folder)
    kinds = {
        FLOATS[each.dtype]
        for name, each in stored.items()
        if each.dtype in FLOATS and not name.endswith(".scale")
    }
    kind = dtype or reduce(torch.promote_types, kinds, torch.bfloat16)
    model = build(config, device="meta", dtype=kind)
    quantized_file.read(folder / SINGLE, model, device)
    return model


def fit(stored: Mapping[str, Stored], config: Config, folder: Path) -> list[Fitted]:
    """Each tensor with its parameter; ModelError if one is left over or missing on either side."""
    _check_plausible(stored, config, folder)
    wanted = {theirs: (ours, transposed) for ours, theirs, transposed in hf_names(config)}
    stored = _with_prefix(stored, wanted)
    stored = {name: each for name, each in stored.items() if not _KNOWN_BUFFER.fullmatch(name)}
    if HEAD in stored and HEAD not in wanted:
        embedding = next(theirs for theirs, (ours, _) in wanted.items() if ours == EMBEDDING)
        head = stored.pop(HEAD)
        if embedding in stored and not _equal(head, stored[embedding]):
            raise ModelError(
                f"{folder}: config.json says that the head is tied to the embedding"
                f" (tie_word_embeddings), and {HEAD!r} differs from {embedding!r}",
                hint="set tie_word_embeddings to false, if the model was trained so",
            )
    unknown, missing = stored.keys() - wanted.keys(), wanted.keys() - stored.keys()
    if unknown or missing:
        sides = (("unknown", unknown), ("missing", missing))
        told = "; ".join(f"{len(names)} {side}: {shown(names)}" for side, names in sides if names)
        raise ModelError(
            f"{folder}: the weights are not those of a {config.MODEL_TYPE} of {config.layers}"
            f" layers, which has {len(wanted)} tensors; {told}",
            hint="is config.json the one that came with these weights?",
        )
    return [Fitted(wanted[name][0], each, wanted[name][1]) for name, each in stored.items()]


def _check_plausible(stored: Mapping[str, Stored], config: Config, folder: Path) -> None:
    """Refuse sizes that these files cannot fill, before anything is made in that size."""
    numbers = sum(math.prod(each.shape) for each in stored.values())
    limits = dict.fromkeys(_DIMENSIONS, numbers) | {"layers": len(stored)}
    for name, limit in limits.items():
        size = getattr(config, name, 0)
        if size > limit:
            theirs = next((k for k, value in _sizes(config).items() if value == size), name)
            raise ModelError(
                f"{folder}: config.json has {theirs} {size:,}, and its weights are only"
                f" {len(stored):,} tensors of {numbers:,} numbers in all",
                hint="is config.json the one that came with these weights?",
            )


def _with_prefix(
    stored: Mapping[str, Stored], wanted: Mapping[str, tuple[str, bool]]
) -> Mapping[str, Stored]:
    """GPT-2's own files, and others saved without a head, leave out the first part of each name."""
    prefix = next(theirs for theirs, (ours, _) in wanted.items() if ours == EMBEDDING)
    prefix = prefix.split(".")[0] + "."
    if any(name.startswith(prefix) for name in stored):
        return stored
    return {name if name == HEAD else prefix + name: each for name, each in stored.items()}


def _equal(one: Stored, other: Stored) -> bool:
    if (one.dtype, one.shape) != (other.dtype, other.shape) or one.dtype not in FLOATS:
        return False
    with opened(one.path) as file, opened(other.path) as second:
        pairs = zip(one.blocks(file), other.blocks(second), strict=True)
        return all(torch.equal(a.view(torch.uint8), b.view(torch.uint8)) for a, b in pairs)


def _check_shapes(fitted: list[Fitted], config: Config, folder: Path) -> None:
    try:
        parameters = dict(build(config, device="meta").named_parameters())
    except RuntimeError as error:  # a product of sizes beyond what torch can count
        raise ModelError(
            f"{folder}: the sizes in config.json cannot be those of a model"
        ) from error
    for each in fitted:
        stored, expected = each.stored, tuple(parameters[each.ours].shape)
        expected = expected[::-1] if each.transposed else expected
        if stored.shape != expected:
            raise ModelError(
                f"{folder}: {stored.name!r} has the shape {list(stored.shape)}, and config.json"
                f" asks for {list(expected)}{_because(stored.shape, expected, config)}"
            )
        if stored.dtype not in FLOATS:
            raise ModelError(
                f"{folder}: {stored.name!r} is {stored.dtype}, and weights are {', '.join(FLOATS)}"
                " (torch_dtype in config.json)",
                hint="get the model as it was before it was quantised",
            )


def _sizes(config: Config) -> dict[str, int]:
    said = config.to_hf().items()
    return {k: v for k, v in said if type(v) is int and v > 1 and not k.endswith("_token_id")}


def _because(found: tuple[int, ...], expected: tuple[int, ...], config: Config) -> str:
    """Which settings of config.json make the first size that is not as expected."""
    if len(found) != len(expected):
        return ""
    size = next(right for left, right in zip(found, expected, strict=True) if left != right)
    sizes = _sizes(config)
    one = [name for name, value in sizes.items() if value == size]
    heads = {name: value for name, value in sizes.items() if "head" in name}
    several = [
        f"{a} x {b}" for a in heads for b in heads if a < b and heads[a] * heads[b] == size
    ] or [f"{k} x {name}" for k in (2, 3, 4) for name, value in sizes.items() if k * value == size]
    causes = one or several
    return f" ({size} is {' or '.join(causes)})" if causes else ""


def _fill(model: CausalLM, fitted: list[Fitted]) -> None:
    parameters = dict(model.named_parameters())
    for path, group in itertools.groupby(fitted, key=lambda each: each.stored.path):
        with opened(path) as file, torch.no_grad():
            for each in group:
                target = _rows(parameters[each.ours], each.transposed)
                at = 0
                for block in each.stored.blocks(file):
                    target[at : at + len(block)] = _narrowed(block, target.dtype, each.stored.name)
                    at += len(block)


def _rows(parameter: torch.Tensor, transposed: bool) -> torch.Tensor:
    view = parameter.detach()
    view = view.t() if transposed else view
    return view if view.dim() else view.reshape(1)


def _narrowed(block: torch.Tensor, dtype: torch.dtype, name: str) -> torch.Tensor:
    """The block in another type; ModelError where float16 would make infinity of a number."""
    cast = block.to(dtype)
    if dtype is torch.float16 and bool((cast.isinf() & ~block.isinf()).any()):
        raise ModelError(
            f"{name!r} holds {block.abs().max().item():,.0f}, and float16 ends at 65,504",
            hint="use bfloat16, which reaches as far as float32",
        )
    return cast


def write(
    folder: Path, model: CausalLM, dtype: torch.dtype | None, shard_bytes: int | None
) -> None:
    """Write the weights into a new folder under Hugging Face's names, in `dtype` or as they are.

    A quantised model is written as it is, under our names: no other program has its layers.
    With `shard_bytes` they are divided into files of at most so many bytes, or one tensor, and
    an index. ModelError if the model has parameters that its family has no name for.
    """
    if quantize.metadata(model):
        if dtype or shard_bytes:
            raise ModelError("a quantised model is saved as it is, in one file")
        quantized_file.write(folder / SINGLE, model)
        return
    parameters = dict(model.named_parameters())
    names = hf_names(model)
    ours = {name for name, _, _ in names}
    if ours != parameters.keys():
        raise ModelError(
            f"a {model.config.MODEL_TYPE} has no place for {shown(ours ^ parameters.keys())}",
            hint="merge an adapter into its model before it is saved",
        )
    tensors = [
        _writable(parameters[ours], theirs, transposed, dtype) for ours, theirs, transposed in names
    ]
    shards = list(_shards(tensors, shard_bytes))
    if len(shards) == 1:
        write_tensors(folder / SINGLE, tensors)
        return
    places: dict[str, str] = {}
    for number, shard in enumerate(shards, 1):
        file = SHARD.format(number, len(shards))
        write_tensors(folder / file, shard)
        places |= {tensor.name: file for tensor in shard}
    total = sum(tensor.nbytes for tensor in tensors)
    index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(places.items()))}
    staging.write_file(folder / INDEX, (json.dumps(index, indent=2) + "\n").encode())


def _writable(
    parameter: torch.Tensor, name: str, transposed: bool, dtype: torch.dtype | None
) -> Writable:
    dtype = dtype or parameter.dtype
    if dtype not in FLOATS.values():
        raise ModelError(f"weights are saved as {', '.join(FLOATS)}, and {name!r} would be {dtype}")
    rows = _rows(parameter, transposed)

    def blocks() -> Iterator[torch.Tensor]:
        count = max(1, BLOCK_BYTES * len(rows) // max(1, rows.numel() * dtype.itemsize))
        for first in range(0, len(rows), count):
            yield _narrowed(rows[first : first + count].cpu(), dtype, name)

    return Writable(name, dtype, tuple(parameter.shape)[:: -1 if transposed else 1], blocks())


def _shards(tensors: list[Writable], shard_bytes: int | None) -> Iterator[list[Writable]]:
    shard: list[Writable] = []
    for tensor in tensors:
        if shard and shard_bytes and sum(t.nbytes for t in shard) + tensor.nbytes > shard_bytes:
            yield shard
            shard = []
        shard.append(tensor)
    yield shard
