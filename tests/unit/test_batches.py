"""Batches: correct targets and document borders, independent of the order of access."""

import threading
from collections import Counter
from contextlib import closing
from dataclasses import replace
from fractions import Fraction
from itertools import chain, islice, pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ownwords.core.errors import ConfigError, CorpusError
from ownwords.models.loss import IGNORED, chunked_cross_entropy
from ownwords.training.batches import (
    Batch,
    Batches,
    TokenStream,
    prefetched,
    sequential_batches,
)
from ownwords.training.settings import DataConfig
from ownwords.training.token_dataset import TokenDataset
from small_datasets import batches_of, dataset_of, same

LENGTHS = st.lists(st.integers(0, 40), min_size=1, max_size=12)


@settings(max_examples=60)
@given(LENGTHS, st.integers(1, 20), st.integers(1, 7), st.integers(0, 3))
def test_a_target_is_the_next_token_of_the_same_document(
    lengths: list[int], context: int, rows: int, seed: int
) -> None:
    dataset = dataset_of(lengths)
    if dataset.tokens <= context:
        return
    owner = np.repeat(np.arange(len(lengths)), lengths).tolist()
    batches = batches_of(dataset, rows=rows, context=context, seed=seed)
    for step in range(6):
        batch = batches.batch(step)
        assert batch.ids_BT.shape == batch.targets_BT.shape == (rows, context)
        assert batch.ids_BT.dtype == batch.targets_BT.dtype == torch.int64
        borders = False
        for row in range(rows):
            ids, targets = batch.ids_BT[row].tolist(), batch.targets_BT[row].tolist()
            for t, (token, target) in enumerate(zip(ids, targets, strict=True)):
                if target != IGNORED:
                    assert target == token + 1
                    assert owner[target] == owner[token]
                if t + 1 < context:
                    assert target in (IGNORED, ids[t + 1])
                    borders |= target == IGNORED
                    if batch.documents_BT is not None:
                        numbers = batch.documents_BT[row].tolist()
                        assert (target == IGNORED) == (numbers[t] != numbers[t + 1])
                        assert numbers[t + 1] >= numbers[t]
        assert (batch.documents_BT is not None) == borders
        counts = (batch.targets_BT != IGNORED).sum(1).tolist()
        assert batch.counts_B == tuple(counts)
        assert batch.tokens == sum(counts)


@settings(max_examples=25)
@given(
    LENGTHS,
    st.integers(1, 12),
    st.integers(2, 9),
    st.sampled_from([0.0, 0.3, 0.75]),
)
def test_any_step_can_be_computed_directly_and_is_split_among_ranks(
    lengths: list[int], context: int, rows: int, replay: float
) -> None:
    dataset, base = dataset_of(lengths, special=3), dataset_of([70, 30], key="base")
    if dataset.tokens <= context:
        return
    base = replace(base, ids=base.ids % dataset.vocabulary)
    config = DataConfig(replay=replay)

    def fresh(rank: int = 0, world: int = 1) -> Batches:
        return batches_of(
            dataset,
            rows=rows,
            context=context,
            config=config,
            replay=base,
            rank=rank,
            world=world,
        )

    loader = fresh()
    sequential = [loader.batch(step) for step in range(9)]
    for step in (8, 3, 1000):
        expected = sequential[step] if step < 9 else loader.batch(step)
        assert same(fresh().batch(step), expected)
        for world in (2, min(3, rows)):
            parts = [fresh(rank, world) for rank in range(world)]
            shares = [part.batch(step) for part in parts]
            assert torch.equal(torch.cat([share.ids_BT for share in shares]), expected.ids_BT)
            assert torch.equal(
                torch.cat([share.targets_BT for share in shares]), expected.targets_BT
            )
            assert sum(share.tokens for share in shares) == expected.tokens


