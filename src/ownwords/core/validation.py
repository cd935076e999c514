"""Decodes plain data (parsed TOML or JSON) into dataclasses, strictly, and encodes them again.

A stdlib dataclass describes the data, msgspec checks it, and errors are one sentence each.

    @dataclass(frozen=True)
    class GenerationParams:
        prompt: str
        max_tokens: Annotated[int, Meta(ge=1, le=4096)] = 200
        temperature: Annotated[float, Meta(ge=0, le=5)] | None = None

        def __post_init__(self) -> None:  # for rules about several fields
            if self.max_tokens > 100 and not self.prompt:
                raise ValueError("without a prompt, max_tokens is at most 100")

    one setting              decode(float, 0.1, path="optim.learning_rate", source="--set")
    a request's body         decode(GenerationParams, json.loads(body), null_is_missing=True)
    some of a config.json    decode(Qwen3Fields, data, source="config.json", unknown="ignore")
    a file of ours           decode(Scorecard, data, source="scorecard.json", complete=True)

Nothing is converted silently: "3" and true are not numbers. Whole numbers are accepted as floats.
NaN is refused, and so is text that UTF-8 cannot encode.
"""

import dataclasses
import functools
import json
import math
import re
import types
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from ownwords.core.errors import ConfigError

__all__ = ["Meta", "ValidationError", "decode", "encode", "expected", "shown", "unknown_name"]

T = TypeVar("T")
# "value" is out of bounds, or refused by the dataclass itself.
Problem = Literal["unknown", "missing", "type", "value"]

_IN_WORDS: Mapping[object, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
    Path: "a path",
    type(None): "none",
}
_SURROGATES = re.compile("[\ud800-\udfff]")
# RuntimeError: "~nobody/x" as a path. msgspec's own error is a ValueError.
_REFUSALS = (ValueError, RuntimeError)


class ValidationError(ConfigError):
    """A value does not fit; `path` locates it, and `problem` classifies it."""

    def __init__(self, message: str, path: str, problem: Problem, hint: str = "") -> None:
        super().__init__(message, hint)
        self.path = path
        self.problem = problem


def decode(
    kind: type[T],
    data: object,
    *,
    path: str = "",
    source: str = "",
    unknown: Literal["refuse", "ignore"] = "refuse",
    null_is_missing: bool = False,
    complete: bool = False,
) -> T:
    """Decode data into a `kind`; raise ValidationError with one sentence on the first problem.

    Messages begin with `source` (a file, "--set") and name each field by its dotted path, which
    starts at `path`. `unknown` selects whether fields that the dataclass lacks are refused or
    ignored. With `complete`, fields that have a default are required, too.
    """
    try:
        data = _known(kind, data, path, unknown == "ignore", null_is_missing, complete)
        try:
            decoded: T = _convert(kind, data)
        except _REFUSALS:
            raise _first_problem(kind, data, path) from None
    except ValidationError as error:
        if source:
            error.message = f"{source}: {error.message}"
        raise
    return decoded


def encode(value: object) -> dict[str, Any]:
    """Convert a dataclass to dictionaries, lists, text and numbers; ValueError for NaN."""
    plain: dict[str, Any] = json.loads(json.dumps(msgspec.to_builtins(value), allow_nan=False))
    return plain


def expected(kind: object) -> str:
    """Describe what a type allows: "a whole number from 1 to 9"."""
    origin, args = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return expected(args[0]) + "".join(map(_bounds, _metas(kind)))
    if origin in (Union, types.UnionType):
        return " or ".join(expected(arg) for arg in args)
    if origin is Literal:
        return " or ".join(shown(arg) for arg in args)
    if origin is tuple and args[-1] is not ...:
        return f"a list of {len(args)}: " + ", ".join(expected(arg) for arg in args)
    if origin in (tuple, list):
        return f"a list of values, each {expected(args[0])}"
    return _IN_WORDS.get(kind, "an object")


def shown(value: object) -> str:
    """Return the value as JSON writes it, shortened to 60 characters."""
    try:
        text = json.dumps(value, ensure_ascii=False, default=str)
    except RecursionError:
        text = "deeply nested data"
    return text if len(text) <= 60 else text[:59] + "…"


def unknown_name(
    name: str, known: Iterable[str], *, noun: str = "field", path: str = ""
) -> ValidationError:
    """Return the error for a name that does not exist, with the nearest that does."""
    names = [_join(path, known_name) for known_name in known]
    full = _join(path, name)
    near = get_close_matches(full, names, n=1, cutoff=0.5)
    if not near:  # `drafts` for `archive.drafts`
        near = [key for key in names if key.rpartition(".")[2] == name.rpartition(".")[2]][:1]
    question = f"; did you mean {near[0]}?" if near else ""
    hint = "" if near else f"one of {', '.join(names)}"
    return ValidationError(
        f"there is no {noun} {shown(full)}{question}", full, "unknown", hint=hint
    )


