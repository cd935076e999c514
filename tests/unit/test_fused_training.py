"""Whole runs of the loop on blocks that the library computes: as exact as any other."""

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor

from families import EVEN
from ownwords.models import fused, fused_block
from ownwords.native.build import Isa
from ownwords.training import fused_muon
from ownwords.training.job import TrainJob, TrainOutcome, next_token
from ownwords.training.loop import train
from ownwords.training.settings import LoopConfig, Precision
from training_jobs import LOOP, checksum, job, model, with_adapter

if fused.find_library() is None:
    pytest.skip("the part in C++ is not built", allow_module_level=True)

RICH = replace(LOOP, dropout=0.2, ema_half_life=0.2, micro_batch_size=3)
PRECISIONS: tuple[Precision, ...] = ("autocast", "bf16")


@pytest.fixture(autouse=True)
def taken(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, int]]:
    """How many blocks and how many steps of Muon were computed by the library."""
    monkeypatch.setattr(fused, "FAST_BF16", Isa.BASELINE)  # to be tested wherever it runs
    counts = {"blocks": 0, "steps": 0}
    whole, advance_ = fused_block.forward, fused_muon.update_

    def counted(*arguments: Any) -> Tensor | None:  # noqa: ANN401
        made = whole(*arguments)
        counts["blocks"] += made is not None
        return made

    def advanced(*arguments: Any, **options: Any) -> None:  # noqa: ANN401
        counts["steps"] += 1
        advance_(*arguments, **options)

    monkeypatch.setattr(fused_block, "forward", counted)
    monkeypatch.setattr(fused_muon, "update_", advanced)
    yield counts
    torch.set_num_threads(1)


def _job(folder: Path, loop: LoopConfig, key: str = "run", **others: Any) -> TrainJob:  # noqa: ANN401
    return job(folder, loop, key=key, **{"model": model(shape=EVEN), **others})


def _ended(one: TrainJob) -> tuple[TrainOutcome, str]:
    """Its outcome and a checksum of all that its last checkpoint holds."""
    outcome = train(one)
    saved = one.run.checkpoints.load(outcome.steps).groups
    return outcome, " ".join(checksum(tensors) for tensors in saved.values())


@pytest.mark.parametrize("precision", PRECISIONS)
def test_equal_runs_are_equal_to_the_bit(
    precision: Precision, taken: dict[str, int], tmp_path: Path
) -> None:
    """Twice the same; and again where the inside of blocks is computed twice, and not kept."""
    loop = replace(RICH, precision=precision)
    found = []
    for key, checkpointing in (("one", False), ("other", False), ("twice", True)):
        found.append(
            _ended(_job(tmp_path, replace(loop, gradient_checkpointing=checkpointing), key))
        )
        torch.rand(3)  # whatever else draws from the global state in between
    assert taken["steps"] == 3 * 12
    assert taken["blocks"] > 3 * 12 * 2 * 2  # two blocks, each twice in a step of two parts
    outcomes, ends = zip(*found, strict=True)
    assert len(set(ends)) == 1
    assert len({outcome.bits_per_byte for outcome in outcomes}) == 1


def _bits(outcome: TrainOutcome) -> Tensor:
    return torch.tensor([each.bits_per_byte for each in outcome.evaluations])


@pytest.mark.parametrize("precision", PRECISIONS)
def test_runs_part_no_more_than_those_of_two_seeds(
    precision: Precision, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """With another number of threads, and without the library: held-out text included."""
    loop = replace(LOOP, steps=30, precision=precision)
    ours = _bits(train(_job(tmp_path, loop, "ours")))
    torch.set_num_threads(2)
    threads = _bits(train(_job(tmp_path, loop, "threads")))
    torch.set_num_threads(1)
    monkeypatch.setattr(fused_block, "fusable_weights", lambda *_: None)
    monkeypatch.setattr(fused_muon, "is_supported", lambda *_: False)
    plain = _bits(train(_job(tmp_path, loop, "plain")))
    seeds = [
        _bits(train(_job(tmp_path, loop, f"{seed}", model=model(seed, shape=EVEN))))
        for seed in (2, 3)
    ]
    apart = max(float((other - plain).abs().max()) for other in seeds)
    assert float((ours - plain).abs().max()) < apart
    assert float((ours - threads).abs().max()) < apart


@pytest.mark.parametrize("precision", PRECISIONS)
def test_what_is_no_number_leads_back(
    precision: Precision, taken: dict[str, int], tmp_path: Path
) -> None:
    """Once a weight is spoilt in the midst of a block; gradients have to show it, and it goes."""
    calls = 0

    def spoilt(model: Any, batch: Any, z_weight: float) -> tuple[Tensor, Tensor]:  # noqa: ANN401
        nonlocal calls
        if torch.is_grad_enabled():
            calls += 1
            if calls == 7:
                with torch.no_grad():
                    model.get_parameter("blocks.0.attention.key.weight")[3, 5] = math.nan
        return next_token(model, batch, z_weight)

    one = _job(tmp_path, replace(LOOP, precision=precision), objective=spoilt)
    outcome = train(one)
    assert (outcome.setbacks, outcome.stopped, outcome.steps) == (1, "done", 12)
    assert calls == 7 + (12 - 4)
    assert all(bool(p.isfinite().all()) for p in one.model.parameters())
    assert taken["blocks"] > 0


@pytest.mark.parametrize("precision", PRECISIONS)
def test_an_adapter_learns_layer_by_layer(
    precision: Precision, taken: dict[str, int], tmp_path: Path
) -> None:
    loop = replace(RICH, precision=precision)
    ends = [_ended(with_adapter(_job(tmp_path, loop, key), dropout=0.1))[1] for key in "ab"]
    assert ends[0] == ends[1]
    assert taken["blocks"] == 0


def test_types_may_change_to_and_fro(taken: dict[str, int]) -> None:
    """Nothing of the weights' former type or place is remembered."""
    one = model(shape=EVEN)
    ids = torch.arange(32)[None] % 97
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        before = one(ids)
    with torch.no_grad():
        narrow = one.to(torch.bfloat16)(ids)
        one.to(torch.float32)(ids)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            for parameter in one.parameters():
                parameter.data = parameter.data.clone()
            after = one(ids)
    assert taken["blocks"] == 3 * EVEN.layers
    assert (before.dtype, narrow.dtype) == (after.dtype, torch.bfloat16)
    # The weights were rounded to bfloat16 in between, the norms' too.
    torch.testing.assert_close(after, before, rtol=0.05, atol=0.05)
    torch.testing.assert_close(narrow.float(), after.float(), rtol=0.05, atol=0.05)
