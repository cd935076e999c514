"""Training killed at any moment, then resumed: the weights equal those of a calm run."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
if sys.platform == "win32":
    pytest.skip("processes cannot be forked on Windows", allow_module_level=True)

TESTS = Path(__file__).resolve().parents[1]


def run_helper(folder: Path, *arguments: str) -> dict[str, Any]:
    process = subprocess.run(
        [sys.executable, str(TESTS / "training_kills.py"), str(folder), *arguments],
        env={**os.environ, "PYTHONPATH": str(TESTS), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    answer: dict[str, Any] = json.loads(process.stdout.splitlines()[-1])
    return answer


@pytest.mark.parametrize(("kills", "precision"), [(12, "float32"), (4, "bf16")])
def test_kills_at_random(kills: int, precision: str, tmp_path: Path) -> None:
    """With bf16 within blocks in C++ and Muon's steps; on other machines in PyTorch."""
    result = run_helper(tmp_path, "SIGKILL", str(kills), precision)
    assert len(result["statuses"]) >= kills
    assert set(result["statuses"]) == {-signal.SIGKILL}
    assert result["resumed"] >= kills // 2
    assert set(result["ends"]) == {result["calm"]}
    assert result["left"] == []


def test_five_kills_while_a_checkpoint_is_written(tmp_path: Path) -> None:
    result = run_helper(tmp_path, "writing")
    assert result["statuses"] == [-signal.SIGKILL] * 5
    # Checkpoints after 0, 1, 2 and, where it was in its place, 3 steps.
    assert result["steps"] == [[1, 2], [1, 2], [1, 2], [1, 2, 3], [1, 2, 3]]
    assert result["ends"] == [result["calm"]] * 5
    assert result["left"] == []


def test_a_stop_signal_saves_and_the_run_resumes(tmp_path: Path) -> None:
    result = run_helper(tmp_path, "SIGTERM", "2")
    # 7: `TrainingInterrupted`. Before the loop begins, a signal ends it as any program.
    assert set(result["statuses"]) <= {7, -signal.SIGTERM, 1}
    assert 7 in result["statuses"]
    assert set(result["ends"]) == {result["calm"]}
