"""Maps a model directory's tensors to a config's weights by name and shape, without torch."""

import math
import re
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ownwords.models.configs.config import ModelConfig, WeightName
from ownwords.models.quantization_scheme import QuantizationScheme, Schemes, scheme_of, schemes
from ownwords.models.safetensors_header import (
    FLOATS,
    Array,
    TensorInfo,
    map_arrays,
    read_header,
    read_metadata,
)
from ownwords.models.untrusted_files import ModelError, preview, read_json

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"

HEAD, EMBEDDING = "lm_head.weight", "embedding.weight"

# Buffers that older programs stored beside the weights, and that readers compute themselves.
KNOWN_BUFFERS = (
    r"(transformer\.)?h\.\d+\.attn\.bias",  # GPT-2: the causal mask
    r"(transformer\.)?h\.\d+\.attn\.masked_bias",  # GPT-2: the value used for minus infinity
    r"(model\.)?layers\.\d+\.self_attn\.rotary_emb\.inv_freq",  # Llama: rotary frequencies
    r"(model\.)?rotary_emb(_local)?\.(original_)?inv_freq",  # the same, once for all layers
)
_KNOWN_BUFFER = re.compile("|".join(KNOWN_BUFFERS))
_SHARD_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,120}\.safetensors")

_PICKLES = ("*.bin", "*.bin.index.json", "*.pt", "*.pth", "*.ckpt", "*.pkl")
_BLOCK_BYTES = 1 << 20  # compared at a time
# The fields of a config that are a dimension, or a factor of one, of some tensor.
_DIMENSIONS = ("vocabulary", "width", "hidden", "heads", "kv_heads", "head_dim")


@dataclass(frozen=True)
class MappedTensor:
    """A tensor in a file, and the name of the parameter that it fills."""

    ours: str
    stored: TensorInfo
    transposed: bool


def hf_names(config: ModelConfig) -> list[tuple[str, str, bool]]:
    """(our name, Hugging Face's name, transposed) of every stored tensor.

    A tied head has no entry of its own, since it is the embedding.
    """
    return [
        (name.ours.replace("{i}", str(i)), name.theirs.replace("{i}", str(i)), name.transposed)
        for name, i in _each_weight(config)
    ]


def gguf_names(config: ModelConfig) -> dict[str, str]:
    """The names in a GGUF file of all tensors, by our name."""
    return {
        name.ours.replace("{i}", str(i)): f"{name.gguf}.{name.ours.rpartition('.')[2]}".replace(
            "{i}", str(i)
        )
        for name, i in _each_weight(config)
    }


def weight_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """The shapes of all tensors by our name, as the model uses them (not transposed)."""
    return {
        name.ours.replace("{i}", str(i)): tuple(getattr(config, x) for x in name.shape.split())
        for name, i in _each_weight(config)
    }


def _each_weight(config: ModelConfig) -> Iterator[tuple[WeightName, int]]:
    for name in config.WEIGHTS:
        if name.ours != "head.weight" or not config.tied:
            for layer in range(config.layers if "{i}" in name.ours else 1):
                yield name, layer


def find_tensors(folder: Path) -> dict[str, TensorInfo]:
    """Find all tensors of a model directory by name, in one or more files; reads only headers."""
    if (folder / SINGLE).is_symlink() or (folder / SINGLE).exists():
        return read_header(folder / SINGLE)
    if not (folder / INDEX).exists():
        raise _no_weights(folder)
    index = read_json(folder / INDEX)
    places = index.get("weight_map")
    if not isinstance(places, dict) or not places:
        raise ModelError(f"{folder / INDEX} has no weight_map of tensors to files")
    for name, file in places.items():
        if not isinstance(file, str) or not _SHARD_NAME.fullmatch(file):
            raise ModelError(
                f"{folder / INDEX} puts {preview([name])} into {file!r:.80}, which is not a"
                " safetensors file beside it"
            )
    tensors: dict[str, TensorInfo] = {}
    for file in sorted(set(places.values())):
        shard = read_header(folder / file)
        indexed = {name for name, place in places.items() if place == file}
        if shard.keys() != indexed:
            raise ModelError(
                f"{folder / file} and {INDEX} disagree on {preview(indexed ^ shard.keys())}",
                hint="the files belong to two models, or a download is unfinished: get them again",
            )
        tensors |= shard
    return tensors


