"""One interface to all kinds of device: CPU, CUDA, ROCm, MPS and XPU."""

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from types import ModuleType

import torch
from torch import Tensor

from ownwords.core import hardware
from ownwords.core.hardware import keep_freed_memory
from ownwords.models import fused
from ownwords.training.settings import Precision

# Messages of the allocators for CPU and MPS; the others raise torch.OutOfMemoryError.
_OUT_OF_MEMORY = ("can't allocate memory", "out of memory", "failed to allocate", "bad_alloc")


@dataclass(frozen=True)
class Device:
    """A device; handles all differences between the kinds of device."""

    kind: str  # cpu, cuda, rocm, mps, xpu
    torch_device: torch.device

    @property
    def is_asynchronous(self) -> bool:
        """Whether reading a value makes the host wait for all work queued before it."""
        return self.kind != "cpu"

    @property
    def has_fast_bf16(self) -> bool:
        """Whether it multiplies bfloat16 faster than float32; older cards only emulate it."""
        if self.kind == "cpu":
            return fused.has_fast_bf16()
        return self.kind != "cuda" or torch.cuda.is_bf16_supported(including_emulation=False)

    @property
    def _runtime(self) -> ModuleType:
        runtime: ModuleType = getattr(torch, self.torch_device.type)
        return runtime

    def synchronize(self) -> None:
        if self.is_asynchronous:
            self._runtime.synchronize()

    def autocast(self, precision: Precision) -> AbstractContextManager[object]:
        """A context with matrix products in bfloat16, or in int16 if the weights are frozen."""
        if precision == "int16":
            return fused.int16_products()
        if precision == "autocast":
            return torch.autocast(self.torch_device.type, dtype=torch.bfloat16)
        return nullcontext()

    @staticmethod
    def is_out_of_memory(error: BaseException) -> bool:
        if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
            return True
        message = str(error).lower()
        return isinstance(error, RuntimeError) and any(words in message for words in _OUT_OF_MEMORY)

    def release_memory(self) -> None:
        """Release cached memory before a retry."""
        fused.pool.release()
        if self.is_asynchronous:
            self._runtime.empty_cache()

    def free_memory(self) -> int:
        if self.kind in ("cuda", "rocm"):
            return int(torch.cuda.mem_get_info(self.torch_device)[0])
        if self.kind == "xpu":
            total = torch.xpu.get_device_properties(self.torch_device).total_memory
            return int(total - torch.xpu.memory_reserved(self.torch_device))
        if self.kind == "mps":
            return torch.mps.recommended_max_memory() - torch.mps.driver_allocated_memory()
        return hardware.read_memory().available_bytes

    def peak_memory(self) -> int:
        """The most bytes held at once: by PyTorch on the device, or by this whole process."""
        if self.kind in ("cuda", "rocm", "xpu"):
            return int(self._runtime.max_memory_allocated(self.torch_device))
        if self.kind == "mps":  # MPS records no peak: this is the current use
            return torch.mps.driver_allocated_memory()
        return _peak_resident()

    def later(self, value: Tensor) -> Callable[[], Tensor]:
        """A function that returns the value on the CPU; making it does not make the host wait.

        On CUDA, ROCm and XPU the copy starts at once, so a call a few steps later returns
        immediately, while `.item()` would wait for those steps too.
        """
        value = value.detach()
        if self.kind not in ("cuda", "rocm", "xpu"):
            return value.cpu if self.is_asynchronous else value.clone
        landing = torch.empty(value.shape, dtype=value.dtype, pin_memory=True)
        landing.copy_(value, non_blocking=True)
        arrived = self._runtime.Event()
        arrived.record()

        def read() -> Tensor:
            arrived.synchronize()
            return landing

        return read


def choose(name: str | None = None, note: Callable[[str], object] | None = None) -> Device:
    """The device to train on: the one with this name, or the best that works; see `hardware`."""
    device = torch.device(hardware.choose_device(name, hardware.TRAINING_DEVICES, note))
    if device.type == "cpu":
        keep_freed_memory()
    return Device("rocm" if device.type == "cuda" and torch.version.hip else device.type, device)


def _peak_resident() -> int:
    try:
        import resource  # noqa: PLC0415 - missing on Windows
    except ImportError:
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # macOS counts in bytes
