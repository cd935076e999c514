"""Metrics of a training run: loss and speed, bits per byte on held-out text, and samples."""

import math
import time
from itertools import islice

import torch
from torch import Tensor, nn

from ownwords.core.progress import Stage
from ownwords.inference.model import Model
from ownwords.inference.torch_engine import TorchEngine
from ownwords.models.decoder import CausalLM, eval_mode
from ownwords.tokenizers.tokenizer import Tokenizer
from ownwords.training.batches import Batch, sequential_batches
from ownwords.training.device import Device
from ownwords.training.distributed import World
from ownwords.training.settings import LoopConfig, Precision
from ownwords.training.token_dataset import TokenDataset

_EVERY_S = 0.3
_IDLE_SHARE = 0.85  # share of the processor's time that training uses if nothing else runs


class LossModule(nn.Module):
    """A model and its loss as one module, because DDP synchronises when `forward` is called."""

    def __init__(self, model: CausalLM) -> None:
        super().__init__()
        self.model = model

    def forward(self, batch: Batch) -> Tensor:
        """Cross-entropy of the next token, summed over the targets that are not masked, [].

        It is a sum, because the loop divides by the tokens of the whole batch, so that splitting
        the batch into micro-batches or among processes does not change the gradient.
        """
        return self.model.loss(
            batch.ids_BT,
            batch.targets_BT,
            documents_BT=batch.documents_BT,
            max_documents=batch.max_documents,
            weights_BT=batch.weights_BT,
        )[0]


class Meter:
    """Reports metrics a few times a second, as means over the steps since the last report."""

    def __init__(self, dataset: TokenDataset, loop: LoopConfig, device: Device) -> None:
        # The first token of a document is not predicted.
        self._tokens_per_byte = (dataset.tokens - dataset.documents) / max(1, dataset.text_bytes)
        self._step_tokens = loop.batch_size * loop.sequence_length
        self._on_processor = not device.is_asynchronous
        self._step = 0
        self._gradient_norm = 0.0
        self.learning_rate = 0.0
        # Tokens per second of each report, corrected for other processes on the machine.
        self.speeds: list[float] = []
        self.restart()

    def restart(self) -> None:
        """Start new means, which exclude the time until now."""
        self._since, self._count, self._sum = time.monotonic(), 0, 0.0
        self._cpu_since = time.process_time()

    def add(self, stage: Stage, step: int, loss: float, gradient_norm: float) -> None:
        """Add a step, and report if the last report is old enough."""
        self._step, self._gradient_norm = step, gradient_norm
        self._count += 1
        self._sum += loss
        if time.monotonic() - self._since >= _EVERY_S:
            self.report(stage)

    def report(self, stage: Stage) -> None:
        if not self._count:
            return
        seconds = max(1e-9, time.monotonic() - self._since)
        speed = self._count * self._step_tokens / seconds
        self.speeds.append(speed)
        if self._on_processor:
            share = (time.process_time() - self._cpu_since) / (seconds * torch.get_num_threads())
            self.speeds[-1] /= min(1.0, max(0.5, share / _IDLE_SHARE))
        nats = self._sum / self._count
        stage.metric(
            step=self._step,
            loss=nats,
            bits_per_byte=nats / math.log(2) * self._tokens_per_byte,
            tokens_per_s=speed,
            rate=self.learning_rate,
            gradient_norm=self._gradient_norm,
        )
        self.restart()


def bits_per_byte(
    task: nn.Module,
    dataset: TokenDataset,
    *,
    rows: int,
    context: int,
    device: Device,
    precision: Precision,
    world: World,
) -> float:
    """Bits per byte of text; each token is predicted once, from the tokens before it in its row.

    Rows start anywhere in a text, so their first tokens have little context: use the result only to
    compare weights of one run. Published scores come from `evaluation.bits_per_byte`.
    """
    batches = sequential_batches(dataset, rows=rows, context=context)
    with eval_mode(task), device.autocast(precision):
        mine = islice(batches, world.rank, None, world.size)
        losses = [task(batch.to(device.torch_device)).float() for batch in mine]
    # Sum on the CPU in float64, which not every device supports.
    nats = (
        torch.stack(losses).cpu().double().sum() if losses else torch.zeros((), dtype=torch.float64)
    )
    return float(world.sum(nats)) / math.log(2) / max(1, dataset.text_bytes)


class SampleWriter:
    """Writes samples while a model trains, for at most about `seconds` seconds in total."""

    def __init__(self, tokenizer: Tokenizer, max_tokens: int, seconds: float) -> None:
        self._tokenizer, self._max_tokens, self._seconds_left = tokenizer, max_tokens, seconds

    def __call__(self, model: CausalLM) -> str:
        if self._seconds_left <= 0:
            return ""
        began = time.perf_counter()
        writer = Model(TorchEngine(model), self._tokenizer)
        text = "".join(writer.write("", max_tokens=self._max_tokens))
        self._seconds_left -= time.perf_counter() - began
        return text
