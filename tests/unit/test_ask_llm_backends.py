"""Which model puts an answer into words, and how each is called."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fake_endpoint import HERE, fake_endpoint
from ownwords.ask import servers
from ownwords.ask.servers import Endpoint, LLMBackend, LocalBackend, open_backend
from ownwords.core.errors import OwnwordsError

if TYPE_CHECKING:
    from ownwords.inference.generation import FinishReason, GenerationRequest
    from ownwords.inference.text_generation import TextGenerator

MESSAGES = (
    {"role": "system", "content": "Be short."},
    {"role": "user", "content": "Question: Why?"},
)


def generate(writer: LLMBackend, max_tokens: int = 30) -> str:
    return "".join(writer.write(MESSAGES, max_tokens=max_tokens, seed=1, temperature=0.0))


def here(name: str, *models: str) -> Endpoint:
    return Endpoint(f"http://{HERE}:1/v1", name, models)


def test_the_default_is_a_running_model_that_writes() -> None:
    assert servers.default_backend(lambda: []) is None
    assert servers.default_backend(lambda: [here("llama.cpp", "nomic-embed-text")]) is None
    running = [here("llama.cpp", "nomic-embed-text"), here("Ollama", "an-embedder", "big")]
    backend = servers.default_backend(lambda: running)
    assert backend is not None
    assert (backend.name, backend.is_local) == ("big at Ollama", True)


def test_names_are_understood(tmp_path: Path) -> None:
    def look() -> list[Endpoint]:
        return [here("Ollama", "llama3:latest", "qwen:4b")]

    assert open_backend("qwen:4b", discover=look).name == "qwen:4b at Ollama"
    assert open_backend("llama3", discover=look).name == "llama3:latest at Ollama"
    base = open_backend("mine", folder_of={"mine": tmp_path}.get, discover=look)
    assert isinstance(base, LocalBackend)
    with pytest.raises(OwnwordsError, match=r"no model called 'nobody'.*llama3:latest at Ollama"):
        open_backend("nobody", discover=look)
    with pytest.raises(OwnwordsError, match="none runs here"):
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


def own_model(model_folder: Path, template: str | None = None) -> Path:
    """A tiny byte-level model, with or without a chat template."""
    pytest.importorskip("torch")
    from families import tiny  # noqa: F401 - sets the threads
    from ownwords.models import bundle
    from ownwords.models.configs.llama import Qwen3Config
    from ownwords.models.decoder import build
    from ownwords.tokenizers.bpe import ByteTokenizer

    tokenizer = ByteTokenizer()
    tokenizer.template = template
    network = build(
        Qwen3Config(
            vocabulary=tokenizer.vocabulary_size, context=256, width=16, layers=1, heads=2,
            head_dim=8, hidden=24,
        )
    )  # fmt: skip
    network.init_weights(3)
    folder = model_folder / "mine.ownwords" / "model"
    folder.parent.mkdir(parents=True)
    bundle.save(folder, network, tokenizer)
    return folder


def test_an_own_model_continues_from_the_same_prompt(tmp_path: Path) -> None:
    folder = own_model(tmp_path)
    from ownwords.inference.model import Model

    for path in (folder, folder.parent):
        writer = open_backend(str(path))
        assert isinstance(writer, LocalBackend)
        writer.prepare()
        assert (writer.name, writer.context, writer.is_local) == ("mine", 256, True)
        text = generate(writer, max_tokens=12)
        plain = "Be short.\n\nQuestion: Why?\n\nAnswer:"
        expected = Model.load(folder).write(plain, max_tokens=12, seed=1, temperature=0.0)
        assert text == "".join(expected)
        assert writer.ended in ("stop", "length")


@pytest.mark.parametrize(("finished", "ended"), [("length", "length"), ("stop", "stop")])
def test_the_finish_reason_comes_from_the_backend(
    finished: "FinishReason", ended: str, tmp_path: Path
) -> None:
    """A server counts the sampled tokens; tokenising the text again can give others."""
    from ownwords.inference.text_generation import TextOutcome

    folder = own_model(tmp_path)
    requests: list[tuple[GenerationRequest, Sequence[str]]] = []

    def write(request: "GenerationRequest", stops: Sequence[str]) -> "TextGenerator":
        requests.append((request, stops))
        yield from ("It ", "rained.")
        return TextOutcome(7, finished)

    writer = LocalBackend(folder, generate=write)
    assert generate(writer, max_tokens=7) == "It rained."
    assert writer.ended == ended
    ((request, stops),) = requests
    assert (request.max_tokens, request.seed, request.sampling.temperature) == (7, 1, 0.0)
    assert "\nQuestion:" in stops


def test_the_model_s_own_template_is_used(tmp_path: Path) -> None:
    spelled = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}<bot>"
    no_system = (
        "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('none') }}{% endif %}"
        "<{{ m.role }}>{{ m.content }}{% endfor %}<bot>"
    )
    for number, (template, text) in enumerate(
        (
            (spelled, "<system>Be short.<user>Question: Why?<bot>"),
            (no_system, "<user>Be short.\n\nQuestion: Why?<bot>"),
        )
    ):
        writer = LocalBackend(own_model(tmp_path / str(number), template))
        generate(writer, max_tokens=3)
        assert len(writer._prompt(MESSAGES)) == writer.count(text)


def test_an_invalid_model_is_reported(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(OwnwordsError, match="is a file"):
        open_backend(str(tmp_path / "notes.txt"))
    (tmp_path / "broken.gguf").write_bytes(b"GGUF")
    pytest.importorskip("torch")
    with pytest.raises(OwnwordsError):
        generate(open_backend(str(tmp_path / "broken.gguf")))
