"""The training loop, for pretraining, full fine-tuning and LoRA alike.

All randomness of a step follows from the seed, the step number and the rank alone, so a resumed run
gives the same bits as an uninterrupted one. In a run of some minutes the learning rate and the end
follow the clock too: such a run resumes with the share of its time that is left.
"""

import math
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from types import FrameType
from typing import Literal, Self

import torch
from torch import Tensor

from ownwords.core.errors import OwnwordsError, WorkspaceError
from ownwords.core.fingerprint import digest
from ownwords.core.progress import SAMPLE, Progress, Stage, printable
from ownwords.models.decoder import CausalLM, eval_mode
from ownwords.training import metrics
from ownwords.training.batches import Batch, Batches, prefetched
from ownwords.training.checkpoint import Checkpoint, CheckpointError, Groups, Run
from ownwords.training.device import Device
from ownwords.training.distributed import SINGLE_PROCESS, World
from ownwords.training.metrics import LossModule
from ownwords.training.optim import Optimizer, lr_scale
from ownwords.training.run import STAGE, Evaluation, RunRecord
from ownwords.training.settings import Recipe
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
    # Called at every evaluation:
    sample: Callable[[CausalLM], str] | None = None  # a text that the model writes; "" for none
    memorised: Callable[[CausalLM], float] | None = None  # fraction of the text, from 0 to 1
    peak_flops: float = 0.0  # of the device, per second, as measured; 0: unknown
    # Time for training, interruptions excluded; the run then ends when it is up, or after
    # `train.max_steps`. None: after `train.steps`.
    seconds: float | None = None


@dataclass(frozen=True)
class TrainOutcome:
    """The outcome of a training; `stopped` is "done" at the end of the schedule, else why before.

    "early" is early stopping, "memorised" means that too much text was memorised. The model has the
    weights of `best_step`; without held-out text these are the last ones.
    """

    steps: int = 0
    stopped: Literal["done", "early", "memorised"] = "done"
    best_step: int = 0
    bits_per_byte: float | None = None  # of the best weights, on the held-out text
    evaluations: tuple[Evaluation, ...] = ()
    tokens: int = 0
    seconds: float = 0.0  # evaluations included, interruptions excluded
    rollbacks: int = 0
    micro_batch_size: int = 0  # at the end
    # Faster than three quarters of this process's steps, as if nothing else had run here.
    tokens_per_s: float = field(default=0.0, compare=False)


class InterruptHandler:
    """In its block the first SIGINT or SIGTERM sets `wanted`; the second raises KeyboardInterrupt.

    Outside the main thread it does nothing, because Python handles no signals there.
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
        """Let the first signal interrupt this block, which can be repeated, as an evaluation."""
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

    SIGINT and SIGTERM end the run after the current step with `TrainingInterrupted`; it is saved.
    Raises OwnwordsError if the run is locked by another process, or the disk is full; TrainingError
    if training cannot continue. Earlier checkpoints always stay intact.
    """
    with (
        job.run.opened(job.progress, writes=job.world.is_first) as progress,
        InterruptHandler() as signals,
    ):
        return _TrainingLoop(job, progress, signals).run()


