"""Bodies of requests: JSON within bounds, fields of their kinds, or one sentence."""

import json
from http import HTTPStatus
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ownwords.serve.errors import ApiError, body
from ownwords.serve.openai import request_params
from ownwords.serve.openai.json_body import RequestBody, parsed

VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**25), 10**25)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["role", "content", "type", "text", "1", "include_usage"]), inner
        )
    ),
    max_leaves=6,
)
NAMES = [
    *("model", "prompt", "messages", "max_tokens", "max_completion_tokens", "temperature"),
    *("top_p", "top_k", "min_p", "n", "best_of", "echo", "suffix", "logprobs", "top_logprobs"),
    *("logit_bias", "stop", "seed", "stream", "stream_options", "presence_penalty", "guard"),
    *("frequency_penalty", "repetition_penalty", "tools", "tool_choice", "response_format"),
    *("modalities", "audio", "user", "metadata", "something_new"),
]


def refused(data: bytes) -> ApiError:
    with pytest.raises(ApiError) as caught:
        parsed(data)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400
    return caught.value


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b'{"temperature": NaN}', "NaN is no value"),
        (b'{"temperature": -Infinity}', "-Infinity is no value"),
        (b'{"model": "a", "model": "b"}', "'model' is given twice"),
        (b'{"messages": [{"role": "user", "role": "system"}]}', "'role' is given twice"),
        (b'{"seed": ' + b"7" * 5000 + b"}", "thousands of digits"),
        (b'{"prompt": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested too deeply"),
        (b'{"prompt": "\xff"}', "not UTF-8"),
        (b'{"prompt": "\\ud800"}', "half a surrogate"),
        (b'{"\\udc00": 1}', "half a surrogate"),
        (b'{"prompt": "cut of', "Unterminated string"),
        (b"", "Expecting value"),
        (b"[1, 2]", "is a list"),
        (b"null", "is null"),
        (b'"text"', "is a string"),
    ],
)
def test_what_is_no_request_is_refused_with_a_sentence(data: bytes, said: str) -> None:
    error = refused(data)
    assert said in str(error)
    assert error.status == HTTPStatus.BAD_REQUEST


@pytest.mark.parametrize("data", [b'{"a":[' + b"1," * 2_000_001 + b"1]}", b"[" * 200_001])
def test_too_many_values_are_refused_before_they_are_read(data: bytes) -> None:
    assert refused(data).status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE


def test_a_pair_of_surrogates_is_a_character() -> None:
    assert parsed(b'{"prompt": "\\ud83e\\udd8a"}') == {"prompt": "🦊"}


@given(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), VALUES))
def test_any_other_object_is_read_as_it_is(given: dict[str, Any]) -> None:
    assert parsed(json.dumps(given).encode()) == given


@given(st.binary(max_size=40))
def test_any_bytes_are_an_object_or_refused(data: bytes) -> None:
    try:
        assert isinstance(parsed(data), dict)
    except ApiError as error:
        assert error.status < HTTPStatus.INTERNAL_SERVER_ERROR


@pytest.mark.parametrize(
    ("value", "code"),
    [
        ("7", "invalid_type"),
        (True, "invalid_type"),
        (1.5, "invalid_type"),
        ([1], "invalid_type"),
        (float("inf"), "invalid_type"),  # as 1e999 is read
        (-1, "integer_below_min_value"),
        (11, "integer_above_max_value"),
        (10**400, "integer_above_max_value"),
    ],
)
def test_a_whole_number_is_one_within_its_limits(value: object, code: str) -> None:
    with pytest.raises(ApiError) as caught:
        RequestBody({"n": value}).whole("n", 0, 10)
    told = body("/v1/completions", caught.value)["error"]
    assert (told["code"], told["param"], told["type"]) == (code, "n", "invalid_request_error")


@pytest.mark.parametrize("value", [2.1, -0.1, float("inf"), 10**400, "1", False, [], {}])
def test_a_number_is_one_within_its_limits(value: object) -> None:
    with pytest.raises(ApiError) as caught:
        RequestBody({"temperature": value}).number("temperature", 0, 2)
    assert body("/v1", caught.value)["error"]["param"] == "temperature"


def test_numbers_may_be_written_either_way_and_null_is_none_given() -> None:
    fields = RequestBody({"n": 3.0, "temperature": 1, "stop": None})
    assert fields.whole("n", 1, 9) == 3
    assert fields.number("temperature", 0, 2) == 1.0
    assert fields.get("stop") is None
    assert RequestBody({"echo": None}).yes("echo") is False


@given(st.dictionaries(st.sampled_from(NAMES), VALUES), st.booleans())
def test_any_fields_are_an_order_or_one_sentence(given: dict[str, Any], is_chat: bool) -> None:
    valid = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "prompt": "Hi"}
    for request in (given, valid | given):
        try:
            found = request_params.chat(request) if is_chat else request_params.completion(request)
        except ApiError as error:
            told = body("/v1/completions", error)["error"]
            assert told["type"] == "invalid_request_error"
            assert 10 < len(told["message"]) < 400
            assert "\n" not in told["message"]
            # What is wrong is named, unless it is a whole that has no name.
            assert told["param"]
        else:
            assert found.params.texts >= 1
            assert 0 <= found.params.sampling.temperature <= 2
