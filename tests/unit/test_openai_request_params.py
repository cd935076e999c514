"""Request fields: every field that matters is honoured, or refused by name."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ownwords.inference.sampling import Sampler
from ownwords.inference.text_generation import DEFAULT_SAMPLING
from ownwords.serve.errors import ApiError, error_body
from ownwords.serve.openai import DEFAULT_TOKENS, ChatRequest, CompletionRequest, parse_params

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


def test_all_sampling_parameters_are_accepted() -> None:
    fields = {
        "temperature": 0.5,
        "top_p": 0.25,
        "top_k": 7,
        "min_p": 0.125,
        "repetition_penalty": 1.5,
        "frequency_penalty": -0.5,
        "presence_penalty": 2,
    }
    sampling = completion(**fields).sampling
    for name, value in fields.items():
        assert getattr(sampling, name) == value
    sampling = completion(temperature=0, top_p=0, top_k=-1).sampling
    assert (sampling.temperature, sampling.top_k, sampling.top_p) == (0, 0, 0)
    logits = np.array([0, 2, 1, 2], np.float32)
    ids, _ = Sampler(replace(sampling, temperature=1)).candidates(logits)
    assert ids.tolist() == [1]  # the likeliest


@pytest.mark.parametrize(
    ("value", "read"),
    [
        ("one", ("one",)),
        (["one", "two"], ("one", "two")),
        (None, ("",)),
    ],
)
def test_prompts_are_a_text_or_several(value: object, read: object) -> None:
    assert completion(prompt=value).prompts == read


def test_chats_and_completions_name_the_same_thing_differently() -> None:
    assert chat(max_completion_tokens=5, max_tokens=9).max_new_tokens == 5
    assert chat(max_tokens=9).max_new_tokens == 9
    assert chat(stream=True, stream_options={"include_usage": True}).include_usage


def test_messages_are_texts_of_roles() -> None:
    parts = [{"type": "text", "text": "How "}, {"type": "text", "text": "are you?"}]
    request = chat(
        messages=[
            {"role": "developer", "content": "Be kind."},
            {"role": "user", "content": "Hi", "name": "me"},
            {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
            {"role": "user", "content": parts},
        ]
    )
    assert request.conversation == (
        ("system", "Be kind."),
        ("user", "Hi"),
        ("assistant", "No."),
        ("user", "How are you?"),
    )


def test_unsupported_options_without_effect_are_accepted() -> None:
    completion(suffix="", best_of=2, n=2, echo=False, logprobs=None, logit_bias={})
    chat(
        logprobs=False,
        tools=[],
        tool_choice="none",
        response_format={"type": "text"},
        modalities=["text"],
    )
    chat(user="me", metadata={"a": "b"}, store=False, service_tier="auto", something_new=[1])


WRONG: dict[str, list[Any]] = {
    "prompt": [7, [], [[]], ["a", 7], [[7], "a"], [65]],
    "stop": ["", [7], ["a"] * 17, "x" * 1001],
    "temperature": [-1, 10**4, "warm"],  # the bounds are those of SamplingParams
    "top_k": [-2, 0.5],
}


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in WRONG.items() for value in values]
)
def test_invalid_values_are_refused(name: str, value: object) -> None:
    assert refusal(completion, **{name: value})["param"].startswith(name)


@pytest.mark.parametrize(
    ("call", "fields", "param"),
    [
        (chat, {"stream_options": {"include_usage": True}}, "stream_options"),
        (chat, {"messages": ["Hi"]}, "messages[0]"),
        (chat, {"messages": [{"role": "narrator", "content": "Hi"}]}, "messages[0].role"),
        (chat, {"messages": [{"role": "user"}]}, "messages[0].content"),
        (chat, {"messages": [{"role": "user", "content": [7]}]}, "messages[0].content[0]"),
    ],
)
def test_invalid_fields_are_refused_by_name(call: Call, fields: dict[str, Any], param: str) -> None:
    error = refusal(call, **fields)
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
        (chat, {"messages": [{"role": "tool", "content": "4"}]}, "messages[0]"),
        (
            chat,
            {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
            "messages[0].content[0]",
        ),
    ],
)
def test_unsupported_options_that_change_the_answer_are_refused(
    call: Call, fields: dict[str, Any], param: str
) -> None:
    error = refusal(call, **fields)
    assert (error["param"], error["code"]) == (param, "unsupported_parameter")
