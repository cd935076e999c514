"""Training state, saved to and restored from checkpoints."""

import time
from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor

from ownwords.core.errors import WorkspaceError
from ownwords.training.checkpoint import CheckpointError, LoadedCheckpoint
from ownwords.training.job import TrainJob, check_same, identity
from ownwords.training.optim import Optimizer
from ownwords.training.run import RunRecord
from ownwords.training.weight_averaging import EMA


class TrainingState:
    """Optimizer, weights, their average and the record of a run, with its checkpoints.

    All processes must call each method; only the first one reads and writes files.
    """

    def __init__(self, job: TrainJob, note: Callable[[str], None]) -> None:
        self.identity = identity(job)
        self._float32_weights = float32_weights(job)
        self._job, self._world, self._note = job, job.world, note
        self._checkpoints = job.run.checkpoints
        self._limit = job.loop.memorised_limit
        self.record = RunRecord()
        self.ema: EMA | None = None
        self.optimizer: Optimizer
        self._saved_step = self._rolled_back_to = -1
        self._saved_at = self._began = time.monotonic()

    def make_optimizer(self) -> None:
        """Make the optimizer and the average, after sharding has replaced the parameters."""
        job, loop = self._job, self._job.loop
        exact = self._float32_weights
        if exact:
            exact = self._world.scatter(exact, job.model)
        self._float32_weights = {}
        is_bf16 = loop.precision == "bf16"
        self.optimizer = Optimizer(
            job.model,
            job.optim,
            master_weights=is_bf16,
            exact=exact or None,
            start_token=job.batches.dataset.pure_start,
        )
        if loop.ema_half_life:
            self.ema = EMA(self.optimizer.weights(), loop.ema_half_life * loop.steps)

    def begin(self) -> None:
        """Restore the newest checkpoint, or save the first one, so that rollback has one.

        ConfigError if the run was started with other inputs or settings.
        """
        checkpoint = self._newest()
        if checkpoint is None:
            self.save()
            return
        check_same(_table(checkpoint.state["identity"]), self.identity, self._job.run)
        self._restore(checkpoint)
        self._saved_step = checkpoint.step
        if self.record.stopped:
            self._note("This run has ended before; its weights are taken.")
        elif checkpoint.step:
            steps = self.record.total_steps(self._job.loop.steps)
            self._note(f"Resuming after step {checkpoint.step:,} of {steps:,}.")

    @property
    def seconds(self) -> float:
        """Seconds spent in training so far, interruptions excluded."""
        return time.monotonic() - self._began

    def is_due(self) -> bool:
        """Whether the last checkpoint is old enough to save another."""
        return time.monotonic() - self._saved_at >= self._job.loop.checkpoint_every_s

    def save(self, again: bool = False) -> None:
        """Save a checkpoint, unless this step has one and `again` is false.

        WorkspaceError if the disk is full; it says how many steps are lost.
        """
        record = self.record
        if self._saved_step == record.step and not again:
            return
        record.seconds = self.seconds
        groups = {
            "weights": self._world.gather(self.optimizer.weights()),
            "optimizer": self._world.gather(self.optimizer.state()),
        }
        if self.ema is not None:
            groups["average"] = self._world.gather(self.ema.state())
        if self._world.is_first:
            state = {"identity": self.identity, "record": record.state()}
            best = record.best(self._limit)
            try:
                self._checkpoints.save(record.step, groups, state)
            except WorkspaceError as error:
                if lost := record.step - max(0, self._saved_step):
                    error.message += (
                        f"; the last checkpoint is of step {max(0, self._saved_step):,}, so"
                        f" {lost:,} steps are lost"
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
        setbacks = self.record.setbacks + (lr_factor < 1)
        lr_factor *= self.record.lr_factor
        elapsed = self.record.elapsed
        checkpoint = self._newest()
        if checkpoint is not None and checkpoint.step == self._rolled_back_to:
            checkpoint = self._newest(before=checkpoint.step) or checkpoint
        if checkpoint is None:
            return False
        self._restore(checkpoint)
        self._saved_step = self._rolled_back_to = checkpoint.step
        self.record.setbacks, self.record.lr_factor = setbacks, lr_factor
        self.record.elapsed = elapsed  # the steps come back, the time does not
        self.optimizer.lr_factor = lr_factor
        if self._world.is_first:
            self._checkpoints.delete_after(checkpoint.step)
        self.save(again=True)  # so that the lower rate survives a crash
        return True

    def load_weights(self, step: int, averaged: bool) -> bool:
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
        if averaged and self.ema is not None:
            self.optimizer.load_weights(self.ema.weights())
        return True

    def _newest(self, before: int | None = None) -> LoadedCheckpoint | None:
        checkpoint = None
        if self._world.is_first:
            checkpoint = self._checkpoints.newest(self._note, before)
        return self._shared(checkpoint)

    def _shared(self, checkpoint: LoadedCheckpoint | None) -> LoadedCheckpoint | None:
        """Broadcast the first process's checkpoint: its state, without the tensors."""
        if self._world.size == 1:
            return checkpoint
        head = self._world.broadcast(
            [checkpoint.step, list(checkpoint.groups), checkpoint.state] if checkpoint else None
        )
        if head is None or self._world.is_first:
            return checkpoint
        step, groups, state = cast("tuple[int, list[str], dict[str, object]]", head)
        return LoadedCheckpoint(step, {group: {} for group in groups}, state)

    def _restore(self, checkpoint: LoadedCheckpoint) -> None:
        self.record = RunRecord.restored(_table(checkpoint.state["record"]))
        self._began = time.monotonic() - self.record.seconds
        self._load(checkpoint)
        optimizer = self._world.scatter(checkpoint.groups["optimizer"], self._job.model)
        self.optimizer.load_state(optimizer)
        self.optimizer.lr_factor = self.record.lr_factor

    def _load(self, checkpoint: LoadedCheckpoint) -> None:
        model = self._job.model
        self.optimizer.load_weights(self._world.scatter(checkpoint.groups["weights"], model))
        if self.ema is not None:
            self.ema.load_state(self._world.scatter(checkpoint.groups["average"], model))


def float32_weights(job: TrainJob) -> dict[str, Tensor]:
    """Cast trained parameters to bfloat16 or float32, whichever the precision needs, in place.

    Returns their float32 values if they are now bfloat16, else nothing. Frozen parameters keep
    their dtype.
    """
    exact: dict[str, Tensor] = {}
    is_bf16 = job.loop.precision == "bf16"
    for name, parameter in job.model.named_parameters():
        if parameter.requires_grad:
            wide = parameter.detach().float()
            parameter.data = wide.to(torch.bfloat16) if is_bf16 else wide
            if is_bf16:
                exact[name] = wide
    return exact


def _table(value: object) -> dict[str, object]:
    return cast("dict[str, object]", value)
