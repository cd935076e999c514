"""How accurate the remaining time is that the page shows while it makes a model.

    python bench/promises.py                      four runs of the sample blog, two beside others
    python bench/promises.py --runs 20 --minutes 3

Each run is a job of the page, `ownwords make`, whose state file is read. Prints how long each
took, the largest error of the remaining time after the first third, as a share of what remained
(of ten seconds if less remained), and how often the remaining time rose.
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

if __package__ in (None, ""):  # run as a file
    sys.path.append(str(Path(__file__).resolve().parents[1]))

import itertools

from bench.fresh import ROOT
from bench.machine import measuring
from bench.processors import BUSY, SPINNING, _neighbour

from ownwords.core.progress import STATE_VARIABLE

SAMPLE = ROOT / "examples" / "blog"
MIXES = ((), (BUSY,), (), (SPINNING,))
GOAL = 0.25  # share of the remaining time; a run much longer than announced may correct itself once
LEAST_S = 10.0  # of the remaining time: below, the page says "a few seconds"


@measuring()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=4)
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--blog", type=Path, default=SAMPLE)
    options = parser.parse_args()
    print("| run | beside | seconds | largest error from a third on | rises |")
    print("|---|---|---:|---:|---:|")
    kept = rose = 0
    for number in range(options.runs):
        programs = MIXES[number % len(MIXES)]
        with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
            for program in programs:
                stack.enter_context(_neighbour(program))
            took, told = make(options.blog, options.minutes, Path(folder))
        beside = {BUSY: "a busy process", SPINNING: "spinning threads"}
        names = " and ".join(beside[program] for program in programs) or "nothing"
        error, rises = (
            largest_error(told, took),
            sum(b[1] > a[1] for a, b in itertools.pairwise(told)),
        )
        print(f"| {number + 1} | {names} | {took:.0f} | {error:.0%} | {rises} |", flush=True)
        kept, rose = kept + (error <= GOAL), rose + (rises > 0)
    print(f"\n{kept} of {options.runs} within {GOAL:.0%}; it rose in {rose}.")


def make(blog: Path, minutes: float, folder: Path) -> tuple[float, list[tuple[float, float]]]:
    """Make a model; return its seconds, and the remaining seconds shown at each second."""
    state = folder / "state.json"
    command = [sys.executable, "-P", "-m", "ownwords", "make", str(blog), "--yes", "--quiet"]
    command += ["--minutes", str(minutes), "--workspace", str(folder / "made.ownwords")]
    began = time.time()
    told: dict[float, float] = {}  # by the time of the report
    with subprocess.Popen(command, env=os.environ | {STATE_VARIABLE: str(state)}) as process:
        while process.poll() is None:
            time.sleep(0.2)
            shown = json.loads(state.read_bytes()) if state.exists() else {}
            if shown.get("remaining_s") is not None:
                told[shown["time"] - began] = shown["remaining_s"]
    if process.returncode:
        raise SystemExit(f"{command} failed")
    return time.time() - began, list(told.items())


def largest_error(told: list[tuple[float, float]], took: float) -> float:
    """Return the largest relative error of the remaining time after a third of the run."""
    late = [(at, left) for at, left in told if at >= took / 3]
    pairs = ((max(left, LEAST_S), max(took - at, LEAST_S)) for at, left in late)
    return max(abs(said - true) / true for said, true in pairs)


if __name__ == "__main__":
    main()
