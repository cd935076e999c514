"""Chunked cross entropy against the plain one, and its memory."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.autograd import backward
from torch.nn.functional import cross_entropy
from torch.utils._python_dispatch import TorchDispatchMode

from ownwords.models import loss as module
from ownwords.models.loss import chunked_cross_entropy

N, C, V = 23, 9, 41


def _inputs(dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    hidden = torch.randn(N, C, generator=generator, dtype=torch.float64).to(dtype)
    head = torch.randn(V, C, generator=generator, dtype=torch.float64).to(dtype)
    targets = torch.randint(0, V, (N,), generator=generator)
    targets[[0, 7, 22]] = -100
    return hidden.requires_grad_(), head.requires_grad_(), targets


def _plain(
    hidden: Tensor,
    head: Tensor,
    targets: Tensor,
    softcap: float | None,
) -> Tensor:
    logits = hidden @ head.T
    if softcap is not None:
        logits = softcap * torch.tanh(logits / softcap)
    losses = cross_entropy(logits, targets, ignore_index=-100, reduction="none")
    return losses.sum()


@pytest.mark.parametrize("rows", [1, 5, 23, 1000])
@pytest.mark.parametrize("softcap", [None, 2.5])
@pytest.mark.parametrize(("dtype", "exact"), [(torch.float64, 1e-12), (torch.float32, 1e-6)])
def test_loss_and_gradients_equal_the_plain_ones(
    monkeypatch: pytest.MonkeyPatch,
    rows: int,
    softcap: float | None,
    dtype: torch.dtype,
    exact: float,
) -> None:
    monkeypatch.setattr(module, "CHUNK_LOGITS", rows * V)
    monkeypatch.setattr(module, "MIN_ROWS", 1)
    hidden, head, targets = _inputs(dtype)
    mean_loss, count = chunked_cross_entropy(hidden, head, targets, softcap=softcap)
    backward(3 * mean_loss)
    twins = [x.detach().clone().requires_grad_() for x in (hidden, head)]
    expected = _plain(twins[0], twins[1], targets, softcap)
    backward(3 * expected)
    torch.testing.assert_close(mean_loss, expected, rtol=10 * exact, atol=0)
    for tensor, twin in zip((hidden, head), twins, strict=True):
        assert tensor.grad is not None
        assert twin.grad is not None
        assert (tensor.grad - twin.grad).norm() <= exact * twin.grad.norm()
    assert int(count) == N - 3


def test_only_wanted_gradients_are_made() -> None:
    hidden, head, targets = _inputs(torch.float64)
    loss, _ = chunked_cross_entropy(hidden, head.detach(), targets)
    backward(loss)
    assert hidden.grad is not None
    loss, _ = chunked_cross_entropy(hidden.detach(), head, targets)
    backward(loss)
    assert head.grad is not None
    with torch.no_grad():
        alone, _ = chunked_cross_entropy(hidden, head, targets)
    assert not alone.requires_grad
    torch.testing.assert_close(alone, loss.detach())


def test_backward_twice_adds_up() -> None:
    hidden, head, targets = _inputs(torch.float64)
    loss, _ = chunked_cross_entropy(hidden, head, targets)
    backward(loss, retain_graph=True)
    assert hidden.grad is not None
    gradient = hidden.grad.clone()
    backward(loss)
    torch.testing.assert_close(hidden.grad, 2 * gradient)


def test_gradients_are_freed_after_the_backward_pass() -> None:
    """The head's gradient is as large as the table: kept, it would double the memory."""
    hidden, head, targets = _inputs(torch.float32)
    loss, _ = chunked_cross_entropy(hidden, head, targets)
    backward(loss)
    with pytest.raises(RuntimeError, match="second time"):
        backward(loss)


def test_ignored_targets_cost_nothing() -> None:
    hidden, head, targets = _inputs(torch.float32)
    loss, count = chunked_cross_entropy(hidden, head, torch.full_like(targets, -100))
    backward(loss)
    assert loss.item() == 0
    assert int(count) == 0
    assert hidden.grad is not None
    assert not hidden.grad.any()


def test_mixed_precision_multiplies_in_bfloat16_and_adds_in_float32() -> None:
    hidden, head, targets = _inputs(torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mean_loss, _ = chunked_cross_entropy(hidden, head, targets)
    backward(mean_loss)
    assert mean_loss.dtype == torch.float32
    assert head.grad is not None
    assert head.grad.dtype == torch.float32
    rounded = [x.detach().bfloat16().float().requires_grad_() for x in (hidden, head)]
    expected = _plain(rounded[0], rounded[1], targets, None)
    backward(expected)
    torch.testing.assert_close(mean_loss, expected, rtol=5e-3, atol=0)
    assert rounded[1].grad is not None
    assert (head.grad - rounded[1].grad).norm() < 1e-2 * rounded[1].grad.norm()


class _LargestResult(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """The largest number of elements in the result of any operation."""

    numbers = 0

    def __torch_dispatch__(
        self,
        func: Callable[..., object],
        types: object,
        args: tuple[object, ...] = (),
        kwargs: dict[str, object] | None = None,
    ) -> object:
        output = func(*args, **(kwargs or {}))
        for tensor in output if isinstance(output, tuple | list) else (output,):
            if isinstance(tensor, Tensor):
                self.numbers = max(self.numbers, tensor.numel())
        return output


def test_the_logits_of_a_large_vocabulary_are_never_whole() -> None:
    vocabulary, width, tokens = 65_536, 8, 1024
    hidden = torch.randn(tokens, width, requires_grad=True)
    head = torch.randn(vocabulary, width, requires_grad=True)
    targets = torch.randint(0, vocabulary, (tokens,))
    with _LargestResult() as largest:  # type: ignore[no-untyped-call]
        loss, _ = chunked_cross_entropy(hidden, head, targets)
        backward(loss)
    assert largest.numbers == module.MIN_ROWS * vocabulary == tokens * vocabulary / 4
