"""Writes the events of a run (curves, samples, notes) for TensorBoard."""

import math
from pathlib import Path
from typing import Any

from ownwords.core.errors import OwnwordsError
from ownwords.core.progress import Event
from ownwords.core.workspace import translate_os_errors


class TensorBoard:
    """A subscriber that writes every metric as a scalar, and every note as text.

    Metrics without a `step` are written at the number of units their stage has done. View them with
    `tensorboard --logdir RUNS`. OwnwordsError if the package tensorboard is not installed.
    """

    def __init__(self, folder: Path) -> None:
        try:
            from torch.utils.tensorboard.writer import SummaryWriter  # noqa: PLC0415 - an extra
        except ImportError as error:
            raise OwnwordsError(
                "curves for TensorBoard take the package tensorboard, which is not installed",
                hint='pip install "ownwords[tensorboard]", or go on without: metrics.jsonl has'
                " the same figures",
            ) from error
        with translate_os_errors(folder):
            self._writer: Any = SummaryWriter(str(folder))
        self._step = 0

    def __call__(self, event: Event) -> None:
        if event.kind == "note":
            self._writer.add_text("notes", event.message, self._step, event.time)
        if event.kind != "metric":
            return
        self._step = int(event.values.get("step", event.done))
        for name, value in event.values.items():
            # An infinite value would flatten the rest of the curve.
            if name != "step" and math.isfinite(value):
                self._writer.add_scalar(f"{event.stage}/{name}", value, self._step, event.time)

    def close(self) -> None:
        """Flush pending events, and close the file."""
        self._writer.close()
