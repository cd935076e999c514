"""Searches in processes of their own: killed, or sharing one study.

Started by tests/faults/test_tune.py with a folder and what to do; prints JSON. Children are forked
when all is imported, so that they are killed in their work.
"""

import json
import os
import random
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch.quasirandom  # noqa: F401 - before children are forked

from ownwords.tune.search import SearchBudget, SearchResult, search
from ownwords.tune.study import Study, open_storage
from ownwords.tune.trial import TrialResult
from toy_search import AXES, PLAN, Toy

TRIAL_S = 0.04
CHOICES = 10


def run_search(record: str | Path, folder: Path, worker: str, log: Path) -> SearchResult:
    def trial(settings: Mapping[str, float], seconds: float, seed: int) -> TrialResult:
        with log.open("a") as file:
            file.write(json.dumps([worker, os.getpid(), dict(settings), seed]) + "\n")
        time.sleep(TRIAL_S)
        toy = Toy(best={**PLAN, "rate": 2.8})
        result = toy(settings, seconds, seed)
        return TrialResult(result.score, TRIAL_S, "model")

    book = Study(open_storage(record), "toy", AXES)
    terms = SearchBudget(600.0, 1.0, worker, folder / worker, worker != "here", CHOICES, 0.4)
    return search(trial, book, terms)


def fork_search(record: str | Path, folder: Path, worker: str, log: Path) -> int:
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        write_result(run_search(record, folder, worker, log), folder / f"{worker}.json")
        status = 0
    finally:
        os._exit(status)


def write_result(search: SearchResult, path: Path) -> None:
    rows = [
        [
            trial.number,
            trial.state,
            trial.kind,
            trial.repeats,
            trial.seed,
            dict(trial.settings),
            trial.score,
        ]
        for trial in search.trials
    ]
    path.write_text(json.dumps({"trials": rows, "verdict": repr(search.verdict)}))


def exit_status(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def run_killed(folder: Path, record: str | Path, kills: int) -> dict[str, Any]:
    """Kill one search at random moments; compare its end with a calm one."""
    assert exit_status(fork_search(folder / "calm.db", folder, "calm", folder / "calm.log")) == 0
    generator, statuses = random.Random(7), list[int]()
    while len(statuses) < kills:
        child = fork_search(record, folder, "here", folder / "log")
        time.sleep(generator.uniform(0.15, 0.5))
        os.kill(child, signal.SIGKILL)
        status = exit_status(child)
        if status == 0:  # through before
            break
        statuses.append(status)
    assert exit_status(fork_search(record, folder, "here", folder / "log")) == 0
    return {"statuses": statuses, "calm": read(folder, "calm"), "killed": read(folder, "here")}


def run_shared(folder: Path, record: str | Path, one_place: bool) -> dict[str, Any]:
    """Run two at the same time, in one folder or as if on two machines."""
    places = ("here", "here") if one_place else ("a", "b")
    children = [fork_search(record, folder, worker, folder / "log") for worker in places]
    statuses = [exit_status(child) for child in children]
    lines = [json.loads(line) for line in (folder / "log").read_text().splitlines()]
    return {
        "statuses": statuses,
        "made": lines,
        "found": [read(folder, worker) for worker in places],
    }


def read(folder: Path, worker: str) -> dict[str, Any]:
    result: dict[str, Any] = json.loads((folder / f"{worker}.json").read_text())
    return result


if __name__ == "__main__":
    root, mode, kind = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    record = root / "trials.db" if kind == "sqlite" else str(root / "trials.journal")
    if mode == "killed":
        answer = run_killed(root, record, int(sys.argv[4]))
    else:
        answer = run_shared(root, record, one_place=mode == "one-place")
    sys.stdout.write(json.dumps(answer) + "\n")
