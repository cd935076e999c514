"""Run a test script in separate processes, under torchrun if there are several."""

import os
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parent


def run(script: str, folder: Path, *arguments: str, processes: int = 2, restarts: int = 0) -> str:
    """Run `tests/<script>.py` on a folder; returns its stderr."""
    launcher = ["-m", "torch.distributed.run", "--standalone"]
    launcher += ["--nproc-per-node", str(processes), "--max-restarts", str(restarts)]
    process = subprocess.run(
        [
            sys.executable,
            *(launcher if processes > 1 else []),
            str(TESTS / f"{script}.py"),
            str(folder),
            *arguments,
        ],
        capture_output=True,
        encoding="utf-8",
        # The checkout, whatever is installed.
        env=os.environ
        | {"PYTHONPATH": f"{TESTS.parent / 'src'}{os.pathsep}{TESTS}", "OMP_NUM_THREADS": "1"},
        check=False,
        timeout=300,
    )
    assert process.returncode == 0, process.stderr
    return process.stderr
