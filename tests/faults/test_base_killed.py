"""A base that is fetched, killed at any moment: the same command goes on to the same bytes."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
if sys.platform == "win32":
    pytest.skip("Windows has no SIGKILL", allow_module_level=True)

import base_kills

TESTS = Path(__file__).resolve().parents[1]


def added(folder: Path, home: str, moment: str = "") -> subprocess.CompletedProcess[str]:
    """Add the base in a process of its own, which dies at that moment."""
    return subprocess.run(
        [sys.executable, str(TESTS / "base_kills.py"), str(folder), str(folder / home), moment],
        env={**os.environ, "PYTHONPATH": str(TESTS), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_killed_at_any_moment_the_same_command_goes_on(tmp_path: Path) -> None:
    calm = added(tmp_path, "calm")
    assert calm.returncode == 0, calm.stderr
    assert "model.safetensors" in files(tmp_path / "calm")
    for moment in base_kills.MOMENTS:
        died = added(tmp_path, "killed", moment)
        assert died.returncode == -signal.SIGKILL, (moment, died.stderr)
        bases = tmp_path / "killed" / "bases"
        assert (bases / "tiny").exists() == (moment == "when it is in its place")
    resumed = added(tmp_path, "killed")
    assert "already exists" in resumed.stderr  # the last kill came when it was there
    for home in ("calm", "killed"):
        names = {path.name for path in (tmp_path / home / "bases").iterdir()}
        assert names == {"tiny", ".tiny.lock"}
    assert files(tmp_path / "killed") == files(tmp_path / "calm")


def files(home: Path) -> dict[str, bytes]:
    """The contents of the base."""
    return {path.name: path.read_bytes() for path in (home / "bases" / "tiny").iterdir()}
