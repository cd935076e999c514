"""The training loop, for pretraining, full fine-tuning and LoRA.

All randomness of a step follows from the seed, the step number and the rank, so a resumed run gives
the same bits as an uninterrupted one. In a timed run the learning rate and the end follow the clock
too: it resumes with the share of its time that is left.
"""

import math
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from types import FrameType
from typing import Literal, NamedTuple, Self

import torch
from torch import Tensor

from ownwords.core.errors import OwnwordsError
from ownwords.core.fingerprint import digest
from ownwords.core.progress import SAMPLE, Progress, Stage, printable
from ownwords.models.decoder import CausalLM, eval_mode
from ownwords.training import metrics
from ownwords.training.batches import Batch, Batches, prefetched
from ownwords.training.checkpoint import Run, TrainingState
from ownwords.training.device import Device
from ownwords.training.distributed import SINGLE_PROCESS, World
from ownwords.training.metrics import LossModule
from ownwords.training.optim import Optimizer, lr_scale
from ownwords.training.run import STAGE, Evaluation, RunRecord, best_of
from ownwords.training.settings import Recipe
from ownwords.training.step_graphs import StepGraphs
from ownwords.training.token_dataset import TokenDataset

MAX_ROLLBACKS = 5
# SIGBREAK is Ctrl-Break, which ends a group of processes on Windows.
_SIGNALS = ("SIGINT", "SIGTERM", "SIGBREAK")
# On a GPU the loss of a step is read LAG steps later, so that the host need not wait for it.
LAG = 4


class TrainingError(OwnwordsError):
    """Training cannot continue: a single row does not fit into memory, or the loss diverges."""


class TrainingInterrupted(KeyboardInterrupt):
    """Training was interrupted, and everything is saved; the message says how to resume."""


@dataclass
class TrainJob:
    """Everything that `train` needs. Afterwards `model` has the best weights."""

    model: CausalLM  # if an adapter is attached to it, only that is trained
    batches: Batches
    settings: Recipe
    run: Run
    device: Device
    validation: TokenDataset | None = None
    world: World = SINGLE_PROCESS
    progress: Progress = field(default_factory=Progress)
    # Called at every evaluation; returns a text written by the model, or "".
    sample: Callable[[CausalLM], str] | None = None
    # The run ends after this time, not counting interruptions, or after `train.max_steps`;
    # None: after `train.steps`.
    seconds: float | None = None


@dataclass(frozen=True)
class TrainOutcome:
    """The outcome of a training run.

    `stopped` is "done" at the end of the schedule, "early" after early stopping. The model has the
    weights of `best_step`; without held-out text this is the last step.
    """

    steps: int = 0
    stopped: Literal["done", "early"] = "done"
    best_step: int = 0
    bits_per_byte: float | None = None  # of the best weights, on the held-out text
    evaluations: tuple[Evaluation, ...] = ()
    tokens: int = 0
    seconds: float = 0.0  # including evaluations, not counting interruptions
    rollbacks: int = 0
    micro_batch_size: int = 0  # at the end
    # The upper quartile of this process's speeds, corrected for other processes on the machine.
    tokens_per_s: float = field(default=0.0, compare=False)


