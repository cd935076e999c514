"""Endpoints found on this machine or named: requests, answers, keys, and which model writes."""

import socket
from dataclasses import replace

import pytest

from fake_endpoint import chunk, event, fake_endpoint, sends
from ownwords.ask import servers
from ownwords.ask.servers import Endpoint, EndpointError, discover, endpoint_at, open_backend
from ownwords.core.errors import ConfigError, OwnwordsError
from this_machine import HERE, reachable

LONG = 20.0  # seconds: a test machine may be busy
MESSAGES = ({"role": "user", "content": "Why?"},)


def writer_at(endpoint: Endpoint) -> Endpoint:
    return replace(endpoint, model="writer")


def ask(writer: Endpoint) -> str:
    return "".join(writer.write(MESSAGES, 50))


def test_local_servers_are_found_without_sending_them_anything(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OWNWORDS_API_KEY", "secret")
    monkeypatch.setattr(servers, "_PROBE_S", LONG)
    with (
        fake_endpoint(monkeypatch) as endpoint,
        fake_endpoint(monkeypatch, models=[{"id": "b"}, {"id": "c"}]) as two,
    ):
        with socket.socket() as free:
            free.bind((HERE, 0))
            unused_port = free.getsockname()[1]
        ports = {unused_port: "Nobody", two.port: "LM Studio", endpoint.port: "Ollama"}
        there = discover(ports)
        assert [(each.server, each.models) for each in there] == [
            ("LM Studio", ("b", "c")),
            ("Ollama", ("writer",)),
        ]
        assert there[0].is_local
        for fake in (endpoint, two):
            ((method, path, body, headers),) = fake.requests
            assert (method, path, body) == ("GET", "/v1/models", {})
            assert "secret" not in str(headers)


@pytest.mark.parametrize(
    "data",
    [b"<html>hello</html>", b"[]", b'{"data": []}', b'{"data": [{"name": 1}]}'],
)
def test_an_invalid_model_list_is_not_an_endpoint(
    data: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    with fake_endpoint(monkeypatch) as endpoint:
        endpoint.paths["/models"] = data
        bare = Endpoint(f"http://{HERE}:{endpoint.port}", "x")
        with pytest.raises(EndpointError):
            bare.list_models()


def test_a_port_that_never_answers_is_not_a_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """A port that takes a connection and never answers."""
    with reachable(monkeypatch), socket.socket() as mute:
        mute.bind((HERE, 0))
        mute.listen()
        assert discover({mute.getsockname()[1]: "Mute"}) == []


def test_an_answer_is_streamed_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "Für einen Grund: “weil”.\nUnd 猫."
    usage = {"prompt_tokens": 12, "completion_tokens": 9, "total_tokens": 21}
    with fake_endpoint(monkeypatch, replies=[text], usage=usage) as endpoint:
        writer = writer_at(endpoint_at(endpoint.url))
        reply = writer.write(MESSAGES, 50)
        assert endpoint.requests == []  # nothing is sent before it is wanted
        pieces = list(reply)
        (body,) = endpoint.bodies()
    assert "".join(pieces) == text
    assert len(pieces) > 1
    assert writer.ended == "stop"
    assert body["messages"] == [dict(MESSAGES[0])]
    assert (body["model"], body["max_tokens"], body["seed"]) == ("writer", 50, 1)
    assert (body["stream"], body["temperature"]) == (True, 0.2)
    assert "tools" not in body


def test_an_unstreamed_answer_is_accepted_and_reasoning_ignored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = (
        b'{"choices": [{"message": {"content": "Because.", "reasoning_content": "hm"},'
        b' "finish_reason": "length"}], "usage": {"prompt_tokens": 3, "completion_tokens": 2}}'
    )
    with fake_endpoint(monkeypatch, replies=[sends(data, "application/json")]) as endpoint:
        writer = writer_at(endpoint_at(endpoint.url))
        assert ask(writer) == "Because."
    assert writer.ended == "length"


def test_half_a_character_from_a_server_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    data = chunk("Rain \ud83d") + chunk("\ude00.", "stop")
    with fake_endpoint(monkeypatch, replies=[sends(data)]) as endpoint:
        assert ask(writer_at(endpoint_at(endpoint.url))) == "Rain ??."


def test_a_field_that_a_server_rejects_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    refusals = [
        (400, {"error": {"message": "Unsupported parameter: 'max_tokens'"}}),
        (400, {"error": {"message": "Unsupported value: 'temperature'"}}),
        (422, {"error": {"message": "extra field seed not permitted"}}),
    ]
    with fake_endpoint(monkeypatch, replies=[*refusals, "Yes."]) as endpoint:
        assert ask(writer_at(endpoint_at(endpoint.url))) == "Yes."
        last = endpoint.bodies()[-1]
    assert not {"max_tokens", "temperature", "seed"} & last.keys()


def test_keys_are_sent_only_to_their_own_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    both = {"OWNWORDS_API_KEY": "ours", "OPENAI_API_KEY": "theirs"}
    openai = {"OPENAI_API_KEY": "theirs"}
    assert endpoint_at("https://example.org/v1", both).key == "ours"
    assert endpoint_at("https://example.org/v1", openai).key == ""
    assert endpoint_at("https://api.openai.com/v1", openai).key == "theirs"
    assert endpoint_at("http://127.0.0.1:8080/v1", both).key == "ours"
    assert endpoint_at("http://example.org/v1", both).key == ""  # anybody on the way could read it
    assert "ours" not in repr(endpoint_at("https://example.org/v1", both))
    with fake_endpoint(monkeypatch, wants_key="ours", replies=["Yes."]) as endpoint:
        assert ask(writer_at(endpoint_at(endpoint.url, both))) == "Yes."
        with pytest.raises(EndpointError, match="401") as raised:
            ask(writer_at(endpoint_at(endpoint.url, {})))
    assert "OWNWORDS_API_KEY" in raised.value.hint


def test_addresses_are_normalised_or_refused() -> None:
    assert endpoint_at("http://127.0.0.1:11434", {}).url == "http://127.0.0.1:11434/v1"
    assert endpoint_at("http://127.0.0.1:11434", {}).server == "Ollama"
    assert endpoint_at("http://example.org:11434", {}).server == "example.org"
    assert (
        endpoint_at("https://example.org/api/v1/#a-model", {}).url == "https://example.org/api/v1"
    )
    assert not endpoint_at("https://example.org/v1", {}).is_local
    assert endpoint_at("http://localhost:8080/v1", {}).is_local
    assert endpoint_at("http://[::1]:8080/v1", {}).is_local
    assert not endpoint_at("http://127.0.0.1.example.org/v1", {}).is_local
    for wrong in (
        "ftp://example.org", "http://", "http://a:b@example.org/v1", "https://example.org/v1?key=1",
        "http://[::1/v1",
    ):  # fmt: skip
        with pytest.raises(ConfigError):
            endpoint_at(wrong, {})


@pytest.mark.parametrize("end", [b"", b"\n", b"\n\ndata:[DONE]", b"\n\ndata: [DONE]\n\nrubbish"])
def test_stream_events_can_be_split_anywhere(end: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Carriage returns, event names and an unfinished last line, as some servers send them."""
    data = (
        b"event: message\r\n" + chunk("one ").replace(b"\n", b"\r\n") + b"id: 7\n"
        + event({"choices": [{"delta": {"role": "assistant", "content": None}}]})
        + chunk("two", "stop").rstrip(b"\n") + end
    )  # fmt: skip
    with fake_endpoint(monkeypatch, replies=[sends(data)]) as endpoint:
        writer = writer_at(endpoint_at(endpoint.url))
        assert ask(writer) == "one two"
    assert writer.ended == "stop"


# ---- which model writes answers


def here(name: str, *models: str) -> Endpoint:
    writers = [model for model in models if "embed" not in model]
    return Endpoint(f"http://{HERE}:1/v1", name, models, [*writers, *models][0])


def test_the_default_is_a_running_model_that_writes() -> None:
    assert servers.default_backend(lambda: []) is None
    assert servers.default_backend(lambda: [here("llama.cpp", "nomic-embed-text")]) is None
    running = [here("llama.cpp", "nomic-embed-text"), here("Ollama", "an-embedder", "big")]
    backend = servers.default_backend(lambda: running)
    assert backend is not None
    assert (backend.name, backend.is_local) == ("big at Ollama", True)


def test_names_are_understood() -> None:
    def look() -> list[Endpoint]:
        return [here("Ollama", "llama3:latest", "qwen:4b")]

    assert open_backend("qwen:4b", discover=look).name == "qwen:4b at Ollama"
    assert open_backend("llama3", discover=look).name == "llama3:latest at Ollama"
    with pytest.raises(OwnwordsError, match=r"no model named 'nobody'.*llama3:latest at Ollama"):
        open_backend("nobody", discover=look)
    with pytest.raises(OwnwordsError, match="no Ollama"):
        open_backend("nobody", discover=lambda: [])
    named = open_backend("https://example.org/v1#clever", discover=look)
    assert (named.name, named.is_local) == ("clever at example.org", False)


def test_without_a_model_name_the_endpoint_is_asked_for_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with fake_endpoint(monkeypatch, models=[{"id": "only"}]) as endpoint:
        writer = open_backend(endpoint.url)
        assert endpoint.requests == []
        assert ask(writer) == "Nothing."
        assert writer.name == f"only at {HERE}"
        assert endpoint.bodies()[0]["model"] == "only"
        assert writer.ended == "stop"


def test_a_model_for_vectors_is_used_only_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    models = [{"id": "nomic-embed-text"}, {"id": "talker"}]
    with fake_endpoint(monkeypatch, models=models, replies=["Yes."]) as endpoint:
        assert ask(open_backend(endpoint.url)) == "Yes."
        assert ask(open_backend(f"{endpoint.url}#nomic-embed-text")) == "Yes."
        assert [body["model"] for body in endpoint.bodies()] == ["talker", "nomic-embed-text"]
