"""Reads a GGUF file tensor by tensor, and converts it to a model directory; without torch."""

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ownwords.core.progress import Progress
from ownwords.models import atomic_dir
from ownwords.models.configs.config import ModelConfig
from ownwords.models.directory import CONFIG, GENERATION, encode_json
from ownwords.models.gguf import tokenizer
from ownwords.models.gguf.container import Floats, GGUFContents, open_gguf
from ownwords.models.gguf.metadata import ROPE_FACTORS, read_config, read_sampling
from ownwords.models.safetensors_header import write_file
from ownwords.models.untrusted_files import ModelError, preview
from ownwords.models.weight_mapping import SINGLE, gguf_names, hf_names, weight_shapes


@dataclass(frozen=True)
class GGUFModel:
    """An open GGUF file of a supported family; `generation` is its generation_config.json."""

    config: ModelConfig
    tokenizer_files: Mapping[str, bytes]
    generation: Mapping[str, object]
    contents: GGUFContents
    path: Path

    def types(self) -> set[str]:
        """The names of the types of its matrices."""
        return {entry.type.name for entry in self.contents.tensors.values() if len(entry.shape) > 1}

    def weight(self, name: str) -> Floats:
        """The weight of our name, as the model uses it; ModelError if it is not finite."""
        stored = gguf_names(self.config)[name]
        values = self.contents.tensor(stored)
        if not np.isfinite(values).all():
            raise ModelError(
                f"{self.path}: {stored} holds numbers that are not finite",
                hint="download or make the file again",
            )
        return np.ascontiguousarray(from_gguf(self.config, stored, values))


@contextmanager
def read(path: Path) -> Iterator[GGUFModel]:
    """Open a GGUF file; ModelError or ConfigError says what is missing, damaged or inconsistent.

    The whole header is checked before any weight is read.
    """
    with open_gguf(path) as contents:
        metadata, tensors = contents.metadata, contents.tensors
        tokenizer_files = tokenizer.files_of(metadata)
        tokens, embedding = metadata["tokenizer.ggml.tokens"], tensors.get("token_embd.weight")
        rows = len(tokens) if isinstance(tokens, list) else 0
        if embedding is None or rows != embedding.shape[0]:
            raise ModelError(f"{path}: its tokens and rows of token_embd.weight differ in number")
        factors = contents.tensor(ROPE_FACTORS) if ROPE_FACTORS in tensors else None
        config = read_config(metadata, rows, "output.weight" not in tensors, factors)
        _check_tensors(contents, config, path)
        generation = tokenizer.special_ids(metadata, rows) | read_sampling(metadata)
        yield GGUFModel(config, tokenizer_files, generation, contents, path)


def _check_tensors(contents: GGUFContents, config: ModelConfig, path: Path) -> None:
    names = gguf_names(config)
    expected = {names[ours]: shape for ours, shape in weight_shapes(config).items()}
    found = {name: entry.shape for name, entry in contents.tensors.items() if name != ROPE_FACTORS}
    if differing := expected.items() ^ found.items():
        raise ModelError(
            f"{path} does not hold the tensors of its architecture: {len(expected)} are expected,"
            f" {len(found)} are there; they differ in {preview({name for name, _ in differing})}"
        )


def to_gguf(config: ModelConfig, name: str, values: Floats) -> Floats:
    """Convert a weight from Hugging Face's layout (out, in) to llama.cpp's."""
    if heads := _interleaved_heads(config, name):
        # Llama's rotary pairs are (i, i + half) in Hugging Face and (2i, 2i + 1) in llama.cpp.
        return values.reshape(heads, 2, -1, *values.shape[1:]).swapaxes(1, 2).reshape(values.shape)
    if config.NORM_OFFSET and name.endswith("norm.weight"):
        return values + np.float32(config.NORM_OFFSET)  # llama.cpp multiplies by the weight alone
    return values


def from_gguf(config: ModelConfig, name: str, values: Floats) -> Floats:
    """The inverse of `to_gguf`."""
    if heads := _interleaved_heads(config, name):
        return values.reshape(heads, -1, 2, *values.shape[1:]).swapaxes(1, 2).reshape(values.shape)
    if config.NORM_OFFSET and name.endswith("norm.weight"):
        return values - np.float32(config.NORM_OFFSET)
    return values


def _interleaved_heads(config: ModelConfig, name: str) -> int:
    if config.GGUF_INTERLEAVED_ROPE and ".attn_q." in name:
        return config.heads
    if config.GGUF_INTERLEAVED_ROPE and ".attn_k." in name:
        return config.kv_heads
    return 0


# The types of a directory's weights by GGUF's name: in safetensors, and in config.json.
_TYPES = {"f32": ("F32", "float32"), "f16": ("F16", "float16"), "bf16": ("BF16", "bfloat16")}
_PORTION = 1 << 18  # weights rounded at a time, which fit the processor's cache


def convert(path: Path, folder: Path, *, type: str = "", progress: Progress | None = None) -> None:
    """Write the model of a GGUF file into an existing empty folder.

    Without `type` the weights keep the file's own type; blocks of codes become bf16, which adds a
    hundredth of the error that the codes have. Raises ModelError or ConfigError as `reading.read`
    does, or OSError.
    """
    with read(path) as file:
        types = file.types()
        type = type or (types.pop() if len(types) == 1 else "")
        code, torch_dtype = _TYPES.get(type, _TYPES["bf16"])
        shapes, names = weight_shapes(file.config), hf_names(file.config)
        total = sum(math.prod(shape) for shape in shapes.values())
        with (progress or Progress()).stage(
            f"Converting {path.name}", total=total // 1_000_000, unit="M weights"
        ) as stage:

            def blocks() -> Iterator[memoryview]:
                done = 0
                for ours, _, transposed in names:
                    values = file.weight(ours)
                    done += values.size
                    yield from _encoded(values.T if transposed else values, code, ours)
                    stage.advance(done // 1_000_000 - stage.done)

            entries = [
                (theirs, code, shapes[ours][:: -1 if transposed else 1])
                for ours, theirs, transposed in names
            ]
            write_file(folder / SINGLE, entries, blocks())
        for name, data in _files(file, torch_dtype).items():
            atomic_dir.write_file(folder / name, data)


def _files(file: GGUFModel, torch_dtype: str) -> dict[str, bytes]:
    """The files beside the weights."""
    ids = {name: file.generation.get(name) for name in ("bos_token_id", "eos_token_id")}
    return {
        **file.tokenizer_files,
        CONFIG: encode_json({**file.config.to_hf(), **ids, "torch_dtype": torch_dtype}),
        GENERATION: encode_json({**ids, **file.generation}),
    }


def _encoded(values: Floats, code: str, name: str) -> Iterator[memoryview]:
    """Yield the bytes of a float32 tensor in another type, rounded to the nearest."""
    flat = np.ascontiguousarray(values).reshape(-1)
    for start in range(0, flat.size, _PORTION):
        portion = flat[start : start + _PORTION]
        if code == "BF16":
            # Add half of the last bit that stays, and make ties even.
            bits = portion.view(np.uint32)
            rounded = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
            yield (rounded >> np.uint32(16)).astype("<u2").data.cast("B")
        elif code == "F16":
            with np.errstate(over="ignore"):
                half = portion.astype("<f2")
            if not np.isfinite(half).all():
                raise ModelError(f"the weights of {name} are too large for float16")
            yield half.data.cast("B")
        else:
            yield portion.data.cast("B")
