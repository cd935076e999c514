"""A search killed at any moment, and one shared by two processes."""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("optuna")
pytest.importorskip("torch")
if sys.platform == "win32":
    pytest.skip("processes cannot be forked on Windows", allow_module_level=True)

TESTS = Path(__file__).resolve().parents[1]


def run_helper(folder: Path, *arguments: str) -> dict[str, Any]:
    process = subprocess.run(
        [sys.executable, "-W", "ignore", str(TESTS / "tune_processes.py"), str(folder), *arguments],
        env={**os.environ, "PYTHONPATH": str(TESTS), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    answer: dict[str, Any] = json.loads(process.stdout.splitlines()[-1])
    return answer


@pytest.mark.parametrize("record", ["sqlite", "journal"])
def test_a_search_killed_repeatedly_ends_with_the_same_result(record: str, tmp_path: Path) -> None:
    result = run_helper(tmp_path, "killed", record, "3")
    assert set(result["statuses"]) == {-signal.SIGKILL}
    assert len(result["statuses"]) >= 2
    calm, killed = result["calm"]["trials"], result["killed"]["trials"]
    # All the same but for what a killed process had put into the queue twice.
    assert [trial for trial in killed if trial[1] != "dropped"] == calm
    assert result["killed"]["verdict"] == result["calm"]["verdict"]


@pytest.mark.parametrize(
    ("mode", "record"), [("machines", "journal"), ("machines", "sqlite"), ("one-place", "sqlite")]
)
def test_two_processes_share_a_search(mode: str, record: str, tmp_path: Path) -> None:
    result = run_helper(tmp_path, mode, record)
    assert result["statuses"] == [0, 0]
    first, second = result["found"]
    assert first["verdict"] == second["verdict"]
    assert first["trials"] == second["trials"]
    trials = first["trials"]
    assert [trial[0] for trial in trials] == [*range(1, len(trials) + 1)]
    choices = [trial for trial in trials if trial[2] != "again" and trial[1] != "dropped"]
    assert 10 <= len(choices) <= 11  # both may begin the last at the same moment
    assert {trial[1] for trial in choices} == {"done"}
    assert [trial[2] for trial in choices[:9]] == ["plan"] + ["spread"] * 8
    repeats = [trial for trial in trials if trial[2] == "again" and trial[1] == "done"]
    assert len(repeats) == 9
    assert len({(trial[3], trial[4]) for trial in repeats}) == 9
    # Nothing is tried twice, and both have had their part of it.
    trials_run = Counter((json.dumps(settings), seed) for _, _, settings, seed in result["made"])
    assert set(trials_run.values()) == {1}
    shares = Counter(process for _, process, _, _ in result["made"])
    assert min(shares.values()) >= 4
