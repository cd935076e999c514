"""The jobs of a workspace: their processes, what is told of them, and their API."""

import asyncio
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from starlette.testclient import TestClient

from fake_jobs import fake_jobs, until
from ownwords.core.errors import InUseError, OwnwordsError
from ownwords.core.progress import JobProgress, Progress, reporting_job
from ownwords.core.workspace import Workspace, try_lock, write_atomically
from ownwords.serve import jobs as jobs_module
from ownwords.serve.api import jobs as jobs_api
from ownwords.serve.app_state import AppState
from ownwords.serve.jobs import Job, JobManager, JobRequest
from ownwords.serve.settings import ServeSettings
from ownwords.serve.sse import EventStreamResponse
from page_client import page_client

ASKED = JobRequest("make", 4.0, "shipped")
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


def job_of(jobs: JobManager, id_: str) -> Job:
    return next(job for job in jobs.jobs() if job.id == id_)


def wait_until_ended(jobs: JobManager, id_: str) -> Job:
    until(lambda: job_of(jobs, id_).ended is not None)
    return job_of(jobs, id_)


def has_begun(workspace: Workspace) -> bool:
    return (workspace.root / "begun").exists()


# --- the process ---------------------------------------------------------------------------------


def test_a_job_gets_a_clean_environment(
    workspace: Workspace, begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENAI_API_KEY", "HF_TOKEN", "MY_PASSWORD", "WORLD_SIZE", "LOCAL_RANK"):
        monkeypatch.setenv(name, "secret")
    monkeypatch.setenv("OWNWORDS_HOME", str(workspace.root / "somewhere"))
    jobs = begin("ends")
    job = wait_until_ended(jobs, jobs.start(ASKED).id)
    assert (job.status, job.share) == ("done", 1.0)
    inputs = json.loads((workspace.root / "given.json").read_text())
    assert "secret" not in inputs["env"].values()
    assert inputs["env"]["OWNWORDS_HOME"] == str(workspace.root / "somewhere")


def test_a_job_without_parts_is_listed_while_it_runs(workspace: Workspace, begin: Begin) -> None:
    jobs = begin("waits")
    job = jobs.start(JobRequest("encoder", name="minilm"))
    assert (job.ended, job.stages) == (None, ())
    until(lambda: has_begun(workspace))
    jobs.stop(job.id)
    assert wait_until_ended(jobs, job.id).status == "stopped"


def test_a_stopped_job_has_saved_and_resumes_under_its_name(
    workspace: Workspace, begin: Begin
) -> None:
    jobs = begin("waits")
    job = jobs.start(ASKED)
    until(lambda: has_begun(workspace))
    with pytest.raises(InUseError):
        jobs.start(ASKED)
    jobs.stop(job.id)
    job = wait_until_ended(jobs, job.id)
    assert job.status == "stopped"
    assert job.line == "stopped after step 10 of 40; everything is saved"
    assert not jobs.find_worker()
    with pytest.raises(OwnwordsError):
        jobs.stop(job.id)
    (workspace.root / "begun").unlink()
    for attempt in (1, 2):  # the time of all attempts counts
        path = workspace.runs / "jobs" / job.id / "job.json"
        record = json.loads(path.read_text())
        write_atomically(path, json.dumps(record | {"attempt_began": record["began"] - 1000}))
        job = wait_until_ended(jobs, job.id)
        resumed = jobs.resume(job.id)
        assert (resumed.id, resumed.began) == (job.id, job.began)
        until(lambda: has_begun(workspace))
        inputs = json.loads((workspace.root / "given.json").read_text())
        assert inputs["arguments"][5] == "4.0"
        assert float(inputs["env"]["OWNWORDS_JOB_SPENT_S"]) >= 1000 * attempt
        (workspace.root / "begun").unlink()
        jobs.stop(job.id)
    assert [job.id for job in jobs.jobs()] == [job.id]


def test_a_restarted_server_finds_the_job_and_can_stop_it(
    workspace: Workspace, begin: Begin
) -> None:
    id_ = begin("waits").start(ASKED).id
    until(lambda: has_begun(workspace))
    another = begin("waits")
    job = job_of(another, id_)
    assert job.ended is None
    assert another.find_worker()
    another.stop(id_)
    assert wait_until_ended(begin("waits"), id_).status == "stopped"


def test_in_an_empty_folder_the_first_job_creates_the_workspace(
    tmp_path: Path, begin: Begin, workspace: Workspace
) -> None:
    (workspace.root / ".lock").unlink()
    workspace.root.rmdir()
    jobs = begin("ends")
    wait_until_ended(jobs, jobs.start(ASKED).id)
    with workspace.opened():  # as `ownwords make` and `look` do, which refuse any other folder
        pass


def test_an_unresponsive_job_is_killed(workspace: Workspace, begin: Begin) -> None:
    jobs = begin("is deaf")
    id_ = jobs.start(ASKED).id
    until(lambda: has_begun(workspace))
    for count in (1, 2):
        jobs.stop(id_)
        until(lambda count=count: (workspace.root / "interrupts").stat().st_size == count)  # type: ignore[misc]
    assert job_of(jobs, id_).status == "stopping"
    jobs.stop(id_)
    wait_until_ended(jobs, id_)


def test_a_failed_job_reports_one_sentence(begin: Begin) -> None:
    jobs = begin("fails")
    job = wait_until_ended(jobs, jobs.start(ASKED).id)
    assert job.status == "failed"
    assert job.error is not None
    assert (job.error.message, job.error.hint) == ("the blog holds no text", "write some")


def test_a_killed_job_is_reported_and_can_be_continued(begin: Begin) -> None:
    jobs = begin("falls")
    job = wait_until_ended(jobs, jobs.start(ASKED).id)
    assert job.status == "killed"


@pytest.mark.parametrize("lock_path", ["runs/make/.lock", ".lock", "runs/finetune-x/.lock"])
def test_there_are_never_two(workspace: Workspace, begin: Begin, lock_path: str) -> None:
    (workspace.runs / "jobs").mkdir(parents=True)
    path = workspace.root / lock_path
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as file:  # as a process in a terminal holds it
        assert try_lock(file.fileno())
        jobs = begin("ends")
        with pytest.raises(InUseError):
            jobs.start(ASKED)
        assert not jobs.jobs()
    assert not jobs.find_worker()


def test_a_second_training_waits_until_the_first_one_has_ended(tmp_path: Path) -> None:
    first, second = (Workspace(tmp_path / f"{name}.ownwords") for name in ("diary", "garden"))
    with fake_jobs(first) as of_first, fake_jobs(second) as of_second:
        diary, garden = of_first("waits"), of_second("waits")
        running = diary.start(ASKED)
        until(lambda: has_begun(first))
        for _ in range(2):
            waiting = garden.start(ASKED)
            line = until(lambda job=waiting: job_of(garden, job.id).line)  # type: ignore[misc]
            assert line == "Waiting: diary is being trained, and this starts after it."
            garden.stop(waiting.id)  # while it waits
            assert wait_until_ended(garden, waiting.id).status == "stopped"
        garden.resume(waiting.id)
        until(lambda: job_of(garden, waiting.id).line)
        assert not has_begun(second)
        diary.stop(running.id)
        until(lambda: has_begun(second))


def test_a_foreign_process_is_never_mistaken_for_the_job(
    workspace: Workspace, begin: Begin
) -> None:
    folder = workspace.runs / "jobs" / "make-1"
    folder.mkdir(parents=True)
    record = {"id": "make-1", "kind": "make", "request": {}, "began": 1.0}
    # This very process, which is alive and was not started here.
    record |= {"attempt_began": 1.0, "pid": os.getpid()}
    (folder / "job.json").write_text(json.dumps(record))
    (folder / ".lock").touch()
    jobs = begin("ends")
    assert job_of(jobs, "make-1").ended is not None
    with pytest.raises(OwnwordsError):
        jobs.stop("make-1")


# --- how far it is -------------------------------------------------------------------------------


def report(folder: Path, **values: Any) -> None:  # noqa: ANN401
    """Store how far a job is, as its process does."""
    progress = JobProgress(**{"time": time.time(), **values})
    write_atomically(folder / "state.json", msgspec.json.encode(progress))


def test_parts_are_shown_as_they_begin(workspace: Workspace, begin: Begin) -> None:
    jobs = begin("waits")
    id_ = jobs.start(ASKED).id
    until(lambda: has_begun(workspace))
    folder = workspace.runs / "jobs" / id_
    parts = {"read": "done", "plan": "skipped", "train": "running", "write": "waiting"}
    report(folder, part="train", parts=parts, share=0.25, remaining_s=1e9, note="Ready.")
    job = job_of(jobs, id_)
    assert [(stage.label, stage.status) for stage in job.stages] == [
        *(("Reading your posts", "done"), ("Training", "running")),
        *(("Writing a first paragraph", "waiting"), ("Scoring", "waiting")),
    ]
    assert (job.stage, job.share, job.line) == ("Training", 0.25, "Ready.")
    assert job.remaining_s is not None
    # Silent for longer than it promised: no one knows, and it is not "a few seconds".
    report(folder, part="train", share=0.25, time=time.time() - 150, remaining_s=9.0)
    assert (job_of(jobs, id_).remaining_s or 0) > 100
    jobs.stop(id_)
    assert wait_until_ended(jobs, id_).share == 0.25
    jobs.resume(id_)
    report(folder, part="read", share=0.2)
    assert job_of(jobs, id_).share == 0.25


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff", b'{"share": "much"}'])
def test_a_damaged_state_causes_no_error(
    content: bytes, workspace: Workspace, begin: Begin
) -> None:
    jobs = begin("waits")
    id_ = jobs.start(ASKED).id
    (workspace.runs / "jobs" / id_ / "state.json").write_bytes(content)
    assert (job_of(jobs, id_).ended, job_of(jobs, id_).share) == (None, None)


def test_a_command_run_as_a_job_stores_how_far_it_is(tmp_path: Path) -> None:
    progress, path = Progress(), tmp_path / "state.json"
    with reporting_job(progress, {"OWNWORDS_JOB_STATE": str(path), "OWNWORDS_JOB_SPENT_S": "9.5"}):
        progress.expect("read")
        progress.expect("train", 10.0)
        progress.begin("read")
        with progress.stage("Reading", 10) as stage:
            stage.advance(10)
        progress.begin("train")
        progress.note("It begins.")
    state = msgspec.json.decode(path.read_bytes(), type=JobProgress)
    assert (state.part, state.parts) == ("train", {"read": "done", "train": "running"})
    assert state.share > 0.4 and state.note == "It begins."
    assert list(tmp_path.iterdir()) == [path]


# --- the API -------------------------------------------------------------------------------------


def client(workspace: Workspace, jobs: JobManager | None = None) -> TestClient:
    state = AppState(workspace, ServeSettings(key=""), sources=(workspace.root,))
    if jobs:
        state.jobs = jobs
    return page_client(state)


def test_a_job_from_start_to_end(workspace: Workspace, begin: Begin) -> None:
    api = client(workspace, begin("waits"))
    assert api.get("/api/home").json()["jobs"] == []
    answer = api.post("/api/jobs", json={"kind": "make", "minutes": 2, "base": "none"})
    assert answer.status_code == 201
    id_ = answer.json()["id"]
    until(lambda: has_begun(workspace))
    refused = api.post("/api/jobs", json={"kind": "look"})
    assert refused.status_code == 409
    assert refused.json()["error"]["message"] == "Making a model is still running"
    # Another server, as after a restart, tells just the same.
    another = client(workspace, begin("waits"))
    assert [job["status"] for job in another.get("/api/home").json()["jobs"]] == ["running"]
    assert another.delete(f"/api/jobs/{id_}").status_code == 409
    assert another.post(f"/api/jobs/{id_}/stop", json={}).json()["status"] == "stopping"
    until(lambda: api.get("/api/home").json()["jobs"][0]["status"] == "stopped")
    assert api.post(f"/api/jobs/{id_}/stop", json={}).status_code == 409
    assert api.delete(f"/api/jobs/{id_}").status_code == 204
    assert api.get("/api/home").json()["jobs"] == []
    assert api.delete(f"/api/jobs/{id_}").status_code == 404


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, "kind is missing"),
        ({"kind": "rm"}, 'kind must be "look"'),
        ({"kind": ["make"]}, 'kind must be "look"'),
        ({"kind": "make", "minutes": 0}, "above 0"),
        ({"kind": "make", "minutes": 10**400}, "of at most"),
        ({"kind": "make", "minutes": "4"}, "a number"),
        ({"kind": "make", "base": 4}, "text"),
        ({"kind": "export", "to": "exe"}, "to"),
        ({"kind": "export"}, "missing"),
        ([], "a JSON object"),
    ],
)
def test_impossible_requests_are_refused_in_a_sentence(
    workspace: Workspace, begin: Begin, body: object, message: str
) -> None:
    answer = client(workspace, begin("ends")).post("/api/jobs", json=body)
    assert answer.status_code in (400, 409)
    assert message in answer.json()["error"]["message"]
    assert not (workspace.runs / "jobs").exists()


