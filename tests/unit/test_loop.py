"""The training loop: exact to the bit whatever happens; every failure is one sentence."""

import errno
import math
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor

from launches import LaunchCounter
from ownwords.core.errors import WorkspaceError
from ownwords.core.progress import Event, Progress
from ownwords.core.workspace import translate_os_errors
from ownwords.models.decoder import CausalLM
from ownwords.training import loop as loop_module
from ownwords.training import metrics, step_graphs
from ownwords.training.batches import Batch, Batches
from ownwords.training.checkpoint import Checkpoints
from ownwords.training.device import Device
from ownwords.training.loop import (
    MAX_ROLLBACKS,
    TrainingError,
    TrainingInterrupted,
    TrainJob,
    train,
)
from ownwords.training.optim import Optimizer
from ownwords.training.settings import DataConfig, LoopConfig, OptimConfig
from training_jobs import (
    LOOP,
    attach_adapter,
    checksum,
    dataset,
    job,
    next_token,
    set_objective,
    weights_of,
)

RICH = replace(LOOP, dropout=0.2, micro_batch_size=3)


class ChangedLoss:
    """The usual loss, changed in some training calls."""

    def __init__(self, change: Callable[[int, Tensor], Tensor]) -> None:
        self.change, self.calls, self.rows = change, 0, list[int]()

    def __call__(self, model: CausalLM, batch: Batch) -> tuple[Tensor, Tensor]:
        loss, count = next_token(model, batch)
        if torch.is_grad_enabled():
            self.calls += 1
            self.rows.append(len(batch.ids_BT))
            loss = self.change(self.calls, loss)
        return loss, count


class EventLog(list[Event]):
    def __call__(self, event: Event) -> None:
        self.append(event)

    def progress(self) -> Progress:
        return Progress(self)

    def notes(self) -> str:
        return " | ".join(event.message for event in self if event.kind == "note")

    def values(self, name: str) -> list[float]:
        return [e.values[name] for e in self if e.kind == "metric" and name in e.values]


def stop_after(job: TrainJob, after: int) -> TrainJob:
    """The job with a stop signal during the given step."""

    def stop(call: int, loss: Tensor) -> Tensor:
        if call == after:
            signal.raise_signal(signal.SIGINT)
        return loss

    set_objective(job, ChangedLoss(stop))
    return job


@pytest.mark.parametrize("kind", ["plain", "rich", "adapter", "autocast", "bf16"])
def test_stopped_and_resumed_is_as_if_never_stopped(kind: str, tmp_path: Path) -> None:
    def make(key: str) -> TrainJob:
        loop = RICH if kind == "rich" else LOOP
        if kind in ("autocast", "bf16"):
            loop = replace(loop, precision=kind)  # type: ignore[arg-type]
        made = job(tmp_path, loop, key=key)
        if kind == "adapter":
            attach_adapter(made, dropout=0.1)
        return made

    uninterrupted = make("whole")
    outcome = train(uninterrupted)
    # Calls of the objective, of which RICH takes two a step. The step in which it falls is ended.
    for after in (2, 3, 4):
        with pytest.raises(
            TrainingInterrupted, match=r"stopped after step \d of 12; everything is saved"
        ):
            train(stop_after(make("parts"), after))
    parts = make("parts")
    resumed = train(parts)
    assert resumed.evaluations == outcome.evaluations
    assert resumed.best_step == outcome.best_step
    ends = [run_job.run.checkpoints.load(12) for run_job in (uninterrupted, parts)]
    for group in ends[0].groups:
        assert checksum(ends[0].groups[group]) == checksum(ends[1].groups[group]), group
    assert {each.dtype for each in ends[0].groups["weights"].values()} == {torch.float32}


class Card(Device):
    """The processor in the place of a GPU: what runs there runs here, operation by operation."""

    def later(self, value: Tensor) -> Callable[[], Tensor]:
        return value.detach().clone

    def release_memory(self) -> None:
        pass


class PlainCapturer:
    """In the place of CUDA graphs: replays a step by calling it, and fails if it would wait."""

    captured = 0
    problem: RuntimeError | None = None

    def __init__(self, _: torch.device) -> None:
        pass

    def capture(self, function: Callable[[], Tensor]) -> Callable[[], Tensor]:
        if self.problem:
            raise self.problem

        def replay() -> Tensor:
            PlainCapturer.captured += 1
            with LaunchCounter(is_captured=True):
                return function()

        return replay


