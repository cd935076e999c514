"""A model directory to an engine: which one serves, and that the directory can be trusted."""

import importlib.util
import sys
from pathlib import Path
from typing import get_args

from ownwords.core.errors import OwnwordsError
from ownwords.inference import native_engine
from ownwords.inference.engine import Engine, WeightFormat
from ownwords.models import directory
from ownwords.models.directory import ModelDirectory
from ownwords.native import bindings
from ownwords.native import engine as native

DEVICES = ("auto", "cpu", "cuda", "mps", "xpu")
MOST_THREADS = 1024


def load_engine(
    folder: Path,
    *,
    device: str = "auto",
    weights: WeightFormat = "stored",
    threads: int | None = None,
) -> Engine:
    """The engine for a model directory; see `load_directory_and_engine`."""
    return load_directory_and_engine(folder, device=device, weights=weights, threads=threads)[1]


def load_directory_and_engine(
    folder: Path,
    *,
    device: str = "auto",
    weights: WeightFormat = "stored",
    threads: int | None = None,
) -> tuple[ModelDirectory, Engine]:
    """What a model directory says, its tokenizer's files among it, and the engine for its weights.

    It is checked as `models.bundle.load` checks it: ModelError or ConfigError says what is wrong.
    "auto" is a CUDA device where there is one, and the processor otherwise. There the native engine
    serves where it was compiled, elsewhere PyTorch. "int8" and "int4" round the weights as
    `models.quantize` does, the embedding included.
    """
    if device not in DEVICES and not device.startswith("cuda:"):
        raise OwnwordsError(
            f"{device!r} is no device", hint=f"the devices are {', '.join(DEVICES)}"
        )
    if weights not in get_args(WeightFormat):
        raise OwnwordsError(
            f"weights cannot be {weights!r}",
            hint=f"they can be {', '.join(get_args(WeightFormat))}",
        )
    if threads is not None and not 1 <= threads <= MOST_THREADS:
        raise OwnwordsError(f"threads ({threads}) must be from 1 to {MOST_THREADS}")
    if device == "auto":
        device = "cuda" if _has_cuda() else "cpu"
    with directory.open_directory(folder) as there:
        said = directory.read(there)
        if device == "cpu":
            found = native_engine.load(there, said.config, weights=weights, threads=threads)
            if found is not None:
                return said, found
        try:
            from ownwords.inference.torch_engine import TorchEngine  # noqa: PLC0415 - a second
        except ModuleNotFoundError as error:
            if error.name != "torch":
                raise
            why = (
                f"on {device} that takes PyTorch" if device != "cpu" else bindings.missing_reason()
            )
            raise OwnwordsError(
                f"there is nothing to run this model with: {why}, and PyTorch is not installed",
                hint='pip install "ownwords[train]"; `ownwords doctor` says more',
            ) from error
        return said, TorchEngine.load(there, device=device, weights=weights)


def describe_cpu_engine() -> tuple[str, str]:
    """What reads on the processor, for people, and where it is not the native engine, why not."""
    if native.available():
        return f"native engine, {bindings.describe()}", ""
    with_torch = importlib.util.find_spec("torch") is not None
    return "PyTorch" if with_torch else "", bindings.missing_reason()


def _has_cuda() -> bool:
    """Whether PyTorch finds a device; it is imported only where the machine has the driver."""
    driver = Path("C:/Windows/System32/nvcuda.dll" if sys.platform == "win32" else "/dev/nvidiactl")
    amd = Path("/dev/kfd")
    if not driver.exists() and not amd.exists():
        return False
    try:
        import torch  # noqa: PLC0415
    except ImportError:
        return False
    return bool(torch.cuda.is_available())
