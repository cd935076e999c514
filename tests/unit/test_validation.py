"""Decoding of plain data: valid data round-trips, invalid data is named by its path."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ownwords.core.validation import Meta, ValidationError, decode, encode, expected


@dataclass(frozen=True)
class Inner:
    rate: Annotated[float, Meta(ge=0, lt=1)] = 0.5
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.rate and len(self.names) == 1:
            raise ValueError("a single name has no rate")


@dataclass(frozen=True)
class Outer:
    count: Annotated[int, Meta(ge=1, le=9)]
    inner: Inner = field(default_factory=Inner)
    kind: Literal["a", "b", 3] = "a"
    limit: Annotated[int, Meta(gt=0)] | None = None
    title: Annotated[str, Meta(max_length=5)] = ""
    path: Path | None = None
    pair: tuple[int, float] = (1, 2.0)
    rows: tuple[Inner, ...] = ()
    table: Mapping[str, Inner] = field(default_factory=dict)
    length: int = field(init=False, default=3)


numbers = st.floats(0, 1, exclude_max=True, allow_subnormal=False)
inners = st.builds(Inner, numbers, st.lists(st.text(max_size=3), min_size=2).map(tuple))
outers = st.builds(
    Outer,
    count=st.integers(1, 9),
    inner=inners,
    kind=st.sampled_from(["a", "b", 3]),
    limit=st.none() | st.integers(1, 2**40),
    title=st.text(max_size=5),
    path=st.none(),
    pair=st.tuples(st.integers(-(2**60), 2**60), numbers),
    rows=st.lists(inners, max_size=2).map(tuple),
    table=st.dictionaries(st.text(max_size=2), inners, max_size=2),
)


@given(outers)
@settings(max_examples=50)
def test_encoded_values_round_trip(outer: Outer) -> None:
    data = encode(outer)
    assert decode(Outer, json.loads(json.dumps(data))) == outer
    assert "length" not in data


@pytest.mark.parametrize(
    ("change", "message", "problem"),
    [
        ({"count": "3"}, 'x.json: count must be a whole number from 1 to 9, not "3"', "type"),
        ({"count": True}, "count must be a whole number from 1 to 9, not true", "type"),
        ({"count": 2.5}, "count must be a whole number from 1 to 9, not 2.5", "type"),
        ({"count": 0}, "count must be a whole number from 1 to 9, not 0", "value"),
        ({"count": 10**30}, "count must be a whole number from 1 to 9, not 1000", "value"),
        ({"limit": 0}, "limit must be a whole number above 0 or none, not 0", "value"),
        ({"title": "abcdef"}, "title must be text of at most 5 characters", "value"),
        ({"title": "\ud800"}, "title must be text", "value"),
        ({"kind": "c"}, 'kind must be "a" or "b" or 3, not "c"', "type"),
        ({"kind": None}, "kind must be", "type"),
        ({"inner": 3}, "inner must be an object, not 3", "type"),
        (
            {"inner": {"rate": 1}},
            "inner.rate must be a number of at least 0 and below 1, not 1",
            "value",
        ),
        ({"inner": {"rate": float("nan")}}, "inner.rate must be a number", "type"),
        ({"inner": {"names": ["x"]}}, "x.json: inner: a single name has no rate", "value"),
        ({"inner": {"names": "x"}}, "inner.names must be a list of values, each text", "type"),
        ({"rows": [{}, {"rate": "x"}]}, "rows[1].rate must be a number", "type"),
        (
            {"rows": [{}, {"rat": 0}]},
            'no field "rows[1].rat"; did you mean rows[1].rate?',
            "unknown",
        ),
        ({"table": {"k": {"rate": -1}}}, "table.k.rate must be a number", "value"),
        ({"pair": [1]}, "pair must be a list of 2: a whole number, a number, not [1]", "type"),
        ({"pair": [1, None]}, "pair[1] must be a number, not null", "type"),
        ({"path": ""}, "path must be a path or none", "type"),
        ({"path": "~nobody-of-this-name/x"}, "path must be a path", "type"),
        ({"length": 3}, 'there is no field "length"', "unknown"),
        ({"zzzzzz": 3}, "one of count, inner", "unknown"),
    ],
)
def test_an_invalid_value_is_named_with_its_path(
    change: Mapping[str, object], message: str, problem: str
) -> None:
    with pytest.raises(ValidationError) as raised:
        decode(Outer, {"count": 1, **change}, source="x.json")
    assert message in str(raised.value)
    assert raised.value.problem == problem
    assert raised.value.path.split(".")[0].split("[")[0] in {*Outer.__annotations__, *change}


def test_missing_fields_are_named() -> None:
    with pytest.raises(ValidationError, match="count is missing"):
        decode(Outer, {})
    with pytest.raises(ValidationError, match="a file: rate is missing"):
        decode(Inner, {"names": []}, source="a file", complete=True)
    assert decode(Inner, {"names": []}) == Inner()


def test_null_and_unknown_fields_can_be_ignored() -> None:
    data = {"rate": None, "other": [float("nan")]}
    assert decode(Inner, data, null_is_missing=True, unknown="ignore") == Inner()


def test_a_path_can_begin_with_a_tilde() -> None:
    assert decode(Path, "~/x") == Path.home() / "x"


def test_bounds_are_explained_in_words() -> None:
    assert expected(Annotated[int, Meta(ge=1)]) == "a whole number of at least 1"
    assert expected(Annotated[float, Meta(le=9)]) == "a number of at most 9"
    assert expected(Annotated[float, Meta(gt=0, lt=1)]) == "a number above 0 and below 1"
    assert expected(Annotated[str, Meta(min_length=1)]) == "text of at least 1 characters"


def test_nan_is_not_encoded() -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        encode(Inner(float("nan")))


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)


@settings(max_examples=60)
@given(st.dictionaries(st.sampled_from(list(Outer.__annotations__)), ANYTHING))
def test_any_data_is_decoded_or_refused_with_a_sentence(data: dict[str, Any]) -> None:
    try:
        assert isinstance(decode(Outer, data), Outer)
    except ValidationError as error:
        assert error.message
        assert len(error.message) < 400


def test_deep_data_is_refused_rather_than_recursed_into() -> None:
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(ValidationError, match="deeply nested"):
        decode(Outer, {"count": deep})


def test_what_cannot_be_printed_can_be_named() -> None:
    """JSON may hold half of a pair of surrogates, in a value or in a name."""
    for data in ({"count": "\ud800"}, {"\ud800": 1}):
        with pytest.raises(ValidationError) as caught:
            decode(Outer, data)
        assert r"\ud800" in caught.value.message
        str(caught.value).encode()
