"""A training in detail, read from its files as they grow."""

import json
import os
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.testclient import TestClient

from fake_make import PLAN, metric
from ownwords.core.progress import Event, JsonLines
from ownwords.core.workspace import Workspace, try_lock
from ownwords.serve.api import jobs
from ownwords.serve.api.jobs import TrainingReader
from ownwords.serve.app_state import AppState
from ownwords.serve.jobs import EventTail


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


@settings(max_examples=30)
@given(
    st.lists(
        st.one_of(
            st.dictionaries(
                st.sampled_from(["time", "stage", "kind", "done", "total", "values", "message"]),
                st.one_of(
                    st.none(),
                    st.text(max_size=5),
                    st.floats(),
                    st.integers(),
                    st.sampled_from(["train", "start", "metric", "note", "done"]),
                    st.dictionaries(
                        st.sampled_from(["step", "bits_per_byte", "memorised"]),
                        st.one_of(st.none(), st.floats(), st.text(max_size=2)),
                        max_size=3,
                    ),
                ),
            ),
            st.text(max_size=5),
        ),
        max_size=12,
    )
)
def test_a_damaged_log_causes_no_error(
    tmp_path_factory: pytest.TempPathFactory, lines: list[Any]
) -> None:
    folder = tmp_path_factory.mktemp("runs")
    run = folder / "finetune-a"
    run.mkdir()
    (run / "plan.toml").write_text("broken = [")
    (run / "metrics.jsonl").write_text("\n".join(json.dumps(line) for line in lines) + "\n{half")
    msgspec.json.encode(TrainingReader(folder).parts())


def test_lines_are_read_once_and_only_when_complete(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    lines = EventTail(path)
    assert lines.read() == (False, [])
    note = '{{"time": {}, "stage": "", "kind": "note"}}\n'.format
    path.write_text(note(1) + note(2) + note(3)[:9])
    assert lines.read() == (True, [Event(1, "", "note"), Event(2, "", "note")])
    assert lines.read() == (False, [])
    with path.open("a") as file:
        file.write(note(3)[9:] + "no json\n[4]\n")
    assert lines.read() == (False, [Event(3, "", "note")])
    path.unlink()  # as when the texts are read anew
    assert lines.read()[0]
    path.write_text(note(9))
    assert lines.read() == (True, [Event(9, "", "note")])


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


def test_a_comparison_model_is_never_shown_as_the_trained_model(workspace: Workspace) -> None:
    for age, (name, bits) in enumerate([("comparison-b", 1.9), ("finetune-a", 1.5)]):
        run = begun(workspace, name, bits, ended=True)
        os.utime(run / "metrics.jsonl", (time.time() - age, time.time() - age))
    state = TrainingReader(workspace.runs).parts()["state"]
    assert state["metrics"]["bits_per_byte"] == 1.5


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
