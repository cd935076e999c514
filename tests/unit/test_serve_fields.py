"""The fields of a request: what fits is given, everything else refused with a sentence."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ownwords.serve.api.fields import JsonFields
from ownwords.serve.errors import ApiError

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)


def test_what_is_not_there_is_the_default() -> None:
    fields = JsonFields({})
    assert fields.text("a", most=5, default="x") == "x"
    assert fields.number("a", least=0, most=1, default=0.5) == 0.5
    assert fields.whole("a", least=0, most=9, default=3) == 3
    assert fields.flag("a", default=True) is True
    assert fields.one_of("a", ["x", "y"], default="y") == "y"


@settings(max_examples=40)
@given(ANYTHING)
def test_whatever_is_sent_is_of_its_kind_or_refused(value: Any) -> None:  # noqa: ANN401
    fields = JsonFields({"a": value})
    for ask, fits in (
        (lambda: fields.text("a", most=5), lambda x: isinstance(x, str) and len(x) <= 5),
        (lambda: fields.number("a", least=-1, most=1, default=0), lambda x: -1 <= x <= 1),
        (lambda: fields.whole("a", least=-1, most=1, default=0), lambda x: x in (-1, 0, 1)),
        (lambda: fields.flag("a", default=False), lambda x: isinstance(x, bool)),
        (lambda: fields.one_of("a", ["x"], default="x"), lambda x: x == "x"),
    ):
        try:
            assert fits(ask())
        except ApiError as refused:
            assert refused.status == 400
            assert refused.message


@pytest.mark.parametrize("sent", [[], "text", 5, None, True])
def test_only_an_object_has_fields(sent: object) -> None:
    with pytest.raises(ApiError, match="a JSON object"):
        JsonFields(sent)


def test_half_a_pair_is_no_letter_in_a_file() -> None:
    text = JsonFields(json.loads('{"a": "x\\ud800y"}')).text("a", most=9)
    assert text.encode("utf-8") == b"x?y"
