"""Loads a model directory: its tokenizer, and its weights into the native engine or PyTorch."""

import importlib.util
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import get_args

from ownwords.core import hardware
from ownwords.core.errors import OwnwordsError
from ownwords.inference import native_engine
from ownwords.inference.engine import Engine, WeightFormat
from ownwords.models import directory
from ownwords.models.directory import ModelDirectory
from ownwords.native import bindings
from ownwords.tokenizers import tokenizer
from ownwords.tokenizers.tokenizer import Tokenizer

DEVICES = ("auto", "cpu", "cuda", "rocm", "mps", "xpu")
# A machine without any of these has no CUDA; /dev/dxg is WSL's, /dev/kfd is ROCm's.
_DRIVERS = ("/dev/nvidiactl", "/dev/dxg", "/dev/kfd", "C:/Windows/System32/nvcuda.dll")
MAX_THREADS = 1024


def load_engine(
    folder: Path,
    *,
    device: str = "auto",
    weights: WeightFormat = "stored",
    threads: int | None = None,
) -> Engine:
    """Load and check the engine of a model directory; see `load_with_tokenizer`."""
    _check_options(device, weights, threads)
    with directory.open_directory(folder) as readable:
        return _engine(readable, directory.read(readable), device, weights, threads)


def load_with_tokenizer(
    folder: Path,
    *,
    device: str = "auto",
    weights: WeightFormat = "stored",
    threads: int | None = None,
) -> tuple[ModelDirectory, Tokenizer, Engine]:
    """Load and check a model directory: its files' contents, its tokenizer and its engine.

    Raises ModelError or ConfigError, as `models.bundle.load` does, and TokenizerError. "auto"
    selects CUDA if it works and has the memory, otherwise the CPU, which uses the native engine if
    compiled, otherwise PyTorch. "int8" and "int4" quantize the weights as `models.quantize` does,
    including the embedding.
    """
    _check_options(device, weights, threads)
    # Each takes up to half a second for Gemma 3 270M; loading the weights needs the GIL little.
    with directory.open_directory(folder) as readable, ThreadPoolExecutor(1) as other:
        files = directory.read(readable)
        reading = other.submit(tokenizer.Tokenizer, files.tokenizer_files)
        engine = _engine(readable, files, device, weights, threads)
        own_tokenizer = reading.result()
        files.check_tokenizer(own_tokenizer)
        return files, own_tokenizer, engine


def _check_options(device: str, weights: WeightFormat, threads: int | None) -> None:
    if device.partition(":")[0] not in DEVICES:
        raise OwnwordsError(
            f"there is no device {device!r}", hint=f"the devices are {', '.join(DEVICES)}"
        )
    if weights not in get_args(WeightFormat):
        raise OwnwordsError(
            f"weights cannot be {weights!r}",
            hint=f"choose from {', '.join(get_args(WeightFormat))}",
        )
    if threads is not None and not 1 <= threads <= MAX_THREADS:
        raise OwnwordsError(f"threads ({threads}) must be from 1 to {MAX_THREADS}")


def choose_device(device: str, folder: Path) -> str:
    """The device to run the model of this directory on; imports PyTorch only where it must."""
    if device == "cpu" or (device == "auto" and not has_driver()):
        return "cpu"
    weights = sum(file.stat().st_size for file in folder.glob("*.safetensors"))
    # Twice, because bfloat16 may become float32.
    return hardware.choose_device(device, memory_bytes=hardware.MIN_MEMORY + 2 * weights)


def has_driver() -> bool:
    """Whether this machine has the driver of a card that CUDA or ROCm could use."""
    return any(Path(driver).exists() for driver in _DRIVERS)


def _engine(
    readable: Path, files: ModelDirectory, device: str, weights: WeightFormat, threads: int | None
) -> Engine:
    try:
        device = choose_device(device, readable)
        if device == "cpu":
            engine = native_engine.load(readable, files.config, weights=weights, threads=threads)
            if engine is not None:
                return engine
        from ownwords.inference.torch_engine import TorchEngine  # noqa: PLC0415 - a second
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        reason = f"{device} needs PyTorch" if device != "cpu" else bindings.library_problem()
        raise OwnwordsError(
            f"nothing here can run this model: {reason}, and PyTorch is not installed",
            hint='pip install "ownwords[train]"; `ownwords doctor` says more',
        ) from error
    return TorchEngine.load(readable, device=device, weights=weights)


def describe_cpu_engine() -> tuple[str, str]:
    """Return the name of the CPU engine, and the reason if it is not the native one."""
    if (library := bindings.load_library()) is not None:
        return f"native engine, {library.isa.label}", ""
    has_torch = importlib.util.find_spec("torch") is not None
    return "PyTorch" if has_torch else "", bindings.library_problem()
