"""The write API: the stream, blocked copies, and where a text may come from."""

import json
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

import openai_server
from ownwords.archive.look import look
from ownwords.core.workspace import Workspace
from ownwords.inference import copy_guard as guarding
from ownwords.inference.model import Model
from ownwords.serve.api import write
from ownwords.serve.app_state import AppState
from ownwords.tokenizers.bpe import ByteTokenizer
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


@pytest.fixture
def client(workspace: Workspace) -> Iterator[TestClient]:
    with page_client(AppState(workspace, openai_server.settings(rows=2, queue=0))) as client:
        yield client


def events_of(text: str) -> list[tuple[str, Any]]:
    blocks = [block.splitlines() for block in text.split("\n\n") if block]
    return [(event.removeprefix("event: "), json.loads(data[6:])) for event, data in blocks]


def test_the_stream_equals_the_text_of_the_model(client: TestClient, workspace: Workspace) -> None:
    body = {"prompt": "The rain", "tokens": 40, "seed": 7, "temperature": 0.9, "min_p": 0.02}
    answer = client.post("/api/write", json=body)
    assert answer.headers["content-type"].startswith("text/event-stream")
    events = events_of(answer.text)
    model = Model.load(workspace.root / "model", threads=1)
    expected = model.write("The rain", max_tokens=40, seed=7, temperature=0.9, min_p=0.02)
    assert "".join(data for name, data in events if name == "text") == "".join(expected)
    names = [name for name, _ in events]
    assert (names[0], names[-1]) == ("begin", "end")
    assert events[0][1] == {"model": "blog", "seed": 7, "guarded": True, "has_guard": True}
    assert events[-1][1]["tokens"] <= 40


def test_the_end_of_a_sentence_is_streamed(client: TestClient, workspace: Workspace) -> None:
    model = Model.load(workspace.root / "model", threads=1)
    whole = "".join(model.write("The rain", max_tokens=40 - len(" rain"), temperature=0))

    def suggested(**body: str) -> str:
        events = events_of(client.post("/api/complete", json=body).text)
        assert [name for name, _ in events if name != "text"] == ["begin", "end"]
        return "".join(data for name, data in events if name == "text")

    line = re.split(r"\n|(?<=[.!?])\s", whole)[0]
    assert suggested(text="The rain") == line
    assert suggested(text="The rain", suffix=line[3:9]) == line[:3]


def test_the_base_is_named_beside_the_own_model(client: TestClient) -> None:
    answer = client.get("/api/write").json()
    roles = {model["name"]: model["role"] for model in answer["models"]}
    assert next(iter(roles.items())) == ("blog", "tuned")
    assert set(roles.values()) <= {"tuned", "base", "other"}
    assert answer["defaults"]["min_p"] > 0


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ({"tokens": 0}, 400, "from 1"),
        ({"tokens": 10.5}, 400, "whole number"),
        ({"temperature": -1}, 400, "from 0"),
        ({"seed": 2**40}, 400, "seed must be"),
        ({"prompt": "x" * 30_000}, 400, "characters"),
        ({"guard": 1}, 400, "true or false"),
        ({"model": "../model"}, 404, "no model called"),
        ({"model": "/etc/passwd"}, 404, "no model called"),
    ],
)
def test_invalid_requests_are_refused(
    client: TestClient, body: dict[str, object], status: int, message: str
) -> None:
    answer = client.post("/api/write", json=body)
    assert answer.status_code == status
    assert message in answer.json()["error"]["message"]


def test_the_guard_reports_where_it_blocked_a_copy() -> None:
    tokenizer = ByteTokenizer()
    learned = "nobody spoke of the boat that had been sold in March to a man from inland"
    ids = np.array(tokenizer.encode(learned))
    guard = guarding.build([ids], tokenizer, words=4, longest=200)
    prompt = tokenizer.encode("He said that ")
    text = "nobody spoke of a thing, nobody spoke of that boat"

    def blocked_texts(text: str) -> list[str]:
        blocked = write.BlockedPassages(guard, tokenizer, prompt)
        for token in tokenizer.encode(text):
            blocked.feed(token)
        return blocked.contexts

    # After each "nobody spoke of" the fourth word of the post was not to be had.
    assert blocked_texts(text) == [
        "He said that nobody spoke of",
        "He said that nobody spoke of a thing, nobody spoke of",
    ]
    assert blocked_texts("quite another text") == []


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
        "and the limescale has its reasons,": "On the kettle",
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
