"""Describes this machine. Unknown values are empty, 0 or absent.

Tests pass another `root` for /proc and /sys.
"""

import ctypes
import gc
import logging
import os
import platform
import re
import shutil
import sqlite3
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import psutil

from ownwords.core.errors import ConfigError
from ownwords.core.packages import install_command

_ROOT = Path("/")
_log = logging.getLogger("ownwords.device")

# What "auto" tries, the best first; then the CPU. ROCm's name in PyTorch is cuda.
TRAINING_DEVICES = ("cuda", "xpu", "mps")
RUNNING_DEVICES = ("cuda",)  # otherwise the CPU, with the native engine
MIN_MEMORY = 1 << 30  # free bytes of a card that "auto" takes
_noted: set[str] = set()  # each reason is reported once, not at every stage of a run

_COMPILERS = ("c++", "g++", "clang++", "cl")


@dataclass(frozen=True, slots=True)
class Cpu:
    """The processor; `usable_cores` are those this process may run on (affinity, container)."""

    model: str
    architecture: str
    physical_cores: int
    logical_cores: int
    usable_cores: int


@dataclass(frozen=True, slots=True)
class Capacity:
    """The size of memory or of a disk, and how much of it is available."""

    total_bytes: int
    available_bytes: int


@dataclass(frozen=True, slots=True)
class ComputeDevice:
    """A device that a model can be trained on."""

    kind: str  # cpu, cuda, rocm, xpu, mps
    name: str
    memory_bytes: int
    dtypes: tuple[str, ...]  # those that support a matrix product


@dataclass(frozen=True, slots=True)
class OptionalComponent:
    """An optional component; `installed` is its version or path, or empty."""

    name: str
    purpose: str
    installed: str
    problem: str
    command: str


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine as `ownwords doctor` reports it."""

    system: str
    python: str
    cpu: Cpu
    memory: Capacity
    disk: Capacity  # the disk of the workspace
    sqlite: str
    full_text_search: bool
    threads: int
    devices: tuple[ComputeDevice, ...]  # best first; empty without torch
    parts: tuple[OptionalComponent, ...]


def inspect_machine(workspace: Path) -> Machine:
    """Describe this machine; takes about two seconds, mostly for importing torch."""
    torch, problem = import_torch()
    cpu = read_cpu()
    return Machine(
        system=f"{platform.system()} {platform.release()}",
        python=f"{platform.python_version()} ({platform.python_implementation()})",
        cpu=cpu,
        memory=read_memory(),
        disk=disk_capacity(workspace),
        sqlite=sqlite3.sqlite_version,
        full_text_search=has_full_text_search(),
        threads=threads(cpu),
        devices=tuple(_devices(torch)) if torch else (),
        parts=tuple(_parts(torch, problem)),
    )


def threads(cpu: Cpu) -> int:
    """Return the best number of threads: one for each physical core that may be used."""
    return max(1, min(cpu.usable_cores, cpu.physical_cores or cpu.usable_cores))


def import_torch() -> tuple[ModuleType | None, str]:
    """Return torch, or None and the problem if it is installed but broken."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import torch  # noqa: PLC0415
    except Exception as error:  # a broken torch raises any of OSError, RuntimeError, ImportError
        if isinstance(error, ModuleNotFoundError) and error.name == "torch":
            return None, ""
        first_line = str(error).partition("\n")[0]
        return None, f"importing it fails with {type(error).__name__}: {first_line}"
    return torch, ""


def has_full_text_search() -> bool:
    """Whether this Python's SQLite was built with FTS5."""
    connection = sqlite3.connect(":memory:")
    try:
        connection.execute("CREATE VIRTUAL TABLE probe USING fts5(text)")
    except sqlite3.OperationalError:
        return False
    finally:
        connection.close()
    return True


# --- processor ---------------------------------------------------------------------------------


def read_cpu(root: Path = _ROOT, system: str = sys.platform) -> Cpu:
    """Return the processor, as the operating system describes it."""
    text = _text(root / "proc/cpuinfo")
    name = re.search(r"^(?:model name|Model|Hardware)\s*:\s*(.+)$", text, re.MULTILINE)
    model = name[1].strip() if name else ""
    if system == "darwin":
        model = _sysctl("machdep.cpu.brand_string")
    return Cpu(
        model=model or platform.processor(),
        architecture=platform.machine(),
        physical_cores=psutil.cpu_count(logical=False) or 0,
        logical_cores=os.cpu_count() or 1,
        usable_cores=usable_cores(root),
    )


