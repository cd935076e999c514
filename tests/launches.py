"""Counts the operations that would launch kernels on a GPU, and refuses those that wait for it."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

# They only describe memory, or allocate it.
_NO_KERNEL = """
    _reshape_alias _unsafe_view alias as_strided chunk detach empty empty_like empty_strided expand
    lift_fresh new_empty new_empty_strided permute select slice split split_with_sizes squeeze t
    transpose unbind unsqueeze view
    """.split()  # noqa: SIM905
# The host needs their result, or its size.
_WAITS = "_local_scalar_dense equal item masked_select nonzero unique".split()  # noqa: SIM905


class LaunchCounter(TorchDispatchMode):
    """Counts operations by name; with `is_captured`, fails for those that end a capture."""

    def __init__(self, *, is_captured: bool = False) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.counts: Counter[str] = Counter()
        self.is_captured = is_captured

    def __torch_dispatch__(
        self,
        func: Any,  # noqa: ANN401 - an OpOverload
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> object:
        name = func.overloadpacket.__name__
        if self.is_captured:
            places = args[1] if name in ("index", "index_put_") else ()
            by_mask = any(each is not None and each.dtype == torch.bool for each in places)
            assert name not in _WAITS and not by_mask, f"{name} would wait for the device"
        if name not in _NO_KERNEL:
            self.counts[name] += 1
        return func(*args, **(kwargs or {}))


def launches(run: Callable[[], object]) -> Counter[str]:
    """Run a function, and count the kernels that it would launch."""
    counter = LaunchCounter()
    with counter:
        run()
    return counter.counts