@pytest.mark.parametrize(("share", "rows"), [(0.5, 5), (0.1, 3), (0.7, 10), (0.33, 1), (0.01, 7)])
def test_replay_is_exact_over_time_and_reads_the_base_in_its_own_order(
    share: float, rows: int
) -> None:
    own, base = dataset_of([60, 40]), dataset_of([90, 37], key="base", first=1000)
    config = DataConfig(replay=share)
    batches = batches_of(own, rows=rows, config=config, replay=base)
    alone = batches_of(own, rows=1)
    rows_of_own, rows_of_base = [], []
    for step in range(40):
        batch = batches.batch(step)
        from_base = (batch.ids_BT >= 1000).all(1)
        assert torch.equal(from_base, (batch.ids_BT >= 1000).any(1))
        rows_of_own += batch.ids_BT[~from_base].tolist()
        rows_of_base += batch.ids_BT[from_base].tolist()
        exact = Fraction(str(share)) * rows * (step + 1)
        assert len(rows_of_base) == exact.numerator // exact.denominator
    # The text to be learned is read as it would be without replay, only more slowly.
    assert rows_of_own == [alone.batch(step).ids_BT[0].tolist() for step in range(len(rows_of_own))]
    if len(rows_of_base) >= 127:  # eight epochs of the base in rows of 8
        assert set(Counter(chain.from_iterable(rows_of_base[:127])).values()) == {8}


def test_batches_never_change_between_versions() -> None:
    """A run resumed by a later version, on another machine, continues with the same batches."""
    dataset, base = dataset_of([60, 0, 40], special=2), dataset_of([80], key="base")
    batches = batches_of(
        dataset,
        rows=2,
        context=6,
        config=DataConfig(replay=0.5),
        replay=base,
    )
    assert batches.batch(12345).ids_BT.tolist() == [[76, 77, 78, 79, 80, 81], [7, 8, 9, 10, 11, 12]]


def test_too_little_text_is_reported_with_both_numbers() -> None:
    with pytest.raises(CorpusError) as raised:
        batches_of(dataset_of([5, 3]))
    assert "8 tokens" in str(raised.value)
    assert "needs 9" in str(raised.value)
    assert "at most 7" in raised.value.hint
    assert batches_of(dataset_of([5, 4])).batch(7).ids_BT.shape == (4, 8)
    with pytest.raises(CorpusError, match="there are 0 tokens"):
        batches_of(dataset_of([0, 0]))
    with pytest.raises(CorpusError, match="3 tokens"):
        batches_of(
            dataset_of([50]), config=DataConfig(replay=0.5), replay=dataset_of([3], key="base")
        )


def test_impossible_settings_are_refused() -> None:
    dataset = dataset_of([50])
    with pytest.raises(ConfigError, match="2 rows cannot be shared among 3 processes"):
        batches_of(dataset, rows=2, world=3)
    with pytest.raises(CorpusError, match="there is none"):
        batches_of(dataset, config=DataConfig(replay=0.5))


