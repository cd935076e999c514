"""Training that is killed, in a process that forks its children after importing torch.

Started by tests/faults/test_training_killed.py with a folder and what to do; prints JSON.
"""

import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import torch

from families import EVEN, TINY
from ownwords.training import checkpoint
from ownwords.training.loop import TrainingInterrupted, train
from ownwords.training.settings import LoopConfig, Precision
from training_jobs import checksum, job, model

# Saved after every step: then most kills fall near or into the writing of a checkpoint.
LOOP = LoopConfig(
    steps=16,
    batch_size=4,
    sequence_length=24,
    evaluations=3,
    checkpoint_every_s=0.0,
    dropout=0.1,
    micro_batch_size=3,
)
INTERRUPTED = 7


def train_to_end(folder: Path, key: str, loop: LoopConfig) -> str:
    """Train to the end; returns a checksum of the weights and of the last checkpoint."""
    shape = TINY["qwen3"] if loop.precision == "float32" else EVEN
    run_job = job(folder, loop, key=key, model=model(shape=shape))
    outcome = train(run_job)
    saved = run_job.run.checkpoints.load(loop.steps)
    parts = [checksum(tensors) for tensors in saved.groups.values()]
    chosen = checksum(dict(run_job.model.named_parameters()))
    return " ".join([chosen, *parts, repr(outcome.evaluations)])


def fork_child(work: Callable[[], object]) -> int:
    """Fork a child that does the work; it exits with 0, or `INTERRUPTED`."""
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        work()
        status = 0
    except TrainingInterrupted:
        status = INTERRUPTED
    finally:
        os._exit(status)


def train_and_save(folder: Path, key: str, loop: LoopConfig) -> Callable[[], object]:
    def work() -> None:
        state = train_to_end(folder, key, loop)
        (folder / f"{key}.ended").write_text(state)

    return work


def status_of(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def final_states(folder: Path, keys: list[str], loop: LoopConfig) -> list[str]:
    """The final state of each run, resumed to its end."""
    for key in keys:
        assert status_of(fork_child(train_and_save(folder, key, loop))) == 0
    return [(folder / f"{key}.ended").read_text() for key in keys]


def checkpoints(folder: Path, key: str) -> list[Path]:
    return list((folder / "runs" / key).glob("checkpoints/step-*"))


def at_random(folder: Path, kills: int, number: int, loop: LoopConfig) -> dict[str, Any]:
    """Send signals at random moments; a run that finishes is followed by another.

    More than `kills` if fewer than half of them hit a run that had been resumed.
    """
    calm = replace(loop, checkpoint_every_s=1e9)
    began = time.monotonic()
    assert status_of(fork_child(train_and_save(folder, "calm", calm))) == 0
    whole_s = time.monotonic() - began
    generator = random.Random(5)
    statuses: list[int] = []
    keys, resumed = ["run0"], 0
    while len(statuses) < kills or 2 * resumed < kills:
        before = checkpoints(folder, keys[-1])
        child = fork_child(train_and_save(folder, keys[-1], loop))
        while not checkpoints(folder, keys[-1]):  # there is then something to resume from
            time.sleep(0.002)
        time.sleep(whole_s * generator.uniform(0.0, 0.4))
        os.kill(child, number)
        status = status_of(child)
        if status == 0:  # it was through before
            keys.append(f"run{len(keys)}")
            continue
        resumed += bool(before)
        statuses.append(status)
    return {
        "statuses": statuses,
        "resumed": resumed,
        "calm": (folder / "calm.ended").read_text(),
        "ends": final_states(folder, keys, loop),
        "left": [p.name for p in (folder / "runs").rglob(".step-*")],
    }


def while_writing(folder: Path) -> dict[str, Any]:
    """Kill at five moments of the fourth checkpoint, from its first file to the last deletion."""
    assert (
        status_of(fork_child(train_and_save(folder, "calm", replace(LOOP, checkpoint_every_s=1e9))))
        == 0
    )

    def dying(owner: object, name: str, call: int, *, after: bool) -> None:
        real, calls = getattr(owner, name), 0

        def deadly(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401
            nonlocal calls
            calls += 1
            if calls == call and not after:
                os.kill(os.getpid(), signal.SIGKILL)
            result = real(*arguments, **named)
            if calls == call:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        setattr(owner, name, deadly)

    moments: list[tuple[object, str, int, bool]] = [
        (checkpoint, "write_tensors", 4, False),
        (checkpoint, "write_tensors", 4, True),
        (os, "replace", 4, False),
        (os, "replace", 4, True),
        (Path, "unlink", 2, False),
    ]
    statuses = []
    for i, moment in enumerate(moments):

        def work(i: int = i, moment: tuple[object, str, int, bool] = moment) -> None:
            owner, name, call, after = moment
            dying(owner, name, call, after=after)
            train_and_save(folder, f"run{i}", LOOP)()

        statuses.append(status_of(fork_child(work)))
    keys = [f"run{i}" for i in range(len(moments))]
    return {
        "statuses": statuses,
        "steps": [job(folder, LOOP, key=key).run.checkpoints.steps() for key in keys],
        "calm": (folder / "calm.ended").read_text(),
        "ends": final_states(folder, keys, LOOP),
        "left": [p.name for p in (folder / "runs").rglob(".step-*")],
    }


if __name__ == "__main__":
    torch.set_num_threads(1)
    root, mode = Path(sys.argv[1]), sys.argv[2]
    loop = replace(LOOP, precision=cast(Precision, sys.argv[4])) if len(sys.argv) > 4 else LOOP
    # Whatever is imported or loaded on the way is then there: children are killed in their work.
    train_to_end(root, "warm", replace(loop, steps=1))
    if mode == "writing":
        result = while_writing(root)
    else:
        result = at_random(root, int(sys.argv[3]), getattr(signal, mode), loop)
    sys.stdout.write(json.dumps(result) + "\n")
