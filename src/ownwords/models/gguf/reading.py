"""Converts GGUF files to model directories, tensor by tensor, and caches them; without torch.

A cache hit reads nothing of the file and does not import the `gguf` package.
"""

import math
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from ownwords.core.errors import OwnwordsError
from ownwords.core.fingerprint import digest
from ownwords.core.packages import install_command
from ownwords.core.progress import Progress
from ownwords.core.workspace import cache_folder, translate_os_errors
from ownwords.models import atomic_dir
from ownwords.models.configs.config import ModelConfig
from ownwords.models.directory import CONFIG, GENERATION, encode_json
from ownwords.models.gguf import tokenizer
from ownwords.models.gguf.container import Floats, GGUFContents, open_gguf
from ownwords.models.gguf.metadata import ROPE_FACTORS, read_config, read_sampling
from ownwords.models.safetensors_header import write_file
from ownwords.models.untrusted_files import ModelError, preview
from ownwords.models.weight_mapping import SINGLE, gguf_names, hf_names, weight_shapes

_SUFFIX = ".gguf"
_KEPT = 3  # conversions in the cache; the least recently used is deleted first
# The types of a directory's weights by GGUF's name: in safetensors, and in config.json.
_TYPES = {"f32": ("F32", "float32"), "f16": ("F16", "float16"), "bf16": ("BF16", "bfloat16")}
_PORTION = 1 << 18  # weights rounded at a time, few enough for the processor's cache


def is_gguf(path: Path) -> bool:
    """Whether this is a file with the suffix .gguf."""
    return path.suffix.lower() == _SUFFIX and path.is_file()


def model_directory(path: Path, progress: Progress | None = None) -> Path:
    """Return the path itself, or for a GGUF file the directory that it is converted to.

    A killed conversion starts again at the next call. Raises ModelError or ConfigError for a file
    that cannot be used, WorkspaceError for a full disk.
    """
    if not is_gguf(path):
        return path
    conversions, stat = cache_folder() / "gguf", path.stat()
    key = digest(f"{stat.st_dev} {stat.st_ino} {stat.st_size} {stat.st_mtime_ns}")
    folder = conversions / key / path.stem  # a model is named after its folder
    if not (folder / SINGLE).exists():
        with atomic_dir.replace_dir(folder.parent) as draft:
            (draft / folder.name).mkdir()
            convert(path, draft / folder.name, progress=progress)
        _delete_oldest(conversions, folder.parent)
    with translate_os_errors(folder):
        os.utime(folder.parent)
    return folder


def _delete_oldest(conversions: Path, newest: Path) -> None:
    folders = [each for each in conversions.iterdir() if not each.name.startswith(".")]
    folders.sort(key=lambda each: (each == newest, each.stat().st_mtime), reverse=True)
    for folder in folders[_KEPT:]:
        atomic_dir.delete_dir(folder)


def convert(path: Path, folder: Path, *, type: str = "", progress: Progress | None = None) -> None:
    """Write the model of a GGUF file into an existing empty folder.

    Without `type` the weights keep the file's own type; quantised blocks become bf16, which adds a
    hundredth of their error. The whole header is checked before any weight is read: ModelError or
    ConfigError says what is missing, damaged or inconsistent. Raises OSError.
    """
    try:
        with open_gguf(path) as contents:
            _convert(contents, path, folder, type, progress or Progress())
    except ModuleNotFoundError as error:
        raise OwnwordsError(
            f"opening a GGUF file needs the package {error.name}, which is not installed",
            hint=install_command("train"),
        ) from error


