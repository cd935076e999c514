"""Configs and tensor names, which need no PyTorch, against the models themselves."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from families import TINY
from ownwords.models import quantize, weights
from ownwords.models.configs.config import RopeScaling, frequencies
from ownwords.models.decoder import build
from ownwords.models.layers import RotaryEmbedding
from ownwords.models.safetensors_header import read_header
from ownwords.models.untrusted_files import ModelError
from ownwords.models.weight_mapping import check_quantized, hf_names, open_weights, weight_shapes


@pytest.mark.parametrize("name", TINY)
def test_weight_shapes_equal_those_of_the_built_model(name: str) -> None:
    model = build(TINY[name], device="meta")
    assert weight_shapes(TINY[name]) == {k: tuple(v.shape) for k, v in model.named_parameters()}
    assert [ours for ours, _, _ in hf_names(TINY[name])] == list(weight_shapes(TINY[name]))


@pytest.mark.parametrize(
    "scaling",
    [
        None,
        RopeScaling(kind="dynamic", factor=3.0),
        RopeScaling(kind="linear", factor=4.0),
        RopeScaling(kind="llama3", factor=8.0, original_context=512),
    ],
    ids=lambda layer: layer.kind if layer else "plain",
)
@pytest.mark.parametrize("head_dim", [6, 64, 80, 256])
@pytest.mark.parametrize("base", [100.0, 10_000.0, 1_000_000.0])
def test_positions_turn_as_in_the_models(
    scaling: RopeScaling | None, head_dim: int, base: float
) -> None:
    actual = frequencies(head_dim, base, scaling)
    wanted = RotaryEmbedding(head_dim, base, scaling).frequencies.numpy()
    assert actual.dtype == np.float32
    np.testing.assert_allclose(actual, wanted, rtol=4e-7, atol=0)


@pytest.mark.parametrize("name", TINY)
def test_every_tensor_of_a_quantised_file_is_mapped(name: str, tmp_path: Path) -> None:
    model = build(TINY[name])
    model.init_weights(1)
    weights.write(tmp_path, model, None, int8=True)
    stored = read_header(tmp_path / "model.safetensors")
    fitted = {weight.name: weight for weight in open_weights(tmp_path, TINY[name])}
    for key, tensor in quantize.int8_tensors(model).items():
        owner, _, part = key.rpartition(".")
        weight = fitted.get(key) or fitted[f"{owner}.weight"]
        array = weight.scales if part == "scale" else weight.array
        assert array is not None
        assert array.shape == tuple(tensor.shape)
    lacking = dict(stored)
    del lacking["embedding.scale"]
    with pytest.raises(ModelError, match=r"1 missing: 'embedding\.scale'"):
        check_quantized(lacking, TINY[name], tmp_path)


def test_a_directory_is_understood_without_torch() -> None:
    modules = "configs, directory, safetensors_header, registry, weight_mapping"
    code = f"import sys; from ownwords.models import {modules}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
