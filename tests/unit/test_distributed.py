"""Distributed training: one process asks; a single process is unaffected."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import torchrun
from ownwords.core.errors import ConfigError
from ownwords.training.distributed import SINGLE_PROCESS, init_distributed


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="there is no pseudo-terminal on Windows")
def test_in_a_terminal_one_process_asks_and_its_answer_is_that_of_all(tmp_path: Path) -> None:
    import pty

    ours, theirs = pty.openpty()
    environment = torchrun.environment() | {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    environment["TERM"] = "dumb"
    blog = torchrun.TESTS.parent / "examples" / "blog"
    command = ["-m", "ownwords", "pretrain", str(blog), "--minutes", "60", "--device", "cpu"]
    command += ["--workspace", str(tmp_path / "w"), "--set", "model.parameters=100000"]
    with subprocess.Popen(
        [sys.executable, *torchrun.launcher(2), *command],
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=theirs,
        env=environment,
    ) as process:
        os.close(theirs)
        shown = ""
        try:
            while data := os.read(ours, 4096):
                shown += data.decode(errors="replace")
                if shown.rstrip().endswith("(y):"):
                    os.write(ours, b"n\n")
        except OSError:  # the terminal is closed: all have ended
            pass
        output, _ = process.communicate(timeout=60)
        assert process.returncode == 0, shown
    os.close(ours)
    assert shown.count("Train with this plan?") == 1
    assert output.decode().count("The plan") == 1
    assert not list((tmp_path / "w" / "runs").glob("*/checkpoints/step-*"))


def test_a_single_process_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    world = init_distributed(torch.device("cpu"))
    assert world is SINGLE_PROCESS
    assert world.is_first
    task, x = torch.nn.Linear(2, 2), torch.ones(2)
    assert world.wrap(task) is task
    assert world.sum(x) is x
    assert world.broadcast(x) is x
    assert world.min(3) == 3
    assert world.share({"x": x})["x"] is x
    with world.in_rank_order(), world.gradient_sync(task, False):
        world.barrier()
    world.close()
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "1")
    assert init_distributed(torch.device("cpu")) is SINGLE_PROCESS


def test_unsupported_distributed_training_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ConfigError, match="cannot train together on mps"):
        init_distributed(torch.device("mps"))
    monkeypatch.setenv("LOCAL_RANK", "9")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(ConfigError, match=r"no device for process 9 .* it has 1"):
        init_distributed(torch.device("cuda"))
