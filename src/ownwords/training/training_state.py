"""What a run must not lose, as one: put into checkpoints, and taken out again."""

import time
from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor

from ownwords.training.checkpoint import CheckpointError, LoadedCheckpoint
from ownwords.training.ema import EMA
from ownwords.training.job import TrainJob, check_same, identity
from ownwords.training.optim import Optimizer
from ownwords.training.run_record import RunRecord


class TrainingState:
    """Optimizer, weights, their average, and the record of a run, with its checkpoints.

    With several processes each method is called by all; the first alone reads and writes files.
    """

    def __init__(self, job: TrainJob, note: Callable[[str], None]) -> None:
        self.identity = identity(job)
        self._exact = float32_weights(job)
        self._job, self._world, self._note = job, job.world, note
        self._checkpoints = job.run.checkpoints
        self._limit = job.loop.memorised_limit
        self.record = RunRecord()
        self.average: EMA | None = None
        self.optimizer: Optimizer
        self._saved_step = self._went_back_to = -1
        self._saved_at = self._began = time.monotonic()

    @property
    def _steps(self) -> int:
        return self.record.steps(self._job.loop.steps)

    def make_optimizer(self) -> None:
        """When the parameters are those that stay: sharding exchanges them for others."""
        job, loop = self._job, self._job.loop
        exact = self._world.scatter(self._exact, job.model) if self._exact else None
        self._exact = {}
        self.optimizer = Optimizer(
            job.model, job.optim, masters=loop.precision == "bf16", exact=exact
        )
        if loop.ema_half_life:
            half_life_steps = loop.ema_half_life * loop.steps
            self.average = EMA(self.optimizer.weights(), half_life_steps)

    def begin(self) -> None:
        """Go on from the newest checkpoint, or save the beginning: there is always a way back.

        ConfigError if the run was begun with something else than it is now.
        """
        saved = self._newest()
        if saved is None:
            self.save()
            return
        check_same(_table(saved.state["identity"]), self.identity, self._job.run)
        self._restore(saved)
        self._saved_step = saved.step
        if self.record.stopped:
            self._note("This run has ended before; its weights are taken.")
        elif saved.step:
            self._note(f"Going on after step {saved.step:,} of {self._steps:,}.")

    @property
    def seconds(self) -> float:
        """Spent in training so far, over all the times it was resumed."""
        return time.monotonic() - self._began

    def is_due(self) -> bool:
        """Whether the last checkpoint is old enough for another."""
        return time.monotonic() - self._saved_at >= self._job.loop.checkpoint_every_s

    def save(self, again: bool = False) -> None:
        """Save all there is, unless this step is saved already; `again`: even then."""
        record = self.record
        if self._saved_step == record.step and not again:
            return
        record.seconds = self.seconds
        groups = {
            "weights": self._world.gather(self.optimizer.weights()),
            "optimizer": self._world.gather(self.optimizer.state()),
        }
        if self.average is not None:
            groups["average"] = self._world.gather(self.average.state())
        if self._world.is_first:
            state = {"identity": self.identity, "record": record.state()}
            best = record.best(self._limit)
            self._checkpoints.save(record.step, groups, state)
            self._checkpoints.prune([best.step] if best else [])
        self._world.barrier()
        self._saved_step, self._saved_at = record.step, time.monotonic()

    def go_back(self) -> bool:
        """Back to the last good checkpoint, at half the rate, which is saved at once.

        Where that one has led into the same trouble before, to the one before it. False if no
        checkpoint is whole.
        """
        setbacks, rate_scale = self.record.setbacks + 1, self.record.rate_scale / 2
        saved = self._newest()
        if saved is not None and saved.step == self._went_back_to:
            saved = self._newest(before=saved.step) or saved
        if saved is None:
            return False
        self._restore(saved)
        self._went_back_to = saved.step
        self.record.setbacks, self.record.rate_scale = setbacks, rate_scale
        self.optimizer.rate_scale = rate_scale
        if self._world.is_first:
            self._checkpoints.delete_after(saved.step)
        self.save(again=True)  # so that what was learned outlasts a crash
        return True

    def take(self, step: int, averaged: bool) -> bool:
        """Give the model the weights of that step; False if its checkpoint is damaged."""
        if step != self.record.step:
            saved = None
            if self._world.is_first:
                try:
                    saved = self._checkpoints.load(step)
                except CheckpointError as error:
                    self._note(f"{error.message}; the last weights are kept instead.")
            saved = self._shared(saved)
            if saved is None:
                return False
            self._load_weights(saved)
        if averaged and self.average is not None:
            self.optimizer.load_weights(self.average.weights())
        return True

    def _newest(self, before: int | None = None) -> LoadedCheckpoint | None:
        saved = None
        if self._world.is_first:
            saved = self._checkpoints.newest(self._note, before)
        return self._shared(saved)

    def _shared(self, saved: LoadedCheckpoint | None) -> LoadedCheckpoint | None:
        """What the first process has read; the others get its state, and no tensors."""
        if self._world.size == 1:
            return saved
        head = self._world.broadcast(
            [saved.step, list(saved.groups), saved.state] if saved else None
        )
        if head is None or self._world.is_first:
            return saved
        step, groups, state = cast("tuple[int, list[str], dict[str, object]]", head)
        return LoadedCheckpoint(step, {group: {} for group in groups}, state)

    def _restore(self, saved: LoadedCheckpoint) -> None:
        self.record = RunRecord.restored(_table(saved.state["record"]))
        self._began = time.monotonic() - self.record.seconds
        self._load_weights(saved)
        self.optimizer.load_state(self._world.scatter(saved.groups["optimizer"], self._job.model))
        self.optimizer.rate_scale = self.record.rate_scale

    def _load_weights(self, saved: LoadedCheckpoint) -> None:
        model = self._job.model
        self.optimizer.load_weights(self._world.scatter(saved.groups["weights"], model))
        if self.average is not None:
            self.average.load_state(self._world.scatter(saved.groups["average"], model))


def float32_weights(job: TrainJob) -> dict[str, Tensor]:
    """Put what is trained into the type it is computed in; its float32 values where that is less.

    What an adapter leaves as it is keeps its type.
    """
    exact: dict[str, Tensor] = {}
    masters = job.loop.precision == "bf16"
    for name, parameter in job.model.named_parameters():
        if parameter.requires_grad:
            wide = parameter.detach().float()
            parameter.data = wide.to(torch.bfloat16) if masters else wide
            if masters:
                exact[name] = wide
    return exact


def _table(value: object) -> dict[str, object]:
    return cast("dict[str, object]", value)