@settings(max_examples=60)
@given(LENGTHS, st.integers(1, 50), st.integers(1, 5))
def test_evaluation_reads_every_token_once_in_order(
    lengths: list[int], context: int, rows: int
) -> None:
    dataset = dataset_of(lengths)
    batches = list(sequential_batches(dataset, rows=rows, context=context))
    assert all(batch.ids_BT.shape == (rows, context) for batch in batches)
    assert len(batches) == -(-dataset.tokens // (rows * context))
    if not batches:
        return
    ids = torch.cat([batch.ids_BT.flatten() for batch in batches]).tolist()
    targets = torch.cat([batch.targets_BT.flatten() for batch in batches]).tolist()
    assert ids[: dataset.tokens] == list(range(dataset.tokens))
    starts = set(dataset.offsets_D1[:-1].tolist())
    for i, target in enumerate(targets):
        foretold = i + 1 < dataset.tokens and i + 1 not in starts
        assert target == (i + 1 if foretold else IGNORED)
    assert sum(batch.tokens for batch in batches) == sum(t != IGNORED for t in targets)
    owner = np.repeat(np.arange(len(lengths)), lengths)
    for number, batch in enumerate(batches):
        for row in range(rows):
            begin = (number * rows + row) * context
            own_ids = owner[begin : begin + context]
            if batch.documents_BT is not None:
                numbers = batch.documents_BT[row, : len(own_ids)].numpy()
                assert ((numbers[1:] != numbers[:-1]) == (own_ids[1:] != own_ids[:-1])).all()
            else:
                assert len(set(own_ids.tolist())) <= 1


@settings(max_examples=40)
@given(LENGTHS, st.integers(2, 30), st.integers(1, 4), st.integers(0, 6))
def test_rows_begin_with_the_start_token_that_a_base_expects(
    lengths: list[int], context: int, rows: int, step: int
) -> None:
    if sum(lengths) < context + 1:
        return
    plain = dataset_of(lengths)
    start = plain.vocabulary  # an id that no document holds
    with_start = replace(plain, row_start=start)
    before = batches_of(plain, rows=rows, context=context).batch(step)
    batches = batches_of(with_start, rows=rows, context=context)
    batch = batches.batch(step)
    assert (batch.ids_BT[:, 0] == start).all()
    assert torch.equal(batch.ids_BT[:, 1:], before.ids_BT[:, 1:])
    assert (batch.targets_BT[:, 0] == IGNORED).all()
    assert torch.equal(batch.targets_BT[:, 1:], before.targets_BT[:, 1:])
    assert batch.tokens == int((batch.targets_BT != IGNORED).sum())
    pairs = zip(
        sequential_batches(plain, rows=rows, context=context),
        sequential_batches(with_start, rows=rows, context=context),
        strict=True,
    )
    for plain_batch, other_batch in pairs:
        assert (other_batch.ids_BT[:, 0] == start).all()
        assert torch.equal(other_batch.ids_BT[:, 1:], plain_batch.ids_BT[:, 1:])
        assert torch.equal(other_batch.targets_BT, plain_batch.targets_BT)


def test_the_first_tokens_of_a_text_count_more_in_the_loss() -> None:
    dataset = dataset_of([5, 9, 18])
    start = dataset.vocabulary
    dataset.ids[dataset.offsets_D1[:-1]] = start
    dataset = replace(dataset, start=start, row_start=start)
    plain, weighted = (
        batches_of(dataset),
        batches_of(dataset, config=DataConfig(opening_weight=4.0)),
    )
    openings = 0
    for step in range(6):
        batch = weighted.batch(step)
        assert torch.equal(batch.targets_BT, plain.batch(step).targets_BT)
        assert batch.weights_BT is not None
        for ids, targets, weights in zip(
            batch.ids_BT.tolist(),
            batch.targets_BT.tolist(),
            batch.weights_BT.tolist(),
            strict=True,
        ):
            starts = [t for t, token in enumerate(ids) if token == start]
            if targets[0] == IGNORED:  # the row begins in the middle of a text
                starts.remove(0)
            openings += len(starts)
            expected = [
                max([1.0, *(4 / (t - s + 1) for s in starts if s <= t)]) for t in range(len(ids))
            ]
            counted = [t for t, target in enumerate(targets) if target != IGNORED]
            assert [weights[t] for t in counted] == pytest.approx([expected[t] for t in counted])
        part = batch.part(slice(1, 2)).weights_BT
        assert part is not None and torch.equal(part, batch.weights_BT[1:2])
    assert openings


def test_a_weighted_target_has_that_many_times_the_gradient() -> None:
    generator = torch.Generator().manual_seed(1)
    hidden_NC = torch.randn(6, 8, generator=generator, dtype=torch.float64, requires_grad=True)
    head_VC = torch.randn(11, 8, generator=generator, dtype=torch.float64, requires_grad=True)
    targets_N = torch.tensor([3, IGNORED, 0, 10, 7, 7])
    weights_N = torch.tensor([1.0, 9.0, 20.0, 1.0, 2.5, 1.0])
    loss, count = chunked_cross_entropy(hidden_NC, head_VC, targets_N, weights_N=weights_N)
    losses_N = torch.nn.functional.cross_entropy(
        hidden_NC @ head_VC.T, targets_N, reduction="none", ignore_index=IGNORED
    )
    expected = (losses_N * weights_N).sum()
    assert int(count) == 5
    torch.testing.assert_close(loss, expected)
    for ours, reference in zip(
        torch.autograd.grad(loss, (hidden_NC, head_VC)),
        torch.autograd.grad(expected, (hidden_NC, head_VC)),
        strict=True,
    ):
        torch.testing.assert_close(ours, reference)


def unrolled(dataset: TokenDataset, context: int, epochs: int, seed: int) -> list[int]:
    """The ids of some epochs in the order of the stream, joined from its rows."""
    stream = TokenStream(dataset, context=context, seed=seed, rows=3, name="x")
    rows = range(-(-epochs * dataset.tokens // context))
    ids_RT1 = np.empty((len(rows), context + 1), np.int64)
    pieces_RT1, learned_RT1 = np.empty(ids_RT1.shape, np.int32), np.empty(ids_RT1.shape, np.bool_)
    stream.read(rows, ids_RT1, pieces_RT1, learned_RT1)
    begins = [stream.position(row) for row in rows]
    assert sorted(begins) == [row * context for row in rows]
    # Those that begin in an epoch are dealt out before any that begins in the next.
    dealt = [begin // dataset.tokens for begin in begins]
    assert dealt == sorted(dealt)
    in_order = ids_RT1[np.argsort(begins)]
    assert in_order[:-1, -1].tolist() == in_order[1:, 0].tolist()
    return in_order[:, :-1].flatten().tolist()[: epochs * dataset.tokens]


@settings(max_examples=60)
@given(LENGTHS, st.integers(1, 50), st.integers(0, 5))
def test_every_token_is_read_exactly_once_an_epoch(
    lengths: list[int], context: int, seed: int
) -> None:
    dataset = dataset_of(lengths)
    tokens = sum(lengths)
    if tokens <= context:
        with pytest.raises(CorpusError):
            unrolled(dataset, context, 3, seed)
        return
    ids = unrolled(dataset, context, 3, seed)
    for epoch in range(3):
        here = ids[epoch * tokens : (epoch + 1) * tokens]
        assert sorted(here) == list(range(tokens))
        # Documents are whole, but for one that is begun within and ended last.
        ends = {int(end) - 1 for end in dataset.offsets_D1[1:]}
        torn = [a for a, b in pairwise(here) if a not in ends and b != a + 1]
        assert not torn
        begun_within = here[0] not in set(dataset.offsets_D1[:-1].tolist())
        assert (here[-1] not in ends) == begun_within
        assert not begun_within or here[-1] + 1 == here[0]


@pytest.mark.parametrize("lengths", [[640, 0], [1000, 280]])
def test_each_epoch_has_its_own_order_and_offset(lengths: list[int]) -> None:
    # Rows of 64 divide the text, so that only a fresh offset can cut it elsewhere.
    dataset = dataset_of(lengths)
    rows = dataset.tokens // 64

    def begins(seed: int) -> list[list[int]]:
        batches = batches_of(dataset, rows=rows, context=64, seed=seed)
        return [batches.batch(epoch).ids_BT[:, 0].tolist() for epoch in range(12)]

    places = {tuple(sorted(first)) for first in begins(1)}
    orders = {tuple(first) for first in begins(1)}
    assert len(places) >= 9
    assert len(orders) == 12
    assert not orders & {tuple(first) for first in begins(2)}


class FailingBatches(Batches):
    """Batches of which one cannot be made."""

    def batch(self, step: int) -> Batch:
        if step == 8:
            raise OSError(f"no step {step}")
        return super().batch(step)


@pytest.mark.parametrize("taken", [0, 1, 3])
def test_prefetched_batches_belong_to_their_steps(
    taken: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    pinned: list[str] = []

    def pin(self: Batch) -> Batch:
        pinned.append(threading.current_thread().name)
        return self

    monkeypatch.setattr(Batch, "pinned", pin)
    batches = FailingBatches(dataset_of([60, 40]), rows=2, context=8, seed=1, config=DataConfig())
    with closing(prefetched(batches, 5, 25, pinned=True)) as stream:
        got = list(islice(stream, taken))
        if taken == 3:
            with pytest.raises(OSError, match="no step 8"):
                next(stream)
    assert len(got) == taken
    assert all(same(batch, batches.batch(step)) for step, batch in enumerate(got, 5))
    assert set(pinned) <= {"batches_0"}
    assert not any(thread.name.startswith("batches") for thread in threading.enumerate())
