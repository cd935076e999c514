"""The Train part: what is told of trainings, and the one that the page starts."""

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.testclient import TestClient

from ownwords.core.errors import InUseError, OwnwordsError
from ownwords.core.progress import Event, JsonLines
from ownwords.core.workspace import Workspace, try_lock
from ownwords.serve.api import train
from ownwords.serve.api.run_files import MetricsTail, RunFiles
from ownwords.serve.api.training_monitor import TrainingMonitor
from ownwords.serve.api.training_process import MakeCommand, TrainingProcess, clean_environment
from ownwords.serve.app_state import AppState
from ownwords.serve.errors import error_response
from played_make import PLAN, metric

PLAYED = Path(__file__).resolve().parents[1] / "played_make.py"
COMMAND = MakeCommand(4.0, "shipped", ("blog",), ("--set", "archive.drafts=true"))


Begin = Callable[[str], TrainingProcess]


def until(found: Callable[[], Any], seconds: float = 20.0) -> Any:  # noqa: ANN401
    """What is found in the end."""
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        if value := found():
            return value
        time.sleep(0.01)
    raise AssertionError("that never came")


@pytest.fixture
def place(tmp_path: Path) -> Workspace:
    (tmp_path / "w").mkdir()
    return Workspace(tmp_path / "w")


@pytest.fixture
def begin(place: Workspace) -> Iterator[Callable[[str], TrainingProcess]]:
    """Makes a process that behaves in a certain manner; none outlives the test."""
    made: list[TrainingProcess] = []

    def of(how: str) -> TrainingProcess:
        made.append(TrainingProcess(place, (sys.executable, str(PLAYED), how)))
        return made[-1]

    yield of
    with suppress(OSError, ValueError):
        pid = json.loads((place.runs / "serve" / "started.json").read_text())["pid"]
        if pid != os.getpid():  # which a test writes there, and a shell makes leader of a group
            os.killpg(pid, signal.SIGKILL)
    for each in made:
        until(lambda each=each: not each.find_worker())  # type: ignore[misc]


def begun(place: Workspace) -> bool:
    return (place.root / "begun").exists()


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
def test_no_log_however_damaged_is_more_than_a_log(
    tmp_path_factory: pytest.TempPathFactory, lines: list[Any]
) -> None:
    folder = tmp_path_factory.mktemp("runs")
    run = folder / "finetune-a"
    run.mkdir()
    (run / "plan.toml").write_text("broken = [")
    (run / "metrics.jsonl").write_text("\n".join(json.dumps(line) for line in lines) + "\n{half")
    monitor = TrainingMonitor(folder, TrainingProcess(Workspace(folder.parent / "nobody")))
    json.dumps(monitor.snapshot(""), allow_nan=False)


