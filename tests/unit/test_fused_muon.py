"""Muon's step in C++ against its PyTorch twin."""

import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor

from ownwords.models import fused
from ownwords.training import optim
from ownwords.training.optim import GradClip, Muon

if fused.find_library() is None:
    pytest.skip("the part in C++ is not built", allow_module_level=True)

SHAPES = {"square": (64, 64), "square too": (64, 64), "lies": (32, 96), "stands": (160, 64)}


def _steps(precision: torch.dtype, threads: int = 1) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Weights and momenta after three steps."""
    fused.library().set_threads(threads)
    generator = torch.Generator().manual_seed(2)
    weights = {name: torch.zeros(shape) for name, shape in SHAPES.items()}
    muon = Muon(weights, precision=precision)
    for _ in range(3):
        gradients = {n: torch.randn(s, generator=generator) for n, s in SHAPES.items()}
        muon.step(
            weights, gradients, lr=0.1, momentum=0.9, decay=0.1, clip=GradClip(0.5), narrow={}
        )
    fused.library().set_threads(1)
    return weights, {name: momentum.clone() for name, momentum in muon.momenta().items()}


def _apart(first: dict[str, Tensor], second: dict[str, Tensor]) -> float:
    return max(float((first[n] - second[n]).norm() / second[n].norm()) for n in SHAPES)


@pytest.mark.parametrize("dtype", fused.DTYPES)
def test_it_is_as_close_to_float32_as_pytorch(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights, momenta = _steps(dtype)
    monkeypatch.setattr(optim, "has_native_muon", lambda *_: False)
    twin, twins_momenta = _steps(dtype)
    truth, _ = _steps(torch.float32)
    assert _apart(momenta, twins_momenta) < 1e-6
    assert _apart(weights, truth) <= max(1e-4, 1.2 * _apart(twin, truth)) < 0.05


@pytest.mark.parametrize("dtype", fused.DTYPES)
def test_the_number_of_threads_changes_nothing(dtype: torch.dtype) -> None:
    for first, second in zip(_steps(dtype), _steps(dtype, 2), strict=True):
        assert all(torch.equal(first[name], second[name]) for name in SHAPES)


@pytest.mark.parametrize("side", [1, 30, 48])
def test_odd_sizes_are_not_supported(side: int) -> None:
    assert optim.has_native_muon(64, 32)
    assert not optim.has_native_muon(64, side)
    assert not optim.has_native_muon(side, 64)