def _no_weights(folder: Path) -> ModelError:
    pickles = sorted({path.name for mark in _PICKLES for path in folder.glob(mark)})
    if pickles:
        return ModelError(
            f"{folder} has its weights only as a pickle ({preview(pickles)}); opening a pickle can"
            " run any program, so it is refused",
            hint="if you trust it, load it with transformers and write it again with"
            " save_pretrained(folder, safe_serialization=True)",
        )
    return ModelError(f"{folder} holds no {SINGLE}", hint="is it a complete model directory?")


def map_weights(
    stored: Mapping[str, TensorInfo], config: ModelConfig, folder: Path
) -> list[MappedTensor]:
    """Map each tensor to its parameter; ModelError if any is left over or missing."""
    check_plausible(stored, config, folder)
    wanted = {theirs: (ours, transposed) for ours, theirs, transposed in hf_names(config)}
    stored = _with_prefix(stored, wanted)
    stored = {name: info for name, info in stored.items() if not _KNOWN_BUFFER.fullmatch(name)}
    if HEAD in stored and HEAD not in wanted:
        embedding = next(theirs for theirs, (ours, _) in wanted.items() if ours == EMBEDDING)
        head = stored.pop(HEAD)
        if embedding in stored and not _equal(head, stored[embedding]):
            raise ModelError(
                f"{folder}: config.json ties the head to the embedding (tie_word_embeddings), but"
                f" {HEAD!r} differs from {embedding!r}",
                hint="set tie_word_embeddings to false if the model was trained that way",
            )
    _check_names(stored.keys(), wanted.keys(), config, folder)
    return [MappedTensor(wanted[name][0], info, wanted[name][1]) for name, info in stored.items()]


def _check_names(stored: Set[str], expected: Set[str], config: ModelConfig, folder: Path) -> None:
    sides = (("unknown", set(stored - expected)), ("missing", set(expected - stored)))
    details = "; ".join(f"{len(names)} {side}: {preview(names)}" for side, names in sides if names)
    if details:
        raise ModelError(
            f"{folder}: the weights do not match a {config.MODEL_TYPE} with {config.layers} layers,"
            f" which has {len(expected)} tensors; {details}",
            hint="is config.json the one that came with these weights?",
        )


def check_plausible(stored: Mapping[str, TensorInfo], config: ModelConfig, folder: Path) -> None:
    """Refuse sizes larger than the stored tensors allow, before any memory is allocated."""
    numbers = sum(math.prod(info.shape) for info in stored.values())
    limits = dict.fromkeys(_DIMENSIONS, numbers) | {"layers": len(stored)}
    for name, limit in limits.items():
        size = getattr(config, name, 0)
        if size > limit:
            theirs = next((k for k, value in _sizes(config).items() if value == size), name)
            raise ModelError(
                f"{folder}: config.json has {theirs} {size:,}, but the weights are only"
                f" {len(stored):,} tensors with {numbers:,} numbers in total",
                hint="is config.json the one that came with these weights?",
            )


def _with_prefix(
    stored: Mapping[str, TensorInfo], wanted: Mapping[str, tuple[str, bool]]
) -> Mapping[str, TensorInfo]:
    """Add the first part of each name if it is missing, as in GPT-2's and other headless files."""
    prefix = next(theirs for theirs, (ours, _) in wanted.items() if ours == EMBEDDING)
    prefix = prefix.split(".")[0] + "."
    if any(name.startswith(prefix) for name in stored):
        return stored
    return {name if name == HEAD else prefix + name: info for name, info in stored.items()}


def _equal(left: TensorInfo, right: TensorInfo) -> bool:
    if (left.dtype, left.shape) != (right.dtype, right.shape) or left.dtype not in FLOATS:
        return False
    arrays = map_arrays((left, right))
    a, b = (arrays[info.name].reshape(-1).view(np.uint8) for info in (left, right))
    blocks = (slice(at, at + _BLOCK_BYTES) for at in range(0, len(a), _BLOCK_BYTES))
    return all(np.array_equal(a[block], b[block]) for block in blocks)


def check_shapes(mapped: list[MappedTensor], config: ModelConfig, folder: Path) -> None:
    """ModelError unless every tensor has the config's shape and a floating-point type."""
    shapes = weight_shapes(config)
    for tensor in mapped:
        stored, expected = tensor.stored, shapes[tensor.ours]
        expected = expected[::-1] if tensor.transposed else expected
        if stored.shape != expected:
            raise ModelError(
                f"{folder}: {stored.name!r} has the shape {list(stored.shape)}, but config.json"
                f" requires {list(expected)}{_because(stored.shape, expected, config)}"
            )
        if stored.dtype not in FLOATS:
            raise ModelError(
                f"{folder}: {stored.name!r} is {stored.dtype}; supported are {', '.join(FLOATS)}"
                " (torch_dtype in config.json)",
                hint="get the model from before it was quantised",
            )


