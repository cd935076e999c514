"""Maps a model directory's tensors to a config's weights by name and shape, without torch."""

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ownwords.models.configs.config import ModelConfig, WeightName
from ownwords.models.safetensors_header import (
    FLOATS,
    Array,
    TensorInfo,
    map_arrays,
    read_header,
    read_metadata,
)
from ownwords.models.untrusted_files import ModelError, parse_json, preview, read_json

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"

HEAD, EMBEDDING = "lm_head.weight", "embedding.weight"

QUANTIZATION = "ownwords.quantization"
_ROWS = {"scheme": "int8", "group": 0}  # one scale per row
_INT8 = {"version": 1, **_ROWS, "ends": _ROWS}  # the ends are the embedding and the head
# The metadata in the header of a quantised file.
INT8_METADATA = {QUANTIZATION: json.dumps(_INT8)}

# Buffers that older programs stored with the weights; readers compute them.
_KNOWN_BUFFER = re.compile(
    r"(transformer\.)?h\.\d+\.attn\.(masked_)?bias"  # GPT-2: the causal mask, and minus infinity
    r"|(model\.)?(layers\.\d+\.self_attn\.)?rotary_emb(_local)?\.(original_)?inv_freq"
)
_SHARD_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,120}\.safetensors")

_PICKLES = ("*.bin", "*.bin.index.json", "*.pt", "*.pth", "*.ckpt", "*.pkl")
_BLOCK_BYTES = 1 << 20  # compared at a time


# The parameter that a tensor in a file belongs to, and whether it is stored transposed.
MappedTensor = tuple[str, TensorInfo, bool]


def hf_names(config: ModelConfig) -> list[tuple[str, str, bool]]:
    """Return (our name, Hugging Face's name, transposed) of every stored tensor."""
    return [
        (name.ours.replace("{i}", i), name.theirs.replace("{i}", i), name.transposed)
        for name, i in _each_weight(config)
    ]


def gguf_names(config: ModelConfig) -> dict[str, str]:
    """Return the names of all tensors in a GGUF file, by our name."""
    return {
        name.ours.replace("{i}", i): (name.gguf + Path(name.ours).suffix).replace("{i}", i)
        for name, i in _each_weight(config)
    }


