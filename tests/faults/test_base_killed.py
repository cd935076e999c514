"""A base that is fetched, killed at any moment: the same command goes on to the same bytes."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ownwords.core.workspace import UNFINISHED

pytest.importorskip("torch")
if sys.platform == "win32":
    pytest.skip("processes cannot be forked on Windows", allow_module_level=True)

TESTS = Path(__file__).resolve().parents[1]


def test_killed_at_any_moment_the_same_command_goes_on(tmp_path: Path) -> None:
    process = subprocess.run(
        [sys.executable, str(TESTS / "base_kills.py"), str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(TESTS), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    statuses = json.loads(process.stdout.splitlines()[-1])
    assert statuses.pop("calm") == 0, process.stderr
    assert len(statuses) > 5 and set(statuses.values()) == {-signal.SIGKILL}, process.stderr
    for home in ("calm", "killed"):
        names = {path.name for path in (tmp_path / home / "bases").iterdir()}
        # What the last kill left beside it goes with the next replacement.
        assert {name for name in names if UNFINISHED not in name} == {"tiny", ".tiny.lock"}
        assert len(names) <= 3
    assert files(tmp_path / "killed") == files(tmp_path / "calm")
    assert "model.safetensors" in files(tmp_path / "calm")


def files(home: Path) -> dict[str, bytes]:
    """The contents of the base."""
    return {path.name: path.read_bytes() for path in (home / "bases" / "tiny").iterdir()}
