"""Saved texts, the machine, and how other programs connect, through the API."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from ownwords.core.version import __version__
from ownwords.core.workspace import Workspace, write_atomically
from ownwords.serve.api import texts as saved_texts
from ownwords.serve.app_state import AppState
from ownwords.serve.settings import ServeSettings
from page_client import page_client

TALK = [
    {"role": "user", "text": "What is the gauge made of?"},
    {
        "role": "assistant",
        "text": "Copper [1].",
        "citations": [{"number": 1, "quote": "five inches\nof copper", "title": "Rain"}],
    },
    {"role": "user", "text": "And its rim?"},
    {
        "role": "assistant",
        "sentence": "Your posts seem to say",
        "passages": [{"text": "Rims are brass.", "excerpt": "Rims are brass.", "title": "Brass"}],
    },
]


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path / "blog.ownwords")


@pytest.fixture
def client(workspace: Workspace) -> Iterator[TestClient]:
    with page_client(AppState(workspace, ServeSettings(key="a-key-of-its-own"))) as client:
        yield client


def save_text(client: TestClient, **fields: Any) -> Any:  # noqa: ANN401 - JSON
    answer = client.post("/api/texts", json=fields)
    assert answer.status_code == 201, answer.text
    return answer.json()


def test_a_text_is_saved_changed_and_deleted(client: TestClient, workspace: Workspace) -> None:
    text = save_text(client, text="It rained “all day”. " * 9, model="blog")
    assert text["title"] == " ".join(text["text"].split()[:9])
    url = f"/api/texts/{text['id']}"
    changed = client.put(url, json={"text": "It stopped.", "id": "0" * 16}).json()
    assert changed["text"] == "It stopped."
    assert (changed["id"], changed["model"]) == (text["id"], "blog")
    assert text["changed"] <= changed["changed"]
    assert client.get(url).json() == changed
    with workspace.opened():  # a job can still begin in this folder
        pass
    assert client.delete(url).status_code == 204
    assert client.get(url).status_code == 404
    assert client.get("/api/texts").json() == {"total": 0, "rows": []}
    noted = save_text(client, notes="rain gauge, copper")  # and nothing written of them yet
    assert noted["title"] == "rain gauge, copper"
    assert "rain gauge" in client.get(f"/api/texts/{noted['id']}/markdown").text


def test_two_pages_that_change_a_text_at_once_lose_nothing(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = save_text(client, text="as it was")
    url = f"/api/texts/{text['id']}"

    def write_late(path: Path, content: str) -> None:
        time.sleep(0.3)
        write_atomically(path, content)

    monkeypatch.setattr(saved_texts, "write_atomically", write_late)
    changes = ({"title": "New"}, {"text": "changed"}, {"notes": "Begin"})
    with ThreadPoolExecutor() as threads:
        list(threads.map(lambda fields: client.put(url, json=fields), changes))
    changed = client.get(url).json()
    assert [changed[name] for name in ("title", "text", "notes")] == ["New", "changed", "Begin"]


def test_search_needs_every_word_and_lists_the_latest_change_first(client: TestClient) -> None:
    rain = save_text(client, text="Rain on the roof")
    talk = save_text(client, kind="conversation", messages=TALK)
    snow = save_text(client, text="Snow on the roof")
    client.put(f"/api/texts/{rain['id']}", json={"title": "Weather"})

    def ids(**query: str) -> list[str]:
        rows = client.get("/api/texts", params=query).json()["rows"]
        return [row["id"] for row in rows]

    assert ids() == [rain["id"], snow["id"], talk["id"]]
    assert ids(q="ROOF the") == [rain["id"], snow["id"]]
    assert ids(q="weather roof") == [rain["id"]]
    assert ids(q="copper") == [talk["id"]]
    assert ids(kind="conversation") == [talk["id"]]


def test_markdown_holds_questions_answers_and_quotations(client: TestClient) -> None:
    talk = save_text(client, kind="conversation", title="A/gauge: “x”", messages=TALK)
    answer = client.get(f"/api/texts/{talk['id']}/markdown")
    assert "A-gauge-x.md" in answer.headers["content-disposition"]
    assert answer.text == (
        "# A/gauge: “x”\n\n## What is the gauge made of?\n\nCopper [1].\n\n"
        "> five inches of copper\n>\n> [1] Rain\n\n"
        "## And its rim?\n\nYour posts seem to say:\n\n> Rims are brass.\n>\n> [1] Brass\n"
    )
    save_text(client, text="A text\n\nof two paragraphs")
    assert "of two paragraphs" in client.get("/api/texts/markdown").text


@pytest.mark.parametrize("name", ["../choices", "0" * 15, "0" * 16, "%2e%2e%2fx", "A" * 16])
def test_only_saved_texts_are_read_or_deleted(
    client: TestClient, workspace: Workspace, name: str
) -> None:
    save_text(client, text="x")
    (workspace.root / "choices.json").write_text("{}")
    for method in ("GET", "DELETE"):
        assert client.request(method, f"/api/texts/{name}").status_code in (404, 405)
    assert (workspace.root / "choices.json").exists()


def test_a_damaged_file_does_not_hide_others(client: TestClient, workspace: Workspace) -> None:
    text = save_text(client, text="whole")
    for name, content in (("0" * 16, "{"), ("1" * 16, "[]"), ("2" * 16, '{"kind": "x"}')):
        (workspace.root / "texts" / f"{name}.json").write_text(content)
    assert [row["id"] for row in client.get("/api/texts").json()["rows"]] == [text["id"]]


def test_a_copied_file_is_a_text_of_its_own(client: TestClient, workspace: Workspace) -> None:
    text = save_text(client, text="first")
    folder = workspace.root / "texts"
    first, copy = folder / f"{text['id']}.json", folder / f"{'c' * 16}.json"
    copy.write_bytes(first.read_bytes())
    assert client.put(f"/api/texts/{copy.stem}", json={"text": "second"}).status_code == 200
    assert client.get(f"/api/texts/{first.stem}").json()["text"] == "first"
    assert client.delete(f"/api/texts/{copy.stem}").status_code == 204
    assert list(folder.iterdir()) == [first]


@pytest.mark.parametrize(
    "body", [{"kind": "poem"}, {"text": 3}, {"messages": ["x"]}, {"title": "x" * 201}]
)
def test_invalid_texts_are_refused(client: TestClient, body: dict[str, Any]) -> None:
    assert client.post("/api/texts", json=body).status_code == 400
    assert client.get("/api/texts").json()["total"] == 0


def test_the_machine_is_described(client: TestClient, workspace: Workspace) -> None:
    save_text(client, text="x" * 5000)
    result = client.get("/api/machine").json()
    assert result["version"] == __version__
    assert result["cores"] >= 1
    assert result["memory_free_bytes"] <= result["memory_bytes"]
    assert result["workspace"] == str(workspace.root.resolve())
    assert result["workspace_bytes"] > 5000
    assert result["can_stop"] is False  # no server runs this app
    assert client.post("/api/machine/stop").status_code == 409
