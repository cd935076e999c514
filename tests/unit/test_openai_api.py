"""The OpenAI-compatible API as clients see it: texts, usage, stops, chunks, errors."""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import replace
from http import HTTPStatus
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import openai_server
from openai_server import CONTEXT, LEARNED, OWN, SECOND, Api, Client
from ownwords.core.workspace import Workspace
from ownwords.inference.model import Model
from ownwords.inference.sampling import Sampler
from ownwords.inference.text_generation import DEFAULT_SAMPLING
from ownwords.serve import openai
from ownwords.serve.errors import ApiError, error_body
from ownwords.serve.openai import DEFAULT_TOKENS, ChatRequest, CompletionRequest, parse_params

WRITE, CHAT = "/v1/completions", "/v1/chat/completions"


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    return openai_server.workspace(tmp_path_factory.mktemp("openai"))


@pytest.fixture(scope="module")
def own(workspace: Workspace) -> Model:
    return Model.load(workspace.root / "model", threads=1)


@pytest.fixture(scope="module")
def second(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return openai_server.second(tmp_path_factory.mktemp("second"))


@pytest.fixture(scope="module")
def client(workspace: Workspace, second: Path) -> Iterator[Api]:
    with openai_server.running_api(workspace, {SECOND: second}) as api:
        yield api


def generate_text(own: Model, prompt: str, tokens: int, seed: int, **options: Any) -> str:  # noqa: ANN401
    return "".join(own.write(prompt, max_tokens=tokens, seed=seed, **options))


@pytest.fixture
def biased(monkeypatch: pytest.MonkeyPatch) -> Callable[[dict[int, float]], None]:
    """Makes the models want some tokens, or not want them."""

    def bias(logits: dict[int, float]) -> None:
        monkeypatch.setattr(openai, "DEFAULT_SAMPLING", replace(DEFAULT_SAMPLING, bias=logits))

    return bias


# --- completions ---------------------------------------------------------------------------------


def test_a_completion_equals_the_text_of_write(client: Api, own: Model) -> None:
    answer = client.request(WRITE, prompt="Ça alors ", max_tokens=30, seed=7)
    assert answer["object"] == "text_completion"
    assert answer["id"].startswith("cmpl-")
    assert answer["model"] == OWN
    assert answer["system_fingerprint"].startswith("fp_")
    (choice,) = answer["choices"]
    assert choice["text"] == generate_text(own, "Ça alors ", 30, 7)
    assert (choice["index"], choice["logprobs"]) == (0, None)
    read = 1 + len("Ça alors ".encode())  # what begins a document, and a token a byte
    assert answer["usage"]["prompt_tokens"] == read
    assert answer["usage"]["total_tokens"] == read + answer["usage"]["completion_tokens"]


def test_sampling_parameters_are_honoured(client: Api, own: Model) -> None:
    cases: list[dict[str, Any]] = [
        {"temperature": 0},
        {"temperature": 1.7, "min_p": 0, "top_p": 0.9},
        {"top_k": 3, "frequency_penalty": 1.5, "presence_penalty": -0.5},
        {"repetition_penalty": 1.3},
    ]
    texts = set()
    for options in cases:
        answer = client.request(WRITE, prompt="On ", max_tokens=25, seed=11, **options)
        texts.add(text := answer["choices"][0]["text"])
        assert text == generate_text(own, "On ", 25, 11, **options)
    assert len(texts) == len(cases)


def test_the_prompts_forms_and_the_seeds_of_several_texts(client: Api, own: Model) -> None:
    for form, prompts in (("one ", ["one "]), (["one ", "two "], ["one ", "two "])):
        answer = client.request(WRITE, prompt=form, max_tokens=9, seed=5, n=2)
        texts = [generate_text(own, prompt, 9, seed) for prompt in prompts for seed in (5, 6)]
        assert [choice["text"] for choice in answer["choices"]] == texts
        assert [choice["index"] for choice in answer["choices"]] == list(range(len(texts)))
        # However many texts go on from it.
        assert answer["usage"]["prompt_tokens"] == 5 * len(prompts)


def test_an_empty_prompt_begins_a_new_text(client: Api, own: Model) -> None:
    for more in ({}, {"prompt": ""}):
        answer = client.request(WRITE, max_tokens=4, seed=2, **more)
        assert answer["choices"][0]["text"] == generate_text(own, "", 4, 2)


def test_a_stream_can_end_immediately(client: Api) -> None:
    nothing = client.streamed(WRITE, prompt="x", max_tokens=0)
    chat = client.streamed(CHAT, messages=[{"role": "user", "content": ""}], max_tokens=0)
    assert [chunk["choices"][0]["finish_reason"] for chunk in nothing] == ["length"]
    assert [chunk["choices"][0]["finish_reason"] for chunk in chat] == [None, "length"]


def test_how_a_text_ends(client: Api, biased: Callable[[dict[int, float]], None]) -> None:
    at_once = client.request(WRITE, prompt="x", max_tokens=0)
    biased({257: 100})
    by_model = client.request(WRITE, prompt="x", max_tokens=12)
    biased({65: 100})
    by_length = client.request(WRITE, prompt="x", max_tokens=12)
    by_string = client.request(WRITE, prompt="x", max_tokens=12, stop=["B", "AAA"])
    assert by_length["choices"][0]["finish_reason"] == "length"
    assert by_length["usage"]["completion_tokens"] == 12
    assert by_model["choices"][0] == {
        "index": 0,
        "text": "",
        "logprobs": None,
        "finish_reason": "stop",
    }
    assert by_string["choices"][0]["text"] == ""
    assert by_string["choices"][0]["finish_reason"] == "stop"
    assert by_string["usage"]["completion_tokens"] == 3  # it took them to know
    assert at_once["choices"][0]["finish_reason"] == "length"
    assert at_once["usage"]["completion_tokens"] == 0


def test_a_stop_string_across_tokens_ends_the_text(client: Api, own: Model) -> None:
    full_text = generate_text(own, "On ", 40, 3)
    stop = full_text[9:13]

    body = {"prompt": "On ", "max_tokens": 40, "seed": 3, "stop": stop}
    answer, chunks = client.request(WRITE, **body), client.streamed(WRITE, **body)
    expected = full_text[: full_text.index(stop)]
    assert answer["choices"][0]["text"] == expected
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == expected
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"


def test_a_suffix_is_not_repeated_and_a_sentence_ends_the_text(
    client: Api, own: Model, biased: Callable[[dict[int, float]], None]
) -> None:
    full_text = generate_text(own, "On", 40, 3)
    body = {"prompt": "On", "max_tokens": 40, "seed": 3}
    choice = client.request(WRITE, **body, suffix=full_text[9:13] + "\n")["choices"][0]
    assert choice["text"] == full_text[:9]
    assert choice["finish_reason"] == "stop"
    body = {"prompt": "On a b", "max_tokens": 9, "sentence": True}
    biased({ord("."): 100})
    answer = client.request(WRITE, **body)
    assert answer["choices"][0]["text"] == "." * (9 - len(" b"))
    assert answer["usage"]["prompt_tokens"] == 1 + len("On a")
    biased({ord("\n"): 100})
    choice = client.request(WRITE, **body)["choices"][0]
    assert (choice["text"], choice["finish_reason"]) == ("", "stop")


def test_a_stream_equals_the_unstreamed_answer(client: Api) -> None:
    body: dict[str, Any] = {"prompt": ["été ", "ab"], "max_tokens": 30, "seed": 9, "n": 2}

    answer = client.request(WRITE, **body)
    chunks = client.streamed(WRITE, **body, stream_options={"include_usage": True})
    last = chunks.pop()
    assert (last["choices"], last["usage"]) == ([], answer["usage"])
    assert len({(chunk["id"], chunk["created"]) for chunk in [*chunks, last]}) == 1
    for n, choice in enumerate(answer["choices"]):
        choices_of_n = [
            chunk["choices"][0] for chunk in chunks if chunk["choices"][0]["index"] == n
        ]
        assert "".join(choice["text"] for choice in choices_of_n) == choice["text"]
        assert [choice["finish_reason"] for choice in choices_of_n[:-1]] == [None] * (
            len(choices_of_n) - 1
        )
        assert choices_of_n[-1]["finish_reason"] == choice["finish_reason"]
    for chunk in chunks:
        assert chunk["usage"] is None
        assert chunk["object"] == "text_completion"


def test_the_copy_guard_is_on_unless_switched_off(
    client: Api, own: Model, biased: Callable[[dict[int, float]], None]
) -> None:
    text = LEARNED[:40]
    # The model is made to want nothing but the text that the guard knows.
    bias = {i: -100.0 for i in range(261) if chr(i) not in LEARNED}
    biased(bias)
    body = {"prompt": text, "max_tokens": 20, "temperature": 0}

    guarded, free, default = (
        client.request(WRITE, **body, **more)["choices"][0]["text"]
        for more in ({"guard": True}, {"guard": False}, {})
    )
    options: dict[str, Any] = {"temperature": 0, "bias": bias}
    assert guarded == default == generate_text(own, text, 20, 1, **options)
    assert free == generate_text(own, text, 20, 1, **options, quote=True)
    assert LEARNED[40] != guarded[0]  # 8 tokens of it stand in the prompt already


# --- chats ---------------------------------------------------------------------------------------


def test_a_model_without_a_template_continues_the_messages(client: Api, own: Model) -> None:
    cases = [
        ([("user", "The trouble")], "The trouble"),
        ([("system", "On backups."), ("user", "The")], "On backups.\n\nThe"),
        ([("user", "It"), ("assistant", " is"), ("user", "And")], "It is\n\nAnd"),
    ]
    for said, text in cases:
        messages = [{"role": role, "content": content} for role, content in said]
        answer = client.request(CHAT, messages=messages, max_tokens=10, seed=1)
        assert answer["object"] == "chat.completion"
        written = generate_text(own, text, 10, 1)
        message = {"role": "assistant", "content": written, "refusal": None}
        assert answer["choices"][0]["message"] == message
        assert answer["usage"]["prompt_tokens"] == 1 + len(text)


def test_the_chunks_of_a_chat(client: Api) -> None:
    body: dict[str, Any] = {"messages": [{"role": "user", "content": "On "}], "max_tokens": 12}

    answer = client.request(CHAT, **body, seed=3)
    chunks = client.streamed(CHAT, **body, seed=3)
    first, *between, last = [chunk["choices"][0] for chunk in chunks]
    assert first["delta"] == {"role": "assistant", "content": "", "refusal": None}
    assert (last["delta"], last["logprobs"]) == ({}, None)
    assert last["finish_reason"] == answer["choices"][0]["finish_reason"]
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    assert all("usage" not in chunk for chunk in chunks)
    text = "".join(choice["delta"]["content"] for choice in between)
    assert text == answer["choices"][0]["message"]["content"]


# --- models --------------------------------------------------------------------------------------


def test_the_models_there_are(client: Api, second: Path) -> None:
    listing = client.get("/v1/models").json()
    single = client.get(f"/v1/models/{SECOND}").json()
    none = client.get("/v1/models/gpt-9/x")
    assert listing["object"] == "list"
    assert [model["id"] for model in listing["data"]][:2] == [OWN, SECOND]
    assert single in listing["data"]
    assert (single["object"], single["owned_by"]) == ("model", "ownwords")
    assert single["created"] == int((second / "config.json").stat().st_mtime)
    assert none.status_code == HTTPStatus.NOT_FOUND
    assert none.json()["error"]["code"] == "model_not_found"


def test_a_prompt_longer_than_the_context_is_read_from_its_end_if_that_is_asked(
    client: Api, own: Model
) -> None:
    prompt = "x" * (2 * CONTEXT) + "On "
    asked = {"prompt": prompt, "max_tokens": 5, "seed": 3, "truncate_prompt_tokens": -1}
    answer = client.request(WRITE, **asked)
    assert answer["choices"][0]["text"] == generate_text(own, prompt, 5, 3)


# --- refusals ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "body", "status", "param", "code"),
    [
        (WRITE, {"model": "gpt-9", "prompt": "x"}, 404, "model", "model_not_found"),
        (WRITE, {"prompt": "x"}, 400, "model", "missing_required_parameter"),
        (CHAT, {"model": OWN}, 400, "messages", "missing_required_parameter"),
        (WRITE, {"model": OWN, "prompt": "x" * CONTEXT}, 400, "prompt", "context_length_exceeded"),
        (
            CHAT,
            {"model": OWN, "messages": [{"role": "user", "content": "x" * 200}]},
            400,
            "messages",
            "context_length_exceeded",
        ),
        (WRITE, {"model": OWN, "prompt": [999]}, 400, "prompt[0]", "invalid_type"),
        (WRITE, {"model": OWN, "n": 100}, 400, "n", "invalid_value"),
        (WRITE, b'{"model": ', 400, None, None),
        (WRITE, b'{"model": "blog", "temperature": NaN}', 400, None, None),
        ("/v1/responses", {"model": OWN}, 404, None, "not_found"),
        ("/v1/models", {"model": OWN}, 405, None, None),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_invalid_requests_are_refused_in_openai_s_form(
    client: Api,
    path: str,
    body: dict[str, Any] | bytes,
    status: int,
    param: str | None,
    code: str | None,
    stream: bool,
) -> None:
    if stream and isinstance(body, dict):
        body = {**body, "stream": True}

    responses, error = client.refused(path, body)
    assert (responses, error["param"], error["code"]) == (status, param, code)
    assert error["type"] == "invalid_request_error"


def test_too_many_requests_get_a_retry_later(workspace: Workspace) -> None:
    async def work(client: Client) -> list[Any]:
        body = {"model": OWN, "prompt": "x", "max_tokens": 400}
        await client.post(WRITE, {**body, "max_tokens": 1})  # the model is loaded then
        with client.state.compute_lock.hold():  # nothing is generated meanwhile
            tasks = [asyncio.create_task(client.post(WRITE, body)) for _ in range(6)]
            while sum(task.done() for task in tasks) < 3:
                await asyncio.sleep(0.001)
        return await asyncio.gather(*tasks)

    answers = openai_server.run_with_client(workspace, work, rows=1, queue=2)
    busy = [
        response for response in answers if response.status_code == HTTPStatus.TOO_MANY_REQUESTS
    ]
    assert len(busy) == 3
    assert all(
        response.status_code == HTTPStatus.OK for response in answers if response not in busy
    )
    assert int(busy[0].headers["retry-after"]) >= 1
    assert busy[0].json()["error"]["code"] == "rate_limit_exceeded"


def test_a_bug_is_reported_without_a_traceback(
    client: Api, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """In the middle of a stream; before it begins, the middleware answers."""

    chunk, calls = openai.Formatter.chunk, []

    def fail_later(*arguments: Any) -> Any:  # noqa: ANN401
        calls.append(arguments)
        if len(calls) > 1:
            raise RuntimeError("secret")
        return chunk(*arguments)

    monkeypatch.setattr(openai.Formatter, "chunk", fail_later)
    answer = client.post(WRITE, {"model": OWN, "prompt": "x", "stream": True, "n": 2})
    _, event = openai_server.events_of(answer.text, ended=False)
    assert event["error"]["type"] == "server_error"
    assert "secret" not in answer.text
    assert "secret" in caplog.text


# --- request fields: each that matters is honoured, or refused by name ----------------------------


Call = Callable[..., object]
HELLO = [{"role": "user", "content": "Hello"}]


def completion(**fields: object) -> CompletionRequest:
    return parse_params(CompletionRequest, {"model": "m", "prompt": "Once", **fields})


def chat(**fields: object) -> ChatRequest:
    return parse_params(ChatRequest, {"model": "m", "messages": HELLO, **fields})


def refusal(call: Call, **fields: object) -> dict[str, Any]:
    with pytest.raises(ApiError) as caught:
        call(**fields)
    error: dict[str, Any] = error_body("/v1/completions", caught.value)["error"]
    return error


def test_defaults_equal_those_of_write() -> None:
    request = completion()
    assert request.sampling == DEFAULT_SAMPLING
    assert (request.max_new_tokens, request.n, request.stops) == (DEFAULT_TOKENS, 1, ())
    assert (request.stream, request.guard) == (False, True)
    assert len({completion().seed for _ in range(5)}) > 1


def test_no_top_tokens_are_the_likeliest_one_and_fewer_than_none_are_all() -> None:
    sampling = completion(temperature=0, top_p=0, top_k=-1).sampling
    assert (sampling.temperature, sampling.top_k, sampling.top_p) == (0, 0, 0)
    logits = np.array([0, 2, 1, 2], np.float32)
    ids, _ = Sampler(replace(sampling, temperature=1)).candidates(logits)
    assert ids.tolist() == [1]  # the likeliest


def test_chats_and_completions_name_the_same_thing_differently() -> None:
    assert chat(max_completion_tokens=5, max_tokens=9).max_new_tokens == 5
    assert chat(max_tokens=9).max_new_tokens == 9


def test_messages_are_texts_of_roles() -> None:
    parts = [{"type": "text", "text": "How "}, {"type": "text", "text": "are you?"}]
    request = chat(
        messages=[
            {"role": "developer", "content": "Be kind."},
            {"role": "user", "content": "Hi", "name": "me"},
            {"role": "assistant", "content": " No."},
            {"role": "user", "content": parts},
        ]
    )
    assert request.prompts == ("Be kind.\n\nHi No.\n\nHow are you?",)


def test_unsupported_options_without_effect_are_accepted() -> None:
    completion(suffix="", best_of=1, echo=False, logprobs=None, logit_bias={})
    chat(logprobs=False, tools=[], functions={}, tool_choice="none", modalities=["text"])
    chat(response_format={"type": "text", "schema": None}, audio=False)
    chat(response_format={}, audio={})
    chat(user="me", metadata={"a": "b"}, store=False, service_tier="auto", something_new=[1])


WRONG: dict[str, list[Any]] = {
    "prompt": [7, [], [[]], ["a", 7], [[7], "a"], [65]],
    "stop": ["", [7], ["a"] * 17, "x" * 1001],
    "temperature": [-1, 10**4, "warm"],  # the bounds are those of SamplingParams
    "top_k": [-2, 0.5],
}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"messages": ["Hi"]}, "messages[0]"),
        ({"messages": [{"role": "narrator", "content": "Hi"}]}, "messages[0].role"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": [7]}]}, "messages[0].content[0]"),
        ({"messages": [{"role": "tool", "content": "4"}]}, "messages[0].role"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
            "messages[0].content[0]",
        ),
        *(({name: value}, name) for name, values in WRONG.items() for value in values),
    ],
)
def test_invalid_fields_are_refused_by_name(fields: dict[str, Any], param: str) -> None:
    error = refusal(completion if param in WRONG else chat, **fields)
    assert error["param"].startswith(param)
    assert error["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    ("call", "fields", "param"),
    [
        (completion, {"best_of": 3}, "best_of"),
        (completion, {"echo": True}, "echo"),
        (completion, {"logprobs": 0}, "logprobs"),
        (completion, {"logit_bias": {"65": 100}}, "logit_bias"),
        (chat, {"logprobs": True}, "logprobs"),
        (chat, {"top_logprobs": 2}, "top_logprobs"),
        (chat, {"tools": [{"type": "function"}]}, "tools"),
        (chat, {"tool_choice": "required"}, "tool_choice"),
        (chat, {"response_format": {"type": "json_object"}}, "response_format"),
        (chat, {"audio": {"voice": "alloy"}}, "audio"),
        (chat, {"web_search_options": {}}, "web_search_options"),
    ],
)
def test_unsupported_options_that_change_the_answer_are_refused(
    call: Call, fields: dict[str, Any], param: str
) -> None:
    error = refusal(call, **fields)
    assert (error["param"], error["code"]) == (param, "unsupported_parameter")
