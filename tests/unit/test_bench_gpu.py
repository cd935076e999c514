"""bench/gpu.py without a GPU: every row runs, and what it compares is the same."""

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "bench" / "gpu.py"


def test_each_row_runs_with_tiny_models_and_checks_are_exact(tmp_path: Path) -> None:
    out = tmp_path / "rows.jsonl"
    subprocess.run([sys.executable, SCRIPT, "--dry-run", "--out", out], check=True)
    rows = {each["row"]: each for each in map(json.loads, out.read_text("utf-8").splitlines())}
    assert len(rows) > 20
    for name, figures in rows.items():
        assert "error" not in figures
        assert figures.get("tokens_per_s", 1) > 0
        if name.startswith("check"):
            assert all(value < 1e-5 for key, value in figures.items() if key.startswith("off_"))
