"""What a verb says where PyTorch is not installed."""

from collections.abc import Iterator
from contextlib import contextmanager

from ownwords.core.errors import OwnwordsError


@contextmanager
def needs_torch(what: str) -> Iterator[None]:
    """Around the imports of a verb that computes: one sentence in place of a missing module."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise OwnwordsError(
            f"{what} takes PyTorch, which is not installed",
            hint='pip install "ownwords[train]"',
        ) from error
