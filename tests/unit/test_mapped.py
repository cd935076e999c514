"""Tensors over mapped files: the bytes of the file, at any offset."""

import json
import os
import struct
from pathlib import Path

import numpy as np
import pytest

import model_directories as models
from ownwords.inference.engine import ForwardInput
from ownwords.inference.engine_loader import load_engine
from ownwords.models import mmap_tensors
from ownwords.models.safetensors_header import read_header
from ownwords.models.untrusted_files import ModelError
from ownwords.native import engine as native

VALUES: dict[str, tuple[str, mmap_tensors.Array]] = {
    "a": ("F32", np.arange(6, dtype=np.float32).reshape(2, 3)),
    "b": ("BF16", np.arange(5, dtype=np.uint16)),
    "c": ("I8", np.arange(-3, 3, dtype=np.int8)),
    "d": ("F16", np.ones((1, 2), np.float16)),
    "e": ("U8", np.arange(4, dtype=np.uint8)),
}


def write(path: Path, shift: int) -> None:
    """A file whose numbers begin `shift` bytes off their alignment."""
    header: dict[str, object] = {}
    at, data = 0, b""
    for name, (dtype, array) in VALUES.items():
        offsets = [at, at + array.nbytes]
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": offsets}
        at, data = offsets[1], data + array.tobytes()
    encoded = json.dumps(header).encode()
    encoded += b" " * (-len(encoded) % 8 + shift)
    path.write_bytes(struct.pack("<Q", len(encoded)) + encoded + data)


@pytest.mark.parametrize("shift", range(5))
def test_every_type_is_read_at_any_place(shift: int, tmp_path: Path) -> None:
    write(tmp_path / "x", shift)
    arrays = mmap_tensors.map_arrays(read_header(tmp_path / "x").values())
    for name, (_, array) in VALUES.items():
        assert arrays[name].dtype == array.dtype
        np.testing.assert_array_equal(arrays[name], array)
        assert arrays[name].flags.aligned
        assert not arrays[name].flags.writeable
    assert mmap_tensors.is_mapped(arrays["c"])
    assert mmap_tensors.is_mapped(arrays["a"]) == (shift in (0, 4))
    assert not mmap_tensors.is_mapped(np.zeros(3))


def test_a_file_cut_short_since_its_header_was_read_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "x", 0)
    stored = read_header(tmp_path / "x").values()
    os.truncate(tmp_path / "x", (tmp_path / "x").stat().st_size - 3)
    with pytest.raises(ModelError, match="cut short while it was opened"):
        mmap_tensors.map_arrays(stored)


@pytest.mark.skipif(not native.available(), reason="the part in C++ is not built")
def test_an_engine_reads_numbers_at_odd_places(tmp_path: Path) -> None:
    models.write(tmp_path / "m", "gemma3_text")
    path = tmp_path / "m" / "model.safetensors"
    wanted = (
        load_engine(tmp_path / "m", device="cpu").cache(1, 9).forward([ForwardInput(0, [1, 2, 3])])
    )
    data = path.read_bytes()
    end = 8 + int.from_bytes(data[:8], "little")
    path.write_bytes(struct.pack("<Q", end - 7) + data[8:end] + b" " + data[end:])
    logits = (
        load_engine(tmp_path / "m", device="cpu").cache(1, 9).forward([ForwardInput(0, [1, 2, 3])])
    )
    np.testing.assert_array_equal(logits, wanted)
