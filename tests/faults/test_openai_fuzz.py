"""The OpenAI API under fuzzing: any body, any client; no status 500, no leaked rows."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from http import HTTPStatus
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.requests import ClientDisconnect

import openai_server
from asgi_scope import http_scope
from openai_server import OWN, Api, Client, events_of
from ownwords.core.workspace import Workspace
from ownwords.inference.text_generation import DEFAULT_SAMPLING
from ownwords.serve import openai

WRITE, CHAT = "/v1/completions", "/v1/chat/completions"
PATHS = (WRITE, CHAT)
NOT_ANSWERED = {HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_FOUND, HTTPStatus.REQUEST_ENTITY_TOO_LARGE}

scalars: st.SearchStrategy[Any] = (
    st.none()
    | st.booleans()
    | st.integers(-3, 9)
    | st.sampled_from([10**30, -(10**30), 2**63, 0.5, 1e308, -0.0])
    | st.text(max_size=6)
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["role", "content", "type", "text", "65"]), inner)
    ),
    max_leaves=6,
)
role = st.sampled_from(["user", "assistant", "system", "developer", "tool", "x"])
contents = st.text(max_size=20) | st.lists(
    st.fixed_dictionaries({"type": st.sampled_from(["text", "image_url"]), "text": st.text()}),
    max_size=2,
)
# What each field may well be, so that requests get past the first checks.
FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "model": st.sampled_from([OWN, OWN, OWN, "gpt-9", ""]),
    "prompt": st.text(max_size=40)
    | st.lists(st.text(max_size=9), max_size=3)
    | st.lists(st.integers(-1, 270), max_size=9),
    "messages": st.lists(st.fixed_dictionaries({"role": role, "content": contents}), max_size=3),
    "max_tokens": st.integers(0, 6),
    "temperature": st.floats(0, 2),
    "top_p": st.floats(0, 1),
    "n": st.integers(1, 3),
    "stop": st.text(max_size=2) | st.lists(st.text(max_size=2), max_size=3),
    "seed": st.integers(-(2**70), 2**70),
    "stream": st.booleans(),
    "stream_options": st.fixed_dictionaries({"include_usage": st.booleans()}),
    "logprobs": st.booleans() | st.integers(0, 5),
    "top_logprobs": st.integers(0, 5),
    "echo": st.booleans(),
    "logit_bias": st.dictionaries(st.integers(-1, 300).map(str), st.floats(-101, 101)),
    "presence_penalty": st.floats(-2, 2),
    "guard": st.booleans(),
}
OFTEN = {"model": st.just(OWN), "max_tokens": st.integers(0, 5)}
requests = st.fixed_dictionaries(
    OFTEN,
    optional={
        name: of | values if n % 4 == 0 else of
        for n, (name, of) in enumerate(FIELDS.items())
        if name not in OFTEN
    },
)
odd_fields = st.dictionaries(st.sampled_from([*FIELDS, "tools", "user", "new"]), values, max_size=4)


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    return openai_server.workspace(tmp_path_factory.mktemp("fuzz"))


@pytest.fixture(scope="module")
def api(workspace: Workspace) -> Iterator[Api]:
    with openai_server.running_api(workspace) as api:
        yield api


def check(status: int, text: str, *, streamed: bool) -> None:
    """Assert an answer in OpenAI's form, or an error in it."""
    if status == HTTPStatus.OK:
        if streamed:
            chunks = events_of(text)
            assert all("error" not in chunk for chunk in chunks), text
            assert chunks[0]["object"] in ("text_completion", "chat.completion.chunk")
        else:
            answer = json.loads(text)
            assert answer["usage"]["total_tokens"] >= 0
            for choice in answer.get("choices", ()):
                assert choice["finish_reason"] in ("stop", "length")
        return
    assert status in NOT_ANSWERED, text
    error = json.loads(text)["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["type"] == "invalid_request_error"
    assert 5 < len(error["message"]) < 1000
    assert "\n" not in error["message"]


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A valid request with some bytes changed, removed or inserted."""
    data = json.dumps(draw(requests)).encode()
    cut = draw(st.integers(0, len(data)))
    put = draw(st.binary(max_size=4) | st.sampled_from([b"{", b"]", b'"', b",", b"NaN", b"1e999"]))
    return data[:cut] + put + data[cut + draw(st.integers(0, 3)) :]


def fuzzed(examples: int) -> settings:
    return settings(max_examples=examples, suppress_health_check=[HealthCheck.too_slow])


how_often = pytest.mark.parametrize("examples", [40, pytest.param(2000, marks=pytest.mark.fuzz)])


@how_often
def test_any_request_is_answered_or_refused_correctly(api: Api, examples: int) -> None:
    @fuzzed(examples)
    @given(body=requests | odd_fields, path=st.sampled_from(PATHS))
    def ask(body: dict[str, Any], path: str) -> None:
        answer = api.post(path, body)
        check(answer.status_code, answer.text, streamed=body.get("stream") is True)

    ask()


@how_often
def test_any_bytes_are_answered_or_refused_correctly(api: Api, examples: int) -> None:
    @fuzzed(examples)
    @given(data=damaged(), path=st.sampled_from(PATHS))
    def ask(data: bytes, path: str) -> None:
        answer = api.post(path, data)
        check(answer.status_code, answer.text, streamed=answer.text.startswith("data:"))

    ask()


# --- clients that go away ------------------------------------------------------------------------


async def ask_and_disconnect(client: Client, body: dict[str, Any], after: int) -> list[bytes]:
    """Ask and disconnect after some messages; returns the messages."""
    sent: list[bytes] = []
    disconnected = asyncio.Event()
    messages = [{"type": "http.request", "body": json.dumps(body).encode(), "more_body": False}]
    scope = http_scope(WRITE, "POST", {"content-type": "application/json"})

    async def receive() -> dict[str, Any]:
        if messages:
            return messages.pop()
        await disconnected.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:  # noqa: ANN401
        sent.append(message.get("body", b""))
        if len(sent) > after:
            disconnected.set()

    if not after:
        asyncio.get_running_loop().call_later(0.01, disconnected.set)
    (route,) = [
        route for route in openai.routes(client.state) if getattr(route, "path", "") == WRITE
    ]
    with suppress(ClientDisconnect):  # as the middleware does
        await asyncio.wait_for(route.handle(scope, receive, send), 20)
    return sent


@pytest.mark.parametrize("stream", [True, False])
def test_a_disconnected_client_frees_its_row(
    workspace: Workspace, stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = {"model": OWN, "prompt": "x", "max_tokens": 1 << 20, "stream": stream, "n": 2}
    # It would write for hours.
    endless = replace(DEFAULT_SAMPLING, bias={256: -100.0, 257: -100.0})
    monkeypatch.setattr(openai, "DEFAULT_SAMPLING", endless)

    async def work(client: Client) -> None:
        loaded = await client.state.get_model(OWN)
        for after in (3, 9, 3) if stream else (0, 0, 0):
            sent = await ask_and_disconnect(client, body, after)
            assert b"[DONE]" not in b"".join(sent)
            assert loaded.worker.is_idle
        answer = await client.request(WRITE, prompt="x", max_tokens=3)
        assert answer["usage"]["prompt_tokens"] == 2

    openai_server.run_with_client(workspace, work, rows=2, queue=4)
