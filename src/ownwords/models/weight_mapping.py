"""The tensors of a model directory: found, and fitted to a config by name and shape; no torch."""

import math
import re
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from pathlib import Path

from ownwords.models.configs.config import ModelConfig, WeightName
from ownwords.models.quantization_scheme import ENDS, QuantizationScheme, schemes
from ownwords.models.safetensors_header import FLOATS, TensorInfo, read_header, read_metadata
from ownwords.models.untrusted_files import ModelError, open_file, preview, read_json

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"

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


@dataclass(frozen=True)
class MappedTensor:
    """A tensor in a file, with the name of the parameter that it fills."""

    ours: str
    stored: TensorInfo
    transposed: bool


def hf_names(config: ModelConfig) -> list[tuple[str, str, bool]]:
    """(our name, the name in a Hugging Face directory, transposed) for every tensor stored.

    A tied head is the embedding, so it has no entry of its own.
    """
    return [
        (name.ours.replace("{i}", str(i)), name.theirs.replace("{i}", str(i)), name.transposed)
        for name, i in _each_weight(config)
    ]


def gguf_names(config: ModelConfig) -> dict[str, str]:
    """By our name: the name of every tensor in a GGUF file."""
    return {
        name.ours.replace("{i}", str(i)): f"{name.gguf}.{name.ours.rpartition('.')[2]}".replace(
            "{i}", str(i)
        )
        for name, i in _each_weight(config)
    }


def weight_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """By our name: the shape of every tensor as it is used, not transposed."""
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
    """Every tensor of a model directory by name, in one file or many; only headers are read."""
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
                f"{folder / INDEX} puts {preview([name])} into {file!r:.80}, which is no"
                " safetensors file beside it"
            )
    found: dict[str, TensorInfo] = {}
    for file in sorted(set(places.values())):
        here = read_header(folder / file)
        said = {name for name, place in places.items() if place == file}
        if here.keys() != said:
            raise ModelError(
                f"{folder / file} and {INDEX} disagree on {preview(said ^ here.keys())}",
                hint="the files are of two models, or a download is unfinished: get them again",
            )
        found |= here
    return found


def _no_weights(folder: Path) -> ModelError:
    pickles = sorted({path.name for mark in _PICKLES for path in folder.glob(mark)})
    if pickles:
        return ModelError(
            f"{folder} has its weights only as a pickle ({preview(pickles)}), which can run any"
            " program when it is opened, and so is not",
            hint="where you trust it, load it with transformers and write it again with"
            " save_pretrained(folder, safe_serialization=True)",
        )
    return ModelError(f"{folder} holds no {SINGLE}", hint="is it the folder of a whole model?")


def map_weights(
    stored: Mapping[str, TensorInfo], config: ModelConfig, folder: Path
) -> list[MappedTensor]:
    """Each tensor with its parameter; ModelError if one is left over or missing on either side."""
    check_plausible(stored, config, folder)
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
    _check_names(stored.keys(), wanted.keys(), config, folder)
    return [MappedTensor(wanted[name][0], each, wanted[name][1]) for name, each in stored.items()]


def _check_names(found: Set[str], wanted: Set[str], config: ModelConfig, folder: Path) -> None:
    unknown, missing = set(found - wanted), set(wanted - found)
    if unknown or missing:
        sides = (("unknown", unknown), ("missing", missing))
        told = "; ".join(f"{len(names)} {side}: {preview(names)}" for side, names in sides if names)
        raise ModelError(
            f"{folder}: the weights are not those of a {config.MODEL_TYPE} of {config.layers}"
            f" layers, which has {len(wanted)} tensors; {told}",
            hint="is config.json the one that came with these weights?",
        )


def check_plausible(stored: Mapping[str, TensorInfo], config: ModelConfig, folder: Path) -> None:
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
    stored: Mapping[str, TensorInfo], wanted: Mapping[str, tuple[str, bool]]
) -> Mapping[str, TensorInfo]:
    """GPT-2's own files, and others saved without a head, leave out the first part of each name."""
    prefix = next(theirs for theirs, (ours, _) in wanted.items() if ours == EMBEDDING)
    prefix = prefix.split(".")[0] + "."
    if any(name.startswith(prefix) for name in stored):
        return stored
    return {name if name == HEAD else prefix + name: each for name, each in stored.items()}


def _equal(one: TensorInfo, other: TensorInfo) -> bool:
    if (one.dtype, one.shape) != (other.dtype, other.shape) or one.dtype not in FLOATS:
        return False
    with open_file(one.path) as file, open_file(other.path) as second:
        pairs = zip(one.blocks(file), other.blocks(second), strict=True)
        return all(a == b for a, b in pairs)


def check_shapes(fitted: list[MappedTensor], config: ModelConfig, folder: Path) -> None:
    """ModelError unless every tensor has the shape that the config says, and a type of weights."""
    wanted = weight_shapes(config)
    for each in fitted:
        stored, expected = each.stored, wanted[each.ours]
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


def _sizes(config: ModelConfig) -> dict[str, int]:
    said = config.to_hf().items()
    return {k: v for k, v in said if type(v) is int and v > 1 and not k.endswith("_token_id")}


def _because(found: tuple[int, ...], expected: tuple[int, ...], config: ModelConfig) -> str:
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


def read_schemes(path: Path) -> tuple[QuantizationScheme, QuantizationScheme]:
    """How a file's matrices and its ends are rounded; ModelError if it does not say so."""
    try:
        return schemes(read_metadata(path))
    except ModelError as error:
        raise ModelError(f"{path}: {error.message}", hint=error.hint) from error


def map_quantized_weights(
    stored: Mapping[str, TensorInfo],
    made_with: tuple[QuantizationScheme, QuantizationScheme],
    config: ModelConfig,
    folder: Path,
) -> list[MappedTensor]:
    """The same for a quantised model, whose tensors have our names: every matrix but the learned
    positions is its codes and its scales. Names, types and shapes are checked; ModelError.
    """
    check_plausible(stored, config, folder)
    body, ends = made_with
    wanted: dict[str, tuple[tuple[str, ...], tuple[int, ...]]] = {}
    for ours, shape in weight_shapes(config).items():
        owner = ours.removesuffix(".weight")
        if len(shape) == 1 or owner == "positions":
            wanted[ours] = FLOATS, shape
            continue
        scheme = ends if owner in ENDS else body
        for part, (kind, size) in zip(("packed", "scale"), scheme.stored(*shape), strict=True):
            wanted[f"{owner}.{part}"] = (kind,), size
    _check_names(stored.keys(), wanted.keys(), config, folder)
    for name, (kinds, expected) in wanted.items():
        each = stored[name]
        if each.shape != expected or each.dtype not in kinds:
            raise ModelError(
                f"{folder}: {name!r} is {each.dtype} {list(each.shape)}, and config.json asks for"
                f" {' or '.join(kinds)} {list(expected)}",
                hint="is config.json the one that came with these weights?",
            )
    return [MappedTensor(name, stored[name], transposed=False) for name in wanted]
