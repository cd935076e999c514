"""Loads a model directory: its tokenizer, and its weights into the native engine or PyTorch."""

import importlib.util
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import get_args

from ownwords.core.errors import OwnwordsError
from ownwords.inference import native_engine
from ownwords.inference.engine import Engine, WeightFormat
from ownwords.models import directory
from ownwords.models.directory import ModelDirectory
from ownwords.native import bindings
from ownwords.native import engine as native
from ownwords.tokenizers import tokenizer
from ownwords.tokenizers.tokenizer import Tokenizer

DEVICES = ("auto", "cpu", "cuda", "mps", "xpu")
MAX_THREADS = 1024


def load_engine(
    folder: Path,
    *,
    device: str = "auto",
    weights: WeightFormat = "stored",
    threads: int | None = None,
) -> Engine:
    """Load and check the engine of a model directory; see `load_with_tokenizer`."""
    chosen = _check_options(device, weights, threads)
    with directory.open_directory(folder) as readable:
        return _engine(readable, directory.read(readable), chosen, weights, threads)


def load_with_tokenizer(
    folder: Path,
    *,
    device: str = "auto",
    weights: WeightFormat = "stored",
    threads: int | None = None,
) -> tuple[ModelDirectory, Tokenizer, Engine]:
    """Load and check a model directory: its files' contents, its tokenizer and its engine.

    Raises ModelError or ConfigError, as `models.bundle.load` does, and TokenizerError. "auto"
    selects CUDA if there is a device, otherwise the CPU, which uses the native engine if compiled,
    otherwise PyTorch. "int8" and "int4" quantize the weights as `models.quantize` does, including
    the embedding.
    """
    chosen = _check_options(device, weights, threads)
    # Each takes up to half a second for Gemma 3 270M; loading the weights needs the GIL little.
    with directory.open_directory(folder) as readable, ThreadPoolExecutor(1) as other:
        files = directory.read(readable)
        reading = other.submit(tokenizer.from_files, files.tokenizer_files)
        engine = _engine(readable, files, chosen, weights, threads)
        own_tokenizer = reading.result()
        files.check_tokenizer(own_tokenizer)
        return files, own_tokenizer, engine


def _check_options(device: str, weights: WeightFormat, threads: int | None) -> str:
    """The device that is meant."""
    if device not in DEVICES and not device.startswith("cuda:"):
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
    if device == "auto":
        return "cuda" if _has_cuda() else "cpu"
    return device


def _engine(
    readable: Path, files: ModelDirectory, device: str, weights: WeightFormat, threads: int | None
) -> Engine:
    if device == "cpu":
        engine = native_engine.load(readable, files.config, weights=weights, threads=threads)
        if engine is not None:
            return engine
    try:
        from ownwords.inference.torch_engine import TorchEngine  # noqa: PLC0415 - a second
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        reason = f"{device} needs PyTorch" if device != "cpu" else bindings.missing_reason()
        raise OwnwordsError(
            f"nothing here can run this model: {reason}, and PyTorch is not installed",
            hint='pip install "ownwords[train]"; `ownwords doctor` says more',
        ) from error
    return TorchEngine.load(readable, device=device, weights=weights)


def describe_cpu_engine() -> tuple[str, str]:
    """Return the name of the CPU engine, and the reason if it is not the native one."""
    if native.available():
        return f"native engine, {bindings.describe()}", ""
    has_torch = importlib.util.find_spec("torch") is not None
    return "PyTorch" if has_torch else "", bindings.missing_reason()


def _has_cuda() -> bool:
    """Whether PyTorch finds a device; imports it only on machines with a driver."""
    driver = Path("C:/Windows/System32/nvcuda.dll" if sys.platform == "win32" else "/dev/nvidiactl")
    amd = Path("/dev/kfd")
    if not driver.exists() and not amd.exists():
        return False
    try:
        import torch  # noqa: PLC0415
    except ImportError:
        return False
    return bool(torch.cuda.is_available())