def usable_cores(root: Path = _ROOT) -> int:
    """Count the cores this process may use, by its affinity and its container's quota."""
    cores = os.cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    for folder in _cgroups(root):
        quota, _, period = _text(folder / "cpu.max").partition(" ")
        if quota.isdigit() and period.isdigit() and int(period):
            cores = min(cores, max(1, round(int(quota) / int(period))))
    return cores


def _cgroups(root: Path) -> list[Path]:
    """Return the control groups of this process, its own first."""
    top = root / "sys/fs/cgroup"
    path = re.search(r"^0::/(.*)$", _text(root / "proc/self/cgroup"), re.MULTILINE)
    # In a container the path may be the host's: then only `top` exists.
    group = top / path[1] if path else top
    return [folder for folder in (group, *group.parents) if folder.is_relative_to(top)]


def _sysctl(name: str) -> str:
    with suppress(OSError, subprocess.TimeoutExpired):
        command = ["sysctl", "-n", name]
        done = subprocess.run(command, capture_output=True, timeout=5, check=False)
        return done.stdout.decode("utf-8", "replace").strip()
    return ""


# --- memory and disk ---------------------------------------------------------------------------


def read_memory(root: Path = _ROOT) -> Capacity:
    """Return the memory of the machine or of its container."""
    memory = psutil.virtual_memory()
    total, available = int(memory.total), int(memory.available)
    for folder in _cgroups(root):
        limit, used = _text(folder / "memory.max"), _text(folder / "memory.current")
        if limit.isdigit() and int(limit) < total:
            total = int(limit)
            available = min(available, max(0, total - int(used or 0)))
    return Capacity(total, available)


def disk_capacity(workspace: Path) -> Capacity:
    """Return the size of the disk that holds the workspace, or will hold it."""
    folder = workspace.absolute()
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    usage = shutil.disk_usage(folder)
    return Capacity(usage.total, usage.free)


# --- devices -----------------------------------------------------------------------------------


