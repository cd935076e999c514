"""The train API: the state of trainings, and the one that the page starts."""

import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.testclient import TestClient

from fake_jobs import fake_jobs, until
from fake_make import PLAN, metric
from ownwords.core.errors import OwnwordsError
from ownwords.core.progress import Event, JsonLines
from ownwords.core.workspace import Workspace, try_lock
from ownwords.serve.api import train
from ownwords.serve.api.run_files import RunFiles
from ownwords.serve.api.training_monitor import TrainingMonitor
from ownwords.serve.app_state import AppState
from ownwords.serve.errors import error_response
from ownwords.serve.jobs.manager import JobManager
from ownwords.serve.jobs.tail import EventTail

Begin = Callable[[str], JobManager]


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / ".lock").touch()
    return Workspace(tmp_path / "w")


@pytest.fixture
def begin(workspace: Workspace) -> Iterator[Begin]:
    """Makes jobs that behave in a certain manner; none outlives the test."""
    with fake_jobs(workspace) as of:
        yield of


def has_begun(workspace: Workspace) -> bool:
    return (workspace.root / "begun").exists()


# --- what events tell ----------------------------------------------------------------------------


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
    monitor = TrainingMonitor(folder, JobManager(Workspace(folder.parent / "nobody")))
    json.dumps(monitor.snapshot(""), allow_nan=False)


def test_lines_are_read_once_and_only_when_complete(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    lines = EventTail(path)
    assert lines.read() == (False, [])
    path.write_text('{"time": 1, "kind": "note"}\n{"time": 2, "kind": "note"}\n{"kind": "not')
    assert lines.read() == (True, [Event(1, "", "note"), Event(2, "", "note")])
    assert lines.read() == (False, [])
    with path.open("a") as file:
        file.write('e", "time": 3}\nno json\n[4]\n')
    assert lines.read() == (False, [Event(3, "", "note")])
    path.unlink()  # as when the texts are read anew
    assert lines.read()[0]
    path.write_text('{"time": 9, "kind": "note"}\n')
    assert lines.read() == (True, [Event(9, "", "note")])


def test_the_files_of_a_run_are_served(workspace: Workspace) -> None:
    run = workspace.runs / "finetune-b"
    run.mkdir(parents=True)
    (run / "plan.toml").write_text(PLAN)
    (run / "samples.txt").write_text(
        "\n--- step 5\nOne text.\n\nIts end.\n\n--- step 9\nAnother.\n"
    )
    (workspace.runs / "look").mkdir()
    with_plan = RunFiles(workspace.runs)
    assert with_plan.names() == ["finetune-b"]
    assert with_plan.samples("finetune-b") == [
        {"step": 5, "text": "One text.\n\nIts end."},
        {"step": 9, "text": "Another."},
    ]
    plan = with_plan.plan("finetune-b")
    assert plan is not None
    assert plan["numbers"][0]["reason"] == "that fills the time"
    assert plan["expected"]["epochs"] == 2.5


# --- what the page is told -----------------------------------------------------------------------


class TrainServer:
    def __init__(self, workspace: Workspace, begin: Begin, manner: str = "ends") -> None:
        self.workspace, self._begin, self._manner = workspace, begin, manner

    def client(self) -> TestClient:
        async def error_of(request: Request, error: Exception) -> Response:
            assert isinstance(error, OwnwordsError)
            return error_response(request.url.path, error)

        state = AppState(self.workspace, sources=(self.workspace.root,))
        state.jobs = self._begin(self._manner)
        app = Starlette(routes=train.routes(state), exception_handlers={OwnwordsError: error_of})
        return TestClient(app)

    def state(self) -> dict[str, Any]:
        state: dict[str, Any] = self.client().get("/api/train").json()["state"]
        return state


def test_a_training_from_beginning_to_end(workspace: Workspace, begin: Begin) -> None:
    served = TrainServer(workspace, begin, "waits")
    client = served.client()
    first = client.get("/api/train").json()
    assert first["state"]["status"] == "none"
    assert first["state"]["can"] == {"start": True, "stop": False, "resume": False}
    assert [base["name"] for base in first["options"]["bases"]][-1] == "none"
    assert client.post("/api/train/start", json={"minutes": 2, "base": "none"}).status_code == 200
    until(lambda: has_begun(workspace))
    refused = client.post("/api/train/start", json={"minutes": 2, "base": "none"})
    assert refused.status_code == 409
    # Another server, as after a restart, tells just the same.
    state = until(lambda: (s := served.state())["status"] == "training" and s)
    assert state["by"] == "page"
    assert (state["step"], state["steps"]) == (10, 40)
    assert state["can"] == {"start": False, "stop": True, "resume": False}
    assert (state["command"]["minutes"], state["command"]["is_timed"]) == (2, True)
    another = served.client()
    assert another.post("/api/train/stop", json={}).status_code == 200
    state = until(lambda: (s := served.state())["status"] == "stopped" and s)
    assert state["message"].startswith("stopped after step 10 of 40")
    assert state["can"] == {"start": True, "stop": False, "resume": True}
    (workspace.root / "begun").unlink()
    assert served.client().post("/api/train/start", json={"resume": True}).status_code == 200
    until(lambda: has_begun(workspace))
    assert json.loads((workspace.root / "given.json").read_text())["arguments"][5] == "2"
    assert served.client().post("/api/train/stop", json={}).status_code == 200


def test_without_minutes_make_decides(workspace: Workspace, begin: Begin) -> None:
    client = TrainServer(workspace, begin).client()
    assert client.post("/api/train/start", json={"base": "none"}).status_code == 200
    until(lambda: client.get("/api/train").json()["state"]["status"] == "done")
    assert "--minutes" not in json.loads((workspace.root / "given.json").read_text())["arguments"]


def test_a_training_begun_in_a_terminal_is_shown(workspace: Workspace, begin: Begin) -> None:
    run = workspace.runs / "pretrain-cc"
    run.mkdir(parents=True)
    (run / "plan.toml").write_text(PLAN)
    log = JsonLines(run / "metrics.jsonl")
    log(Event(time.time(), "train", "start", total=40, unit="steps"))
    log(metric(8, bits_per_byte=2.5, loss=1.7))
    log.close()
    served = TrainServer(workspace, begin)
    with (run / ".lock").open("a+") as lock_file:
        assert try_lock(lock_file.fileno())
        state = served.state()
        assert (state["status"], state["by"], state["run"]) == (
            "training",
            "elsewhere",
            "pretrain-cc",
        )
        assert state["can"] == {"start": False, "stop": False, "resume": False}
        assert served.client().post("/api/train/stop", json={}).status_code == 400
    state = served.state()  # whoever held it is gone, and had not ended
    assert state["status"] == "stopped"
    assert state["can"] == {"start": True, "stop": False, "resume": False}


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"minutes": 0}, "above 0"),
        ({"minutes": -1}, "above 0"),
        ({"minutes": 10**400}, "of at most"),
        ({"minutes": "4"}, "a number"),
        ({"minutes": True}, "a number"),
        ({"base": "/etc"}, "no base called"),
        ({"base": "../../x"}, "no base called"),
        ({"base": 4}, "text"),
        ({"resume": "yes"}, "true or false"),
        ({"resume": True}, "no training was started"),
        ([], "a JSON object"),
    ],
)
def test_impossible_requests_are_refused_in_a_sentence(
    workspace: Workspace, begin: Begin, body: object, message: str
) -> None:
    answer = TrainServer(workspace, begin).client().post("/api/train/start", json=body)
    assert answer.status_code in (400, 409)
    assert message in answer.json()["error"]["message"]
    assert not (workspace.runs / "jobs").exists()


