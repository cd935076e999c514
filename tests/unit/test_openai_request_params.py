"""Request fields: every field that matters is honoured, or refused by name."""

from collections.abc import Callable
from typing import Any

import pytest

from ownwords.inference.text_generation import DEFAULT_SAMPLING
from ownwords.serve.errors import ApiError, error_body
from ownwords.serve.json_api import decode_fields
from ownwords.serve.openai import DEFAULT_TOKENS, ChatRequest, CompletionRequest

Call = Callable[..., object]
HELLO = [{"role": "user", "content": "Hello"}]


def completion(**fields: object) -> CompletionRequest:
    return decode_fields(CompletionRequest, {"model": "m", "prompt": "Once", **fields})


def chat(**fields: object) -> ChatRequest:
    return decode_fields(ChatRequest, {"model": "m", "messages": HELLO, **fields})


def refusal(call: Call, **fields: object) -> dict[str, Any]:
    with pytest.raises(ApiError) as caught:
        call(**fields)
    error: dict[str, Any] = error_body("/v1/completions", caught.value)["error"]
    return error


def test_defaults_equal_those_of_write() -> None:
    order = completion()
    assert order.sampling == DEFAULT_SAMPLING
    assert (order.max_new_tokens, order.n, order.stops) == (DEFAULT_TOKENS, 1, ())
    assert (order.logprob_count, order.stream, order.guard) == (None, False, True)
    assert completion().prompts == ("Once",)


def test_all_sampling_parameters_are_accepted() -> None:
    fields = {
        "temperature": 0.5,
        "top_p": 0.25,
        "top_k": 7,
        "min_p": 0.125,
        "typical_p": 0.75,
        "repetition_penalty": 1.5,
        "frequency_penalty": -0.5,
        "presence_penalty": 2,
    }
    sampling = completion(**fields, logit_bias={"65": 100, "3": -7.5}).sampling
    for name, value in fields.items():
        assert getattr(sampling, name) == value
    assert sampling.bias == {65: 100.0, 3: -7.5}


def test_zero_values_are_accepted() -> None:
    sampling = completion(temperature=0, top_p=0, top_k=-1).sampling
    assert sampling.temperature == 0
    assert 0 < sampling.top_p < 1e-6  # the likeliest alone
    assert sampling.top_k == 0  # all
    assert completion(max_tokens=0).max_new_tokens == 0


@pytest.mark.parametrize(
    ("value", "read"),
    [
        ("one", ("one",)),
        (["one", "two"], ("one", "two")),
        ([7, 8], ([7, 8],)),
        ([[7], [8, 9]], ([7], [8, 9])),
        (None, ("",)),
        ("", ("",)),
    ],
)
def test_prompts_have_four_forms(value: object, read: object) -> None:
    assert completion(prompt=value).prompts == read


@pytest.mark.parametrize(
    "prompt", [7, {}, [], [[]], ["a", 7], [7, "a"], [[7], "a"], [[7], []], [7.5], [True], [-1]]
)
def test_invalid_prompts_are_refused(prompt: object) -> None:
    assert refusal(completion, prompt=prompt)["param"] == "prompt"


@pytest.mark.parametrize(
    ("value", "read"), [("END", ("END",)), (["a", "b"], ("a", "b")), ([], ()), (None, ())]
)
def test_stop_strings(value: object, read: object) -> None:
    assert completion(stop=value).stops == chat(stop=value).stops == read


@pytest.mark.parametrize("stop", ["", [""], 7, [7], ["a"] * 17, "x" * 1001, {"a": 1}])
def test_invalid_stop_strings_are_refused(stop: object) -> None:
    assert refusal(completion, stop=stop)["param"].startswith("stop")


@pytest.mark.parametrize(
    ("fields", "likeliest"),
    [({"logprobs": 0}, 0), ({"logprobs": 5}, 5), ({"logprobs": None}, None), ({}, None)],
)
def test_chances_of_completions(fields: dict[str, Any], likeliest: int | None) -> None:
    assert completion(**fields).logprob_count == likeliest


