"""Codes and scales lose at most half a step, and their header says how they were rounded."""

import json
import math
from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor

from families import tiny
from ownwords.models import quantize, weights
from ownwords.models.untrusted_files import ModelError
from ownwords.models.weight_mapping import QUANTIZATION


def _error(weight: Tensor) -> tuple[Tensor, Tensor]:
    """The rounding error of each weight, and half a step."""
    codes, scale = quantize.quantize_matrix(weight)
    back = codes * scale
    return (weight.double() - back.double()).abs(), scale.double().abs() / 2


@pytest.mark.parametrize("columns", [1, 31, 32, 33, 64, 100, 128, 257])
def test_no_weight_moves_by_more_than_half_a_step(columns: int) -> None:
    source = torch.Generator().manual_seed(columns)
    for spread in (1e-42, 1e-30, 0.02, 1.0, 1e37):
        for shift in (0.0, 1.0):
            weight = (torch.randn(24, columns, generator=source) + shift) * spread
            error, half = _error(weight)
            slack = 1e-4 * half + 1e-45  # the rounding of float32 itself
            assert (error <= half + slack).all()


def test_hard_rows_keep_the_bound() -> None:
    rows = torch.zeros(6, 160)
    rows[1] = 1.0
    rows[2] = -1.0
    rows[3, 7] = 5.0
    rows[4] = torch.linspace(-1, 1, 160)
    rows[5] = torch.linspace(0, 3e38, 160)
    error, half = _error(rows)
    assert (error <= half * (1 + 1e-4)).all()
    assert not error[0].any()


def test_quantising_twice_changes_nothing() -> None:
    """A quantised matrix is its own best quantisation, up to the rounding of scales."""
    weight = torch.randn(8, 256, generator=torch.Generator().manual_seed(3))
    codes, scale = quantize.quantize_matrix(weight)
    quantized = codes * scale
    again_error, half = _error(quantized)
    assert (again_error <= half * (1 + 1e-4)).all()


def test_learned_positions_and_norms_are_not_quantised() -> None:
    model = tiny("gpt2")
    positions = model.get_parameter("positions.weight").clone()
    quantize.quantize(model)
    assert torch.equal(model.get_parameter("positions.weight"), positions)


def test_the_header_says_how_it_was_rounded(tmp_path: Path) -> None:
    weights.write(tmp_path, tiny("qwen3"), None, int8=True)
    data = (tmp_path / "model.safetensors").read_bytes()
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    header_field = json.loads(header["__metadata__"][QUANTIZATION])
    rows = {"scheme": "int8", "group": 0}
    assert header_field == {"version": 1, **rows, "ends": rows}


def test_numbers_that_are_not_finite_are_refused() -> None:
    broken = tiny("qwen3")
    with torch.no_grad():
        broken.get_parameter("blocks.1.mlp.up.weight")[0, 0] = math.nan
    with pytest.raises(ModelError, match="not finite"):
        quantize.quantize(broken)
