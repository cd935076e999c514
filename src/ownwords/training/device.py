"""The one room that knows devices: CPU, CUDA, ROCm, MPS and XPU behind the same few calls."""

import ctypes
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from types import ModuleType

import torch
from torch import Tensor, nn

from ownwords.core import hardware
from ownwords.core.errors import ConfigError
from ownwords.training.settings import Precision

_ORDER = ("cuda", "xpu", "mps", "cpu")  # the best first; ROCm's name in PyTorch is cuda
# What the allocators of the CPU and of MPS say; the others raise torch.OutOfMemoryError.
_OUT_OF_MEMORY = ("can't allocate memory", "out of memory", "failed to allocate", "bad_alloc")


@dataclass(frozen=True)
class Device:
    """A device of one kind; every difference between the kinds is in here."""

    kind: str  # cpu, cuda, rocm, mps, xpu
    torch_device: torch.device

    @property
    def name(self) -> str:
        """What the maker calls it; remembered limits belong to it."""
        if self.kind in ("cuda", "rocm", "xpu"):
            return str(self._runtime.get_device_name(self.torch_device))
        if self.kind == "cpu":
            return hardware.read_cpu().model or "processor"
        return self.kind

    @property
    def is_asynchronous(self) -> bool:
        """Whether looking at a value makes the host wait for all the work before it."""
        return self.kind != "cpu"

    @property
    def _runtime(self) -> ModuleType:
        runtime: ModuleType = getattr(torch, self.torch_device.type)
        return runtime

    def synchronize(self) -> None:
        """Wait until all that was asked of the device is done."""
        if self.is_asynchronous:
            self._runtime.synchronize()

    def autocast(self, precision: Precision) -> AbstractContextManager[object]:
        """Matrix products in bfloat16 where the precision says so."""
        if precision == "autocast":
            return torch.autocast(self.torch_device.type, dtype=torch.bfloat16)
        return nullcontext()

    def is_out_of_memory(self, error: BaseException) -> bool:
        """Whether that is what went wrong."""
        if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
            return True
        said = str(error).lower()
        return isinstance(error, RuntimeError) and any(words in said for words in _OUT_OF_MEMORY)

    def release_memory(self) -> None:
        """Give back what PyTorch holds in reserve, as before a retry."""
        if self.is_asynchronous:
            self._runtime.empty_cache()

    def free_memory(self) -> int:
        """Bytes that can still be had."""
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
        if self.kind == "mps":  # which keeps no record of its peak
            return torch.mps.driver_allocated_memory()
        return _peak_resident()

    def later(self, value: Tensor) -> Callable[[], Tensor]:
        """The value on the CPU, to be asked for later: sent without making the host wait.

        Asked for some steps on, it has long arrived; `.item()` would wait for those steps too.
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


def choose(name: str | None = None) -> Device:
    """The device of that name ("cuda:1", "rocm", "cpu"); "auto" or None: the best there is.

    ConfigError if this machine has none such.
    """
    available = [kind for kind in _ORDER if _is_available(kind)]
    if name in (None, "auto"):
        name = available[0]
    if name == "cpu":
        _keep_freed_memory()
    kind, _, index = str(name).partition(":")
    kind = "cuda" if kind == "rocm" else kind
    if kind not in available or (index and not index.isdigit()):
        raise ConfigError(
            f"this machine has no device {name!r}", hint=f"use auto or {', '.join(available)}"
        )
    if index and kind in ("cuda", "xpu") and int(index) >= getattr(torch, kind).device_count():
        raise ConfigError(f"this machine has {getattr(torch, kind).device_count()} of {kind}")
    return _device(f"{kind}:{index}" if index and kind != "cpu" else kind)


def _keep_freed_memory() -> None:
    """Have glibc keep what PyTorch frees for the next step, rather than give it back.

    Otherwise each large tensor is mapped anew, and the kernel fills its pages with zeros: 5 to 15%
    of a step, measured. Elsewhere, as on macOS, there is nothing to set.
    """
    with suppress(OSError, AttributeError, TypeError):
        allocator = ctypes.CDLL(None)
        trim_threshold, mmap_threshold, unlimited = -1, -3, 2**31 - 1
        allocator.mallopt(mmap_threshold, unlimited)
        allocator.mallopt(trim_threshold, unlimited)


def _is_available(kind: str) -> bool:
    if kind == "mps":
        return torch.backends.mps.is_available()
    if kind == "xpu":
        return hasattr(torch, "xpu") and torch.xpu.is_available()
    return kind == "cpu" or torch.cuda.is_available()


def _device(name: str) -> Device:
    device = torch.device(name)
    return Device("rocm" if device.type == "cuda" and torch.version.hip else device.type, device)


def try_compile(model: nn.Module, wanted: bool, device: Device) -> str:
    """Compile a model in place where that is wanted and works here; else say in one sentence why.

    A compiler that is not there shows only when something is compiled: a single sum is, first. In
    place, because a wrapper's `loss` would call the model that is not compiled.
    """
    if not wanted:
        return ""
    try:
        probe = torch.compile(_probed, fullgraph=True)
        probe(torch.ones(8, device=device.torch_device))
    except Exception as error:  # whatever a missing or broken compiler makes of itself
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        # The compiler's own error comes after a line that says whose it is.
        said = next((line for line in lines if not line.endswith(":")), type(error).__name__)[:160]
        return f"Training goes on without compiling, for that does not work here: {said}"
    model.compile()
    return ""


def _probed(x: Tensor) -> Tensor:
    return (x * 2 + 1).sum()


@contextmanager
def eval_mode(model: nn.Module) -> Iterator[None]:
    """No gradients, no dropout; afterwards every part is in the mode it was in."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module, mode in modes:
            module.training = mode


def _peak_resident() -> int:
    try:
        import resource  # noqa: PLC0415 - not there on Windows
    except ImportError:
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # macOS counts in bytes
