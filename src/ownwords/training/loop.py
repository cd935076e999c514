"""The loop, to be read in one sitting: for pretraining, full fine-tuning and adapters alike.

They differ by data and objective, which the `TrainJob` provides. All randomness of a step follows
from the seed, the step number and the rank alone, so a resumed run gives the same bits as one that
never stopped.
"""

import math
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import closing, nullcontext
from typing import Literal, cast

import torch
from torch import Tensor

from ownwords.core.errors import OwnwordsError
from ownwords.core.fingerprint import digest
from ownwords.core.progress import Progress, Stage, printable
from ownwords.training import deadline, lr_schedule, validation
from ownwords.training.batches import Batch, Prefetcher
from ownwords.training.deadline import Deadline, ShortenedRun
from ownwords.training.device import eval_mode, try_compile
from ownwords.training.interrupt import InterruptHandler, TrainingInterrupted
from ownwords.training.job import LossModule, TrainJob, TrainOutcome
from ownwords.training.meter import Meter
from ownwords.training.replan import ReplanRequested
from ownwords.training.run import MicroBatchLimits
from ownwords.training.run_record import Evaluation, RunRecord
from ownwords.training.settings import LoopConfig
from ownwords.training.sharding import full_tensor
from ownwords.training.training_state import TrainingState

__all__ = [
    "LoopConfig",
    "TrainJob",
    "TrainOutcome",
    "TrainingError",
    "TrainingInterrupted",
    "train",
]

MOST_SETBACKS = 5
# On a GPU the loss of a step is read so many steps later, when it has long been computed.
LAG = 4
# Several processes ask each other only now and then whether one of them is to stop or to save.
_AGREE_EVERY = 8


class TrainingError(OwnwordsError):
    """Training cannot go on: out of memory with a single row, or the loss ran away each time."""


def train(job: TrainJob) -> TrainOutcome:
    """Train, from the newest checkpoint if there is one; `job.model` then holds the best weights.

    SIGINT and SIGTERM end it after the step, saved, with `TrainingInterrupted`; `ReplanRequested`
    if the first steps lead to another plan. OwnwordsError if the run was started with something
    else, is held by another process, or the disk is full; TrainingError if it cannot continue.
    Whatever happens, earlier checkpoints stay intact.
    """
    with (
        job.run.opened(job.progress, writes=job.world.is_first) as progress,
        InterruptHandler() as signals,
    ):
        return _Training(job, progress, signals).run()


