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


def test_killed_at_any_moment_the_same_order_goes_on(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(TESTS / "making_kills.py"), str(tmp_path)],
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
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert len(found["statuses"]) > 10
    assert set(found["statuses"].values()) == {-signal.SIGKILL}, found["statuses"]
    assert found["end"] == found["calm"]
    assert not list(tmp_path.rglob("*.unfinished"))