def _known(
    kind: object, data: object, path: str, ignore: bool, null_is_missing: bool, complete: bool
) -> Any:  # noqa: ANN401 - plain data
    """Remove ignored fields; raise ValidationError for unknown and missing names."""
    member = _member(kind, data)
    if isinstance(data, Mapping) and _is_record(member):
        fields = _fields(member)
        data = {name: x for name, x in data.items() if not (null_is_missing and x is None)}
        for name in () if ignore else data.keys() - fields.keys():
            raise unknown_name(str(name), fields, path=path)
        for name, (_, required) in fields.items():
            if name not in data and (required or complete):
                full = _join(path, name)
                raise ValidationError(f"{full} is missing", full, "missing")
        data = {name: data[name] for name in fields if name in data}
    elif get_args(member)[:1] == (int,):
        return data  # no check per item: a list of token ids may be long
    elif _is_nan(data) or (isinstance(data, str) and _SURROGATES.search(data)):
        raise _misfit(kind, data, path)
    parts = {
        step: _known(inner, value, _join(path, step), ignore, null_is_missing, complete)
        for step, inner, value in _parts(member, data)
    }
    if not parts:
        return data
    return parts if isinstance(data, Mapping) else list(parts.values())


def _first_problem(kind: object, data: object, path: str) -> ValidationError:
    """Return the error for the innermost part that does not fit."""
    member = _member(kind, data)
    for step, inner, value in _parts(member, data):
        if _refusal(inner, value):
            return _first_problem(inner, value, _join(path, step))
    refusal = _refusal(member, data)
    if refusal and _is_record(member) and isinstance(data, Mapping):
        reason = refusal.__cause__ or refusal
        return ValidationError(f"{path}: {reason}" if path else str(reason), path, "value")
    return _misfit(kind, data, path)


def _misfit(kind: object, value: object, path: str) -> ValidationError:
    """Return the error for a value of the wrong type or out of bounds."""
    is_within = not _is_nan(value) and any(
        _metas(member) and not _refusal(_bare(member), value) for member in _members(kind)
    )
    problem: Problem = "value" if is_within else "type"
    message = f"{path or 'the value'} must be {expected(kind)}, not {shown(value)}"
    return ValidationError(message, path, problem)


# --- types ---------------------------------------------------------------------------------------


def _parts(
    kind: Any,  # noqa: ANN401 - a type
    data: object,
) -> Iterator[tuple[str | int, object, Any]]:
    """Yield the name or index, type and value of each field or item of the data."""
    args = get_args(kind)
    if isinstance(data, Mapping):
        if _is_record(kind):
            fields = _fields(kind)
            yield from ((name, fields[name][0], data[name]) for name in data)
        elif len(args) == 2:
            yield from ((name, args[1], value) for name, value in data.items())
    elif isinstance(data, (list, tuple)) and args:
        if len(args) == 1 or args[-1] is ...:
            args = args[:1] * len(data)
        if len(args) == len(data):
            yield from zip(range(len(data)), args, data, strict=True)


def _members(kind: object) -> tuple[object, ...]:
    return get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)


def _member(kind: object, data: object) -> Any:  # noqa: ANN401 - a type
    """Return the type without bounds; of a union, the member that has the shape of the data."""
    for member in _members(kind):
        bare = _bare(member)
        of_dict = _is_record(bare) or get_origin(bare) in (dict, Mapping)
        of_list = get_origin(bare) in (list, tuple)
        if of_dict if isinstance(data, Mapping) else of_list and isinstance(data, (list, tuple)):
            return bare
    return _bare(kind)


def _bare(kind: object) -> Any:  # noqa: ANN401 - a type
    return get_args(kind)[0] if get_origin(kind) is Annotated else kind


def _metas(kind: object) -> list[Meta]:
    args = get_args(kind) if get_origin(kind) is Annotated else ()
    return [arg for arg in args if isinstance(arg, Meta)]


def _is_record(kind: object) -> bool:
    return dataclasses.is_dataclass(kind)


@functools.cache
def _fields(kind: Any) -> Mapping[str, tuple[object, bool]]:  # noqa: ANN401 - a dataclass
    """Return the type of each init field, and whether it is required, by name."""
    hints = get_type_hints(kind, include_extras=True)
    default = (dataclasses.MISSING, dataclasses.MISSING)
    return {
        field.name: (hints[field.name], (field.default, field.default_factory) == default)
        for field in dataclasses.fields(kind)
        if field.init
    }


def _convert(kind: Any, data: object) -> Any:  # noqa: ANN401 - whatever annotations can say
    return msgspec.convert(data, kind, strict=True, dec_hook=_as_path)


def _as_path(kind: type, value: object) -> object:
    if kind is Path and isinstance(value, str) and value:
        return Path(value).expanduser()
    raise ValueError


def _refusal(kind: object, data: object) -> Exception | None:
    try:
        _convert(kind, data)
    except _REFUSALS as error:
        return error
    return None


def _is_nan(value: object) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _bounds(meta: Meta) -> str:
    if meta.max_length is not None or meta.min_length is not None:
        least = f" of at least {meta.min_length:,}" if meta.min_length else ""
        most = f" of at most {meta.max_length:,}" if meta.max_length is not None else ""
        return f"{least}{' and' if least and most else ''}{most} characters"
    if meta.ge is not None and meta.le is not None:
        return f" from {meta.ge:g} to {meta.le:g}"
    limits = {"of at least": meta.ge, "above": meta.gt, "of at most": meta.le, "below": meta.lt}
    return " and".join(f" {words} {x:g}" for words, x in limits.items() if x is not None)


def _join(path: str, step: str | int) -> str:
    if isinstance(step, int):
        return f"{path}[{step}]"
    return f"{path}.{step}" if path else step