class _Training:
    def __init__(self, job: TrainJob, progress: Progress, signals: InterruptHandler) -> None:
        self.job, self.progress, self.signals = job, progress, signals
        self.loop, self.model, self.device, self.world = job.loop, job.model, job.device, job.world
        self.model.to(self.device.torch_device).train()
        self.model.dropout, self.model.checkpointing = (
            self.loop.dropout,
            self.loop.gradient_checkpointing,
        )
        self.kept = TrainingState(job, progress.note)
        # Compiled as a whole, the blocks would not be put together one at a time.
        wanted = self.loop.compile and not self.world.is_sharded
        note = try_compile(self.model, wanted, self.device)
        if note:
            progress.note(note)
        self.task = self.world.wrap(LossModule(self.model, job.objective), self.model.blocks)
        self.kept.make_optimizer()
        self.optimizer, self.average = self.kept.optimizer, self.kept.average
        self.limits = MicroBatchLimits(job.run, job.row_limits, _memory_key(job))
        self.rows = self.world.rows_per_process(self.loop.batch_size)
        at_once = min(self.rows, self.loop.micro_batch_size or self.rows)
        self.micro_rows = self.world.min(self.limits.known(at_once))
        self.pending: deque[tuple[int, Callable[[], Tensor]]] = deque()
        self.meter = Meter(job)
        # One process decides for all.
        has_time = job.seconds is not None and self.world.is_first
        self.deadline = Deadline(job.seconds or 0.0 if has_time else math.inf)
        self.replan = job.replan
        self.stage: Stage

    @property
    def record(self) -> RunRecord:
        return self.kept.record

    @property
    def steps(self) -> int:
        return self.record.steps(self.loop.steps)

    def run(self) -> TrainOutcome:
        self.kept.begin()
        if self.record.step:
            self.replan = None
        is_new = not self.record.stopped
        left = self.steps - self.record.step
        with self.progress.stage("train", left, "steps") as self.stage:
            while not self.record.stopped:
                with closing(self._batches()) as stream:
                    trouble = self._follow(stream)
                if trouble:
                    self._go_back(trouble)
        if is_new:
            self.kept.save(again=True)
        return self._outcome()

    def _batches(self) -> Prefetcher:
        """Those of the steps that are left."""
        device = self.device.torch_device
        return Prefetcher(self.job.batches, self.record.step, self.steps, device=device)

    def _follow(self, stream: Prefetcher) -> str:
        """Step after step until the run ends, then ""; or until something is wrong, then what."""
        points = self._evaluation_points()
        self._paused()
        while True:
            stop, save, steps, anew = self._asked(points)
            if anew:
                raise ReplanRequested
            if steps:
                self._shorten(steps)
                points, save = self._evaluation_points(), True
            evaluate = self.record.step in points and not self.record.is_evaluated()
            at_rest = stop or save or evaluate or self.record.step == self.steps
            if trouble := self._look(keep=0 if at_rest else LAG):
                return trouble
            if at_rest:
                self.meter.tell(self.stage)
            if stop or save or evaluate:
                # A cut is saved even where its step is: what was decided stays so.
                self.kept.save(again=steps > 0)
                self._paused()
            if stop:
                raise self._interrupted()
            if evaluate and (trouble := self._evaluate()):
                return trouble
            if not self.record.stopped and self.record.step == self.steps:
                self.record.stopped = "done"
            if self.record.stopped:
                return ""
            _, batch = next(stream)
            self._step(batch)
            self.deadline.stepped()
            if self.replan:
                self.replan.stepped()

    # --- a step ----------------------------------------------------------------------------------

    def _step(self, batch: Batch) -> None:
        step, total = self.record.step, max(1, self.job.batches.total(self.record.step))
        loss = self._gradients(batch.to(self.device.torch_device), total)
        scale = self._scale()
        self.optimizer.step(scale, step)
        if self.average is not None:
            self.average.update(self.optimizer.weights())
        norm = full_tensor(self.optimizer.gradient_norm).detach().to(loss)
        figures = torch.stack((self.world.sum(loss) / total, norm))
        self.pending.append((step, self.device.later(figures)))
        self.record.step += 1
        self.record.tokens += total
        self.meter.rate = scale * self.optimizer.rate_scale * self._peak_rate()
        self.stage.advance()

    def _gradients(self, batch: Batch, total: int) -> Tensor:
        """The gradient of the mean loss over the whole batch; the summed loss of these rows, []."""
        while True:
            try:
                return self._added_up(batch, total)
            except (RuntimeError, MemoryError) as error:
                if not self.device.is_out_of_memory(error):
                    raise
            # Only here is the error gone, and with it what its frames held on to.
            self._compute_fewer_rows()

    def _added_up(self, batch: Batch, total: int) -> Tensor:
        torch.manual_seed(step_seed(self.loop.seed, self.record.step, self.world.rank))
        self.optimizer.zero_grad()
        loss_sum = torch.zeros((), device=self.device.torch_device)
        parts = micro_batches(len(batch.ids_BT), self.micro_rows)
        for rows in parts:
            with self.world.gradient_sync(self.task, now=rows is parts[-1]):
                with self.device.autocast(self.loop.precision):
                    loss = self.task(batch.part(rows), self.loop.z_loss_weight)
                # Processes average their gradients; the sum is wanted.
                torch.autograd.backward(loss * (self.world.size / total))
            loss_sum += loss.detach().float()
        return loss_sum

    def _compute_fewer_rows(self) -> None:
        """After running out of memory: half as many rows at once, from now on and in later runs."""
        self.optimizer.zero_grad()
        self.device.release_memory()
        tried = self.micro_rows
        if tried == 1:
            raise TrainingError(
                f"one row of {self.loop.sequence_length} tokens does not fit into memory with what"
                " training this model needs",
                hint="set train.gradient_checkpointing=true, or use a shorter"
                " train.sequence_length or a smaller model",
            )
        self.micro_rows = tried // 2
        self.limits.remember(self.micro_rows)
        what = f"{tried} rows at once do not fit the memory: {self.micro_rows} are computed at once"
        if self.world.size > 1:  # the others are in the midst of theirs, and cannot be asked back
            raise TrainingError(
                f"{what} from now on", hint="start the same command again: it goes on where it was"
            )
        self.stage.note(f"{what}, the batch stays as large as it was.")

    # --- what came of it -------------------------------------------------------------------------

    def _look(self, keep: int) -> str:
        """Read the losses of all but the last `keep` steps; what is wrong, if anything is."""
        keep = keep if self.device.is_asynchronous else 0
        while len(self.pending) > keep:
            step, figures = self.pending.popleft()
            loss, norm = figures().tolist()
            if trouble := self.record.watch.seen(loss, norm):
                return f"{trouble} at step {step + 1}"
            self.meter.seen(self.stage, step + 1, loss, norm)
        return ""

    def _evaluate(self) -> str:
        """Read the held-out text with the weights and their average; what is wrong, if it is."""
        try:
            # What was saved just before is as good as new: nobody need wait for this to end.
            with self.signals.at_once() if self.world.size == 1 else nullcontext():
                evaluation = self._evaluated()
        except KeyboardInterrupt:
            raise self._interrupted() from None
        found = (evaluation.bits_per_byte, evaluation.averaged_bits_per_byte, evaluation.memorised)
        if not all(math.isfinite(each) for each in found if each is not None):
            return f"the loss of the held-out text is not a number after step {evaluation.step}"
        record = self.record
        record.evaluations.append(evaluation)
        record.stopped = record.why_stop(self.loop.patience, self.loop.memorised_limit)
        names = ("validation_bits_per_byte", "averaged_bits_per_byte", "memorised")
        values = {name: each for name, each in zip(names, found, strict=True) if each is not None}
        scored = [each.best for each in record.evaluations if each.best is not None]
        if scored:
            values["best_bits_per_byte"] = min(
                scored
            )  # of the whole run, earlier processes included
        self.stage.metric(step=record.step, **values)
        self._paused(evaluated=True)
        return ""

    def _evaluated(self) -> Evaluation:
        bits = averaged = memorised = None
        if self.job.validation is not None:
            bits = self._bits()
            if self.average is not None:
                with validation.swapped_weights(self.model, self.average.weights()):
                    averaged = self._bits()
        if self.job.memorised or self.job.samples:
            usable = self.world.unsharded(self.model)
            if self.world.is_first:
                with eval_mode(usable):
                    memorised = self.job.memorised(usable) if self.job.memorised else None
                    self._write_samples(self.job.samples(usable) if self.job.samples else ())
            memorised = self.world.broadcast(memorised)
        record = self.record
        return Evaluation(record.step, record.tokens, bits, averaged, memorised)

    def _bits(self) -> float:
        assert self.job.validation is not None
        return validation.bits_per_byte(
            self.task,
            self.job.validation,
            rows=self.micro_rows,
            context=self.loop.sequence_length,
            isolate=self.job.batches.config.document_masking,
            device=self.device,
            precision=self.loop.precision,
            world=self.world,
        )

    def _write_samples(self, texts: Sequence[str]) -> None:
        if texts:
            self.job.run.add_samples(self.record.step, texts)
            self.stage.note(f"sample: {printable(texts[0])}")

    def _evaluation_points(self) -> set[int]:
        count, job = self.loop.evaluations, self.job
        if job.validation is None and job.memorised is None and job.samples is None:
            return set()
        return deadline.points(self.loop.steps, count, self.record.cut)

    # --- in time ---------------------------------------------------------------------------------

    def _fitting(self, points: set[int]) -> int:
        """How many steps there can be in all where the time is too short for those left, else 0."""
        step, scale = self.record.step, self._scale()
        pauses = sum(point > step for point in points)
        return self.deadline.fitting(step, self.steps, self.kept.seconds, pauses, scale)

    def _paused(self, *, evaluated: bool = False) -> None:
        """What was done just now was no step."""
        self.meter.restart()
        self.deadline.paused(evaluated=evaluated)
        if self.replan:
            self.replan.paused()

    def _shorten(self, steps: int) -> None:
        """Go through what is left of the planned course in fewer steps."""
        record, before = self.record, self.steps
        record.cut = ShortenedRun(record.step, record.position(self.loop.steps), steps)
        if self.stage.total is not None:
            self.stage.total -= before - steps
        self.stage.note(
            f"The machine is slower than it was: {steps:,} steps in place of {before:,}, so that "
            "it ends in time."
        )

    def _scale(self) -> float:
        """The share of the peak rate in the next step."""
        at = self.record.position(self.loop.steps)
        return lr_schedule.scale(at, self.loop.steps, self.job.schedule)

    # --- nothing is lost -------------------------------------------------------------------------

    def _asked(self, points: set[int]) -> tuple[bool, bool, int, bool]:
        """As all processes agree: whether to stop, to save, to end after so many steps, or at once.

        The last where there is another plan.
        """
        if self.world.size > 1 and self.record.step % _AGREE_EVERY:
            return False, False, 0, False
        stop, due, steps = self.signals.wanted, self.kept.is_due(), self._fitting(points)
        is_last = self.record.step == self.steps
        anew = not stop and self.replan is not None and self.replan.leads_elsewhere(is_last)
        if self.world.size == 1:
            return stop, due, steps, anew
        mine = [stop, due and self.world.is_first, steps, anew]
        said = self.world.sum(torch.tensor(mine, dtype=torch.int64))
        return bool(said[0]), bool(said[1]), int(said[2]), bool(said[3])

    def _interrupted(self) -> TrainingInterrupted:
        return TrainingInterrupted(
            f"stopped after step {self.record.step:,} of {self.steps:,}; everything is saved in "
            f"{self.job.run.folder}, and the same command goes on from there"
        )

    def _go_back(self, trouble: str) -> None:
        """To the last good checkpoint, at half the rate; not for ever."""
        if self.record.setbacks >= MOST_SETBACKS:
            raise TrainingError(
                f"{trouble}, after going back {MOST_SETBACKS} times, each time to half the rate",
                hint="start another run with lower learning rates (optim.learning_rate,"
                " optim.muon_lr), and with train.precision=float32 if it was another",
            )
        self.pending.clear()
        done, steps = self.record.step, self.steps
        if not self.kept.go_back():
            raise TrainingError(f"{trouble}, and no checkpoint is whole", hint="begin another run")
        self.stage.done -= done - self.record.step
        if self.stage.total is not None:
            self.stage.total += self.steps - steps
        self.meter.restart()
        self.stage.note(
            f"{trouble[:1].upper()}{trouble[1:]}: back to step {self.record.step}, at "
            f"{self.record.rate_scale:g} of the planned rate from there."
        )

    def _outcome(self) -> TrainOutcome:
        """What came of it; the model is given the weights that did best."""
        record, best = self.record, self.record.best(self.loop.memorised_limit)
        step = best.step if best else record.step
        # With nothing to choose by, an average that was asked for is what was wanted.
        averaged = best.is_averaged_better if best else self.average is not None
        if not self.kept.take(step, averaged):
            step, averaged, best = record.step, False, None
        self.optimizer.zero_grad()
        self.model.eval()
        return TrainOutcome(
            steps=record.step,
            stopped=cast("Literal['done', 'early', 'memorised']", record.stopped),
            best_step=step,
            averaged=averaged,
            bits_per_byte=best.best if best else None,
            evaluations=tuple(record.evaluations),
            tokens=record.tokens,
            seconds=record.seconds,
            setbacks=record.setbacks,
            micro_rows=self.micro_rows,
            shortened=record.cut is not None,
        )

    def _peak_rate(self) -> float:
        optim = self.job.optim
        return optim.muon_lr if optim.kind == "muon" else optim.learning_rate


def step_seed(seed: int, step: int, rank: int) -> int:
    """The seed of all that is random in one step of one process."""
    return int(digest(str(seed), str(step), str(rank))[:15], 16)


def micro_batches(rows: int, at_once: int) -> list[slice]:
    """The rows in as few parts as can be, of nearly the same size, none over `at_once`."""
    parts = max(1, -(-rows // at_once))
    return [slice(i * rows // parts, (i + 1) * rows // parts) for i in range(parts)]


def _memory_key(job: TrainJob) -> str:
    """Of what decides how many rows fit the memory."""
    loop = job.loop
    trained = [name for name, each in job.model.named_parameters() if each.requires_grad]
    parts = (
        job.device.name,
        job.model.config,
        loop.sequence_length,
        loop.precision,
        loop.gradient_checkpointing,
    )
    return digest(*map(str, parts), *trained)
