"""The pool of large buffers that training reuses."""

from typing import Any

import torch
from torch import Tensor

from ownwords.models.fused import MemoryPool


def test_a_buffer_is_reused_once_no_tensor_uses_it() -> None:
    pool = MemoryPool()
    first = pool.allocate(100_000)
    place = first.data_ptr()
    view = first[10:20]
    del first
    second = pool.allocate(100_000)
    assert second.data_ptr() != place  # a view still uses the first
    view.fill_(7)
    second.fill_(1)
    assert set(view.tolist()) == {7}
    del view
    assert pool.allocate(50_000).data_ptr() == place


def test_what_is_borrowed_is_an_unused_buffer_or_not_kept() -> None:
    pool = MemoryPool()
    unused = pool.allocate(10_000)
    place = unused.data_ptr()
    del unused
    larger = pool.borrow(1_000_000)
    fitting = pool.borrow(9_000)
    assert fitting.data_ptr() == place
    del larger, fitting
    assert pool.allocate(10_000).data_ptr() == place  # nothing was added, nothing replaced


def test_autograd_returns_what_it_saved() -> None:
    pool = MemoryPool()

    class Saving(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:  # noqa: ANN401
            ctx.save_for_backward(pool.allocate(5_000))
            return x.clone()

        @staticmethod
        def backward(ctx: Any, dy: Tensor) -> Tensor:  # noqa: ANN401
            places.append(ctx.saved_tensors[0].data_ptr())
            return dy

    places: list[int] = []
    x = torch.ones(3, requires_grad=True)
    for _ in range(3):
        loss = Saving.apply(x).sum()  # type: ignore[no-untyped-call]
        loss.backward()
    assert len(set(places)) == 1
    assert loss.grad_fn is not None  # what the last step saved is free though its graph is not


def test_release_forgets_what_is_unused_only() -> None:
    pool = MemoryPool()
    used, unused = pool.allocate(4096), pool.allocate(4096)
    used.fill_(3)
    del unused
    pool.release()
    assert int(pool.allocate(4096).sum()) == 0  # new pages are zero
    assert set(used.tolist()) == {3}
