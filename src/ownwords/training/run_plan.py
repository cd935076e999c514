"""The plan of a run: made once, kept in its folder, and replaced at most once."""

import math
from collections.abc import Callable
from dataclasses import replace

from ownwords.core.errors import ConfigError
from ownwords.core.workspace import write_atomically
from ownwords.models.configs.config import ModelConfig
from ownwords.training import throughput
from ownwords.training.device import Device
from ownwords.training.distributed import World
from ownwords.training.loop import LAG
from ownwords.training.plan import Plan, read_plan
from ownwords.training.replan import FASTER, ReplanMonitor
from ownwords.training.request import TrainRequest
from ownwords.training.run import Run

PLAN = "plan.toml"


class RunPlan:
    """Keeps the plan of `run`, so that a run that goes on trains exactly as it began.

    `make` returns a plan for measured speeds.
    """

    def __init__(
        self,
        run: Run,
        request: TrainRequest,
        device: Device,
        world: World,
        make: Callable[[throughput.DeviceSpeeds], Plan],
    ) -> None:
        self._run, self._request, self._device, self._world = run, request, device, world
        self._make = make
        # The speeds that the plan was made with, if it was made in this process.
        self._speeds: throughput.DeviceSpeeds | None = None

    @property
    def exists(self) -> bool:
        return self._world.broadcast((self._run.folder / PLAN).exists())

    def get(self, measure: Callable[[], throughput.DeviceSpeeds]) -> Plan:
        """The stored plan; for a new run, one for the speeds that `measure` returns."""
        plan = None
        if self._world.is_first:
            plan = self._stored()
            if plan is None:
                self._speeds = measure()
                plan = self._store(self._make(self._speeds))
        return self._shared(plan)

    def current(self) -> Plan:
        """The plan that is stored now: after `ReplanRequested` the second one."""
        return self._shared(self._stored() if self._world.is_first else None)

    def _stored(self) -> Plan | None:
        path = self._run.folder / PLAN
        return read_plan(path.read_text(encoding="utf-8")) if path.exists() else None

    def _store(self, plan: Plan) -> Plan:
        # With too little time nothing is trained; on a machine less busy there may be enough.
        if plan.recipe.train.steps:
            write_atomically(self._run.folder / PLAN, plan.to_toml())
        self._run.write_config(plan.resolved().to_toml())
        return plan

    def _shared(self, plan: Plan | None) -> Plan:
        """The first process's plan."""
        if self._world.size == 1 and plan is not None:
            return plan
        return read_plan(self._world.broadcast(plan.to_toml() if plan else ""))

    def monitor(self, config: ModelConfig, plan: Plan) -> ReplanMonitor | None:
        """The monitor of the first steps; None if not needed or not in the first process."""
        if plan.is_second or "train.steps" in self._request.fixed or not self._world.is_first:
            return None
        train = plan.recipe.train
        planned_s = train.batch_size * train.sequence_length / max(plan.expected.tokens_per_s, 1e-9)

        def replan(step_s: float) -> bool:
            speeds, expected_s = self._speeds, planned_s
            if speeds is None:  # an earlier process made the plan
                speeds = throughput.assumed_speeds(self._device)
                step_time = next(iter(speeds.step_times.values()))
                speeds = replace(speeds, step_times={train.precision: step_time})
                rows = math.ceil(train.batch_size / self._world.size)
                expected_s = step_time.step_s(config, rows, train.sequence_length)
            return self._replace(plan, throughput.scale_speeds(speeds, step_s / expected_s))

        unseen = 1 + (LAG if self._device.is_asynchronous else 0)
        return ReplanMonitor(self._request.seconds, planned_s, replan, unseen=unseen)

    def _replace(self, before: Plan, speeds: throughput.DeviceSpeeds) -> bool:
        """Replace the plan by one for these speeds, if they differ much; returns whether it did.

        Checkpoints are deleted before the plan is stored, so that none belongs to another plan.
        """
        try:
            plan = self._make(speeds)
        except ConfigError:  # too little time is left for any plan
            return False
        sizes = [each.recipe.model.parameters * each.expected.tokens for each in (plan, before)]
        if max(sizes) < FASTER * min(sizes) or not plan.recipe.train.steps:
            return False
        self._run.checkpoints.delete_after(-1)
        self._store(replace(plan, is_second=True))
        faster = plan.expected.tokens_per_s > before.expected.tokens_per_s
        self._request.progress.note(
            f"The machine is {'faster' if faster else 'slower'} than when this run was planned."
            f" Training starts again with a new plan: {plan.recipe.train.steps:,} steps instead of"
            f" {before.recipe.train.steps:,}."
        )
        return True