def _convert(
    contents: GGUFContents, path: Path, folder: Path, type: str, progress: Progress
) -> None:
    metadata, tensors = contents.metadata, contents.tensors
    files = tokenizer.files_of(metadata)
    tokens, embedding = metadata["tokenizer.ggml.tokens"], tensors.get("token_embd.weight")
    rows = len(tokens) if isinstance(tokens, list) else 0
    if embedding is None or rows != embedding.shape[0]:
        raise ModelError(f"{path}: its tokens and rows of token_embd.weight differ in number")
    factors = contents.tensor(ROPE_FACTORS) if ROPE_FACTORS in tensors else None
    config = read_config(metadata, rows, "output.weight" not in tensors, factors)
    stored, shapes = gguf_names(config), weight_shapes(config)
    expected = {stored[ours]: shape for ours, shape in shapes.items()}
    found = {name: entry.shape for name, entry in tensors.items() if name != ROPE_FACTORS}
    if differing := expected.items() ^ found.items():
        raise ModelError(
            f"{path} does not hold the tensors of its architecture: {len(expected)} are expected,"
            f" {len(found)} are there; they differ in {preview({name for name, _ in differing})}"
        )
    types = {entry.type.name for entry in tensors.values() if len(entry.shape) > 1}
    type = type or (types.pop() if len(types) == 1 else "")
    code, torch_dtype = _TYPES.get(type, _TYPES["bf16"])
    names = hf_names(config)
    total = sum(map(math.prod, shapes.values())) // 1_000_000
    with progress.stage(f"Converting {path.name}", total=total, unit="M weights") as stage:

        def blocks() -> Iterator[memoryview]:
            done = 0
            for ours, _, transposed in names:
                values = contents.tensor(stored[ours])
                if not np.isfinite(values).all():
                    raise ModelError(
                        f"{path}: {stored[ours]} holds numbers that are not finite",
                        hint="download or make the file again",
                    )
                values = from_gguf(config, stored[ours], values)
                done += values.size
                yield from _encoded(values.T if transposed else values, code, ours)
                stage.advance(done // 1_000_000 - stage.done)

        entries = [
            (theirs, code, shapes[ours][:: -1 if transposed else 1])
            for ours, theirs, transposed in names
        ]
        write_file(folder / SINGLE, entries, blocks())
    generation = tokenizer.special_ids(metadata, rows) | read_sampling(metadata)
    ids = {name: generation.get(name) for name in ("bos_token_id", "eos_token_id")}
    files[CONFIG] = encode_json({**config.to_hf(), **ids, "torch_dtype": torch_dtype})
    files[GENERATION] = encode_json({**ids, **generation})
    for name, data in files.items():
        atomic_dir.write_file(folder / name, data)


def to_gguf(config: ModelConfig, name: str, values: Floats) -> Floats:
    """Convert a weight from Hugging Face's layout (out, in) to llama.cpp's."""
    if heads := _interleaved_heads(config, name):
        # Llama's rotary pairs are (i, i + half) in Hugging Face and (2i, 2i + 1) in llama.cpp.
        return values.reshape(heads, 2, -1, *values.shape[1:]).swapaxes(1, 2).reshape(values.shape)
    if config.NORM_OFFSET and name.endswith("norm.weight"):
        return values + np.float32(config.NORM_OFFSET)  # llama.cpp multiplies by the weight alone
    return values


def from_gguf(config: ModelConfig, name: str, values: Floats) -> Floats:
    """Invert `to_gguf`."""
    if heads := _interleaved_heads(config, name):
        return values.reshape(heads, -1, 2, *values.shape[1:]).swapaxes(1, 2).reshape(values.shape)
    if config.NORM_OFFSET and name.endswith("norm.weight"):
        return values - np.float32(config.NORM_OFFSET)
    return values


def _interleaved_heads(config: ModelConfig, name: str) -> int:
    heads = {".attn_q.": config.heads, ".attn_k.": config.kv_heads}
    rotated = (count for part, count in heads.items() if part in name)
    return next(rotated, 0) if config.GGUF_INTERLEAVED_ROPE else 0


def _encoded(values: Floats, code: str, name: str) -> Iterator[memoryview]:
    """Yield the bytes of a float32 tensor in another type, rounded to the nearest."""
    flat = np.ascontiguousarray(values).reshape(-1)
    for start in range(0, flat.size, _PORTION):
        portion = flat[start : start + _PORTION]
        if code == "BF16":
            # Add half of the last bit that is kept, and round ties to even.
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
