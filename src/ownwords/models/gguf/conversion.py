"""Converts a GGUF file to a model directory, one tensor at a time and without torch."""

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from ownwords.core.progress import Progress
from ownwords.models import atomic_dir
from ownwords.models.directory import CONFIG, GENERATION
from ownwords.models.gguf.reading import GGUFModel, read
from ownwords.models.gguf.tensor_types import Floats
from ownwords.models.safetensors_header import write_file
from ownwords.models.untrusted_files import ModelError
from ownwords.models.weight_mapping import SINGLE, hf_names, weight_shapes

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
        CONFIG: _json({**file.config.to_hf(), **ids, "torch_dtype": torch_dtype}),
        GENERATION: _json({**ids, **file.generation}),
    }


def _json(value: Mapping[str, object]) -> bytes:
    return json.dumps(value, indent=2, ensure_ascii=False).encode() + b"\n"


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
