"""Request bodies: JSON within limits, fields of their types, or one sentence."""

from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ownwords.core.validation import Meta
from ownwords.serve.errors import ApiError, error_body
from ownwords.serve.json_api import decode_fields, parse_json


def refused(data: bytes) -> ApiError:
    with pytest.raises(ApiError) as caught:
        parse_json(data)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400
    return caught.value


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b'{"temperature": NaN}', "not valid JSON"),
        (b'{"seed": ' + b"7" * 5000 + b"}", "not valid JSON"),
        (b'{"prompt": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "not valid JSON"),
        (b'{"prompt": "\xff"}', "not valid JSON"),
        (b'{"prompt": "\\ud800"}', "not valid JSON"),
        (b'{"prompt": "cut of', "not valid JSON"),
        (b"[1, 2]", "not [1, 2]"),
        (b"null", "not null"),
        (b'"text"', 'not "text"'),
    ],
)
def test_an_invalid_request_is_refused_with_a_sentence(data: bytes, message: str) -> None:
    error = refused(data)
    assert message in str(error)
    assert error.status == HTTPStatus.BAD_REQUEST


def test_a_pair_of_surrogates_is_a_character() -> None:
    assert parse_json(b'{"prompt": "\\ud83e\\udd8a"}') == {"prompt": "🦊"}


@given(st.binary(max_size=40))
def test_any_bytes_are_an_object_or_refused(data: bytes) -> None:
    try:
        assert isinstance(parse_json(data), dict)
    except ApiError as error:
        assert error.status < HTTPStatus.INTERNAL_SERVER_ERROR


@dataclass(frozen=True)
class Sample:
    n: Annotated[int, Meta(ge=0, le=10)] = 1
    temperature: Annotated[float, Meta(ge=0, le=2)] = 1.0
    text: Annotated[str, Meta(max_length=3)] = ""
    echo: bool = False


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        ("n", "7", "invalid_type"),
        ("n", True, "invalid_type"),
        ("n", 1.5, "invalid_type"),
        ("n", [1], "invalid_type"),
        ("n", float("inf"), "invalid_type"),  # as 1e999 is read
        ("n", -1, "invalid_value"),
        ("n", 11, "invalid_value"),
        ("n", 10**400, "invalid_value"),
        ("temperature", 2.1, "invalid_value"),
        ("temperature", -0.1, "invalid_value"),
        ("temperature", float("inf"), "invalid_value"),
        ("temperature", "1", "invalid_type"),
        ("temperature", False, "invalid_type"),
        ("text", "four", "invalid_value"),
        ("text", 4, "invalid_type"),
        ("echo", 1, "invalid_type"),
    ],
)
def test_an_invalid_field_is_named(name: str, value: object, code: str) -> None:
    with pytest.raises(ApiError) as caught:
        decode_fields(Sample, {name: value})
    error = error_body("/v1/completions", caught.value)["error"]
    assert (error["code"], error["param"], error["type"]) == (code, name, "invalid_request_error")


def test_null_means_absent_and_unknown_fields_are_ignored() -> None:
    fields = parse_json(b'{"n": 3.0, "temperature": 1, "text": null, "more": [1]}')
    assert decode_fields(Sample, fields) == Sample(3, 1.0, "", False)
