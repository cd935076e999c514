"""The write API: the models, and where a text may come from."""

from collections.abc import Iterator
from typing import Any

import pytest
from starlette.testclient import TestClient

import openai_server
from ownwords.archive.look import look
from ownwords.ask import servers
from ownwords.core.workspace import Workspace
from ownwords.serve.app_state import AppState
from page_client import page_client

POSTS = {
    "harbour": "We walked to the old harbour in the rain, and nobody spoke of the boat. " * 3,
    "kettle": "The kettle has its limescale, and the limescale has its reasons, I suppose. " * 3,
    "books": "I lend books to people who read slowly, and I count the months on one hand. " * 3,
}


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """A workspace with three posts and a tiny model."""
    folder = tmp_path_factory.mktemp("write")
    workspace = openai_server.workspace(folder)
    blog = folder / "posts"
    blog.mkdir()
    for n, (name, text) in enumerate(POSTS.items()):
        head = f"---\ntitle: On the {name}\ndate: 2020-0{n + 1}-02\n---\n\n"
        (blog / f"{name}.md").write_text(head + text, "utf-8")
    (workspace.root / "ownwords.toml").touch()
    look([blog], workspace=workspace.root)
    return workspace


@pytest.fixture(autouse=True)
def _nobody_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "discover", list)


@pytest.fixture
def client(workspace: Workspace) -> Iterator[TestClient]:
    with page_client(AppState(workspace, openai_server.settings(rows=2, queue=0))) as client:
        yield client


def test_the_base_is_named_beside_the_own_model(client: TestClient) -> None:
    answer = client.get("/api/write").json()
    roles = {model["name"]: model["role"] for model in answer["models"]}
    assert next(iter(roles.items())) == ("blog", "tuned")
    assert set(roles.values()) <= {"tuned", "base", "other"}
    assert answer["defaults"]["temperature"] > 0


def origins(client: TestClient, text: str) -> Any:  # noqa: ANN401 - JSON
    answer = client.post("/api/write/origins", json={"text": text})
    assert answer.status_code == 200
    return answer.json()


def test_a_verbatim_passage_is_found_with_its_post(client: TestClient) -> None:
    text = "Yesterday nobody spoke of the boat. We counted, and the limescale has its reasons, too."
    result = origins(client, text)
    titles = {passage["text"]: passage["title"] for passage in result["shared"]}
    assert titles == {
        "nobody spoke of the boat. We": "On the harbour",
        "and the limescale has its reasons": "On the kettle",
    }
    for passage in result["shared"]:
        assert passage["text"] in text
        assert passage["words"] == len(passage["text"].split())
    assert result["is_complete"]
    assert result["nearest"][0]["title"] in ("On the harbour", "On the kettle")
    assert result["nearest"][0]["document"]


def test_unknown_text_has_no_origin(client: TestClient) -> None:
    assert origins(client, "") == {"shared": [], "nearest": [], "is_complete": True}
    assert origins(client, "zyzzyva quux")["shared"] == []
