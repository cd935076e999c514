"""The drafts API: a draft is checked, written from notes, or rewritten, as the commands do it."""

import asyncio
import json
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

import openai_server
from asgi_scope import http_scope
from fake_endpoint import breaks_off, fake_endpoint
from ownwords.archive.store import Archive
from ownwords.ask import servers
from ownwords.base import catalogue
from ownwords.drafts.rewriting import Habits, rewrite
from ownwords.inference.model import Model
from ownwords.models.directory import PROVENANCE
from ownwords.models.safetensors_header import write_file
from ownwords.serve.app import create_app
from ownwords.serve.app_state import AppState
from ownwords.tokenizers.bpe import ByteTokenizer
from page_client import page_client

NOTES = "# Umbrellas\n- count 14 umbrellas at Leeds station\n- they stayed there"
KEPT = "We counted 14 umbrellas at Leeds station."
FOREIGN = "In order to leverage best practices, users should configure appropriate settings."


@pytest.fixture(scope="module")
def state(sample_blog: Path, tmp_path_factory: pytest.TempPathFactory) -> AppState:
    """The sample blog, its own model, and one that has learned to write from notes."""
    folder = tmp_path_factory.mktemp("drafts")
    workspace = openai_server.workspace(folder)
    shutil.copytree(sample_blog, workspace.root, dirs_exist_ok=True)
    tokenizer = ByteTokenizer()
    openai_server.save(folder / "noted", tokenizer)
    known = {"tokenizer": {"fingerprint": tokenizer.fingerprint()}, "writes_from_notes": True}
    (folder / "noted" / PROVENANCE).write_text(json.dumps({"format": 1, **known}), "utf-8")
    return AppState(workspace, openai_server.settings(), models={"noted": folder / "noted"})


@pytest.fixture(autouse=True)
def _nobody_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "discover", list)


@pytest.fixture
def client(state: AppState) -> Iterator[TestClient]:
    with page_client(AppState(state.workspace, state.settings, models=state._extra_models)) as own:
        yield own


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model whose only sentence is KEPT, at any beginning."""

    monkeypatch.setattr(Model, "write_several", lambda *_, **how: [KEPT for _ in how["seeds"]])
    monkeypatch.setattr(Model, "score", lambda _, __, texts, ___: [8.0 * len(x) for x in texts])


def test_the_base_is_named_beside_the_own_model(client: TestClient) -> None:
    answer = client.get("/api/write").json()
    roles = {model["name"]: model["role"] for model in answer["models"]}
    assert next(iter(roles.items())) == ("blog", "tuned")
    assert set(roles.values()) <= {"tuned", "base", "other"}
    assert answer["defaults"]["temperature"] > 0


def events(client: TestClient, path: str, **body: object) -> list[tuple[str, Any]]:
    """The names of an answer's events, and their data."""
    answer = client.post(path, json=body)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/event-stream")
    blocks = answer.text.strip().split("\n\n")
    pairs = [each.splitlines() for each in blocks if not each.startswith(":")]  # keep-alive
    return [(name[len("event: ") :], json.loads(data[len("data: ") :])) for name, data in pairs]


def sent(client: TestClient, path: str, **body: object) -> dict[str, Any]:
    """The data of the event that ends the answer."""
    name, found = events(client, path, **body)[-1]
    assert name == "end", found
    return dict(found)


@pytest.mark.usefixtures("written")
def test_notes_are_written_out_and_what_is_lost_stays_a_note(client: TestClient) -> None:
    found = sent(client, "/api/draft", text=NOTES, model="noted", seed=7)
    assert found["seed"] == 7
    assert [line["kept"] for line in found["lines"]] == [True, False]
    assert found["text"] == f"Umbrellas\n\n{KEPT} [they stayed there]"


@pytest.mark.usefixtures("written")
def test_each_line_is_sent_as_it_is_written_and_a_draft_goes_on_after_the_last(
    client: TestClient,
) -> None:
    whole = events(client, "/api/draft", text=NOTES, model="noted", seed=7)
    assert [name for name, _ in whole] == ["notes", "begun", "line", "begun", "line", "end"]
    end, lines = whole[-1][1], [data for name, data in whole if name == "line"]
    assert whole[0][1] == [line["note"] for line in lines] and lines == end["lines"]
    assert "".join(line["before"] for line in lines) == "Umbrellas\n\n "
    rest = events(client, "/api/draft", text=NOTES, model="noted", seed=7, lines=lines[:1])
    assert [data for name, data in rest if name in ("line", "end")] == [lines[1], end]
    body = {"text": f"- tea\n{NOTES[2:]}", "model": "noted", "lines": lines[:1]}
    answer = client.post("/api/draft", json=body)
    assert answer.status_code == 400 and "notes have changed" in answer.text


