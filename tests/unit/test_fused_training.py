"""Whole runs with native blocks: as exact as any other run."""

import signal
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
from ownwords.models.configs.llama import Gemma3Config
from ownwords.models.lora import LoraAdapter
from ownwords.training import optim
from ownwords.training.loop import TrainingInterrupted, TrainJob, TrainOutcome, train
from ownwords.training.settings import LoopConfig, Precision
from training_jobs import LOOP, attach_adapter, checksum, job, model, next_token, set_objective

if fused.find_library() is None:
    pytest.skip("the part in C++ is not built", allow_module_level=True)

GEMMA = Gemma3Config(
    vocabulary=97,
    context=64,
    width=64,
    layers=2,
    heads=2,
    kv_heads=1,
    head_dim=64,
    hidden=96,
    window=9,
    sliding=(True, False),
)
RICH = replace(LOOP, dropout=0.2, micro_batch_size=3)
PRECISIONS: tuple[Precision, ...] = ("autocast", "bf16")


@pytest.fixture(autouse=True)
def counts_seen(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, int]]:
    """How many blocks, in training or not, and steps of Muon were computed by the library."""
    monkeypatch.setattr(fused, "has_fast_bf16", lambda: True)  # to be tested wherever it runs
    counts = {"blocks": 0, "trained": 0, "steps": 0}
    forward, muon = fused_block.forward, optim.Muon._step_native

    def counted(*arguments: Any) -> Tensor | None:  # noqa: ANN401
        output = forward(*arguments)
        counts["blocks"] += output is not None
        counts["trained"] += output is not None and torch.is_grad_enabled()
        return output

    def stepped(*arguments: Any) -> None:  # noqa: ANN401
        counts["steps"] += 1
        muon(*arguments)

    monkeypatch.setattr(fused_block, "forward", counted)
    monkeypatch.setattr(optim.Muon, "_step_native", stepped)
    yield counts
    torch.set_num_threads(1)


def _job(folder: Path, loop: LoopConfig, key: str = "run", **options: Any) -> TrainJob:  # noqa: ANN401
    return job(folder, loop, key=key, **{"model": model(shape=EVEN), **options})


def _train_to_end(run_job: TrainJob) -> tuple[TrainOutcome, str]:
    """The outcome, and a checksum of the last checkpoint."""
    outcome = train(run_job)
    saved = run_job.run.checkpoints.load(outcome.steps).groups
    return outcome, " ".join(checksum(tensors) for tensors in saved.values())


@pytest.mark.parametrize("precision", PRECISIONS)
def test_equal_runs_are_equal_to_the_bit(
    precision: Precision, counts_seen: dict[str, int], tmp_path: Path
) -> None:
    """With activations kept, and with activations recomputed."""
    loop = replace(RICH, precision=precision)
    results = []
    for key, checkpointing in (("one", False), ("other", False), ("twice", True)):
        results.append(
            _train_to_end(_job(tmp_path, replace(loop, gradient_checkpointing=checkpointing), key))
        )
        torch.rand(3)  # whatever else draws from the global state in between
    assert counts_seen["steps"] == 3 * 12
    assert counts_seen["blocks"] > 3 * 12 * 2 * 2  # two blocks, each twice in a step of two parts
    outcomes, ends = zip(*results, strict=True)
    assert len(set(ends)) == 1
    assert len({outcome.bits_per_byte for outcome in outcomes}) == 1


@pytest.mark.parametrize(
    ("precision", "dropout"), [("float32", 0.1), ("autocast", 0.0), ("bf16", 0.0)]
)
def test_an_adapter_on_bfloat16_weights_resumes_to_the_bit(
    precision: Precision, dropout: float, counts_seen: dict[str, int], tmp_path: Path
) -> None:
    """In the fused block, and layer by layer where the adapter has dropout."""
    loop = replace(RICH, precision=precision)

    def adapted(key: str) -> tuple[TrainJob, LoraAdapter]:
        frozen = model(shape=GEMMA).to(torch.bfloat16)
        made = _job(tmp_path, loop, key, model=frozen)
        return made, attach_adapter(made, dropout=dropout)

    uninterrupted, adapter = adapted("whole")
    outcome, end = _train_to_end(uninterrupted)
    assert counts_seen["trained"] == (
        0 if dropout else 12 * 2 * GEMMA.layers
    )  # each step in two parts
    frozen = model(shape=GEMMA).to(torch.bfloat16)
    adapter.detach()
    assert checksum(dict(uninterrupted.model.named_parameters())) == checksum(
        dict(frozen.named_parameters())
    )

    calls = 0

    def interrupted(model: Any, batch: Any) -> tuple[Tensor, Tensor]:  # noqa: ANN401
        nonlocal calls
        calls += torch.is_grad_enabled()
        if torch.is_grad_enabled() and calls == 9:
            signal.raise_signal(signal.SIGINT)
        return next_token(model, batch)

    first, _ = adapted("parts")
    set_objective(first, interrupted)
    with pytest.raises(TrainingInterrupted):
        train(first)
    resumed, resumed_end = _train_to_end(adapted("parts")[0])
    assert resumed_end == end
    assert resumed.evaluations == outcome.evaluations