def test_a_base_that_needs_more_minutes_is_refused_before_the_job(
    workspace: Workspace, begin: Begin
) -> None:
    body = {"kind": "make", "minutes": 0.01, "base": "shipped"}
    error = client(workspace, begin("ends")).post("/api/jobs", json=body).json()["error"]
    assert "too short" in error["message"] and "give it" in error["hint"]
    assert not (workspace.runs / "jobs").exists()


@pytest.mark.parametrize("kind", ["make", "score", "export"])
def test_what_needs_pytorch_names_itself_and_the_extra(
    kind: str, workspace: Workspace, begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    answer = client(workspace, begin("ends")).post("/api/jobs", json={"kind": kind, "to": "gguf"})
    error = answer.json()["error"]
    doing = {"make": "training", "score": "scoring", "export": "exporting"}[kind]
    assert error["message"] == f"{doing} needs PyTorch, which is not installed"
    assert "[train]" in error["hint"]


@pytest.mark.parametrize("id_", ["..", "%2e%2e%2fw", "nobody", "x" * 300, ".make-1"])
def test_job_names_are_not_used_as_paths(workspace: Workspace, begin: Begin, id_: str) -> None:
    (workspace.runs / "jobs").mkdir(parents=True)
    (workspace.runs / "job.json").write_text("{}")
    answer = client(workspace, begin("ends")).post(f"/api/jobs/{id_}/stop", json={})
    assert answer.status_code == 404


KEY = "a-key-for-a-test"
SHARED = ServeSettings(host="0.0.0.0", key=KEY, names=("127.0.0.1",))
PROXIED = ServeSettings(key=KEY, names=("blog.example",))


@pytest.mark.parametrize("settings_", [SHARED, PROXIED, ServeSettings(key=KEY)])
def test_paths_are_named_only_where_nobody_else_reaches_the_server(
    workspace: Workspace, begin: Begin, settings_: ServeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = workspace.root / "org" / "name"
    folder.mkdir(parents=True)
    monkeypatch.chdir(workspace.root)
    state = AppState(workspace, settings_)
    state.jobs = begin("ends")
    page = page_client(state)

    def status_of(**body: str) -> int:
        answer = page.post("/api/jobs", json=body)
        if answer.status_code == 201:
            wait_until_ended(state.jobs, answer.json()["id"])
        return answer.status_code

    expected = 403 if settings_.names else 201
    for name in (str(folder), "org/name", "~/secret"):  # org/name is a folder here, in this test
        assert status_of(kind="base", source=name) == expected
        assert status_of(kind="make", base=name) == expected
    if settings_.names:
        assert page.post("/api/sources", json={"path": str(folder)}).status_code == 403
        assert page.get("/api/sources").json()["found"] == []
        assert status_of(kind="make", base="none") == 201
        assert status_of(kind="base", source="org/other") == 201
        assert status_of(kind="fetch", url="http://127.0.0.1:1/", host="127.0.0.1") == 403


# --- one stream for every page -------------------------------------------------------------------


def test_a_page_hears_what_changes(
    workspace: Workspace, begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (jobs_module, jobs_api):
        monkeypatch.setattr(module, "POLL_S", 0.01)
    heard: list[tuple[str, Any]] = []

    async def listen() -> None:
        state = AppState(workspace, ServeSettings(key=""), sources=(workspace.root,))
        state.jobs = jobs = begin("waits")

        async def send(message: Mapping[str, Any]) -> None:
            for block in message.get("body", b"").decode().split("\n\n"):
                if block.startswith("event: "):
                    event, _, data = block.removeprefix("event: ").partition("\ndata: ")
                    heard.append((event, json.loads(data)))

        async def hear(event: str) -> Any:  # noqa: ANN401
            while True:
                for name, value in heard:
                    if name == event:
                        heard.clear()
                        return value
                await asyncio.sleep(0.01)

        response = EventStreamResponse(partial(jobs_api.send_changes, state))
        stream = asyncio.create_task(response({"path": ""}, asyncio.Event().wait, send))  # type: ignore[arg-type]
        assert await hear("jobs") == {"jobs": []}
        job = await state.run(lambda: jobs.start(ASKED))
        assert (await hear("job"))["id"] == job.id
        write_atomically(workspace.root / "sources.json", "{}")
        assert (await hear("changed"))["what"] == ["sources"]
        await state.run(lambda: until(lambda: has_begun(workspace)))
        await state.run(lambda: jobs.stop(job.id))
        await state.run(lambda: wait_until_ended(jobs, job.id))
        await state.run(lambda: jobs.remove(job.id))
        assert await hear("removed") == {"id": job.id}
        await state.close()
        await stream

    asyncio.run(listen())
