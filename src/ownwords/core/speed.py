"""Measures how fast this machine multiplies matrices and reads memory."""

import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import ModuleType


@dataclass(frozen=True, slots=True)
class Speed:
    """A measured speed: the median over at least 0.2 s."""

    what: str  # "matrix product, float32, 1024 x 1024, torch on cpu"
    value: float
    unit: str  # GFLOP/s or GB/s


def numpy_product() -> Speed:
    """The speed of a matrix product in NumPy, for machines without torch."""
    import numpy as np  # noqa: PLC0415

    def product(size: int) -> Callable[[], object]:
        square = np.ones((size, size), np.float32)
        return lambda: square @ square

    return _product_speed(product, "float32", "numpy")


def torch_product(torch: ModuleType, kind: str, dtype: str) -> Speed:
    """The speed of a matrix product in torch on a kind of device."""
    device = "cuda" if kind == "rocm" else kind
    wait = (lambda: None) if device == "cpu" else getattr(torch, device).synchronize

    def product(size: int) -> Callable[[], object]:
        square = torch.ones(size, size, dtype=getattr(torch, dtype), device=device)

        def run() -> None:
            square @ square
            wait()

        return run

    where = f"cpu, {_threads(torch.get_num_threads())}" if device == "cpu" else kind
    return _product_speed(product, dtype, f"torch on {where}")


def _product_speed(product: Callable[[int], Callable[[], object]], dtype: str, where: str) -> Speed:
    """Time the smallest square matrices whose product takes over 4 ms."""
    size = 512
    while True:
        run = product(size)
        run()
        began = time.perf_counter()
        run()
        if time.perf_counter() - began > 0.004 or size == 8192:
            break
        size *= 2
    speed = 2 * size**3 / _median_s(run) / 1e9
    return Speed(f"matrix product, {dtype}, {size} x {size}, {where}", speed, "GFLOP/s")


def memory_read(cores: int) -> Speed:
    """The speed at which all cores together read memory, which bounds decoding."""
    import numpy as np  # noqa: PLC0415

    megabytes = 128  # more than most caches hold
    parts = np.array_split(np.ones(megabytes * 2**18, np.float32), cores)
    with ThreadPoolExecutor(cores) as pool:
        seconds = _median_s(lambda: list(pool.map(np.max, parts)))
    what = f"memory read, {megabytes} MB by {_threads(cores)}, numpy"
    return Speed(what, megabytes * 2**20 / seconds / 1e9, "GB/s")


def _threads(count: int) -> str:
    return "1 thread" if count == 1 else f"{count} threads"


def _median_s(run: Callable[[], object], for_s: float = 0.2) -> float:
    """The median seconds of a run, over `for_s` seconds and at least three runs."""
    run()
    times: list[float] = []
    while len(times) < 3 or sum(times) < for_s:
        began = time.perf_counter()
        run()
        times.append(time.perf_counter() - began)
    return statistics.median(times)
