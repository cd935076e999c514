"""The loss of a head in C++ against plain cross entropy in float64."""

import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor
from torch.autograd import backward
from torch.nn.functional import cross_entropy

from ownwords.core.errors import OwnwordsError
from ownwords.models import fused
from ownwords.models import loss as module
from ownwords.models.loss import chunked_cross_entropy

if fused.find_library() is None:
    pytest.skip("the part in C++ is not built", allow_module_level=True)

# Rows, vocabulary and width: less than a tile, ragged, and more than one block of each.
SHAPES = [(5, 7, 32), (100, 65, 64), (300, 1000, 96)]


@pytest.fixture(autouse=True)
def _wherever_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused, "has_fast_bf16", lambda: True)


def _inputs(shape: tuple[int, int, int], dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    rows, vocabulary, width = shape
    generator = torch.Generator().manual_seed(5)
    hidden = torch.randn(rows, width, generator=generator).bfloat16().to(dtype)
    head = (torch.randn(vocabulary, width, generator=generator) * 0.3).bfloat16().to(dtype)
    targets = torch.randint(0, vocabulary, (rows,), generator=generator)
    targets[::4] = -100
    return hidden.requires_grad_(), head.requires_grad_(), targets


def _run(hidden: Tensor, head: Tensor, targets: Tensor, mixed: bool = True) -> Tensor:
    with torch.autocast("cpu", torch.bfloat16, enabled=mixed and hidden.dtype == torch.float32):
        loss, _ = chunked_cross_entropy(hidden, head, targets)
    return loss


def _distance(tensor: Tensor | None, expected: Tensor | None) -> float:
    assert tensor is not None
    assert expected is not None
    return float((tensor.double() - expected).norm() / expected.norm())


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("chunk", [32, 1024])
@pytest.mark.parametrize("dtype", fused.DTYPES)
@pytest.mark.parametrize("product_dtype", fused.DTYPES)
def test_loss_and_gradients_are_those_of_float64(
    shape: tuple[int, int, int],
    chunk: int,
    dtype: torch.dtype,
    product_dtype: torch.dtype,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fused, "has_fast_bf16", lambda: product_dtype == torch.bfloat16)
    monkeypatch.setattr(module, "TRAINED_ROWS", chunk)
    monkeypatch.setattr(module, "CHUNK_LOGITS", 1)
    hidden, head, targets = _inputs(shape, dtype)
    assert fused.supports_head_loss(hidden, head, hidden.dtype)
    loss = _run(hidden, head, targets, mixed=product_dtype == torch.bfloat16)
    backward(2 * loss)
    bound = {(torch.float32, torch.float32): 1e-6}.get((dtype, product_dtype), 0.02)
    twins = [x.detach().double().requires_grad_() for x in (hidden, head)]
    logits = twins[0] @ twins[1].T
    nats = cross_entropy(logits, targets, ignore_index=-100, reduction="none")
    expected = nats.sum()
    backward(2 * expected)
    torch.testing.assert_close(loss.double(), expected, rtol=bound, atol=0)
    assert _distance(hidden.grad, twins[0].grad) < bound
    assert _distance(head.grad, twins[1].grad) < bound


# The last has more rows of the head than are multiplied at once.
@pytest.mark.parametrize("shape", [*SHAPES, (40, 5000, 1024)])
@pytest.mark.parametrize("dtype", fused.DTYPES)
def test_a_frozen_head_in_int16(
    shape: tuple[int, int, int], dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MIN_ROWS", 32)
    monkeypatch.setattr(module, "CHUNK_LOGITS", 1)
    hidden, head, targets = _inputs(shape, dtype)
    head.requires_grad_(False)
    with fused.int16_products():
        loss = _run(hidden, head, targets, mixed=False)
    backward(loss)
    twin = hidden.detach().double().requires_grad_()
    expected = cross_entropy(twin @ head.double().T, targets, ignore_index=-100, reduction="sum")
    backward(expected)
    bound = 1e-3 if dtype == torch.float32 else 0.02
    torch.testing.assert_close(loss.double(), expected, rtol=bound, atol=0)
    assert 1e-6 < _distance(hidden.grad, twin.grad) < bound


def test_only_wanted_gradients_are_computed_and_are_the_same() -> None:
    hidden, head, targets = _inputs(SHAPES[2], torch.bfloat16)
    loss = _run(hidden, head, targets)
    backward(loss)
    for frozen in (0, 1):
        inputs = [hidden.detach().requires_grad_(), head.detach().requires_grad_()]
        inputs[frozen].requires_grad_(False)
        alone = _run(inputs[0], inputs[1], targets)
        backward(alone)
        assert torch.equal(alone, loss)
        assert inputs[frozen].grad is None
        trained = 1 - frozen
        assert inputs[trained].grad is not None
        assert torch.equal(inputs[trained].grad, (hidden, head)[trained].grad)  # type: ignore[arg-type]
    with torch.no_grad():
        assert torch.equal(_run(hidden, head, targets), loss)


def test_the_number_of_threads_changes_nothing() -> None:
    results = []
    for threads in (1, 2, 3):
        fused.library().set_threads(threads)
        hidden, head, targets = _inputs(SHAPES[2], torch.float32)
        loss = _run(hidden, head, targets)
        backward(loss)
        results.append((loss.detach(), hidden.grad, head.grad))
    fused.library().set_threads(1)
    for result in results[1:]:
        for tensor, expected in zip(result, results[0], strict=True):
            assert torch.equal(tensor, expected)  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [7, 1 << 40])
def test_a_target_outside_the_vocabulary_is_refused(wrong: int) -> None:
    hidden, head, targets = _inputs(SHAPES[0], torch.float32)
    targets[1] = wrong
    with pytest.raises(OwnwordsError, match="an id is not in the vocabulary"):
        _run(hidden, head, targets)