def choose_device(
    name: str | None = "auto",
    best: Sequence[str] = RUNNING_DEVICES,
    note: Callable[[str], object] | None = None,
    *,
    memory_bytes: int = MIN_MEMORY,
) -> str:
    """Return PyTorch's name of the device to use, after testing it with a small product.

    "auto" or None is the first of `best` that works and has `memory_bytes` free, else the CPU;
    `note` (or the log) gets a sentence about each one passed over. A named device becomes the
    current one; ConfigError if it is missing or does not work.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about an old card or driver; ours follow
        if name in (None, "auto"):
            torch, _ = import_torch()
            kinds = [kind for kind in best if torch and _is_available(torch, kind)]
            # The processes of `torchrun` must use the same kind, so none falls back.
            if "LOCAL_RANK" not in os.environ:
                works = (k for k in kinds if torch and _is_usable(torch, k, memory_bytes, note))
                return next(works, "cpu")
            name = next(iter(kinds), "cpu")
        return "cpu" if name == "cpu" else _named_device(str(name))


def _named_device(name: str) -> str:
    import torch  # noqa: PLC0415

    kind, _, index = name.partition(":")
    kind = "cuda" if kind == "rocm" else kind
    available = [each for each in (*TRAINING_DEVICES, "cpu") if _is_available(torch, each)]
    if kind not in available or (index and not index.isdigit()):
        raise ConfigError(
            f"PyTorch finds no device {name!r} here", hint=f"use auto or {', '.join(available)}"
        )
    if kind not in ("cuda", "xpu"):
        device = kind
    else:
        accelerator, index = getattr(torch, kind), os.environ.get("LOCAL_RANK", index)
        device = f"{kind}:{index}" if index else kind
        if index and int(index) >= accelerator.device_count():
            raise ConfigError(
                f"PyTorch finds no device {device!r} here",
                hint=f"it finds {accelerator.device_count()}, and counts them from 0",
            )
        if index:  # events and streams without a named device use the current one
            accelerator.set_device(int(index))
    if problem := _device_problem(torch, device):
        raise ConfigError(f"{_card(torch, device)} cannot be used: {problem}", hint="--device cpu")
    return device


def _is_available(torch: ModuleType, kind: str) -> bool:
    if kind == "mps":
        return bool(torch.backends.mps.is_available())
    return kind == "cpu" or (hasattr(torch, kind) and bool(getattr(torch, kind).is_available()))


def _is_usable(
    torch: ModuleType, device: str, memory_bytes: int, note: Callable[[str], object] | None
) -> bool:
    problem = _device_problem(torch, device)
    if not problem and device == "cuda":
        # Memory that PyTorch holds in reserve counts as free, because it is reused.
        reserve = torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
        free = torch.cuda.mem_get_info()[0] + reserve
        if free < memory_bytes:
            needed = f"{memory_bytes / 1e9:.1f} GB are needed"
            problem = f"only {free / 1e9:.1f} GB of its memory are free; {needed}"
    sentence = f"{_card(torch, device)} is not used: {problem}."
    if problem and sentence not in _noted:
        _noted.add(sentence)
        (note or _log.warning)(sentence)
    return not problem


def _device_problem(torch: ModuleType, device: str, dtype: str = "float32") -> str:
    """Return why the device cannot multiply, such as a card too old for this PyTorch; or ""."""
    try:
        square = torch.ones(8, 8, dtype=getattr(torch, dtype), device=device)
        (square @ square).sum().item()
    except (RuntimeError, TypeError, AssertionError) as error:  # depends on PyTorch's build
        return str(error).split("\n")[0].split(". ")[0].rstrip(".")
    return ""


def _card(torch: ModuleType, device: str) -> str:
    with suppress(AttributeError, RuntimeError, AssertionError):
        return f"{getattr(torch, device.partition(':')[0]).get_device_name()} ({device})"
    return device


def _devices(torch: ModuleType) -> Iterator[ComputeDevice]:
    def device(kind: str, name: str, memory: int, address: str) -> ComputeDevice:
        dtypes = ("float32", "bfloat16", "float16")
        works = tuple(dtype for dtype in dtypes if not _device_problem(torch, address, dtype))
        return ComputeDevice(kind, name, memory, works)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # warnings about an old driver; its device is left out
        kinds = [kind for kind in TRAINING_DEVICES if _is_available(torch, kind)]
    for kind in kinds:
        if kind == "mps":
            yield device("mps", "Apple GPU", torch.mps.recommended_max_memory(), "mps")
            continue
        label = "rocm" if kind == "cuda" and torch.version.hip else kind
        for index in range(getattr(torch, kind).device_count()):
            facts = getattr(torch, kind).get_device_properties(index)
            yield device(label, facts.name, facts.total_memory, f"{kind}:{index}")
    yield device("cpu", "processor", 0, "cpu")


# --- freed memory, with glibc ---------------------------------------------------------------------

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # malloc.h
_UNLIMITED, _LARGE = 2**31 - 1, 2**25


def keep_freed_memory() -> None:
    """Keep freed memory for the next training step.

    By default glibc returns it to the kernel, which then maps and zeroes the pages of each large
    tensor again: 5% to 15% of a step.
    """
    _set_thresholds(_UNLIMITED)


def return_freed_memory() -> None:
    """Return freed memory to the system from now on, after a large model was closed."""
    gc.collect()  # modules and their closures are freed in cycles
    _set_thresholds(_LARGE)
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def _set_thresholds(value: int) -> None:
    with suppress(OSError, AttributeError, TypeError):
        allocator = ctypes.CDLL(None)
        allocator.mallopt(_MMAP_THRESHOLD, value)
        allocator.mallopt(_TRIM_THRESHOLD, value)


# --- optional parts ----------------------------------------------------------------------------


def _parts(torch: ModuleType | None, problem: str) -> Iterator[OptionalComponent]:
    yield OptionalComponent(
        name="torch",
        purpose="for training; reading and writing work without it",
        installed=torch.__version__ if torch else "",
        problem=problem,
        command="" if torch else install_command("train"),
    )
    compiler = next(filter(None, map(shutil.which, _COMPILERS)), "")
    yield OptionalComponent(
        name="C++ compiler",
        purpose="for building the C++ kernels when ownwords is installed",
        installed=compiler,
        problem="",
        command="" if compiler else "install g++ or clang++ (on a Mac: xcode-select --install)",
    )


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
