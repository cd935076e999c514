"""The C++ AdamW equals PyTorch's, and the measured rates fit the instruction set."""

import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor

from ownwords.models import fused
from ownwords.native import bindings
from ownwords.native.build import Isa

if bindings.load_library() is None:
    pytest.skip("the part in C++ is not built", allow_module_level=True)


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def _random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed + sum(shape)))


@pytest.mark.parametrize("dtype", fused.DTYPES)
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
    assert rates.float32 > 0
    assert (rates.bfloat16 > 0) == (native.isa in {Isa.NEON_BF16, Isa.AVX512BF16, Isa.AMX})
    assert (rates.bfloat16_tiles > 0) == (native.isa == Isa.AMX)
    if fused.has_fast_bf16():
        assert max(rates.bfloat16, rates.bfloat16_tiles) > rates.float32
