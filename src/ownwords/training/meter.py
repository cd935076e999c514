"""Reports training metrics: loss, speed, learning rate, gradient norm."""

import math
import time

from ownwords.core.progress import Stage
from ownwords.training import flops
from ownwords.training.job import TrainJob

_EVERY_S = 0.3


class Meter:
    """Reports metrics a few times a second, as means over the steps since the last report."""

    def __init__(self, job: TrainJob) -> None:
        shards, loop = job.batches.shards, job.loop
        # The first token of a document is not predicted.
        self._tokens_per_byte = (shards.tokens - shards.documents) / max(1, shards.text_bytes)
        self._step_tokens = loop.batch_size * loop.sequence_length
        self._peak = (job.peak_flops or 0.0) * job.world.size
        self._cost = flops.per_token(job.model, loop.sequence_length) if job.peak_flops else 0.0
        self._step = 0
        self._gradient_norm = 0.0
        self.learning_rate = 0.0
        self.restart()

    def restart(self) -> None:
        """Start new means, excluding the time until now."""
        self._since, self._count, self._sum = time.monotonic(), 0, 0.0

    def add(self, stage: Stage, step: int, loss: float, gradient_norm: float) -> None:
        """Add a step, and report if the last report is old enough."""
        self._step, self._gradient_norm = step, gradient_norm
        self._count += 1
        self._sum += loss
        if time.monotonic() - self._since >= _EVERY_S:
            self.report(stage)

    def report(self, stage: Stage) -> None:
        """Report the steps since the last report, if there are any."""
        if not self._count:
            return
        speed = self._count * self._step_tokens / max(1e-9, time.monotonic() - self._since)
        nats = self._sum / self._count
        stage.metric(
            step=self._step,
            loss=nats,
            bits_per_byte=nats / math.log(2) * self._tokens_per_byte,
            tokens_per_s=speed,
            rate=self.learning_rate,
            gradient_norm=self._gradient_norm,
            **({"share_of_limit": speed * self._cost / self._peak} if self._peak else {}),
        )
        self.restart()