def test_run_names_are_not_used_as_paths(workspace: Workspace, begin: Begin) -> None:
    (workspace.root / "plan.toml").write_text(PLAN)
    client = TrainServer(workspace, begin).client()
    for name in ("..", "../w", "/etc", "look\x00", "x" * 5000):
        assert client.get("/api/train", params={"run": name}).json()["plan"] is None


def test_events_are_sent_by_part_and_only_on_change(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]  # instead of waiting
    monkeypatch.setattr(train, "_KEEP_ALIVE_S", 2.0)
    monkeypatch.setattr("ownwords.serve.api.train.time.monotonic", lambda: now[0])
    state = AppState(workspace, sources=(workspace.root,))
    pauses = 0

    async def sleep(_: float) -> bool:
        nonlocal pauses
        pauses += 1
        if pauses == 2:
            run = workspace.runs / "finetune-z"
            run.mkdir(parents=True)
            (run / "plan.toml").write_text(PLAN)
        now[0] += 0.6
        return pauses < 12

    monkeypatch.setattr(state, "sleep", sleep)
    client = TestClient(Starlette(routes=train.routes(state)))
    text = client.get("/api/train/events").text
    names = [line.removeprefix("event: ") for line in text.splitlines() if line.startswith("event")]
    assert names.count("options") == 1
    assert names.count("plan") == 2  # none, and then the one that came
    assert names.count("samples") == 1
    assert ": keep-alive" in text


def test_a_comparison_model_is_never_shown_as_the_trained_model(
    workspace: Workspace, begin: Begin
) -> None:
    for age, (name, bits) in enumerate([("comparison-b", 1.9), ("finetune-a", 1.5)]):
        run = workspace.runs / name
        run.mkdir(parents=True)
        (run / "plan.toml").write_text(PLAN)
        log = JsonLines(run / "metrics.jsonl")
        log(Event(time.time(), "train", "start", total=40, unit="steps"))
        log(metric(40, bits_per_byte=bits, loss=1.7))
        log(Event(time.time(), "train", "done", 40, 40, "steps"))
        log.close()
        os.utime(run / "metrics.jsonl", (time.time() - age, time.time() - age))
    status = TrainServer(workspace, begin).client().get("/api/train").json()
    assert status["state"]["run"] == "finetune-a"
    assert [run["name"] for run in status["runs"]] == ["comparison-b", "finetune-a"]
    assert status["state"]["metrics"]["bits_per_byte"] == 1.5