@pytest.fixture
def on_a_card(monkeypatch: pytest.MonkeyPatch) -> None:
    """Train as on CUDA: without the library, with an optimizer that does not wait, captured."""
    monkeypatch.setattr("ownwords.models.fused.find_library", lambda: None)
    monkeypatch.setattr(
        Optimizer, "_waits", property(lambda _: False, lambda *_: None), raising=False
    )
    monkeypatch.setattr(step_graphs, "Capturer", PlainCapturer)
    monkeypatch.setattr(PlainCapturer, "captured", 0)


@pytest.mark.usefixtures("on_a_card")
@pytest.mark.parametrize("kind", ["rich", "adapter", "autocast"])
def test_a_captured_step_is_the_same_step_and_waits_for_nothing(kind: str, tmp_path: Path) -> None:
    def make(key: str, device: str) -> TrainJob:
        loop = replace(RICH if kind == "rich" else LOOP, steps=20)
        if kind == "autocast":
            loop = replace(loop, precision="autocast")
        made = job(tmp_path, loop, key=key, device=Card(device, torch.device("cpu")))
        if kind == "adapter":
            attach_adapter(made)
        return made

    plain, captured = make("plain", "cpu"), make("captured", "cuda")
    outcome = train(plain)
    assert not PlainCapturer.captured
    assert train(captured).evaluations == outcome.evaluations
    assert PlainCapturer.captured > 8
    with pytest.raises(TrainingInterrupted):
        train(stop_after(make("parts", "cuda"), 13))
    parts = make("parts", "cuda")
    train(parts)
    assert weights_of(captured) == weights_of(plain) == weights_of(parts)


@pytest.mark.usefixtures("on_a_card")
def test_a_step_that_cannot_be_captured_is_launched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PlainCapturer, "problem", RuntimeError("operation not permitted\nAnd more"))
    recorder = EventLog()
    device = Card("cuda", torch.device("cpu"))
    made = job(tmp_path, device=device, progress=recorder.progress())
    assert train(made).steps == 12 and not PlainCapturer.captured
    assert "Training without a CUDA graph: operation not permitted." in recorder.notes()
    full = torch.OutOfMemoryError("CUDA out of memory")
    monkeypatch.setattr(PlainCapturer, "problem", full)
    with pytest.raises(TrainingError, match="one row of 24 tokens does not fit"):
        train(job(tmp_path, key="full", device=device))


