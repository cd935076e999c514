"""Weights that the engine rounds to int8, against those of models/quantize.py.

The second go into the engine as they are in the file, so that the same codes and scales give the
same scores to the last bit, and others do not.
"""

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

import model_directories as models
from families import TINY, some_ids, tiny
from ownwords.inference import native_engine
from ownwords.inference.engine import Logits, WeightFormat
from ownwords.models import bundle
from ownwords.models.decoder import CausalLM
from ownwords.models.safetensors_header import read_header
from ownwords.native.bindings import load_library

if load_library() is None:
    pytest.skip("the part in C++ is not built", allow_module_level=True)


def scores(
    folder: Path, model: CausalLM, weights: WeightFormat = "stored", *, int8: bool = False
) -> Logits:
    bundle.save(folder, model, models.Letters(), int8=int8)
    return read(folder, model, weights)


def read(folder: Path, model: CausalLM, weights: WeightFormat) -> Logits:
    loaded = native_engine.load(folder, model.config, weights=weights, threads=1)
    assert loaded is not None
    ids = some_ids(1, 12)[0].tolist()
    return loaded.cache(1, len(ids)).forward({0: ids}, all_positions=True)


def hard_to_round(weight_OI: torch.Tensor, draw: torch.Generator) -> torch.Tensor:
    """Halves of a step, which round up or down to even; and rows of zeros, of ones so small that
    their squares are 0, and of such as are large on one side only."""
    halves_OI = torch.randint(-15, 16, weight_OI.shape, generator=draw) / 2
    halves_OI[:, ::8] = 7.5
    step_O1 = torch.exp2(torch.randint(-6, -3, (len(weight_OI), 1), generator=draw))
    rows_OI = torch.where(
        torch.arange(len(weight_OI))[:, None] % 2 == 0, halves_OI * step_O1, weight_OI
    )
    rows_OI[3::16] = 0
    rows_OI[5::16] *= 1e-30
    rows_OI[7::16] = -rows_OI[7::16].abs()
    rows_OI[9::16] = rows_OI[9::16].abs()
    return rows_OI


def model_of(name: str, dtype: torch.dtype, is_hard: bool) -> CausalLM:
    model = tiny(name, dtype)
    # What is float32 in both files keeps the engine from keys and values in bfloat16 for one only.
    model.final_norm.float()
    draw = torch.Generator().manual_seed(5)
    if is_hard:
        for parameter in model.parameters():
            if parameter.ndim == 2:
                made_OI = hard_to_round(parameter.detach().float(), draw)
                parameter.data.copy_(made_OI.to(dtype))
    return model


@pytest.mark.parametrize("is_hard", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", list(TINY))
def test_rounds_as_quantize_does(
    tmp_path: Path, name: str, dtype: torch.dtype, is_hard: bool
) -> None:
    plain = scores(tmp_path / "plain", model_of(name, dtype, is_hard), "int8")
    stored = scores(tmp_path / "rounded", model_of(name, dtype, is_hard), int8=True)
    assert np.isfinite(plain).all()
    np.testing.assert_array_equal(plain, stored)


def test_a_changed_code_changes_the_scores(tmp_path: Path) -> None:
    model = tiny("llama")
    right = scores(tmp_path / "right", model, int8=True)
    weights = tmp_path / "right" / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[read_header(weights)["blocks.0.mlp.up.packed"].start + 5] ^= 1
    weights.write_bytes(data)
    assert not np.array_equal(right, read(tmp_path / "right", model, "stored"))
