"""The training stream: every token once an epoch, with its own order and offset."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ownwords.core.errors import CorpusError
from ownwords.training.settings import DataConfig
from ownwords.training.shards import Shards
from ownwords.training.token_stream import EpochLayout, TokenStream
from small_shards import batches_of, shards_of

LENGTHS = st.lists(st.integers(0, 40), min_size=1, max_size=12)


def unrolled(shards: Shards, context: int, epochs: int, seed: int, shuffle: bool) -> list[int]:
    """The ids of some epochs in the order of the stream, joined from its rows."""
    stream = TokenStream(shards, context=context, seed=seed, shuffle=shuffle, rows=3, name="x")
    rows = range(-(-epochs * shards.tokens // context))
    ids_RT1 = np.empty((len(rows), context + 1), np.int64)
    stream.read(rows, ids_RT1, np.empty((len(rows), context + 1), np.int32))
    begins = [stream.position(row) for row in rows]
    assert sorted(begins) == [row * context for row in rows]
    # Those that begin in an epoch are dealt out before any that begins in the next.
    dealt = [begin // shards.tokens for begin in begins]
    assert dealt == sorted(dealt)
    in_order = ids_RT1[np.argsort(begins)]
    assert in_order[:-1, -1].tolist() == in_order[1:, 0].tolist()
    return in_order[:, :-1].flatten().tolist()[: epochs * shards.tokens]


@settings(max_examples=60)
@given(LENGTHS, st.integers(1, 50), st.integers(0, 5), st.booleans())
def test_every_token_is_read_exactly_once_an_epoch(
    lengths: list[int], context: int, seed: int, shuffle: bool
) -> None:
    shards = shards_of(lengths)
    tokens = sum(lengths)
    if tokens <= context:
        with pytest.raises(CorpusError):
            unrolled(shards, context, 3, seed, shuffle)
        return
    ids = unrolled(shards, context, 3, seed, shuffle)
    for epoch in range(3):
        here = ids[epoch * tokens : (epoch + 1) * tokens]
        assert sorted(here) == list(range(tokens))
        assert shuffle or here == list(range(tokens))
        # Documents are whole, but for one that is begun within and ended last.
        ends = {int(end) - 1 for end in shards.offsets_D1[1:]}
        torn = [a for a, b in pairwise(here) if a not in ends and b != a + 1]
        assert not torn
        begun_within = here[0] not in set(shards.offsets_D1[:-1].tolist())
        assert (here[-1] not in ends) == begun_within
        assert not begun_within or here[-1] + 1 == here[0]


@pytest.mark.parametrize("lengths", [[640], [640, 0], [320, 320], [1000, 280]])
def test_each_epoch_has_its_own_order_and_offset(lengths: list[int]) -> None:
    # Rows of 64 divide the text, so that only a fresh offset can cut it elsewhere.
    shards = shards_of(lengths)
    rows = shards.tokens // 64

    def begins(seed: int) -> list[list[int]]:
        batches = batches_of(shards, rows=rows, context=64, seed=seed)
        return [batches.batch(epoch).ids_BT[:, 0].tolist() for epoch in range(12)]

    places = {tuple(sorted(first)) for first in begins(1)}
    orders = {tuple(first) for first in begins(1)}
    assert len(places) >= 9
    assert len(orders) == 12
    assert not orders & {tuple(first) for first in begins(2)}


def test_documents_follow_each_other_in_a_different_order_each_epoch() -> None:
    ids = unrolled(shards_of([5] * 40), 7, 6, 1, True)
    orders = {
        tuple(dict.fromkeys(token // 5 for token in ids[epoch * 200 : (epoch + 1) * 200]))
        for epoch in range(6)
    }
    assert len(orders) == 6
    assert len({order[0] for order in orders}) > 1


@pytest.mark.parametrize("tokens", [9, 100, 5000])
def test_each_epoch_is_laid_out_once(tokens: int, monkeypatch: pytest.MonkeyPatch) -> None:
    laid_out: list[int] = []

    def counting(self: TokenStream, e: int) -> EpochLayout:
        laid_out.append(e)
        return original(self, e)

    original = TokenStream._epoch_layout
    monkeypatch.setattr(TokenStream, "_epoch_layout", counting)
    batches = batches_of(shards_of([tokens]), rows=16)
    for step in range(40):
        batches.batch(step)
        batches.total(step)
    assert laid_out == list(range(len(laid_out)))


def test_without_shuffling_the_text_is_read_in_order() -> None:
    batches = batches_of(shards_of([13, 0, 7, 1]), rows=3, config=DataConfig(shuffle=False))
    read = torch.cat([batches.batch(step).ids_BT.flatten() for step in range(7)])
    assert read.tolist() == [i % 21 for i in range(7 * 24)]
