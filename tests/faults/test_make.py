"""A making killed at any moment, then ordered again: it ends as if nothing had happened."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
if sys.platform == "win32":
    pytest.skip("processes cannot be forked on Windows", allow_module_level=True)

TESTS = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize("kind", ["box", "gemma"])
def test_after_a_kill_at_any_moment_make_resumes(kind: str, tmp_path: Path) -> None:
    process = subprocess.run(
        [sys.executable, str(TESTS / "make_kills.py"), kind, str(tmp_path)],
        env={
            **os.environ,
            "PYTHONPATH": str(TESTS),
            "OMP_NUM_THREADS": "1",
            "XDG_CACHE_HOME": str(tmp_path / "cache"),
        },
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    result = json.loads(process.stdout.splitlines()[-1])
    assert len(result["statuses"]) > 5
    assert set(result["statuses"].values()) == {-signal.SIGKILL}, result["statuses"]
    assert result["end"] == result["calm"]
    assert not list(tmp_path.rglob("*.unfinished"))
