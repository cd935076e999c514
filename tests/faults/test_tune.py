"""A search killed at any moment."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("optuna")
pytest.importorskip("torch")

TESTS = Path(__file__).resolve().parents[1]


def start(folder: Path, worker: str, record: str = "record") -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, str(TESTS / "tune_process.py"), str(folder), worker, record],
        env={**os.environ, "PYTHONPATH": str(TESTS), "OMP_NUM_THREADS": "1"},
    )


def result(folder: Path, worker: str) -> list[list[object]]:
    trials: list[list[object]] = json.loads((folder / f"{worker}-trials.json").read_text())
    return trials


def test_a_search_killed_repeatedly_ends_with_the_same_result(tmp_path: Path) -> None:
    assert start(tmp_path, "calm", "calm").wait(120) == 0
    generator, log = random.Random(7), tmp_path / "here.log"
    for lines in (1, 7, 13):
        process = start(tmp_path, "here")
        while process.poll() is None and not (
            log.exists() and len(log.read_text().splitlines()) >= lines
        ):
            time.sleep(0.01)
        time.sleep(generator.uniform(0, 0.1))
        process.kill()
        assert process.wait(60) in (-signal.SIGKILL, 1)
    assert start(tmp_path, "here").wait(120) == 0
    assert result(tmp_path, "here") == result(tmp_path, "calm")
