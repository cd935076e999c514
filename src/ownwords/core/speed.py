"""How fast this machine computes and reads its memory, measured."""

import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import ModuleType


@dataclass(frozen=True, slots=True)
class Speed:
    """A speed as measured: the median over a fifth of a second or more."""

    what: str  # "matrix product, float32, 1024 x 1024, torch on cpu"
    value: float
    unit: str  # GFLOP/s or GB/s


def numpy_product() -> Speed:
    """How fast numpy multiplies matrices: the speed of a machine without torch."""
    import numpy as np  # noqa: PLC0415 - not needed to say what a machine has

    def product(size: int) -> Callable[[], object]:
        square = np.ones((size, size), np.float32)
        return lambda: square @ square

    return _product_speed(product, "float32", "numpy")


def torch_product(torch: ModuleType, kind: str, dtype: str) -> Speed:
    """How fast torch multiplies matrices on that kind of device: the speed of training."""
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
    """Of the smallest square matrices whose product takes long enough to be timed well."""
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
    """How fast memory is read by all cores together: what bounds the writing of a model."""
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
    """Median seconds of one run, over so long a time and three runs at least."""
    run()
    taken: list[float] = []
    while len(taken) < 3 or sum(taken) < for_s:
        began = time.perf_counter()
        run()
        taken.append(time.perf_counter() - began)
    return statistics.median(taken)
