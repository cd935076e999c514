"""A training in detail, read from its files as they grow."""

import time
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from fake_make import PLAN, metric
from ownwords.core.progress import Event, JsonLines
from ownwords.core.workspace import Workspace, try_lock
from ownwords.serve.api import jobs
from ownwords.serve.api.jobs import TrainingReader
from ownwords.serve.app_state import AppState


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / ".lock").touch()
    return Workspace(tmp_path / "w")


def begun(workspace: Workspace, name: str, bits: float = 2.5, *, ended: bool = False) -> Path:
    """The folder of a run of 40 steps that has logged one of them."""
    run = workspace.runs / name
    run.mkdir(parents=True)
    (run / "plan.toml").write_text(PLAN)
    log = JsonLines(run / "metrics.jsonl")
    log(Event(time.time(), "train", "start", total=40, unit="steps"))
    log(metric(8, bits_per_byte=bits, loss=1.7))
    if ended:
        log(Event(time.time(), "train", "done", 40, 40, "steps"))
    log.close()
    return run


def test_a_training_is_read_from_its_files(workspace: Workspace) -> None:
    reader = TrainingReader(workspace.runs)
    assert reader.parts()["state"]["status"] == "none"
    run = begun(workspace, "pretrain-cc")  # as in a terminal
    (run / "samples.txt").write_text("\n--- step 5\nOne text.\n\nIts end.\n\n--- step 9\nTwo.\n")
    with (run / ".lock").open("a+") as lock_file:
        assert try_lock(lock_file.fileno())
        parts = reader.parts()
        assert (parts["state"]["status"], parts["state"]["step"]) == ("training", 8)
        assert parts["state"]["metrics"]["bits_per_byte"] == 2.5
        assert parts["samples"] == [
            {"step": 5, "text": "One text.\n\nIts end."},
            {"step": 9, "text": "Two."},
        ]
        assert parts["plan"]["numbers"][0].reason == "that fills the time"
        assert parts["plan"]["expected"].epochs == 2.5
    assert reader.parts()["state"]["status"] == "ended"
    assert reader.parts(since=time.time() + 60)["state"]["status"] == "none"  # a job begins one


def test_events_are_sent_by_part_and_only_on_change(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ownwords.serve.app_state._KEEP_ALIVE_S", 0.0)
    state = AppState(workspace, sources=(workspace.root,))
    pauses = 0

    async def sleep(_: float) -> bool:
        nonlocal pauses
        pauses += 1
        if pauses == 2:
            run = workspace.runs / "finetune-z"
            run.mkdir(parents=True)
            (run / "plan.toml").write_text(PLAN)
        return pauses < 5

    monkeypatch.setattr(state, "sleep", sleep)
    client = TestClient(Starlette(routes=jobs.routes(state)))
    text = client.get("/api/train/events").text
    names = [line.removeprefix("event: ") for line in text.splitlines() if line.startswith("event")]
    assert names.count("plan") == 2  # none, and then the one that came
    assert names.count("samples") == 1
    assert ": keep-alive" in text