class _TrainingLoop:
    def __init__(self, job: TrainJob, progress: Progress, signals: InterruptHandler) -> None:
        self.counted_at = time.monotonic()  # until when the time is counted in `record.elapsed`
        self.job, self.progress, self.signals = job, progress, signals
        self.loop, self.model = job.settings.train, job.model
        self.device, self.world = job.device, job.world
        self.model.to(self.device.torch_device).train()
        self.model.dropout = self.loop.dropout
        self.model.gradient_checkpointing = self.loop.gradient_checkpointing
        self.state = TrainingState(job, progress.note)
        self.task = self.world.wrap(LossModule(self.model))
        self.optimizer = self.state.optimizer
        rows = -(-self.loop.batch_size // self.world.size)
        at_once = min(rows, self.loop.micro_batch_size or rows)
        self.micro_batch_size = self.world.min(job.run.micro_batch_limit(at_once))
        self.pending: deque[tuple[int, Callable[[], Tensor]]] = deque()
        self.meter = metrics.Meter(
            job.model.config,
            job.batches.dataset,
            job.settings,
            job.peak_flops * job.world.size,
        )
        self.max_steps = (job.seconds and self.loop.max_steps) or self.loop.steps
        self.stage: Stage

    @property
    def record(self) -> RunRecord:
        return self.state.record

    @property
    def steps(self) -> int:
        return self.record.total_steps(self.loop.steps)

    def run(self) -> TrainOutcome:
        self.state.begin()
        is_new = not self.record.stopped
        left = self.steps - self.record.step
        with self.progress.stage(STAGE, left, "steps") as self.stage:
            while not self.record.stopped:
                problem, is_full = "", False
                with closing(self._batches()) as batches:
                    try:
                        problem = self._run_steps(batches)
                    except (RuntimeError, MemoryError) as error:
                        if not self.device.is_out_of_memory(error):
                            raise
                        is_full = True
                # Outside the except block the error is freed, and the tensors in its frames.
                if is_full:
                    self._halve_micro_batch()
                if problem:
                    self._roll_back(problem)
        if is_new:
            self.state.save(again=True)
        return self._outcome()

    def _batches(self) -> Generator[tuple[int, Batch]]:
        """The batches of the remaining steps."""
        pinned = self.device.torch_device.type == "cuda"
        return prefetched(self.job.batches, self.record.step, self.max_steps, pinned=pinned)

    def _run_steps(self, batches: Iterator[tuple[int, Batch]]) -> str:
        """Run steps until the run ends, and return ""; or until a problem, and return its text."""
        self.meter.restart()
        while True:
            stop, save, elapsed = self._decide()
            self.record.update_progress(self.max_steps, elapsed)
            self._report_time()
            evaluate = self._evaluates() and self.record.is_evaluation_due(self.loop.evaluations)
            pauses = stop or save or evaluate or self.record.is_over
            if problem := self._read_losses(keep=0 if pauses else LAG):
                return problem
            if pauses:
                self.meter.report(self.stage)
            if stop or save or evaluate:
                self.state.save()
                self.meter.restart()
            if stop:
                raise self._interrupted()
            if evaluate and (problem := self._evaluate()):
                return problem
            if not self.record.stopped and self.record.is_over:
                self.record.stopped = "done"
            if self.record.stopped:
                return ""
            _, batch = next(batches)
            self._step(batch)

    # --- a step ----------------------------------------------------------------------------------

    def _step(self, batch: Batch) -> None:
        step = self.record.step
        # A tensor in the memory of the host: no device is waited for.
        total = max(1, int(self.world.sum(torch.tensor(batch.tokens))))
        loss = self._gradients(batch.to(self.device.torch_device), total)
        scale = self._lr_scale()
        self.optimizer.step(scale, step)
        norm = self.optimizer.gradient_norm.detach().to(loss)
        figures = torch.stack((self.world.sum(loss) / total, norm))
        self.pending.append((step, self.device.later(figures)))
        self.record.step += 1
        self.record.tokens += total
        self.meter.learning_rate = scale * self.optimizer.lr_factor * self._peak_lr()
        self.stage.advance()

    def _gradients(self, batch: Batch, total: int) -> Tensor:
        """Compute the gradient of the batch's mean loss; returns the sum for these rows, []."""
        torch.manual_seed(step_seed(self.loop.seed, self.record.step, self.world.rank))
        self.optimizer.zero_grad()
        loss_sum = torch.zeros((), device=self.device.torch_device)
        slices = micro_batches(len(batch.ids_BT), self.micro_batch_size)
        for rows in slices:
            with self.world.gradient_sync(self.task, now=rows is slices[-1]):
                with self.device.autocast(self.loop.precision):
                    loss = self.task(batch.part(rows))
                # Processes average their gradients; `world.size` turns the mean into a sum.
                torch.autograd.backward(loss * (self.world.size / total))
            loss_sum += loss.detach().float()
        return loss_sum

    def _halve_micro_batch(self) -> None:
        """Go back to the newest checkpoint with half the rows at once; TrainingError with one."""
        self.optimizer.zero_grad()
        self.device.release_memory()
        failed = self.micro_batch_size
        if failed == 1:
            raise TrainingError(
                f"one row of {self.loop.sequence_length} tokens does not fit into memory with what"
                " training this model needs",
                hint="set train.gradient_checkpointing=true, or use a shorter"
                " train.sequence_length or a smaller model",
            )
        self.micro_batch_size = failed // 2
        self.job.run.limit_micro_batch(self.micro_batch_size)
        note = f"{failed} rows at once do not fit into memory; from now on {self.micro_batch_size}"
        if self.world.size > 1:  # the other processes are in the middle of the step
            raise TrainingError(note, hint="run the same command again: it resumes with fewer rows")
        self.stage.note(f"{note} are computed at once. The batch size stays the same.")
        self._restore_checkpoint("the memory is full", lr_factor=1.0)

    # --- losses and evaluations ------------------------------------------------------------------

    def _read_losses(self, keep: int) -> str:
        """Read the losses of all but the last `keep` steps; returns the problem, or ""."""
        keep = keep if self.device.is_asynchronous else 0
        while len(self.pending) > keep:
            step, figures = self.pending.popleft()
            loss, norm = figures().tolist()
            if problem := self.record.divergence.check(loss, norm):
                return f"{problem} at step {step + 1}"
            self.meter.add(self.stage, step + 1, loss, norm)
        return ""

    def _evaluate(self) -> str:
        """Evaluate the weights; returns the problem, or ""."""
        try:
            # The state has just been saved, so an interrupt need not wait for the evaluation.
            with self.signals.at_once() if self.world.size == 1 else nullcontext():
                evaluation = self._evaluation()
        except KeyboardInterrupt:
            raise self._interrupted() from None
        values = {
            "validation_bits_per_byte": evaluation.bits_per_byte,
            "memorised": evaluation.memorised,
        }
        known = {name: value for name, value in values.items() if value is not None}
        if not all(math.isfinite(value) for value in known.values()):
            return f"the loss of the held-out text is not a number after step {evaluation.step}"
        record = self.record
        record.evaluations.append(evaluation)
        record.stopped = record.stop_reason(self.loop.patience, self.loop.memorised_limit)
        self.stage.metric(step=record.step, **known)
        self.meter.restart()
        return ""

    def _evaluation(self) -> Evaluation:
        record, bits, memorised = self.record, None, None
        if self.job.validation is not None:
            bits = self._bits_per_byte()
        if self.job.memorised or self.job.sample:
            if self.world.is_first:
                with eval_mode(self.model):
                    memorised = self.job.memorised(self.model) if self.job.memorised else None
                    if text := self.job.sample(self.model) if self.job.sample else "":
                        self.job.run.add_sample(record.step, text)
                        self.stage.note(f"{SAMPLE}{printable(text)}")
            memorised = self.world.broadcast(memorised)
        return Evaluation(record.step, bits, memorised, progress=record.progress)

    def _bits_per_byte(self) -> float:
        assert self.job.validation is not None
        return metrics.bits_per_byte(
            self.task,
            self.job.validation,
            rows=self.micro_batch_size,
            context=self.loop.sequence_length,
            device=self.device,
            precision=self.loop.precision,
            world=self.world,
        )

    def _evaluates(self) -> bool:
        job = self.job
        return not (job.validation is None and job.memorised is None and job.sample is None)

    # --- progress --------------------------------------------------------------------------------

    def _elapsed(self) -> float:
        """The share of the run's time that is used."""
        if not self.job.seconds:
            return 0.0
        since, self.counted_at = self.counted_at, time.monotonic()
        return self.record.elapsed + (self.counted_at - since) / self.job.seconds

    def _report_time(self) -> None:
        """Tell the stage how many steps are left, and the seconds if the time ends the run."""
        record, stage = self.record, self.stage
        stage.total = stage.done + self.steps - record.step
        stage.remaining_s = None
        if self.job.seconds and record.elapsed > record.step / self.max_steps:
            used_s = record.elapsed * self.job.seconds
            least_s = record.fewest_steps_left * used_s / max(1, record.step)
            stage.remaining_s = max(self.job.seconds - used_s, least_s)

    def _lr_scale(self) -> float:
        """The next step's learning rate as a fraction of the peak."""
        record = self.record
        return lr_scale(record.step, self.loop.steps, record.progress, self.job.settings.schedule)

    # --- stopping, saving, rolling back ----------------------------------------------------------

    def _decide(self) -> tuple[bool, bool, float]:
        """Whether to stop, whether to save, and the share of the time used.

        All processes get the same answer: any may be told to stop, the first has the clock.
        """
        stop, due, elapsed = self.signals.wanted, self.state.is_due(), self._elapsed()
        if self.world.size == 1:
            return stop, due, elapsed
        mine = [stop, due, elapsed] if self.world.is_first else [stop, False, 0.0]
        stops, dues, elapsed = self.world.sum(torch.tensor(mine, dtype=torch.float64)).tolist()
        return bool(stops), bool(dues), elapsed

    def _interrupted(self) -> TrainingInterrupted:
        return TrainingInterrupted(
            f"stopped after step {self.record.step:,} of {self.steps:,}; everything is saved in "
            f"{self.job.run.folder}, and the same command goes on from there"
        )

    def _roll_back(self, problem: str) -> None:
        """Restore a good checkpoint at half the learning rate, at most MAX_ROLLBACKS times."""
        if self.record.rollbacks >= MAX_ROLLBACKS:
            raise TrainingError(
                f"{problem}, after {MAX_ROLLBACKS} rollbacks, each to half the learning rate",
                hint="start another run with lower learning rates (optim.learning_rate,"
                " optim.muon_lr), and with train.precision=float32 if it was another",
            )
        self._restore_checkpoint(problem, lr_factor=0.5)
        self.stage.note(
            f"{problem[:1].upper()}{problem[1:]}: back to step {self.record.step}, with "
            f"{self.record.lr_factor:g} of the planned learning rate from there."
        )

    def _restore_checkpoint(self, problem: str, lr_factor: float) -> None:
        self.pending.clear()
        step = self.record.step
        if not self.state.roll_back(lr_factor):
            raise TrainingError(f"{problem}, and no checkpoint is intact", hint="start another run")
        self.stage.done -= step - self.record.step

    def _outcome(self) -> TrainOutcome:
        """Load the best weights into the model, and return the outcome of the training."""
        record, best = self.record, self.record.best(self.loop.memorised_limit)
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

    def _peak_lr(self) -> float:
        optim = self.job.settings.optim
        return optim.muon_lr if optim.kind == "muon" else optim.learning_rate


class TrainingState:
    """Optimizer, weights and the record of a run, with its checkpoints.

    All processes must call each method; only the first one reads and writes files.
    """

    def __init__(self, job: TrainJob, note: Callable[[str], None]) -> None:
        self._world, self._note = job.world, note
        self._loop = job.settings.train
        self._checkpoints = job.run.checkpoints
        self.record = RunRecord()
        is_bf16 = self._loop.precision == "bf16"
        self.optimizer = Optimizer(
            job.model,
            job.settings.optim,
            exact=float32_weights(job.model, is_bf16=is_bf16),
            start_token=job.batches.dataset.pure_start,
        )
        self._saved_step = self._rolled_back_to = -1
        self._saved_at = self._began = time.monotonic()

    def begin(self) -> None:
        """Restore the newest checkpoint, or save the first one, so that rollback has one."""
        checkpoint = self._newest()
        if checkpoint is None:
            self.save()
            return
        self._restore(checkpoint)
        self._saved_step = checkpoint.step
        if self.record.stopped:
            self._note("This run has ended before; its weights are taken.")
        elif checkpoint.step:
            steps = self.record.total_steps(self._loop.steps)
            self._note(f"Resuming after step {checkpoint.step:,} of {steps:,}.")

    @property
    def seconds(self) -> float:
        """Seconds spent in training so far, interruptions excluded."""
        return time.monotonic() - self._began

    def is_due(self) -> bool:
        """Whether the last checkpoint is old enough to save another."""
        return time.monotonic() - self._saved_at >= self._loop.checkpoint_every_s

    def save(self, again: bool = False) -> None:
        """Save a checkpoint, unless this step has one and `again` is false.

        WorkspaceError if the disk is full; it says how many steps are lost.
        """
        record = self.record
        if self._saved_step == record.step and not again:
            return
        record.seconds = self.seconds
        if self._world.is_first:
            groups = {"weights": self.optimizer.weights(), "optimizer": self.optimizer.state()}
            best = record.best(self._loop.memorised_limit)
            try:
                self._checkpoints.save(record.step, groups, record)
            except WorkspaceError as error:
                saved_step = max(0, self._saved_step)
                if lost := record.step - saved_step:
                    error.message += (
                        f"; the last checkpoint is of step {saved_step:,}, so {lost:,} steps are"
                        " lost"
                    )
                raise
            self._checkpoints.prune([best.step] if best else [])
        self._world.barrier()
        self._saved_step, self._saved_at = record.step, time.monotonic()

    def roll_back(self, lr_factor: float) -> bool:
        """Restore the newest intact checkpoint, lower the learning rate, and save the result.

        If the last rollback was to that checkpoint too, the one before it is restored. Returns
        False if no checkpoint is intact.
        """
        has_diverged = lr_factor < 1
        rollbacks = self.record.rollbacks + has_diverged
        lr_factor *= self.record.lr_factor
        elapsed = self.record.elapsed
        checkpoint = self._newest()
        if has_diverged and checkpoint and checkpoint.step == self._rolled_back_to:
            checkpoint = self._newest(before=checkpoint.step) or checkpoint
        if checkpoint is None:
            return False
        self._restore(checkpoint)
        self._saved_step = checkpoint.step
        if has_diverged:
            self._rolled_back_to = checkpoint.step
        self.record.rollbacks, self.record.lr_factor = rollbacks, lr_factor
        self.record.elapsed = elapsed  # the steps come back, the time does not
        self.optimizer.lr_factor = lr_factor
        if self._world.is_first:
            self._checkpoints.delete_after(checkpoint.step)
        self.save(again=True)  # so that the lower rate survives a crash
        return True

    def load_weights(self, step: int) -> bool:
        """Load the weights of a step into the model; False if its checkpoint is damaged."""
        if step != self.record.step:
            checkpoint = None
            if self._world.is_first:
                try:
                    checkpoint = self._checkpoints.load(step)
                except CheckpointError as error:
                    self._note(f"{error.message}; the last weights are kept instead.")
            checkpoint = self._shared(checkpoint)
            if checkpoint is None:
                return False
            self._load(checkpoint)
        return True

    def _newest(self, before: int | None = None) -> Checkpoint | None:
        checkpoint = None
        if self._world.is_first:
            checkpoint = self._checkpoints.newest(self._note, before)
        return self._shared(checkpoint)

    def _shared(self, checkpoint: Checkpoint | None) -> Checkpoint | None:
        """Broadcast the first process's checkpoint: its record, without the tensors."""
        if self._world.size == 1:
            return checkpoint
        if checkpoint is None or not self._world.is_first:
            return self._world.broadcast(checkpoint)
        groups: Groups = {group: {} for group in checkpoint.groups}
        self._world.broadcast(replace(checkpoint, groups=groups))
        return checkpoint

    def _restore(self, checkpoint: Checkpoint) -> None:
        self.record = checkpoint.record
        self._began = time.monotonic() - self.record.seconds
        self._load(checkpoint)
        self.optimizer.load_state(self._world.share(checkpoint.groups["optimizer"]))
        self.optimizer.lr_factor = self.record.lr_factor

    def _load(self, checkpoint: Checkpoint) -> None:
        self.optimizer.load_weights(self._world.share(checkpoint.groups["weights"]))


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
