"""Figures as what JSON knows, and back; what is not of the shape that is asked for is refused."""

import json
from collections.abc import Mapping
from dataclasses import asdict, fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")


def to_plain(value: Any) -> dict[str, Any]:  # noqa: ANN401 - any dataclass
    """A dataclass as dictionaries, lists, strings and numbers."""
    made: dict[str, Any] = json.loads(json.dumps(asdict(value), allow_nan=False))
    return made


def from_plain(kind: type[T], data: object) -> T:
    """What `to_plain` gave, as a `kind` again; ValueError says what does not fit, and where."""
    made: T = _built(kind, data, kind.__name__)
    return made


def _built(kind: Any, data: Any, where: str) -> Any:  # noqa: ANN401 - of the shape annotations say
    if isinstance(kind, type) and is_dataclass(kind):
        return _dataclass(kind, data, where)
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return _one_of(inner, data, where)
    if origin is Literal:
        if data not in inner:
            raise ValueError(f"{where} is {data!r}")
        return data
    if origin in (tuple, list):
        _expect(list, data, where)
        kinds = inner[:1] * len(data) if origin is list or inner[1:] == (...,) else inner
        if len(kinds) != len(data):
            raise ValueError(f"{where} has {len(data)} parts")
        made = [
            _built(one, each, f"{where}[{i}]")
            for i, (one, each) in enumerate(zip(kinds, data, strict=True))
        ]
        return made if origin is list else tuple(made)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        _expect(dict, data, where)
        return {name: _built(inner[1], each, f"{where}.{name}") for name, each in data.items()}
    return _number_or_text(kind, data, where)


def _dataclass(kind: Any, data: Any, where: str) -> Any:  # noqa: ANN401
    _expect(dict, data, where)
    kinds = get_type_hints(kind)
    names = [field.name for field in fields(kind) if field.init]
    if set(names) != data.keys():
        odd = sorted(set(names) ^ data.keys())
        raise ValueError(f"{where} lacks or does not know {', '.join(odd)}")
    return kind(**{name: _built(kinds[name], data[name], f"{where}.{name}") for name in names})


def _one_of(kinds: tuple[Any, ...], data: Any, where: str) -> Any:  # noqa: ANN401
    for kind in kinds:
        try:
            return _built(kind, data, where)
        except ValueError:
            continue
    raise ValueError(f"{where} is {data!r}")


def _number_or_text(kind: Any, data: Any, where: str) -> Any:  # noqa: ANN401
    # In JSON a whole number may stand for a float; a truth value is never a number.
    if kind is float and isinstance(data, int) and not isinstance(data, bool):
        return float(data)
    wanted = NoneType if kind is None else kind
    _expect(wanted, data, where)
    return data


def _expect(kind: type, data: object, where: str) -> None:
    is_one = isinstance(data, kind) and (kind is bool or not isinstance(data, bool))
    if not is_one:
        raise ValueError(f"{where} is {data!r:.60}, and not a {kind.__name__}")
