"""The write API: the stream, blocked copies, and where a text may come from."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from starlette.applications import Starlette
from starlette.requests import Request as Asked
from starlette.responses import Response

import openai_server as played
from ownwords.archive.look import look
from ownwords.core.errors import OwnwordsError
from ownwords.core.workspace import Workspace
from ownwords.inference import copy_guard as guarding
from ownwords.inference.model import Model
from ownwords.serve.api import write
from ownwords.serve.app_state import AppState
from ownwords.serve.errors import error_response
from ownwords.tokenizers.bpe import ByteTokenizer

POSTS = {
    "harbour": "We walked to the old harbour in the rain, and nobody spoke of the boat. " * 3,
    "kettle": "The kettle has its limescale, and the limescale has its reasons, I suppose. " * 3,
    "books": "I lend books to people who read slowly, and I count the months on one hand. " * 3,
}


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    """A workspace with a tiny model; no archive."""
    return played.workspace(tmp_path)


@pytest.fixture
def with_archive(tmp_path: Path, workspace: Workspace) -> Workspace:
    blog = tmp_path / "posts"
    blog.mkdir()
    for n, (name, text) in enumerate(POSTS.items()):
        head = f"---\ntitle: On the {name}\ndate: 2020-0{n + 1}-02\n---\n\n"
        (blog / f"{name}.md").write_text(head + text, "utf-8")
    (workspace.root / "ownwords.toml").touch()
    look([blog], workspace=workspace.root)
    return workspace


def run_with_client(
    workspace: Workspace, work: Callable[[httpx.AsyncClient, AppState], Awaitable[Any]]
) -> Any:  # noqa: ANN401
    """The result of the work, given a client of the routes."""

    async def error_of(request: Asked, error: Exception) -> Response:
        assert isinstance(error, OwnwordsError)
        return error_response(request.url.path, error)

    async def run() -> Any:  # noqa: ANN401
        state = AppState(workspace, played.settings(rows=2, queue=0))
        app = Starlette(routes=write.routes(state), exception_handlers={OwnwordsError: error_of})
        transport = httpx.ASGITransport(app)
        try:
            async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
                return await work(client, state)
        finally:
            await state.close()

    return asyncio.run(run())


def events_of(text: str) -> list[tuple[str, Any]]:
    events = []
    for block in text.split("\n\n"):
        lines = [line for line in block.splitlines() if not line.startswith(":")]
        if lines:
            assert [line.partition(":")[0] for line in lines] == ["event", "data"]
            events.append((lines[0][7:], json.loads(lines[1][6:])))
    return events


def write_events(workspace: Workspace, **body: object) -> list[tuple[str, Any]]:
    async def work(client: httpx.AsyncClient, _: AppState) -> list[tuple[str, Any]]:
        answer = await client.post("/api/write", json=body)
        assert answer.status_code == 200, answer.text
        assert answer.headers["content-type"].startswith("text/event-stream")
        return events_of(answer.text)

    events: list[tuple[str, Any]] = run_with_client(workspace, work)
    return events


def text_of(events: list[tuple[str, Any]]) -> str:
    return "".join(data for name, data in events if name == "text")


def test_the_stream_equals_the_text_of_the_model(workspace: Workspace) -> None:
    events = write_events(
        workspace, prompt="The rain", tokens=40, seed=7, temperature=0.9, min_p=0.02
    )
    model = Model.load(workspace.root / "model", threads=1)
    expected = model.write("The rain", max_tokens=40, seed=7, temperature=0.9, min_p=0.02)
    assert text_of(events) == "".join(expected)
    names = [name for name, _ in events]
    assert (names[0], names[-1]) == ("begin", "end")
    assert events[0][1] == {"model": "blog", "seed": 7, "guarded": True, "has_guard": True}
    assert events[-1][1]["tokens"] <= 40


def test_the_base_is_named_beside_the_own_model(workspace: Workspace) -> None:
    async def work(client: httpx.AsyncClient, _: AppState) -> Any:  # noqa: ANN401
        return (await client.get("/api/write")).json()

    answer = run_with_client(workspace, work)
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
        ({"top_p": 0}, 400, "from 0.01"),
        ({"seed": 2**40}, 400, "seed must be"),
        ({"prompt": "x" * 30_000}, 400, "characters"),
        ({"guard": 1}, 400, "true or false"),
        ({"model": "../model"}, 404, "no model called"),
        ({"model": "/etc/passwd"}, 404, "no model called"),
    ],
)
def test_invalid_requests_are_refused(
    workspace: Workspace, body: dict[str, object], status: int, message: str
) -> None:
    async def work(client: httpx.AsyncClient, _: AppState) -> httpx.Response:
        return await client.post("/api/write", json=body)

    answer = run_with_client(workspace, work)
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


def origins(workspace: Workspace, text: str) -> Any:  # noqa: ANN401
    async def work(client: httpx.AsyncClient, _: AppState) -> Any:  # noqa: ANN401
        answer = await client.post("/api/write/origins", json={"text": text})
        return answer.status_code, answer.json()

    return run_with_client(workspace, work)


def test_a_verbatim_passage_is_found_with_its_post(
    with_archive: Workspace,
) -> None:
    text = "Yesterday nobody spoke of the boat. We counted, and the limescale has its reasons, too."
    status, result = origins(with_archive, text)
    assert status == 200
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


def test_unknown_text_has_no_origin(with_archive: Workspace) -> None:
    assert origins(with_archive, "")[1] == {"shared": [], "nearest": [], "is_complete": True}
    result = origins(with_archive, "zyzzyva quux")[1]
    assert result["shared"] == []
