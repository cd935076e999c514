"""Benchmark runs in processes of their own: start-up counts, and memory is not shared."""

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared" / "data"


@dataclass(frozen=True)
class RunOutput:
    """What a process printed as JSON on its last line, its wall time and its peak memory.

    Linux also counts the resident memory of the process that started it. If that is large, the
    process should report `own_peak_mb`.
    """

    figures: dict[str, Any]
    seconds: float
    peak_mb: float


def own_peak_mb() -> float:
    """Return the peak resident memory of this process, without its parent's."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
        return int(next(line for line in lines if "VmHWM" in line).split()[1]) / 1024
    except (OSError, StopIteration):
        import resource

        return _megabytes(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


def children_peak_mb() -> float:
    """Return the largest peak resident memory of the child processes that have ended."""
    import resource

    return _megabytes(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)


def _megabytes(most_resident: int) -> float:
    return most_resident / (1024 if sys.platform == "linux" else 1 << 20)


def run(module: str, *arguments: str, environment: dict[str, str] | None = None) -> RunOutput:
    """Run `python -m bench.<module>` from the root."""
    command = [sys.executable, "-m", f"bench.{module}", *arguments]
    began = time.perf_counter()
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, cwd=ROOT, env=os.environ | (environment or {})
    ) as process:
        assert process.stdout is not None
        output = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    seconds = time.perf_counter() - began
    if process.returncode != 0:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}")
    return RunOutput(json.loads(output.splitlines()[-1]), seconds, _megabytes(usage.ru_maxrss))
