"""Training killed at any moment, then gone on with: the weights are those of a calm run."""

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


def told(folder: Path, *what: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, str(TESTS / "training_kills.py"), str(folder), *what],
        env={**os.environ, "PYTHONPATH": str(TESTS), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def test_twenty_kills_at_random(tmp_path: Path) -> None:
    found = told(tmp_path, "SIGKILL", "20")
    assert found["statuses"] == [-signal.SIGKILL] * 20
    assert found["resumed"] > 10
    assert set(found["ends"]) == {found["calm"]}
    assert found["left"] == []


@pytest.mark.parametrize("precision", ["autocast", "bf16"])
def test_kills_of_what_the_library_computes(precision: str, tmp_path: Path) -> None:
    """Whole blocks in C++, and Muon's steps; on other machines PyTorch's in bfloat16."""
    found = told(tmp_path, "SIGKILL", "4", precision)
    assert found["statuses"] == [-signal.SIGKILL] * 4
    assert found["resumed"] > 1
    assert set(found["ends"]) == {found["calm"]}
    assert found["left"] == []


def test_five_kills_while_a_checkpoint_is_written(tmp_path: Path) -> None:
    found = told(tmp_path, "writing")
    assert found["statuses"] == [-signal.SIGKILL] * 5
    # Checkpoints after 0, 1, 2 and, where it was in its place, 3 steps.
    assert found["steps"] == [[1, 2], [1, 2], [1, 2], [1, 2, 3], [1, 2]]
    assert found["ends"] == [found["calm"]] * 5
    assert found["left"] == []


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_asked_to_stop_it_saves_and_goes_on_later(name: str, tmp_path: Path) -> None:
    found = told(tmp_path, name, "2")
    # 7: `TrainingInterrupted`. Before the loop begins, a signal ends it as any program.
    assert set(found["statuses"]) <= {7, -signal.SIGTERM, 1}
    assert 7 in found["statuses"]
    assert set(found["ends"]) == {found["calm"]}
