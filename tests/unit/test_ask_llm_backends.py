"""Which model puts an answer into words, and how each is called."""

import pytest

from fake_endpoint import HERE, fake_endpoint
from ownwords.ask import servers
from ownwords.ask.servers import Endpoint, open_backend
from ownwords.core.errors import OwnwordsError

MESSAGES = (
    {"role": "system", "content": "Be short."},
    {"role": "user", "content": "Question: Why?"},
)


def generate(writer: Endpoint, max_tokens: int = 30) -> str:
    return "".join(writer.write(MESSAGES, max_tokens))


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
    with pytest.raises(OwnwordsError, match=r"no model called 'nobody'.*llama3:latest at Ollama"):
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
        assert generate(writer) == "Nothing."
        assert writer.name == f"only at {HERE}"
        assert endpoint.bodies()[0]["model"] == "only"
        assert writer.ended == "stop"


def test_a_model_for_vectors_is_used_only_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    models = [{"id": "nomic-embed-text"}, {"id": "talker"}]
    with fake_endpoint(monkeypatch, models=models, replies=["Yes."]) as endpoint:
        assert generate(open_backend(endpoint.url)) == "Yes."
        assert generate(open_backend(f"{endpoint.url}#nomic-embed-text")) == "Yes."
        assert [body["model"] for body in endpoint.bodies()] == ["talker", "nomic-embed-text"]
