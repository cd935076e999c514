"""What a native engine leaves in memory: its weights, its caches, and little more."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

import model_directories as models
from ownwords.models import bundle
from ownwords.models.configs.qwen3 import config_for_budget, parameter_count
from ownwords.models.decoder import build
from ownwords.native import engine as native

pytestmark = pytest.mark.skipif(not native.available(), reason="the part in C++ is not built")

MIB = 1 << 20
# Interpreter, NumPy, the library and its scratch.
REST = 60 * MIB

READ = """
import sys
from pathlib import Path
from ownwords.inference.engine import ForwardInput
from ownwords.inference.engine_loader import load_engine

engine = load_engine(Path(sys.argv[1]), device="cpu", weights=sys.argv[2], threads=2)
cache = engine.cache(4, 512)
cache.forward([ForwardInput(row, list(range(1, 90))) for row in range(4)])
lines = Path("/proc/self/status").read_text().splitlines()
said = dict(line.split(":", 1) for line in lines)
print(int(said["VmRSS"].split()[0]) * 1024, int(said["VmHWM"].split()[0]) * 1024)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="asks the kernel of Linux")
def test_the_weights_are_in_memory_once(tmp_path: Path) -> None:
    config = config_for_budget(12_000_000, 97, 512)
    model = build(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(0.01)
    bundle.save(tmp_path / "m", model, models.Letters())
    cached = 4 * 512 * config.layers * 2 * config.kv_width
    for weights, bits, wide in (("f32", 32, 4), ("int8", 9, 2)):
        done = subprocess.run(
            [sys.executable, "-c", READ, str(tmp_path / "m"), weights],
            capture_output=True,
            encoding="utf-8",
            check=True,
        )
        resident, peak = map(int, done.stdout.split())
        limit = parameter_count(config) * bits // 8 + cached * wide + REST
        assert resident <= limit, weights
        # While it is packed, one matrix stands in memory twice.
        assert peak <= limit + 4 * max(config.hidden, config.vocabulary) * config.width, weights
