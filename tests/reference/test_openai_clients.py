"""The server in its own process, with the usual clients: `openai` and `llm`."""

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import openai_server
from openai_server import OWN, SECOND
from ownwords.inference.model import Model
from ownwords.inference.text_generation import DEFAULT_SAMPLING
from this_machine import reachable

openai = pytest.importorskip("openai")
pytest.importorskip("llm")
pytestmark = pytest.mark.reference

KEY = "a-key-of-some-length"


@pytest.fixture(autouse=True)
def _loopback(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    with reachable(monkeypatch):
        yield


@contextmanager
def process(*arguments: str) -> Iterator[str]:
    """The API address of `ownwords serve`, while it runs."""
    command = [sys.executable, "-m", "ownwords", "serve", *arguments, "--port", "0"]
    with subprocess.Popen(
        [*command, "--threads", "1"], stdout=subprocess.PIPE, text=True, encoding="utf-8"
    ) as running:
        assert running.stdout is not None
        output = ""
        for line in running.stdout:
            output += line
            if "Ctrl-C" in line:
                break
        match = re.search(r"http://\S+/v1", output)
        assert match, output
        try:
            yield match[0]
        finally:
            running.terminate()
            running.wait(20)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("clients")
    openai_server.workspace(folder)
    openai_server.second(folder)
    return folder


@pytest.fixture(scope="module")
def url(folder: Path) -> Iterator[str]:
    with process(
        str(folder / f"{OWN}.ownwords"), "--no-key", "--model", str(folder / SECOND)
    ) as address:
        yield address


@pytest.fixture
def client(url: str) -> Iterator[Any]:
    with openai.OpenAI(base_url=url, api_key="none", max_retries=0, timeout=30) as openai_client:
        yield openai_client


@pytest.fixture(scope="module")
def own(folder: Path) -> Model:
    return Model.load(folder / f"{OWN}.ownwords" / "model", threads=1)


# --- openai --------------------------------------------------------------------------------------


def test_models(client: Any) -> None:  # noqa: ANN401
    assert [model.id for model in client.models.list()][:2] == [OWN, SECOND]
    assert client.models.retrieve(OWN).owned_by == "ownwords"
    with pytest.raises(openai.NotFoundError) as caught:
        client.models.retrieve("gpt-9")
    assert caught.value.code == "model_not_found"


def test_completions(client: Any, own: Model) -> None:  # noqa: ANN401
    answer = client.completions.create(model=OWN, prompt="On ", max_tokens=20, seed=3)
    expected = "".join(own.write("On ", max_tokens=20, seed=3))
    assert answer.choices[0].text == expected
    assert answer.usage.prompt_tokens == 4
    stream = client.completions.create(
        model=OWN,
        prompt=["On ", "At "],
        max_tokens=20,
        seed=3,
        stream=True,
        stream_options={"include_usage": True},
        extra_body={"min_p": DEFAULT_SAMPLING.min_p, "guard": True},
    )
    texts = ["", ""]
    for chunk in stream:
        for choice in chunk.choices:
            texts[choice.index] += choice.text
    assert texts == [expected, "".join(own.write("At ", max_tokens=20, seed=3))]
    assert chunk.usage.prompt_tokens == 8


def test_chats(client: Any, own: Model) -> None:  # noqa: ANN401
    options: dict[str, Any] = {
        "model": OWN,
        "messages": [{"role": "user", "content": [{"type": "text", "text": "On "}]}],
        "max_completion_tokens": 20,
        "seed": 3,
    }
    expected = "".join(own.write("On ", max_tokens=20, seed=3))
    answer = client.chat.completions.create(**options)
    assert answer.choices[0].message.content == expected
    assert answer.choices[0].finish_reason in ("stop", "length")
    # Its helper takes an answer that was cut off for a mistake: this one ends by a stop string.
    stop = next(c for c in expected[4:] if c not in expected[:4])
    with client.chat.completions.stream(
        **options, stop=[stop], stream_options={"include_usage": True}
    ) as stream:
        events = list(stream)
        final = stream.get_final_completion()
    assert final.choices[0].message.content == expected[: expected.index(stop)]
    assert final.usage.prompt_tokens == answer.usage.prompt_tokens
    assert any(event.type == "content.done" for event in events)


def test_concurrent_requests(url: str, own: Model) -> None:
    async def work() -> list[str]:
        async with openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as client:

            async def write_one(seed: int) -> str:
                stream = await client.chat.completions.create(
                    model=OWN,
                    messages=[{"role": "user", "content": "On "}],
                    max_tokens=12,
                    seed=seed,
                    stream=True,
                )
                return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

            return list(await asyncio.gather(*map(write_one, range(8))))

    expected = ["".join(own.write("On ", max_tokens=12, seed=seed)) for seed in range(8)]
    assert asyncio.run(work()) == expected


def test_errors_map_to_the_client_s_exceptions(client: Any) -> None:  # noqa: ANN401
    messages = [{"role": "user", "content": "x"}]
    with pytest.raises(openai.NotFoundError) as caught:
        client.chat.completions.create(model="gpt-9", messages=messages)
    assert (caught.value.code, caught.value.param) == ("model_not_found", "model")
    for wrong in ({"temperature": -1}, {"n": 0}, {"tools": [{"type": "function"}]}):
        with pytest.raises(openai.BadRequestError) as refused:
            client.chat.completions.create(model=OWN, messages=messages, **wrong)
        assert refused.value.param == next(iter(wrong))
    with pytest.raises(openai.BadRequestError) as refused:
        client.completions.create(model=OWN, prompt="x" * 500)
    assert refused.value.code == "context_length_exceeded"


def test_a_key_is_asked_for(folder: Path) -> None:
    with process(str(folder / f"{OWN}.ownwords"), "--key", KEY) as address:
        with (
            openai.OpenAI(base_url=address, api_key="wrong", max_retries=0) as stranger,
            pytest.raises(openai.AuthenticationError) as caught,
        ):
            stranger.models.list()
        assert caught.value.code == "invalid_api_key"
        with openai.OpenAI(base_url=address, api_key=KEY, max_retries=0) as friend:
            assert next(model.id for model in friend.models.list()) == OWN


# --- llm -----------------------------------------------------------------------------------------


@pytest.fixture
def llm(url: str, tmp_path: Path) -> Iterator[Any]:
    models = [
        {"model_id": "own", "model_name": OWN, "api_base": url},
        {"model_id": "own-text", "model_name": OWN, "api_base": url, "completion": True},
        {"model_id": "second", "model_name": SECOND, "api_base": url},
    ]
    # YAML takes JSON as it is.
    (tmp_path / "extra-openai-models.yaml").write_text(json.dumps(models), "utf-8")
    environment = {**os.environ, "LLM_USER_PATH": str(tmp_path), "PYTHONUTF8": "1"}

    def call(*arguments: str) -> str:
        process_run = subprocess.run(
            [sys.executable, "-m", "llm", *arguments],
            env=environment,
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=120,
            stdin=subprocess.DEVNULL,
            check=False,
        )
        assert process_run.returncode == 0, process_run.stderr
        return process_run.stdout

    return call  # type: ignore[return-value]


def test_llm_generates_with_the_model(llm: Any, own: Model) -> None:  # noqa: ANN401
    options = ["-o", "seed", "3", "-o", "max_tokens", "20"]
    expected = "".join(own.write("On ", max_tokens=20, seed=3)).strip()
    for model in ("own", "own-text"):
        for stream in ((), ("--no-stream",)):
            assert llm("prompt", "-m", model, *options, *stream, "On ").strip() == expected


def test_llm_continues_a_conversation(llm: Any) -> None:  # noqa: ANN401
    options = ["-o", "seed", "3", "-o", "max_tokens", "8"]
    llm("prompt", "-m", "second", "-s", "Be kind", *options, "One")
    llm("prompt", "-c", *options, "Two")
    logged = json.loads(llm("logs", "--json"))
    usage = [row["input_tokens"] for row in logged]
    assert len(usage) == 2
    assert usage[1] > usage[0] + len("Two") or usage[0] > usage[1] + len("Two")


def test_llm_needs_only_the_address(llm: Any, url: str) -> None:  # noqa: ANN401
    assert OWN in llm("openai", "endpoint", url, "--models").split()
    assert llm("openai", "endpoint", url, "-m", OWN, "-o", "max_tokens", "5", "On ").strip()