def weight_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Return the shapes of all tensors by our name, as the model uses them (not transposed)."""
    return {
        name.ours.replace("{i}", i): tuple(getattr(config, x) for x in name.shape.split())
        for name, i in _each_weight(config)
    }


def count_parameters(config: ModelConfig) -> int:
    """Return the number of parameters of a model of this config."""
    return sum(map(math.prod, weight_shapes(config).values()))


def _each_weight(config: ModelConfig) -> Iterator[tuple[WeightName, str]]:
    """Yield each weight and its layer; a tied head is left out, because it is the embedding."""
    for name in config.WEIGHTS:
        if name.ours != "head.weight" or not config.tied:
            for layer in range(config.layers if "{i}" in name.ours else 1):
                yield name, str(layer)


def find_tensors(folder: Path) -> dict[str, TensorInfo]:
    """Find all tensors of a model directory by name, in one or more files; reads only headers."""
    if (folder / SINGLE).is_symlink() or (folder / SINGLE).exists():
        return read_header(folder / SINGLE)
    if not (folder / INDEX).exists():
        raise _no_weights(folder)
    places = read_json(folder / INDEX).get("weight_map")
    if not isinstance(places, dict) or not all(
        isinstance(file, str) and _SHARD_NAME.fullmatch(file) for file in places.values()
    ):
        raise ModelError(f"{folder / INDEX} does not map tensors to safetensors files beside it")
    tensors: dict[str, TensorInfo] = {}
    for file in sorted(set(places.values())):
        tensors |= read_header(folder / file)
    if differing := places.items() ^ {(name, tensor.path.name) for name, tensor in tensors.items()}:
        raise ModelError(
            f"the files of weights in {folder} and {INDEX} disagree on"
            f" {preview({name for name, _ in differing})}",
            hint="the files belong to two models, or a download is incomplete: get them again",
        )
    return tensors


def _no_weights(folder: Path) -> ModelError:
    pickles = sorted({path.name for mark in _PICKLES for path in folder.glob(mark)})
    if pickles:
        return ModelError(
            f"{folder} has its weights only as a pickle ({preview(pickles)}); a pickle can run any"
            " program when it is opened, so it is refused",
            hint="if you trust it, load it with transformers and write it again with"
            " save_pretrained(folder, safe_serialization=True)",
        )
    return ModelError(f"{folder} holds no {SINGLE}", hint="is it a complete model directory?")


def map_weights(
    stored: Mapping[str, TensorInfo], config: ModelConfig, folder: Path
) -> list[MappedTensor]:
    """Map each tensor to its parameter; ModelError for a wrong, unknown or missing one."""
    wanted = {theirs: (ours, transposed) for ours, theirs, transposed in hf_names(config)}
    embedding = next(theirs for theirs, (ours, _) in wanted.items() if ours == EMBEDDING)
    prefix = embedding.split(".")[0] + "."
    if not any(name.startswith(prefix) for name in stored):  # saved from a model without a head
        stored = {name if name == HEAD else prefix + name: info for name, info in stored.items()}
    found = {name: info for name, info in stored.items() if not _KNOWN_BUFFER.fullmatch(name)}
    if HEAD in found and HEAD not in wanted:
        head = found.pop(HEAD)
        if embedding in found and not _equal(head, found[embedding]):
            raise ModelError(
                f"{folder}: config.json ties the head to the embedding (tie_word_embeddings), but"
                f" {HEAD!r} differs from {embedding!r}",
                hint="set tie_word_embeddings to false if the model was trained that way",
            )
    shapes = weight_shapes(config)
    expected = {
        theirs: (FLOATS, shapes[ours][:: -1 if transposed else 1])
        for theirs, (ours, transposed) in wanted.items()
    }
    _check(found, expected, config, folder)
    return [(wanted[name][0], info, wanted[name][1]) for name, info in found.items()]


def _check(
    stored: Mapping[str, TensorInfo],
    expected: Mapping[str, tuple[tuple[str, ...], tuple[int, ...]]],
    config: ModelConfig,
    folder: Path,
) -> None:
    """Raise ModelError unless these are the expected tensors (accepted types and shape by name)."""
    hint = "is config.json the one that came with these weights?"
    sides = (("unknown", stored.keys() - expected), ("missing", expected.keys() - stored))
    details = "; ".join(f"{len(names)} {side}: {preview(names)}" for side, names in sides if names)
    if details:
        raise ModelError(
            f"{folder}: the weights do not match a {config.MODEL_TYPE} with {config.layers} layers,"
            f" which has {len(expected)} tensors; {details}",
            hint=hint,
        )
    for name, (types, shape) in expected.items():
        tensor = stored[name]
        if tensor.shape != shape:
            raise ModelError(
                f"{folder}: {name!r} has the shape {list(tensor.shape)}, and config.json asks for"
                f" {list(shape)}",
                hint=hint,
            )
        if tensor.dtype not in types:
            raise ModelError(
                f"{folder}: {name!r} is {tensor.dtype}; supported: {', '.join(types)}",
                hint="get the model as it was before another program quantised it",
            )


def _equal(left: TensorInfo, right: TensorInfo) -> bool:
    if (left.dtype, left.shape) != (right.dtype, right.shape) or left.dtype not in FLOATS:
        return False
    arrays = map_arrays((left, right))
    a, b = (arrays[info.name].reshape(-1).view(np.uint8) for info in (left, right))
    blocks = (slice(at, at + _BLOCK_BYTES) for at in range(0, len(a), _BLOCK_BYTES))
    return all(np.array_equal(a[block], b[block]) for block in blocks)


def is_matrix(name: str, shape: Sequence[int]) -> bool:
    """Whether a weight is quantised: norms, biases and learned positions are not."""
    return len(shape) == 2 and name != "positions.weight"


def is_quantized(stored: Mapping[str, TensorInfo]) -> bool:
    """Whether these tensors are the codes and scales of a quantised model."""
    return any(name.endswith(".packed") for name in stored)


@dataclass(frozen=True)
class StoredWeight:
    """A weight of a model with its values in a file, or its codes and scales."""

    name: str
    shape: tuple[int, ...]  # as the model uses it
    dtype: str  # of the array, as safetensors names it
    array: Array  # memory-mapped; for BF16 the bits, as uint16
    transposed: bool = False
    scales: Array | None = None  # of int8 codes: one per row


def open_weights(
    folder: Path, config: ModelConfig, adapter: Path | None = None
) -> list[StoredWeight]:
    """Map all weights of a directory into memory; ModelError names what does not match.

    If the path of an adapter is given, the adapter is added to the weights.
    """
    weights = _map_stored(folder, config)
    return _add_adapter(weights, adapter) if adapter else weights


def _map_stored(folder: Path, config: ModelConfig) -> list[StoredWeight]:
    stored, shapes = find_tensors(folder), weight_shapes(config)
    if not is_quantized(stored):
        mapped = map_weights(stored, config, folder)
        arrays = map_arrays(info for _, info, _ in mapped)
        return [
            StoredWeight(ours, shapes[ours], info.dtype, arrays[info.name], transposed)
            for ours, info, transposed in mapped
        ]
    check_quantized(stored, config, folder)
    arrays = map_arrays(stored.values())
    weights = []
    for name, shape in shapes.items():
        owner = name.removesuffix(".weight")
        key = f"{owner}.packed" if is_matrix(name, shape) else name
        scales = arrays.get(f"{owner}.scale")
        weights.append(StoredWeight(name, shape, stored[key].dtype, arrays[key], scales=scales))
    return weights


def _add_adapter(weights: Iterable[StoredWeight], path: Path) -> list[StoredWeight]:
    """Add an adapter to weights that are not quantised: `lora.merge_stored` without torch."""
    left = map_arrays(read_header(path).values())

    def matrix(name: str) -> Array:
        scale = left.pop(f"{name}.scale", None)
        numbers = left.pop(name).astype(np.float32)
        return numbers if scale is None else numbers * scale[:, None]

    def added(weight: StoredWeight) -> StoredWeight:
        name, array = weight.name.removesuffix(".weight"), weight.array
        if f"{name}.up" not in left:
            return weight
        if weight.scales is not None:
            raise ValueError("its weights are quantised")
        delta = matrix(f"{name}.up") @ matrix(f"{name}.down")
        if weight.transposed:
            delta = delta.T
        if array.dtype != np.uint16:  # not the bits of bfloat16
            return replace(weight, array=(array + delta).astype(array.dtype))
        bits = array.astype(np.uint32)
        bits <<= 16
        numbers = bits.view(np.float32)  # shares its memory
        numbers += delta
        bits += 0x7FFF + (bits >> 16 & 1)  # round to nearest, ties to even
        return replace(weight, array=(bits >> 16).astype(np.uint16))

    try:
        result = [added(weight) for weight in weights]
    except (LookupError, ValueError) as error:
        raise ModelError(f"{path} is not an adapter for this model ({error})") from error
    if left:
        raise ModelError(f"{path} is not an adapter for this model: it has {preview([*left])}")
    return result


def check_quantized(stored: Mapping[str, TensorInfo], config: ModelConfig, folder: Path) -> None:
    """Raise ModelError if the header or a tensor of a quantised model is invalid."""
    where = f"{QUANTIZATION} in the header of {folder / SINGLE}"
    fields = parse_json(read_metadata(folder / SINGLE).get(QUANTIZATION, "{}").encode(), where)
    if fields != _INT8:
        raise ModelError(
            f"{where} names an unknown quantisation: {str(fields)[:80]}",
            hint="only int8 is read, and no longer int4: export or make the model again",
        )
    expected: dict[str, tuple[tuple[str, ...], tuple[int, ...]]] = {}
    for ours, shape in weight_shapes(config).items():  # these files have our names
        if is_matrix(ours, shape):
            owner = ours.removesuffix(".weight")
            expected[f"{owner}.packed"] = ("I8",), shape
            expected[f"{owner}.scale"] = ("F32",), (shape[0], 1)
        else:
            expected[ours] = FLOATS, shape
    _check(stored, expected, config, folder)