def test_a_light_rewrite_is_that_of_the_command(client: TestClient, state: AppState) -> None:
    draft = "I do not know; it is not here, and I cannot find it.\n\nIt does not matter, does it?"
    with Archive(state.workspace.archive) as archive:
        habits = Habits.of(archive)
    found = sent(client, "/api/rewrite", text=draft)
    assert found == json.loads(json.dumps(rewrite(draft, habits).to_dict()))
    assert found["edits"]


def test_only_a_model_that_has_learned_notes_writes_from_them(client: TestClient) -> None:
    answer = client.post("/api/draft", json={"text": NOTES})
    assert answer.status_code == 400
    assert "has not learned" in answer.json()["error"]["message"]
    models = client.get("/api/write").json()["models"]
    assert [each["name"] for each in models if each["writes_from_notes"]] == ["noted"]


@pytest.mark.usefixtures("written")
def test_a_base_with_the_notes_adapter_drafts_before_there_is_a_model_that_can(
    state: AppState, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OWNWORDS_HOME", str(tmp_path))
    monkeypatch.setattr(catalogue, "ADAPTERS", tmp_path / "adapters")
    with page_client(AppState(state.workspace, state.settings)) as client:
        offer = client.get("/api/write").json()
        assert not any(model["writes_from_notes"] for model in offer["models"])
        assert offer["installable"]["name"] == "smollm2-135m" and offer["installable"]["bytes"]
        openai_server.save(tmp_path / "bases" / "tiny", ByteTokenizer())
        (tmp_path / "adapters" / "tiny").mkdir(parents=True)
        write_file(tmp_path / "adapters/tiny/notes.safetensors", [], [])
        offer = client.get("/api/write").json()
        assert offer["installable"] is None
        (base,) = (model for model in offer["models"] if model["writes_from_notes"])
        assert (base["name"], base["role"]) == ("tiny", "base")
        assert sent(client, "/api/draft", text=NOTES, model="tiny")["text"].endswith("there]")


def test_a_check_is_drawn_as_in_the_terminal(client: TestClient) -> None:
    found = client.post("/api/check", json={"text": f"It rained. <b>Bed</b>.\n\n{FOREIGN}"}).json()
    assert FOREIGN in [each["text"] for each in found["sentences"] if each["is_marked"]]
    assert "a language model" in found["html"] and found["sentence"] in found["html"]
    assert "<b>" not in found["html"]


def test_a_model_at_work_ends_when_the_reader_leaves(
    state: AppState, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, over = threading.Event(), threading.Event()

    def write(*_: object, on_tokens: Callable[[int], object], **__: object) -> list[str]:
        begun.set()
        try:
            while True:
                on_tokens(1)
                time.sleep(0.01)
        finally:
            over.set()

    monkeypatch.setattr(Model, "write_several", write)
    body = json.dumps({"text": NOTES, "model": "noted"}).encode()
    messages = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> dict[str, Any]:
        if messages:
            return messages.pop()
        await asyncio.to_thread(begun.wait)
        return {"type": "http.disconnect"}

    async def send(_: object) -> None:
        pass

    headers = {"Host": "127.0.0.1:8377", "Content-Type": "application/json"}
    own = AppState(state.workspace, state.settings, models=state._extra_models)

    async def ask() -> None:
        await create_app(own)(http_scope("/api/draft", "POST", headers), receive, send)
        assert await asyncio.to_thread(over.wait, 60)
        await own.close()

    asyncio.run(ask())


def test_a_model_of_a_server_here_writes_a_paragraph_at_a_time(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    better = "It doesn't matter at all to us, does it?"
    with fake_endpoint(monkeypatch, replies=[better, "SAME", better]) as fake:
        there = servers.endpoint_at(fake.url)
        there.list_models()
        monkeypatch.setattr(servers, "discover", lambda: [there])
        (offered,) = client.get("/api/write").json()["endpoints"]
        assert offered["label"] == "writer"
        draft = "It does not matter at all to us, does it?"
        anew = sent(client, "/api/rewrite", text=draft, endpoint=offered["name"])
        text = "# Umbrellas\n- count 14 umbrellas at Leeds station\n\n- they stayed there"
        body = {"text": text, "endpoint": offered["name"]}
        fake.replies[:] = [KEPT, breaks_off("They s")]
        found = events(client, "/api/draft", **body)
        prompt = fake.prompts()[-2]
        answer = client.post("/api/draft", json=body | {"endpoint": "http://127.0.0.1:1/v1#other"})
    assert len(anew["sentences"]) == 1 and anew["problem"] == ""
    names = [name for name, _ in found]
    assert names[0] == "notes" and {*names[1:-2]} == {"trying"} and names[-2:] == ["line", "error"]
    assert found[0][1] == ["count 14 umbrellas at Leeds station", "they stayed there"]
    assert found[-2][1]["text"] == KEPT and "did not finish its answer" in found[-1][1]["message"]
    assert "notes:\n- " in prompt
    assert answer.status_code == 404 and "no longer available" in answer.text
