"""The C++ kernels against their PyTorch twins: the same numbers by every path."""

import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor
from torch.autograd import backward

from families import TINY, some_ids, tiny
from ownwords.models import fused
from ownwords.native import bindings
from ownwords.native.build import Isa

if bindings.load_library() is None:
    pytest.skip("the part in C++ is not built", allow_module_level=True)

EXACT = {torch.float32: 2e-6, torch.bfloat16: 1.2e-2}
DTYPES = list(EXACT)


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def _random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed + sum(shape)))


def _apart(ours: Tensor, theirs: Tensor) -> float:
    ours, theirs = ours.detach().double(), theirs.detach().double()
    return float((ours - theirs).norm() / theirs.norm().clamp(min=1e-9))


def _slopes(name: str, way: str, exactly: bool = False) -> list[Tensor]:
    """The loss of two packed rows and all gradients, computed in one of four ways."""
    documents = torch.tensor([[0] * 11 + [1] * 22] * 2)
    model = tiny(name, torch.bfloat16 if way == "bfloat16" else torch.float32)
    model = model.double() if exactly else model
    model.gradient_checkpointing = way == "checkpointing"
    mixed = way == "autocast" and not exactly
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=mixed):
        total, _ = model.loss(some_ids(2, 33), some_ids(2, 33, 1), documents_BT=documents)
    backward(total)
    return [total, *(p.grad for p in model.parameters() if p.grad is not None)]


@pytest.mark.parametrize("name", TINY)
@pytest.mark.parametrize("way", ["plain", "autocast", "checkpointing", "bfloat16"])
def test_models_learn_the_same(name: str, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In float32 up to rounding; in bfloat16 no farther from float64 than the plain layers."""
    gradients = _slopes(name, way)
    monkeypatch.setattr(fused, "find_library", lambda: None)
    plain, truth = _slopes(name, way), _slopes(name, way, exactly=True)
    ours, twins = (
        torch.tensor([_apart(value, true) for value, true in zip(values, truth, strict=True)])
        for values in (gradients, plain)
    )
    if way in ("plain", "checkpointing"):
        assert ours.max() < 2e-5
    else:  # of single tensors either is nearer, by chance
        assert ours.mean() < 1.5 * twins.mean() + 1e-3


@pytest.mark.parametrize("dtype", DTYPES)
def test_adamw_is_that_of_torch(dtype: torch.dtype) -> None:
    theirs = torch.nn.Parameter(_random(1001))
    ours = theirs.detach().clone()
    narrow = ours.bfloat16()
    first, second = torch.zeros_like(ours), torch.zeros_like(ours)
    optimizer = torch.optim.AdamW([theirs], lr=1e-2, betas=(0.9, 0.95), weight_decay=0.1)
    for step in range(1, 5):
        gradient = _random(1001, seed=step).to(dtype)
        theirs.grad = gradient.float()
        optimizer.step()
        fused.adamw_(
            ours,
            gradient,
            first,
            second,
            step=step,
            learning_rate=1e-2,
            betas=(0.9, 0.95),
            eps=1e-8,
            weight_decay=0.1,
            bf16_copy=narrow,
        )
    torch.testing.assert_close(ours, theirs.detach(), rtol=1e-5, atol=1e-6)
    assert torch.equal(narrow, ours.bfloat16())


def test_rates_say_what_a_level_has_and_whether_bfloat16_is_fast() -> None:
    native = fused.library()
    rates = native.rates
    assert min(rates.float32, rates.int8) > 0
    assert (rates.bfloat16 > 0) == (native.isa in {Isa.NEON_BF16, Isa.AVX512BF16, Isa.AMX})
    assert (min(rates.bfloat16_tiles, rates.int8_tiles) > 0) == (native.isa == Isa.AMX)
    if fused.has_fast_bf16():
        assert max(rates.bfloat16, rates.bfloat16_tiles) > rates.float32
