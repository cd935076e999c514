"""The memory of a native engine: its weights, its caches, and little more."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

import model_directories as models
from ownwords.models import bundle
from ownwords.models.configs.llama import Qwen3Config, config_for_budget, parameter_count
from ownwords.models.decoder import build
from ownwords.native import bindings

pytestmark = pytest.mark.skipif(
    bindings.load_library() is None, reason="the part in C++ is not built"
)

READ = """
import sys
from pathlib import Path
from ownwords.inference.engine import ForwardInput
from ownwords.inference.model import load_engine
from ownwords.models import directory

folder = Path(sys.argv[1])
config = directory.read(folder).config
engine = load_engine(folder, config, device="cpu", weights=sys.argv[2], threads=2)
cache = engine.cache(4, 512)
cache.forward([ForwardInput(row, list(range(1, 90))) for row in range(4)])
lines = Path("/proc/self/status").read_text().splitlines()
said = dict(line.split(":", 1) for line in lines)
print(int(said["VmRSS"].split()[0]) * 1024, int(said["VmHWM"].split()[0]) * 1024)
"""


def save_model(folder: Path, size: int) -> Qwen3Config:
    config = config_for_budget(size, 97, 512)
    model = build(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(0.01)
    bundle.save(folder, model, models.Letters())
    return config


def measure_memory(folder: Path, weights: str) -> tuple[int, int]:
    """Resident memory after reading, and its peak, in bytes."""
    process = subprocess.run(
        [sys.executable, "-c", READ, str(folder), weights],
        capture_output=True,
        encoding="utf-8",
        check=True,
    )
    resident, peak = map(int, process.stdout.split())
    return resident, peak


@pytest.mark.skipif(sys.platform != "linux", reason="asks the kernel of Linux")
def test_the_weights_are_in_memory_once(tmp_path: Path) -> None:
    """A larger model takes as much more memory as its weights and its cache are larger."""
    small, large = (
        save_model(tmp_path / "small", 4_000_000),
        save_model(tmp_path / "large", 24_000_000),
    )
    for weights, bits, wide in (("f32", 32, 4), ("int8", 9, 2)):
        weight_bytes, cache_bytes = (
            [parameter_count(config) * bits // 8 for config in (small, large)],
            [
                4 * 512 * config.layers * 2 * config.kv_heads * config.head_dim * wide
                for config in (small, large)
            ],
        )
        more = weight_bytes[1] - weight_bytes[0] + cache_bytes[1] - cache_bytes[0]
        (resident, peak), (large_resident, large_peak) = (
            measure_memory(tmp_path / name, weights) for name in ("small", "large")
        )
        assert large_resident - resident < 1.5 * more, weights
        assert large_peak - peak < 1.5 * more + 4 * large.hidden * large.width, weights
