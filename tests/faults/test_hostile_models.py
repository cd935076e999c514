"""Malicious model directories: each is refused with one sentence, by both engines."""

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch

import model_directories as models
from ownwords.core.errors import OwnwordsError
from ownwords.inference import native_engine
from ownwords.inference.engine import WeightFormat
from ownwords.models import bundle, directory
from ownwords.models.safetensors_header import read_header
from ownwords.models.weight_mapping import QUANTIZATION
from ownwords.native import bindings

pytestmark = pytest.mark.skipif(
    bindings.load_library() is None, reason="the part in C++ is not built"
)

WEIGHTS = "model.safetensors"
Change = Callable[[dict[str, Any]], object]


def header_of(path: Path) -> tuple[dict[str, Any], bytes]:
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    return json.loads(data[8 : 8 + length]), data[8 + length :]


def put(path: Path, header: dict[str, Any], rest: bytes) -> None:
    encoded = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(encoded)) + encoded + rest)


def refused(folder: Path) -> str:
    """The error of both engines, which must be one sentence each."""
    error = []
    for load in (
        lambda: native_engine.load(folder, directory.read(folder).config),
        lambda: bundle.load(folder),
    ):
        with pytest.raises(OwnwordsError) as caught:
            load()
        text = str(caught.value)
        assert "\n" not in text
        assert len(text) < 1000
        error.append(text)
    assert error[0] == error[1]
    return error[0]


WRONG: dict[str, list[object]] = {
    "hidden_size": [-16, 0, 17, 2**31, 2**62, 10**40, 16.0, "16", [16]],
    "vocab_size": [-1, 2**24, 2**32 + 97, 96],
    "num_hidden_layers": [-2, 0, 3, 1024, 2**40],
    "num_attention_heads": [-4, 0, 3, 8, 2**31],
    "num_key_value_heads": [0, 3, 4, -2, 2**20],
    "head_dim": [7, 0, -8, 2**14, 4],
    "intermediate_size": [41, -40, 2**22, 2**64],
    "max_position_embeddings": [0, -128, 2**31, 2**63],
    "rms_norm_eps": [0, -1e-5, 2, 1e400],
    "rope_theta": [0, -1, 1e400, "big"],
    "tie_word_embeddings": [False, 1],
    "model_type": ["../../qwen3", 3],
    "rope_scaling": [{"rope_type": "yarn", "factor": 2.0}, 2],
}
CONFIGS: list[dict[str, object]] = [
    *({name: value} for name, values in WRONG.items() for value in values),
    {"hidden_size": 2**19, "intermediate_size": 2**21, "vocab_size": 2**23},
]


@pytest.mark.parametrize("change", CONFIGS, ids=str)
def test_a_false_config_is_refused(change: dict[str, object], tmp_path: Path) -> None:
    models.write(tmp_path / "m", "qwen3")
    models.edit(tmp_path / "m" / "config.json", **change)
    refused(tmp_path / "m")


def _set(name: str, **value: object) -> Change:
    return lambda header: header[name].update(value)


def _rename(name: str, to: str) -> Change:
    return lambda header: header.update({to: header.pop(name)})


CODES: list[Change] = [
    _set("blocks.0.mlp.up.packed", dtype="U8"),
    _set("blocks.0.mlp.up.packed", shape=[16, 40]),
    _set("blocks.0.mlp.up.scale", shape=[1, 40]),
    _set("embedding.packed", dtype="BOOL"),
    lambda header: header["__metadata__"].update(
        {QUANTIZATION: '{"version": 1, "scheme": "int2"}'}
    ),
    lambda header: header["__metadata__"].update({QUANTIZATION: '{"version": 9}'}),
    lambda header: header["__metadata__"].update({QUANTIZATION: "[" * 10_000}),
    lambda header: header["__metadata__"].pop(QUANTIZATION),
    _rename("blocks.1.mlp.up.scale", "blocks.1.mlp.up.scales"),
    _rename("final_norm.weight", "model.norm.weight"),
]


@pytest.mark.parametrize("number", range(len(CODES)))
def test_a_false_quantised_file_is_refused(number: int, tmp_path: Path) -> None:
    model = models.model("qwen3")
    bundle.save(tmp_path / "m", model, models.Letters(), int8=True)
    header, rest = header_of(tmp_path / "m" / WEIGHTS)
    CODES[number](header)
    put(tmp_path / "m" / WEIGHTS, header, rest)
    for load in (
        lambda: native_engine.load(tmp_path / "m", directory.read(tmp_path / "m").config),
        lambda: bundle.load(tmp_path / "m"),
    ):
        with pytest.raises(OwnwordsError) as caught:
            load()
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_non_finite_scales_are_refused(value: float, tmp_path: Path) -> None:
    for number, name in enumerate(("blocks.1.attention.key.scale", "embedding.scale")):
        folder = tmp_path / str(number)
        bundle.save(folder, models.model("qwen3"), models.Letters(), int8=True)
        stored = read_header(folder / WEIGHTS)[name]
        encoded = np.array([value], np.float32)
        data = bytearray((folder / WEIGHTS).read_bytes())
        end = stored.start + stored.nbytes
        data[end - encoded.nbytes : end] = encoded.tobytes()
        (folder / WEIGHTS).write_bytes(data)
        with pytest.raises(OwnwordsError, match="holds numbers that are not finite"):
            bundle.load(folder)
        with pytest.raises(OwnwordsError, match=r"weight' holds numbers that are not finite"):
            native_engine.load(folder, directory.read(folder).config)


def test_extreme_values_are_harmless(tmp_path: Path) -> None:
    """Their scores can be non-finite; the sampler reports that."""
    for family in models.CONFIGS:
        model = models.model(family)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.fill_(torch.finfo(torch.float32).max)
        bundle.save(tmp_path / family, model, models.Letters())
        config = directory.read(tmp_path / family).config
        for weights in get_args(WeightFormat):
            try:
                engine = native_engine.load(tmp_path / family, config, weights=weights)
            except OwnwordsError:
                continue
            assert engine is not None
            engine.cache(1, 100).forward({0: [1] * 100})