class Clock:
    """A clock for the loop; each step takes as long as it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.step_s = 0.0, 1.0
        self.stops_at = 0  # a step in which a signal arrives
        monkeypatch.setattr(loop_module, "time", SimpleNamespace(monotonic=lambda: self.now))

    def step(self, call: int, loss: Tensor) -> Tensor:
        self.now += self.step_s
        if call == self.stops_at:
            signal.raise_signal(signal.SIGINT)
        return loss

    def job(self, folder: Path, loop: LoopConfig, seconds: float, **options: Any) -> TrainJob:  # noqa: ANN401
        return job(folder, loop, seconds=seconds, objective=ChangedLoss(self.step), **options)


@pytest.mark.parametrize(("step_s", "steps"), [(0.25, 40), (0.05, 100)])
def test_a_run_of_some_time_has_the_steps_that_fit_and_decays_to_its_end(
    step_s: float, steps: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, recorder = Clock(monkeypatch), EventLog()
    monkeypatch.setattr(metrics, "_EVERY_S", 0.0)
    clock.step_s = step_s
    loop = replace(LOOP, steps=40, max_steps=100, evaluations=4)
    outcome = train(clock.job(tmp_path, loop, 10.0, progress=recorder.progress()))
    assert outcome.stopped == "done" and outcome.steps == steps
    assert [e.step for e in outcome.evaluations] == [steps * n // 4 for n in range(1, 5)]
    rates = recorder.values("rate")
    assert len(rates) == steps and rates[-1] < 0.1 * max(rates)
    reported = [e for e in recorder if e.stage == "train" and e.kind == "metric"]
    assert reported[-1].total == steps
    if steps < 100:  # the time ends it
        left = [event.remaining_s for event in reported if event.remaining_s is not None]
        assert left == sorted(left, reverse=True) and left[0] == pytest.approx(10 - step_s)


def test_a_run_of_some_time_resumes_with_its_share(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)
    loop = replace(RICH, micro_batch_size=0, steps=40, max_steps=200, evaluations=4)
    uninterrupted = clock.job(tmp_path, loop, 20.0, key="whole")
    outcome = train(uninterrupted)
    for clock.stops_at in (3, 9):
        with pytest.raises(TrainingInterrupted):
            train(clock.job(tmp_path, loop, 20.0))
        clock.now += 3600
    clock.stops_at = 0
    resumed = clock.job(tmp_path, loop, 20.0)
    assert train(resumed).evaluations == outcome.evaluations
    assert weights_of(resumed) == weights_of(uninterrupted)


def test_time_that_a_rollback_loses_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)
    loop = replace(LOOP, steps=40, max_steps=200, evaluations=4)
    timed = clock.job(tmp_path, loop, 20.0)

    def spoil(call: int, loss: Tensor) -> Tensor:
        return clock.step(call, loss) * (math.nan if call == 9 else 1)

    set_objective(timed, ChangedLoss(spoil))
    outcome = train(timed)
    assert outcome.rollbacks == 1 and clock.now == 20 and outcome.steps == 20 - (9 - 5)


def test_it_learns_and_keeps_the_best_weights(tmp_path: Path) -> None:
    loop = replace(LOOP, steps=60, evaluations=6)
    recorder = EventLog()
    run_job = job(tmp_path, loop, progress=recorder.progress())
    outcome = train(run_job)
    history = [evaluation.bits_per_byte for evaluation in outcome.evaluations]
    assert history == recorder.values("validation_bits_per_byte")
    assert outcome.bits_per_byte == min(b for b in history if b is not None) < 4.5
    assert outcome.stopped == "done"
    assert outcome.tokens == sum(run_job.batches.batch(step).tokens for step in range(60))
    for name in ("bits_per_byte", "tokens_per_s", "rate", "gradient_norm"):
        assert all(value > 0 for value in recorder.values(name)) and recorder.values(name), name


def test_the_validation_figure_is_the_loss_of_every_token(tmp_path: Path) -> None:
    """Recomputed with plain cross entropy, document by document."""
    loop = replace(LOOP, sequence_length=64, batch_size=2)
    run_job = job(tmp_path, loop)
    outcome = train(run_job)
    validation = run_job.validation
    assert validation is not None
    ids = torch.from_numpy(validation.ids.astype("int64"))
    ends = torch.from_numpy(validation.offsets_D1[1:])
    number = torch.searchsorted(ends, torch.arange(len(ids)), right=True)
    nats = 0.0
    with torch.no_grad():
        for begin in range(0, len(ids), 64):
            for document in sorted(set(number[begin : begin + 64].tolist())):
                there = torch.arange(begin, min(begin + 64, len(ids)))
                here = there[number[there] == document]
                logits = run_job.model.logits(run_job.model(ids[here][None]))[0].double()
                after = [i for i in here.tolist() if i + 1 < len(ids)]
                counts = [i for i in after if number[i + 1] == document]
                rows = torch.tensor([i - int(here[0]) for i in counts], dtype=torch.long)
                targets = ids[torch.tensor(counts, dtype=torch.long) + 1]
                nats += (
                    float(torch.nn.functional.cross_entropy(logits[rows], targets, reduction="sum"))
                    if counts
                    else 0.0
                )
    assert outcome.bits_per_byte == pytest.approx(
        nats / math.log(2) / validation.text_bytes, rel=1e-5
    )


@pytest.mark.parametrize("micro", [1, 3])
def test_micro_batches_give_the_gradient_of_the_whole(micro: int, tmp_path: Path) -> None:
    """The moments after one step are in proportion to the gradient."""
    moments = []
    for rows in (0, micro):
        run_job = job(tmp_path, replace(LOOP, steps=1, micro_batch_size=rows), key=f"{rows}")
        train(run_job)
        moments.append(run_job.run.checkpoints.load(1).groups["optimizer"])
    for name, whole in moments[0].items():
        torch.testing.assert_close(moments[1][name], whole, rtol=1e-3, atol=1e-7)


class LimitedMemory(ChangedLoss):
    """The usual loss, with memory for so many rows at once."""

    def __init__(self, max_rows: int) -> None:
        super().__init__(self.check)
        self.max_rows = max_rows

    def check(self, _: int, loss: Tensor) -> Tensor:
        if self.rows[-1] > self.max_rows:
            raise torch.OutOfMemoryError("no room")
        return loss


def test_out_of_memory_is_met_once(tmp_path: Path) -> None:
    recorder = EventLog()
    objective = LimitedMemory(1)
    first = job(tmp_path, objective=objective, progress=recorder.progress())
    outcome = train(first)
    assert outcome.micro_batch_size == 1
    assert objective.rows[:2] == [4, 2] and set(objective.rows[2:]) == {1}
    assert "4 rows at once do not fit into memory; from now on 2" in recorder.notes()
    by_one = job(tmp_path, replace(LOOP, micro_batch_size=1), key="by-one")
    train(by_one)
    assert weights_of(by_one) == weights_of(first)
    again = LimitedMemory(1)
    train(job(tmp_path, objective=again))
    assert set(again.rows) <= {1}
    with pytest.raises(TrainingError, match="one row of 24 tokens does not fit into memory"):
        train(job(tmp_path, key="none", objective=LimitedMemory(0)))


def test_a_nan_loss_rolls_back_and_halves_the_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder, moved, update = EventLog(), list[Tensor](), Optimizer.update
    spoilt = ChangedLoss(lambda call, loss: loss * math.nan if call == 7 else loss)
    made = job(tmp_path, objective=spoilt, progress=recorder.progress())

    def flat() -> Tensor:
        return torch.cat([weight.detach().flatten() for weight in made.model.parameters()])

    def record(optimizer: Optimizer) -> None:
        before = flat()
        update(optimizer)
        moved.append(flat() - before)

    monkeypatch.setattr(Optimizer, "update", record)
    outcome = train(made)
    # Step 5 of both attempts: the same weights, moments and batch, and half the rate.
    torch.testing.assert_close(moved[7], moved[4] / 2, rtol=1e-3, atol=1e-6)
    assert moved[4].abs().max() > 1e-3
    assert outcome.rollbacks == 1 and outcome.stopped == "done" and outcome.steps == 12
    assert "The loss is not a number at step 7: back to step 4, with 0.5 of the" in recorder.notes()
    assert spoilt.calls == 7 + (12 - 4)
    rates = recorder.values("rate")
    assert rates[-1] < 0.5 * 0.02
    # The lesson is kept: a run resumed after it goes on at the lower rate.
    assert job(tmp_path).run.checkpoints.load(12).record.lr_factor == 0.5


def test_a_loss_that_never_is_a_number_ends_with_a_sentence(tmp_path: Path) -> None:
    spoilt = ChangedLoss(lambda _, loss: loss * math.nan)
    with pytest.raises(TrainingError, match=r"not a number at step 1, after 5 rollbacks"):
        train(job(tmp_path, objective=spoilt))
    assert spoilt.calls == MAX_ROLLBACKS + 1


def test_a_run_away_leads_back_and_further_back(tmp_path: Path) -> None:
    """The loss is high from step 45 on, as if the weights after step 40 were broken."""

    def high(_: int, loss: Tensor) -> Tensor:
        step = len([rows for rows in spoilt.rows if rows])
        return loss + (10 * 96 if 45 < step <= 53 else 0)

    spoilt = ChangedLoss(high)
    recorder = EventLog()
    loop = replace(LOOP, steps=60, evaluations=12, patience=0)
    outcome = train(job(tmp_path, loop, objective=spoilt, progress=recorder.progress()))
    assert outcome.stopped == "done"
    assert "The loss diverged" in recorder.notes()
    assert outcome.rollbacks == 2
    assert "back to step 45," in recorder.notes() and "back to step 40," in recorder.notes()


def test_early_stopping_returns_the_best_weights(tmp_path: Path) -> None:
    """Far too high a rate on far too little text: the validation loss soon rises."""
    loop = replace(LOOP, steps=120, evaluations=40, patience=2)
    fast = OptimConfig(muon_lr=0.1, learning_rate=0.03)
    small = Batches(dataset(count=1, seed=5), rows=4, context=24, seed=1, config=DataConfig())
    outcome = train(job(tmp_path, loop, batches=small, optim=fast))
    assert outcome.stopped == "early" and outcome.steps < 120
    scored = [evaluation.bits_per_byte or 0.0 for evaluation in outcome.evaluations]
    assert scored.index(min(scored)) == len(scored) - 3
    assert outcome.best_step == outcome.evaluations[-3].step
    assert outcome.bits_per_byte == min(scored)
    second = job(tmp_path, loop, batches=small, optim=fast)
    assert train(second) == outcome
    saved = second.run.checkpoints.load(outcome.best_step).groups["weights"]
    assert weights_of(second) == checksum(saved)


def test_observing_changes_nothing(tmp_path: Path) -> None:
    """However often the run is evaluated and whatever hooks draw, the training is the same."""

    def draw(network: CausalLM) -> str:
        assert not network.training
        torch.manual_seed(int(torch.randint(10, (1,))))
        return "She wrote\x1b[31m this."

    quiet = job(tmp_path, RICH, key="quiet", held_out=False)
    train(quiet)
    loud = job(tmp_path, replace(RICH, evaluations=12), key="loud", sample=draw)
    train(loud)
    for group in ("weights", "optimizer"):
        ends = [run_job.run.checkpoints.load(12).groups[group] for run_job in (quiet, loud)]
        assert checksum(ends[0]) == checksum(ends[1])
    samples = [f"\n--- step {step}\nShe wrote?[31m this.\n" for step in range(1, 13)]
    assert loud.run.samples.read_text("utf-8") == "".join(samples)


@pytest.mark.parametrize(("number", "error"), [(1, KeyboardInterrupt), (3, ZeroDivisionError)])
def test_a_failed_evaluation_loses_no_progress(
    number: int, error: type[BaseException], tmp_path: Path
) -> None:
    uninterrupted = job(tmp_path, key="whole", sample=lambda _: "")
    outcome = train(uninterrupted)
    calls = 0

    def fail(_: CausalLM) -> str:
        nonlocal calls
        calls += 1
        if calls == number:
            raise error
        return ""

    with pytest.raises(TrainingInterrupted if error is KeyboardInterrupt else error):
        train(job(tmp_path, sample=fail))
    resumed = job(tmp_path, sample=lambda _: "")
    assert resumed.run.checkpoints.steps()[-1] == number * 4
    assert train(resumed).evaluations == outcome.evaluations
    assert weights_of(resumed) == weights_of(uninterrupted)


def test_one_process_at_a_time(tmp_path: Path) -> None:
    def second(_: CausalLM) -> str:
        with pytest.raises(WorkspaceError, match="another process is training the run"):
            train(job(tmp_path))
        return ""

    assert train(job(tmp_path, sample=second)).stopped == "done"


def test_a_damaged_checkpoint_is_reported_and_the_previous_one_used(tmp_path: Path) -> None:
    uninterrupted = job(tmp_path, key="whole")
    train(uninterrupted)
    with pytest.raises(TrainingInterrupted):
        train(stop_after(job(tmp_path), 7))
    run = job(tmp_path).run
    assert run.checkpoints.steps() == [4, 7]
    path = run.checkpoints.path(7)
    path.write_bytes(path.read_bytes()[:-100])
    recorder = EventLog()
    resumed = job(tmp_path, progress=recorder.progress())
    train(resumed)
    assert "step-00000007.safetensors is damaged" in recorder.notes()
    assert "Resuming after step 4 of 12" in recorder.notes()
    assert weights_of(resumed) == weights_of(uninterrupted)


def test_a_full_disk_reports_what_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uninterrupted = job(tmp_path, key="whole")
    train(uninterrupted)
    save = Checkpoints.save

    def fill(checkpoints: Checkpoints, step: int, *options: Any) -> None:  # noqa: ANN401
        if step == 8:
            with translate_os_errors(checkpoints.path(step)):
                raise OSError(errno.ENOSPC, "No space left on device")
        save(checkpoints, step, *options)

    monkeypatch.setattr(Checkpoints, "save", fill)
    with pytest.raises(WorkspaceError, match="disk is full") as error:
        train(job(tmp_path))
    assert "the last checkpoint is of step 4, so 4 steps are lost" in error.value.message
    monkeypatch.setattr(Checkpoints, "save", save)
    resumed = job(tmp_path)
    train(resumed)
    assert weights_of(resumed) == weights_of(uninterrupted)
