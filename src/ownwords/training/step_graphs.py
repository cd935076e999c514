"""Runs training steps, on CUDA as graphs: the CPU launches a whole step instead of each kernel."""

from collections.abc import Callable

import torch
from torch import Tensor

from ownwords.models.cuda_graph import Capturer
from ownwords.training.batches import Batch
from ownwords.training.device import Device

Step = Callable[[Batch, float | Tensor], Tensor]

_WARM_UP = 3  # steps of a form before its capture, for setup work that must not be captured


class StepGraphs:
    """Calls `step` with a batch on the device and a factor, and returns its result.

    On CUDA each form of batch is captured once it has occurred a few times; a form that never
    recurs, or a step that cannot be captured, is launched kernel by kernel, with the same result.
    """

    def __init__(
        self, device: Device, step: Step, note: Callable[[str], object], *, is_captured: bool = True
    ) -> None:
        self._device, self._step, self._note = device, step, note
        self._capturer = None
        if is_captured and device.kind in ("cuda", "rocm"):
            self._capturer = Capturer(device.torch_device)
        self._factor = torch.zeros((), device=device.torch_device)
        self._calls: dict[tuple[object, ...], int] = {}
        self._graphs: dict[tuple[object, ...], tuple[Batch, Callable[[], Tensor]]] = {}

    def __call__(self, batch: Batch, factor: float) -> Tensor:
        if self._capturer is None:
            return self._step(batch.to(self._device.torch_device), factor)
        form = batch.form
        self._factor.fill_(factor)
        self._calls[form] = calls = self._calls.get(form, 0) + 1
        if calls > _WARM_UP and form not in self._graphs:
            self._capture(batch, self._capturer)
        if form not in self._graphs:
            return self._step(batch.to(self._device.torch_device), self._factor)
        inputs, replay = self._graphs[form]
        inputs.copy_(batch)
        return replay()

    def _capture(self, batch: Batch, capturer: Capturer) -> None:
        inputs = batch.to(self._device.torch_device)
        try:
            replay = capturer.capture(lambda: self._step(inputs, self._factor))
        except RuntimeError as error:
            if self._device.is_out_of_memory(error):
                raise
            self._capturer = None
            self._note(f"Training without a CUDA graph: {str(error).partition(chr(10))[0]:.200}.")
        else:
            self._graphs[batch.form] = inputs, replay