class InterruptHandler:
    """Sets `wanted` at the first SIGINT or SIGTERM in its block; the second interrupts the block.

    Outside the main thread it does nothing, because Python handles signals only in the main thread.
    """

    def __init__(self) -> None:
        self.wanted = False
        self._at_once = False
        self._before: dict[int, object] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for name in _SIGNALS:
                if (number := getattr(signal, name, None)) is not None:
                    self._before[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(self, *_: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before if before is not None else signal.SIG_DFL)  # type: ignore[arg-type]

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Let the first signal interrupt this block, which must be repeatable."""
        self._at_once = True
        try:
            if self.wanted:
                raise KeyboardInterrupt
            yield
        finally:
            self._at_once = False

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        if self.wanted or self._at_once:
            self.wanted = True
            raise KeyboardInterrupt
        self.wanted = True


def train(job: TrainJob) -> TrainOutcome:
    """Train from the newest checkpoint, if there is one; `job.model` then has the best weights.

    SIGINT and SIGTERM save the run after the current step and raise `TrainingInterrupted`.
    Raises OwnwordsError if the run is locked by another process, or the disk is full; TrainingError
    if training cannot continue. Earlier checkpoints always stay intact.
    """
    with (
        job.run.opened(job.progress, writes=job.world.is_first) as progress,
        InterruptHandler() as signals,
    ):
        return _TrainingLoop(job, progress, signals).run()


class _Diverged(Exception):  # noqa: N818
    """The loss of a step is not a number, or far above the earlier ones."""


class _Due(NamedTuple):
    """What to do before the next step."""

    stop: bool  # a signal has arrived
    save: bool
    evaluate: bool
    pause: bool  # any of the above, or the run is over


class _TrainingLoop:
    def __init__(self, job: TrainJob, progress: Progress, signals: InterruptHandler) -> None:
        self.counted_at = time.monotonic()  # `record.elapsed` counts the time until then
        self.job, self.progress, self.signals = job, progress, signals
        self.loop, self.model = job.settings.train, job.model
        self.device, self.world = job.device, job.world
        self.model.to(self.device.torch_device).train()
        self.model.dropout = self.loop.dropout
        self.model.gradient_checkpointing = self.loop.gradient_checkpointing
        self.optimizer = Optimizer(
            self.model,
            job.settings.optim,
            exact=float32_weights(self.model, is_bf16=self.loop.precision == "bf16"),
            start_token=job.batches.dataset.pure_start,
        )
        self.state = TrainingState(
            job.run.checkpoints, self.optimizer, self.loop, self.world, progress.note
        )
        self.task = self.world.wrap(LossModule(self.model))
        rows = -(-self.loop.batch_size // self.world.size)
        at_once = min(rows, self.loop.micro_batch_size or rows)
        self.micro_batch_size = self.world.min(job.run.micro_batch_limit(at_once))
        self.pending: deque[tuple[int, int, Callable[[], Tensor]]] = deque()
        self.meter = metrics.Meter(job.batches.dataset, self.loop, self.device)
        self.max_steps = (job.seconds and self.loop.max_steps) or self.loop.steps
        self.stage: Stage
        self.graphs = self.new_graphs()

    @property
    def record(self) -> RunRecord:
        return self.state.record

    @property
    def steps(self) -> int:
        return self.record.total_steps(self.loop.steps)

    def run(self) -> TrainOutcome:
        """Train to the end; go back to a checkpoint if the loss diverges or the memory is full."""
        self.state.begin()
        is_new = not self.record.stopped
        left = self.steps - self.record.step
        pinned = self.device.torch_device.type == "cuda"
        with self.progress.stage(STAGE, left, "steps") as self.stage:
            while not self.record.stopped:
                recover: Callable[[], None] | None = None
                batches = prefetched(
                    self.job.batches, self.record.step, self.max_steps, pinned=pinned
                )
                with closing(batches):
                    try:
                        self.run_steps(batches)
                    except _Diverged as error:
                        recover = partial(self.roll_back, str(error))
                    except (RuntimeError, MemoryError) as error:
                        if not self.device.is_out_of_memory(error):
                            raise
                        recover = self.halve_micro_batch
                # Outside the except block the error is freed, with the tensors in its frames.
                if recover:
                    recover()
        if is_new:
            self.state.save(again=True)
        return self.outcome()

    def run_steps(self, batches: Iterator[Batch]) -> None:
        """Train until the run ends; a resumed run may have an evaluation due before its step."""
        self.meter.restart()
        while True:
            due = self.due()
            self.log(due)
            self.save(due)
            self.evaluate(due)
            if self.has_ended():
                return
            batch = next(batches)
            self.take_step(batch)

    # --- a step ----------------------------------------------------------------------------------

    def due(self) -> _Due:
        """Count the time, and decide what to do before the next step; all processes agree."""
        stop, save, elapsed = self.signals.wanted, self.state.is_due(), self.elapsed()
        if self.world.size > 1:  # any process may get a signal; the first has the clock
            mine = [stop, save, elapsed] if self.world.is_first else [stop, False, 0.0]
            total = self.world.sum(torch.tensor(mine, dtype=torch.float64))
            stop, save, elapsed = bool(total[0]), bool(total[1]), float(total[2])
        self.record.update_progress(self.max_steps, elapsed)
        self.report_time()
        job = self.job
        evaluates = job.validation is not None or job.sample is not None
        evaluate = evaluates and self.record.is_evaluation_due(self.loop.evaluations)
        save = stop or save or evaluate
        return _Due(stop, save, evaluate, save or self.record.is_over)

    def log(self, due: _Due) -> None:
        """Report the losses that are ready; before a pause, wait for all of them."""
        keep = LAG if self.device.is_asynchronous and not due.pause else 0
        while len(self.pending) > keep:
            step, tokens, figures = self.pending.popleft()
            loss, norm = figures().tolist()
            loss /= tokens
            if problem := self.record.divergence.check(loss, norm):
                raise _Diverged(f"{problem} at step {step + 1}")
            self.meter.add(self.stage, step + 1, loss, norm)
        if due.pause:
            self.meter.report(self.stage)

    def save(self, due: _Due) -> None:
        """Save a checkpoint if one is due; TrainingInterrupted if the run is to stop."""
        if due.save:
            self.state.save()
            self.meter.restart()
        if due.stop:
            raise self.interrupted()

    def evaluate(self, due: _Due) -> None:
        """Evaluate the weights if due, and decide whether the run ends early."""
        if not due.evaluate:
            return
        record = self.record
        try:
            # The state has just been saved, so an interrupt need not wait for the evaluation.
            with self.signals.at_once() if self.world.size == 1 else nullcontext():
                evaluation = self.evaluation()
        except KeyboardInterrupt:
            raise self.interrupted() from None
        if (bits := evaluation.bits_per_byte) is not None:
            if not math.isfinite(bits):
                raise _Diverged(
                    f"the loss of the held-out text is not a number after step {record.step}"
                )
            self.stage.metric(step=record.step, validation_bits_per_byte=bits)
        record.evaluations.append(evaluation)
        if record.is_past_best(self.loop.patience):
            record.stopped = "early"
        self.meter.restart()

    def has_ended(self) -> bool:
        if not self.record.stopped and self.record.is_over:
            self.record.stopped = "done"
        return bool(self.record.stopped)

    def take_step(self, batch: Batch) -> None:
        """Take a step, and queue its loss and gradient norm for the log."""
        record, optim = self.record, self.job.settings.optim
        torch.manual_seed(step_seed(self.loop.seed, record.step, self.world.rank))
        # The tensor is in host memory, so this does not wait for the device.
        tokens = max(1, int(self.world.sum(torch.tensor(batch.tokens))))
        scale = lr_scale(record.step, self.loop.steps, record.progress, self.job.settings.schedule)
        self.optimizer.schedule(scale, record.step)
        # Processes average their gradients; `world.size` turns the mean into a sum.
        figures = self.graphs(batch, self.world.size / tokens)
        self.pending.append((record.step, tokens, self.device.later(figures)))
        record.step += 1
        record.tokens += tokens
        peak = optim.muon_lr if optim.kind == "muon" else optim.learning_rate
        self.meter.learning_rate = scale * self.optimizer.lr_factor * peak
        self.stage.advance()

    def compute(self, batch: Batch, share: float | Tensor) -> Tensor:
        """Compute the gradient of the summed loss times `share`, and update the weights.

        Returns the summed loss and the norm of the gradient, [2]. On CUDA the whole step is
        captured, so nothing here may wait for the device.
        """
        self.optimizer.zero_grad()
        loss_sum = torch.zeros((), device=self.device.torch_device)
        slices = micro_batches(len(batch.ids_BT), self.micro_batch_size)
        for rows in slices:
            with self.world.gradient_sync(self.task, now=rows is slices[-1]):
                with self.device.autocast(self.loop.precision):
                    loss = self.task(batch.part(rows))
                torch.autograd.backward(loss * share)
            loss_sum += loss.detach().float()
        self.optimizer.update()
        return torch.stack((self.world.sum(loss_sum), self.optimizer.gradient_norm.to(loss_sum)))

    def new_graphs(self) -> StepGraphs:
        is_captured = self.world.size == 1
        return StepGraphs(self.device, self.compute, self.progress.note, is_captured=is_captured)

    def evaluation(self) -> Evaluation:
        """Score the weights, and let the model write a sample."""
        job, record, bits = self.job, self.record, None
        if job.validation is not None:
            bits = metrics.bits_per_byte(
                self.task,
                job.validation,
                rows=self.micro_batch_size,
                context=self.loop.sequence_length,
                device=self.device,
                precision=self.loop.precision,
                world=self.world,
            )
        if self.world.is_first and job.sample:
            with eval_mode(self.model):
                if text := job.sample(self.model):
                    job.run.add_sample(record.step, text)
                    self.stage.note(f"{SAMPLE}{printable(text)}")
        return Evaluation(record.step, bits, progress=record.progress)

    # --- time ------------------------------------------------------------------------------------

    def elapsed(self) -> float:
        """The share of the run's time that has been used."""
        if not self.job.seconds:
            return 0.0
        since, self.counted_at = self.counted_at, time.monotonic()
        return self.record.elapsed + (self.counted_at - since) / self.job.seconds

    def report_time(self) -> None:
        """Report to the stage the steps left, and in a timed run the seconds left."""
        record, stage = self.record, self.stage
        stage.total = stage.done + self.steps - record.step
        stage.remaining_s = None
        if self.job.seconds and record.elapsed > record.step / self.max_steps:
            used_s = record.elapsed * self.job.seconds
            least_s = record.fewest_steps_left * used_s / max(1, record.step)
            stage.remaining_s = max(self.job.seconds - used_s, least_s)

    # --- interrupts, divergence, full memory ------------------------------------------------------

    def interrupted(self) -> TrainingInterrupted:
        return TrainingInterrupted(
            f"stopped after step {self.record.step:,} of {self.steps:,}; everything is saved in "
            f"{self.job.run.folder}, and the same command resumes"
        )

    def roll_back(self, problem: str) -> None:
        """Restore a good checkpoint at half the learning rate, at most MAX_ROLLBACKS times."""
        if self.record.rollbacks >= MAX_ROLLBACKS:
            raise TrainingError(
                f"{problem}, after {MAX_ROLLBACKS} rollbacks, each to half the learning rate",
                hint="start another run with lower learning rates (optim.learning_rate,"
                " optim.muon_lr), and with train.precision=float32 if it was different",
            )
        self.restore_checkpoint(problem, lr_factor=0.5)
        self.stage.note(
            f"{problem[:1].upper()}{problem[1:]}: back to step {self.record.step}, with "
            f"{self.record.lr_factor:g} of the planned learning rate from there."
        )

    def halve_micro_batch(self) -> None:
        """Go back to the newest checkpoint and compute half as many rows at once.

        TrainingError if it was already a single row.
        """
        self.optimizer.zero_grad()
        self.graphs = self.new_graphs()
        self.device.release_memory()
        failed = self.micro_batch_size
        if failed == 1:
            raise TrainingError(
                f"training on one row of {self.loop.sequence_length} tokens does not fit into"
                " memory",
                hint="set train.gradient_checkpointing=true, or use a shorter"
                " train.sequence_length or a smaller model",
            )
        self.micro_batch_size = failed // 2
        self.job.run.limit_micro_batch(self.micro_batch_size)
        note = f"{failed} rows at once do not fit into memory; from now on {self.micro_batch_size}"
        if self.world.size > 1:  # the other processes are in the middle of the step
            raise TrainingError(note, hint="run the same command again: it resumes with fewer rows")
        self.stage.note(f"{note} are computed at once. The batch size stays the same.")
        self.restore_checkpoint("the memory is full", lr_factor=1.0)

    def restore_checkpoint(self, problem: str, lr_factor: float) -> None:
        self.pending.clear()
        step = self.record.step
        if not self.state.roll_back(lr_factor):
            raise TrainingError(f"{problem}, and no checkpoint is intact", hint="start another run")
        self.stage.done -= step - self.record.step

    def outcome(self) -> TrainOutcome:
        """Load the best weights into the model, and return the outcome of the training."""
        record, best = self.record, best_of(self.record.evaluations)
        step = best.step if best else record.step
        if not self.state.load_weights(step):
            step, best = record.step, None
        self.optimizer.zero_grad()
        self.model.eval()
        return TrainOutcome(
            steps=record.step,
            stopped=record.stopped or "done",
            best_step=step,
            bits_per_byte=best.bits_per_byte if best else None,
            evaluations=tuple(record.evaluations),
            tokens=record.tokens,
            seconds=record.seconds,
            rollbacks=record.rollbacks,
            micro_batch_size=self.micro_batch_size,
            tokens_per_s=[0.0, *sorted(self.meter.speeds)][3 * len(self.meter.speeds) // 4],
        )


def float32_weights(model: torch.nn.Module, *, is_bf16: bool) -> dict[str, Tensor]:
    """Cast trained parameters to bfloat16 or float32, whichever the precision needs, in place.

    Returns their float32 values if they are now bfloat16, else nothing. Frozen parameters keep
    their dtype.
    """
    exact: dict[str, Tensor] = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            wide = parameter.detach().float()
            parameter.data = wide.to(torch.bfloat16) if is_bf16 else wide
            if is_bf16:
                exact[name] = wide
    return exact


def step_seed(seed: int, step: int, rank: int) -> int:
    """The seed of all randomness in one step of one process."""
    return int(digest(str(seed), str(step), str(rank))[:15], 16)


def micro_batches(rows: int, at_once: int) -> list[slice]:
    """Split the rows into as few nearly equal slices as possible, of at most `at_once` rows."""
    count = max(1, -(-rows // at_once))
    return [slice(i * rows // count, (i + 1) * rows // count) for i in range(count)]