def _sizes(config: ModelConfig) -> dict[str, int]:
    fields = config.to_hf().items()
    return {k: v for k, v in fields if type(v) is int and v > 1 and not k.endswith("_token_id")}


def _because(shape: tuple[int, ...], expected: tuple[int, ...], config: ModelConfig) -> str:
    """Explain the first differing dimension by the config.json fields that give it; may be ""."""
    if len(shape) != len(expected):
        return ""
    size = next(right for left, right in zip(shape, expected, strict=True) if left != right)
    sizes = _sizes(config)
    single = [name for name, value in sizes.items() if value == size]
    heads = {name: value for name, value in sizes.items() if "head" in name}
    products = [
        f"{a} x {b}" for a in heads for b in heads if a < b and heads[a] * heads[b] == size
    ] or [f"{k} x {name}" for k in (2, 3, 4) for name, value in sizes.items() if k * value == size]
    causes = single or products
    return f" ({size} is {' or '.join(causes)})" if causes else ""


def is_quantized(stored: Mapping[str, TensorInfo]) -> bool:
    """Whether these are the tensors of a quantised model, codes and scales."""
    return any(name.endswith(".packed") for name in stored)


@dataclass(frozen=True)
class StoredWeight:
    """A weight of a model and its numbers in a file, or their codes and scales."""

    name: str
    shape: tuple[int, ...]  # as the model uses it
    dtype: str  # of the array, as safetensors names it
    array: Array  # mapped; for BF16 the bits, as uint16
    transposed: bool = False
    scheme: QuantizationScheme | None = None
    scales: Array | None = None


def open_weights(folder: Path, config: ModelConfig) -> list[StoredWeight]:
    """Map all weights of a directory into memory; ModelError names what does not match."""
    stored, shapes = find_tensors(folder), weight_shapes(config)
    if not is_quantized(stored):
        mapped = map_weights(stored, config, folder)
        check_shapes(mapped, config, folder)
        arrays = map_arrays(each.stored for each in mapped)
        return [
            StoredWeight(
                *(each.ours, shapes[each.ours], each.stored.dtype, arrays[each.stored.name]),
                transposed=each.transposed,
            )
            for each in mapped
        ]
    made_with = read_schemes(folder / SINGLE)
    check_quantized(stored, made_with, config, folder)
    arrays = map_arrays(stored.values())
    weights = []
    for name, shape in shapes.items():
        scheme = scheme_of(name, len(shape), *made_with)
        owner = name.removesuffix(".weight")
        key = f"{owner}.packed" if scheme else name
        weights.append(
            StoredWeight(
                *(name, shape, stored[key].dtype, arrays[key]),
                scheme=scheme,
                scales=arrays.get(f"{owner}.scale"),
            )
        )
    return weights


def read_schemes(path: Path) -> Schemes:
    """Read a file's quantisation schemes: of its matrices, and of its embedding and head."""
    try:
        return schemes(read_metadata(path))
    except ModelError as error:
        raise ModelError(f"{path}: {error.message}", hint=error.hint) from error


def check_quantized(
    stored: Mapping[str, TensorInfo], made_with: Schemes, config: ModelConfig, folder: Path
) -> None:
    """Check the tensors of a quantised model, which have our names; ModelError if any is wrong.

    Every matrix except the learned positions is stored as codes and scales.
    """
    check_plausible(stored, config, folder)
    expected: dict[str, tuple[tuple[str, ...], tuple[int, ...]]] = {}
    for ours, shape in weight_shapes(config).items():
        scheme = scheme_of(ours, len(shape), *made_with)
        if scheme is None:
            expected[ours] = FLOATS, shape
            continue
        owner = ours.removesuffix(".weight")
        for part, (kind, size) in zip(("packed", "scale"), scheme.stored(*shape), strict=True):
            expected[f"{owner}.{part}"] = (kind,), size
    _check_names(stored.keys(), expected.keys(), config, folder)
    for name, (kinds, shape) in expected.items():
        tensor = stored[name]
        if tensor.shape != shape or tensor.dtype not in kinds:
            raise ModelError(
                f"{folder}: {name!r} is {tensor.dtype} {list(tensor.shape)}, but config.json has"
                f" {' or '.join(kinds)} {list(shape)}",
                hint="is config.json the one that came with these weights?",
            )
