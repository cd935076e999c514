"""TokenDataset and batches of a few tokens, none of which stands twice, for the tests."""

import numpy as np
import torch

from ownwords.training.batches import Batch, Batches
from ownwords.training.settings import DataConfig
from ownwords.training.token_dataset import TokenDataset


def dataset_of(
    lengths: list[int], *, key: str = "k", first: int = 0, special: int = 0
) -> TokenDataset:
    """Documents of distinct tokens: `first`, `first` + 1 and so on."""
    offsets = np.concatenate([[0], np.cumsum(np.array(lengths, np.int64))])
    tokens = int(offsets[-1])
    return TokenDataset(
        key=key,
        tokenizer="t",
        vocabulary=first + tokens + special,
        ids=np.arange(first, first + tokens, dtype=np.uint16),
        offsets_D1=offsets,
        text_bytes=sum(lengths),
    )


def batches_of(
    dataset: TokenDataset,
    *,
    rows: int = 4,
    context: int = 8,
    seed: int = 1,
    config: DataConfig | None = None,
    replay: TokenDataset | None = None,
    rank: int = 0,
    world: int = 1,
) -> Batches:
    return Batches(
        dataset,
        rows=rows,
        context=context,
        seed=seed,
        config=config or DataConfig(),
        replay=replay,
        rank=rank,
        world=world,
    )


def same(first: Batch, second: Batch) -> bool:
    if (first.documents_BT is None) != (second.documents_BT is None):
        return False
    return (
        torch.equal(first.ids_BT, second.ids_BT)
        and torch.equal(first.targets_BT, second.targets_BT)
        and (first.tokens, first.counts_B) == (second.tokens, second.counts_B)
        and (
            first.documents_BT is None
            or second.documents_BT is None
            or torch.equal(first.documents_BT, second.documents_BT)
        )
    )
