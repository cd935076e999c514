"""Run a test script in separate processes, under torchrun if there are several."""

import os
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parent


def launcher(processes: int, restarts: int = 0) -> list[str]:
    """The arguments of Python that start so many processes."""
    arguments = ["-m", "torch.distributed.run", "--standalone"]
    return [*arguments, "--nproc-per-node", str(processes), "--max-restarts", str(restarts)]


def environment() -> dict[str, str]:
    """The environment in which the checkout is found first, whatever is installed."""
    path = os.pathsep.join([str(TESTS.parent / "src"), str(TESTS)])
    return os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"}


def run(script: str, folder: Path, *arguments: str, processes: int = 2, restarts: int = 0) -> str:
    """Run `tests/<script>.py` on a folder; returns its stderr."""
    process = subprocess.run(
        [
            sys.executable,
            *(launcher(processes, restarts) if processes > 1 else []),
            str(TESTS / f"{script}.py"),
            str(folder),
            *arguments,
        ],
        capture_output=True,
        encoding="utf-8",
        env=environment(),
        check=False,
        timeout=300,
    )
    assert process.returncode == 0, process.stderr
    return process.stderr
