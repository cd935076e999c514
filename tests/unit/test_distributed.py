"""Distributed training: one process asks; a single process is unaffected."""

import pytest
import torch

from ownwords.core.errors import ConfigError
from ownwords.training.distributed import SINGLE_PROCESS, init_distributed


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