def test_lines_come_once_and_only_whole(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    lines = MetricsTail(path)
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


def test_a_runs_files_are_told_as_they_stand(place: Workspace) -> None:
    run = place.runs / "finetune-b"
    run.mkdir(parents=True)
    (run / "plan.toml").write_text(PLAN)
    (run / "samples.txt").write_text(
        "\n--- step 5\nOne text.\n\nIts end.\n\n--- step 9\nAnother.\n"
    )
    (place.runs / "look").mkdir()
    with_plan = RunFiles(place.runs)
    assert with_plan.names() == ["finetune-b"]
    assert with_plan.samples("finetune-b") == [
        {"step": 5, "text": "One text.\n\nIts end."},
        {"step": 9, "text": "Another."},
    ]
    plan = with_plan.plan("finetune-b")
    assert plan is not None
    assert plan["numbers"][0]["reason"] == "that fills the time"
    assert plan["expected"]["epochs"] == 2.5


# --- the process ---------------------------------------------------------------------------------


def test_it_gets_a_clean_environment_and_the_flags_of_the_order(
    place: Workspace, begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENAI_API_KEY", "HF_TOKEN", "MY_PASSWORD", "WORLD_SIZE", "LOCAL_RANK"):
        monkeypatch.setenv(name, "secret")
    monkeypatch.setenv("OWNWORDS_HOME", "/somewhere")
    process = begin("ends")
    process.start(COMMAND)
    status = until(lambda: (s := process.status()) and s.outcome and s)
    assert status.outcome.kind == "done"
    said = json.loads((place.root / "given.json").read_text())
    assert said["arguments"] == [
        *("make", "blog", "--workspace", str(place.root), "--minutes", "4"),
        *("--set", "archive.drafts=true", "--json", "--base", "shipped"),
    ]
    assert "secret" not in said["env"].values()
    process.start(replace(COMMAND, is_timed=False))
    status = until(lambda: (s := process.status()) and s.outcome and s)
    assert (status.command.minutes, status.command.is_timed) == (4.0, False)
    said = json.loads((place.root / "given.json").read_text())
    assert "--minutes" not in said["arguments"]
    assert said["env"]["OWNWORDS_HOME"] == "/somewhere"


@settings(max_examples=30)
@given(st.dictionaries(st.text(max_size=8), st.text(max_size=3), max_size=5))
def test_what_is_no_secret_is_handed_on(given_: dict[str, str]) -> None:
    harmless = {f"OWNWORDS_X{name}": value for name, value in given_.items()}
    kept = clean_environment(harmless)
    for name, value in harmless.items():
        is_secret = any(
            word in name.upper() for word in ("KEY", "TOKEN", "SECRET", "PASSWORD", "CREDENTIAL")
        )
        assert is_secret or kept[name] == value


def test_stopped_it_has_saved_and_says_so(place: Workspace, begin: Begin) -> None:
    process = begin("waits")
    process.start(COMMAND)
    until(lambda: begun(place))
    with pytest.raises(InUseError):
        process.start(COMMAND)
    assert process.is_training("finetune-aaaa")
    process.stop()
    status = until(lambda: (s := process.status()) and s.outcome and s)
    assert status.outcome.kind == "stopped"
    assert status.outcome.message == "stopped after step 10 of 40; everything is saved"
    assert status.command == COMMAND
    assert not process.find_worker()
    with pytest.raises(OwnwordsError):
        process.stop()


def test_a_server_that_was_started_anew_finds_it_and_can_stop_it(
    place: Workspace, begin: Begin
) -> None:
    begin("waits").start(COMMAND)
    until(lambda: begun(place))
    another = begin("waits")
    found = another.status()
    assert found is not None
    assert found.is_alive
    assert found.command == COMMAND
    assert another.find_worker()
    another.stop()
    again = until(lambda: (s := begin("waits").status()) and s.outcome and s)
    assert again.outcome.kind == "stopped"


def test_in_an_empty_folder_the_first_training_makes_the_workspace(
    tmp_path: Path, begin: Begin, place: Workspace
) -> None:
    place.root.rmdir()
    process = begin("ends")
    process.start(COMMAND)
    until(lambda: (s := process.status()) and s.outcome)
    with place.opened():  # as `ownwords make` and `look` do, which refuse any other folder
        pass


def test_one_that_does_not_listen_is_ended_in_the_end(place: Workspace, begin: Begin) -> None:
    process = begin("is deaf")
    process.start(COMMAND)
    until(lambda: begun(place))
    for count in (1, 2):
        process.stop()
        until(lambda count=count: (place.root / "interrupts").stat().st_size == count)  # type: ignore[misc]
    status = process.status()
    assert status is not None
    assert status.is_alive
    assert status.stop_requests == 2
    process.stop()
    until(lambda: (s := process.status()) and s.outcome)


def test_what_went_wrong_is_its_one_sentence(begin: Begin) -> None:
    process = begin("fails")
    process.start(COMMAND)
    outcome = until(lambda: (s := process.status()) and s.outcome)
    assert (outcome.kind, outcome.message, outcome.hint) == (
        "failed",
        "the blog holds no text",
        "write some",
    )


def test_one_that_was_killed_is_told_with_its_last_words(
    begin: Begin,
) -> None:
    process = begin("falls")
    process.start(COMMAND)
    outcome = until(lambda: (s := process.status()) and s.outcome)
    assert outcome.kind == "killed"
    assert outcome.output[-1] == "about to fall"


@pytest.mark.parametrize("held", ["runs/make/.lock", ".lock", "runs/finetune-x/.lock"])
def test_there_are_never_two(place: Workspace, begin: Begin, held: str) -> None:
    path = place.root / held
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as file:  # as a process in a terminal holds it
        assert try_lock(file.fileno())
        process = begin("ends")
        with pytest.raises(InUseError):
            process.start(COMMAND)
        assert process.status() is None
    assert not process.find_worker()


def test_another_process_is_never_taken_for_it(place: Workspace, begin: Begin) -> None:
    process = begin("ends")
    folder = place.runs / "serve"
    folder.mkdir(parents=True)
    record = {"command": {"minutes": 4, "base": "", "paths": []}, "started_at": 1.0}
    # This very process, which is alive and was not started here.
    (folder / "started.json").write_text(json.dumps({**record, "pid": os.getpid()}))
    (folder / ".lock").touch()
    status = process.status()
    assert status is not None
    assert not status.is_alive
    with pytest.raises(OwnwordsError):
        process.stop()


# --- what the page is told -----------------------------------------------------------------------


class Served:
    def __init__(
        self, place: Workspace, begin: Begin, monkeypatch: pytest.MonkeyPatch, how: str = "ends"
    ) -> None:
        monkeypatch.setattr(train, "TrainingProcess", lambda _: begin(how))
        self.place = place

    def client(self) -> TestClient:
        async def told(request: Request, error: Exception) -> Response:
            assert isinstance(error, OwnwordsError)
            return error_response(request.url.path, error)

        state = AppState(self.place, sources=(self.place.root,))
        app = Starlette(routes=train.routes(state), exception_handlers={OwnwordsError: told})
        return TestClient(app)

    def state(self) -> dict[str, Any]:
        state: dict[str, Any] = self.client().get("/api/train").json()["state"]
        return state


def test_a_training_from_beginning_to_end(
    place: Workspace, begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = Served(place, begin, monkeypatch, "waits")
    client = served.client()
    first = client.get("/api/train").json()
    assert first["state"]["status"] == "none"
    assert first["state"]["can"] == {"start": True, "stop": False, "resume": False}
    assert [one["name"] for one in first["options"]["bases"]][-1] == "none"
    assert client.post("/api/train/start", json={"minutes": 2, "base": "none"}).status_code == 200
    until(lambda: begun(place))
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
    (place.root / "begun").unlink()
    assert served.client().post("/api/train/start", json={"resume": True}).status_code == 200
    until(lambda: begun(place))
    assert json.loads((place.root / "given.json").read_text())["arguments"][5] == "2"
    assert served.client().post("/api/train/stop", json={}).status_code == 200


def test_minutes_that_nobody_named_are_left_to_make(
    place: Workspace, begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = Served(place, begin, monkeypatch).client()
    assert client.post("/api/train/start", json={"base": "none"}).status_code == 200
    until(lambda: client.get("/api/train").json()["state"]["status"] == "done")
    assert "--minutes" not in json.loads((place.root / "given.json").read_text())["arguments"]


def test_a_training_begun_in_a_terminal_is_shown(
    place: Workspace, begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = place.runs / "pretrain-cc"
    run.mkdir(parents=True)
    (run / "plan.toml").write_text(PLAN)
    log = JsonLines(run / "metrics.jsonl")
    log(Event(time.time(), "train", "start", total=40, unit="steps"))
    log(metric(8, bits_per_byte=2.5, loss=1.7))
    log.close()
    served = Served(place, begin, monkeypatch)
    with (run / ".lock").open("a+") as held:
        assert try_lock(held.fileno())
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
    ("asked", "said"),
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
def test_what_cannot_be_is_refused_in_a_sentence(
    place: Workspace, begin: Begin, monkeypatch: pytest.MonkeyPatch, asked: object, said: str
) -> None:
    answer = Served(place, begin, monkeypatch).client().post("/api/train/start", json=asked)
    assert answer.status_code in (400, 409)
    assert said in answer.json()["error"]["message"]
    assert not (place.runs / "serve" / "started.json").exists()


def test_no_name_of_a_run_reaches_the_disk(
    place: Workspace, begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place.root / "plan.toml").write_text(PLAN)
    client = Served(place, begin, monkeypatch).client()
    for name in ("..", "../w", "/etc", "look\x00", "x" * 5000):
        assert client.get("/api/train", params={"run": name}).json()["plan"] is None


def test_events_come_part_by_part_and_again_only_when_they_change(
    place: Workspace, begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]  # instead of waiting
    monkeypatch.setattr(train, "_KEEP_ALIVE_S", 0.1)
    monkeypatch.setattr("ownwords.serve.api.train.time.monotonic", lambda: now[0])
    state = AppState(place, sources=(place.root,))
    pauses = 0

    async def sleep(_: float) -> bool:
        nonlocal pauses
        pauses += 1
        if pauses == 2:
            run = place.runs / "finetune-z"
            run.mkdir(parents=True)
            (run / "plan.toml").write_text(PLAN)
        now[0] += 0.02
        return pauses < 12

    monkeypatch.setattr(state, "sleep", sleep)
    client = TestClient(Starlette(routes=train.routes(state)))
    text = client.get("/api/train/events").text
    names = [line.removeprefix("event: ") for line in text.splitlines() if line.startswith("event")]
    assert names.count("options") == 1
    assert names.count("plan") == 2  # none, and then the one that came
    assert names.count("samples") == 1
    assert ": keep-alive" in text


def test_the_paths_and_flags_of_a_look_are_read_back() -> None:
    assert train.parse_look_command(
        "ownwords look 'my blog' b --drafts --no-pages --workspace w"
    ) == (
        ("my blog", "b"),
        ("--set", "archive.drafts=true", "--set", "archive.pages=false"),
    )
    assert train.parse_look_command("") == ((), ())