def test_chances_of_chats() -> None:
    assert chat(logprobs=True).logprob_count == 0
    assert chat(logprobs=True, top_logprobs=3).logprob_count == 3
    assert chat(logprobs=False).logprob_count is None
    assert refusal(chat, top_logprobs=3)["param"] == "logprobs"
    assert refusal(chat, logprobs=True, top_logprobs=21)["param"] == "top_logprobs"


def test_the_newer_name_of_the_limit_has_precedence() -> None:
    assert chat(max_completion_tokens=5, max_tokens=9).max_new_tokens == 5
    assert chat(max_tokens=9).max_new_tokens == 9


@pytest.mark.parametrize(
    ("call", "fields", "param"),
    [
        (completion, {"suffix": "the end"}, "suffix"),
        (completion, {"best_of": 3}, "best_of"),
        (completion, {"echo": True, "logprobs": 1}, "echo"),
        (chat, {"tools": [{"type": "function"}]}, "tools"),
        (chat, {"functions": [{"name": "f"}]}, "functions"),
        (chat, {"tool_choice": "required"}, "tool_choice"),
        (chat, {"response_format": {"type": "json_object"}}, "response_format"),
        (chat, {"modalities": ["text", "audio"]}, "modalities"),
        (chat, {"audio": {"voice": "alloy"}}, "modalities"),
        (chat, {"web_search_options": {}}, "web_search_options"),
    ],
)
def test_unsupported_options_that_change_the_answer_are_refused(
    call: Call, fields: dict[str, Any], param: str
) -> None:
    error = refusal(call, **fields)
    assert error["param"] == param
    assert error["code"] == "unsupported_parameter"


def test_unsupported_options_without_effect_are_accepted() -> None:
    completion(suffix="", best_of=2, n=2, echo=False)
    chat(tools=[], tool_choice="none", response_format={"type": "text"}, modalities=["text"])
    chat(user="me", metadata={"a": "b"}, store=False, service_tier="auto", something_new=[1])


@pytest.mark.parametrize("bias", [[1], {"a": 1}, {"-1": 1}, {"5": 101}, {"5": "1"}, {"٣": 1}])
def test_a_bias_names_tokens_and_moderate_numbers(bias: object) -> None:
    assert refusal(completion, logit_bias=bias)["param"].startswith("logit_bias")


def test_options_of_a_stream_without_a_stream() -> None:
    error = refusal(chat, stream_options={"include_usage": True})
    assert error["param"] == "stream_options"
    assert chat(stream=True, stream_options={"include_usage": True}).include_usage


@pytest.mark.parametrize("model", [None, "", 7])
def test_a_model_has_to_be_named(model: object) -> None:
    assert refusal(completion, model=model)["param"] == "model"


def test_messages_are_texts_of_roles() -> None:
    parts = [{"type": "text", "text": "How "}, {"type": "text", "text": "are you?"}]
    order = chat(
        messages=[
            {"role": "developer", "content": "Be kind."},
            {"role": "user", "content": "Hi", "name": "me"},
            {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
            {"role": "user", "content": parts},
        ]
    )
    assert order.conversation == (
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "No."},
        {"role": "user", "content": "How are you?"},
    )


@pytest.mark.parametrize(
    ("message", "param"),
    [
        ("Hi", "messages[0]"),
        ({"content": "Hi"}, "messages[0].role"),
        ({"role": "narrator", "content": "Hi"}, "messages[0].role"),
        ({"role": "user"}, "messages[0].content"),
        ({"role": "user", "content": 7}, "messages[0].content"),
        ({"role": "user", "content": [7]}, "messages[0].content[0]"),
        ({"role": "user", "content": [{"type": "image_url"}]}, "messages[0].content[0]"),
        ({"role": "user", "content": [{"type": "text"}]}, "messages[0].content[0].text"),
        ({"role": "tool", "content": "4"}, "messages[0]"),
        ({"role": "assistant", "tool_calls": [{}]}, "messages[0]"),
    ],
)
def test_invalid_messages_are_refused(message: object, param: str) -> None:
    assert refusal(chat, messages=[message])["param"] == param


@pytest.mark.parametrize("messages", [None, [], "Hi", {"role": "user"}])
def test_an_empty_conversation_is_refused(messages: object) -> None:
    assert refusal(chat, messages=messages)["param"] == "messages"
