"""Settings: dataclasses filled from TOML files, the environment, `--set` and flags.

A settings class is a frozen dataclass whose fields are sections (further dataclasses) or values.
The dataclass field is the only default there is. A setting's name is its path: `archive.drafts`.
"""

import dataclasses
import json
import math
import tomllib
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    Literal,
    NoReturn,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from ownwords.core.errors import ConfigError

PREFIX = "OWNWORDS_"
# Variables of ours that are no settings: native and base look at these.
_OTHERS = ("OWNWORDS_NATIVE", "OWNWORDS_HOME", "OWNWORDS_LEVELS")
NONE = "none"  # TOML has no null: this word stands for it, where a setting may have no value

_WORDS = {"true": True, "yes": True, "on": True, "1": True}
_WORDS |= {"false": False, "no": False, "off": False, "0": False}

_IN_WORDS: Mapping[object, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
    Path: "a path",
    type(None): f'"{NONE}"',
}

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

S = TypeVar("S", bound="DataclassInstance")


@dataclass(frozen=True)
class Setting:
    """One setting of a settings class: its name, its type, its default."""

    key: str
    type: object
    default: object


@dataclass(frozen=True)
class Resolved(Generic[S]):
    """The settings in force, and for each name where its value comes from."""

    settings: S
    origins: Mapping[str, str]

    def to_toml(self) -> str:
        """As a file that `resolve` reads back to equal settings; the origins stand as comments."""
        # What stands outside of any section has to come first: TOML has no way back.
        lines: dict[str, list[str]] = {"": []}
        for setting in settings_of(self.settings):
            section, _, name = setting.key.rpartition(".")
            origin = "".join(c if c.isprintable() else "?" for c in self.origins[setting.key])
            line = f"{name} = {as_toml(setting.default)}  # {origin}\n"
            lines.setdefault(section, [f"[{section}]\n"]).append(line)
        return "\n".join("".join(part) for part in lines.values() if part)


def resolve(
    kind: type[S],
    *,
    toml: Sequence[Path] = (),
    env: Mapping[str, str] = types.MappingProxyType({}),
    sets: Sequence[str] = (),
    flags: Mapping[str, object] = types.MappingProxyType({}),
) -> Resolved[S]:
    """Settings of that class. The later wins: default, files in order, environment, sets, flags.

    `sets` are "key=value"; a flag that is None was not given. Raises ConfigError for an unknown
    name or a value of the wrong kind, naming the place, what was seen and what was expected.
    """
    known = {setting.key: setting for setting in settings_of(kind())}
    values: dict[str, object] = {}
    origins = dict.fromkeys(known, "default")
    for key, value, origin in _given(known, toml, env, sets, flags):
        values[key] = _converted(known[key].type, value, key, origin)
        origins[key] = origin
    return Resolved(_filled(kind(), "", values, origins), origins)


def settings_of(settings: "DataclassInstance", prefix: str = "") -> Iterator[Setting]:
    """Every setting of a settings object, in order, its value there as the default."""
    hints = get_type_hints(type(settings))
    for field in dataclasses.fields(settings):
        key, value = prefix + field.name, getattr(settings, field.name)
        if dataclasses.is_dataclass(hints[field.name]):
            yield from settings_of(value, key + ".")
        else:
            yield Setting(key, hints[field.name], value)


def environment_name(key: str) -> str:
    """`archive.drafts` -> `OWNWORDS_ARCHIVE__DRAFTS`."""
    return PREFIX + key.upper().replace(".", "__")


def flag_name(key: str, value: object) -> str:
    """`archive.drafts` -> `--drafts`, or `--no-drafts` where it was switched off."""
    name = key.rpartition(".")[2].replace("_", "-")
    return f"--no-{name}" if value is False else f"--{name}"


def expected(kind: object) -> str:
    """What a type stands for, in plain words."""
    origin, args = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return " or ".join(expected(arg) for arg in args)
    if origin is Literal:
        return " or ".join(as_toml(arg) for arg in args)
    if origin is tuple:
        if args[-1] is Ellipsis:
            return f"a list of values, each {expected(args[0])}"
        return f"a list of {len(args)}: " + ", ".join(expected(arg) for arg in args)
    return _IN_WORDS[kind]


# --- where values come from: (key, value, origin), known keys only -----------------------------


def _given(
    known: Mapping[str, Setting],
    toml: Sequence[Path],
    env: Mapping[str, str],
    sets: Sequence[str],
    flags: Mapping[str, object],
) -> Iterator[tuple[str, object, str]]:
    for path in toml:
        yield from _from_table(known, _read(path), "", path.as_posix())
    by_variable = {environment_name(key): key for key in known}
    for variable in sorted(env):
        name = variable.upper()  # Windows knows no lower case here
        if not name.startswith(PREFIX) or name in _OTHERS:
            continue
        if name not in by_variable:
            _unknown(variable, "environment", by_variable, "variable")
        yield by_variable[name], _Text(env[variable]), f"environment {variable}"
    for assignment in sets:
        key, equals, text = assignment.partition("=")
        key = key.strip()
        if not equals:
            raise ConfigError(
                f'--set {assignment}: there is no "=" in it',
                hint="--set KEY=VALUE, such as --set archive.drafts=true",
            )
        if key not in known:
            _unknown(key, "--set", known)
        yield key, _Text(text.strip()), "--set"
    for key, value in flags.items():
        if value is not None:
            yield key, value, f"flag {flag_name(key, value)}"


def _from_table(
    known: Mapping[str, Setting], table: Mapping[str, object], prefix: str, origin: str
) -> Iterator[tuple[str, object, str]]:
    for name, value in table.items():
        key = prefix + name
        is_section = any(other.startswith(key + ".") for other in known)
        if key in known:
            yield key, value, origin
        elif is_section and isinstance(value, dict):
            yield from _from_table(known, value, key + ".", origin)
        elif is_section:
            raise ConfigError(
                f"{origin}: {key} is a section, not a setting; {_seen(value)} cannot be its value",
                hint=f"write [{key}] on a line of its own, its settings below it",
            )
        else:
            _unknown(key, origin, known)


def _read(path: Path) -> dict[str, Any]:
    try:
        # Notepad begins its files with a byte order mark.
        return tomllib.loads(path.read_bytes().decode("utf-8-sig"))
    except FileNotFoundError:
        raise ConfigError(f"the settings file {path} does not exist") from None
    except OSError as error:
        raise ConfigError(f"the settings file {path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"the settings file {path} is not UTF-8 text") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"the settings file {path} is not valid TOML: {error}") from error


def _unknown(
    name: str, origin: str, known: Mapping[str, object], what: str = "setting"
) -> NoReturn:
    near = get_close_matches(name, list(known), n=1, cutoff=0.5)
    if not near and what == "setting":
        # `drafts` for `archive.drafts`
        near = [key for key in known if key.rpartition(".")[2] == name.rpartition(".")[2]][:1]
    question = f"; did you mean {near[0]}?" if near else ""
    hint = "" if near else f"one of {', '.join(known)}"
    raise ConfigError(f'{origin}: there is no {what} "{name}"{question}', hint=hint)


# --- values into their types -------------------------------------------------------------------


# The others: a number too large for a float, and "~nobody" in a path.
_REFUSALS = (ValueError, OverflowError, RuntimeError)


class _Text(str):
    """A value written as bare text, outside TOML: `true`, `0.2`, `a,b`."""

    __slots__ = ()


def _converted(kind: object, value: object, key: str, origin: str) -> object:
    try:
        return _as(kind, value)
    except _REFUSALS:
        raise ConfigError(
            f"{origin}: {key} should be {expected(kind)}, and is {_seen(value)}"
        ) from None


def _as(kind: object, value: object) -> object:
    """The value as that type; ValueError where it is none."""
    origin, args = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return _as_one_of(args, value)
    if origin is Literal:
        return _as_literal(args, value)
    if origin is tuple:
        return _as_tuple(args, value)
    return _CONVERTERS[kind](value)


def _as_one_of(kinds: tuple[object, ...], value: object) -> object:
    if type(None) in kinds and (value is None or value == NONE):
        return None
    for kind in kinds:
        if kind is not type(None):
            try:
                return _as(kind, value)
            except _REFUSALS:
                continue
    raise ValueError


def _as_literal(choices: tuple[object, ...], value: object) -> object:
    for choice in choices:
        if type(choice) is type(value) and choice == value:
            return choice
        if isinstance(value, _Text) and str(choice) == value:
            return choice
    raise ValueError


def _as_tuple(kinds: tuple[object, ...], value: object) -> tuple[object, ...]:
    items: Sequence[object]
    if isinstance(value, _Text):
        if value.startswith("["):
            items = tomllib.loads(f"items = {value}")["items"]
        else:
            items = [_Text(part.strip()) for part in value.split(",") if part.strip()]
    elif isinstance(value, (list, tuple)):
        items = value
    else:
        raise ValueError  # noqa: TRY004 - a wrong value of the user's, as everywhere here
    if kinds[-1] is Ellipsis:
        kinds = (kinds[0],) * len(items)
    return tuple(_as(kind, item) for kind, item in zip(kinds, items, strict=True))


def _as_bool(value: object) -> bool:
    if isinstance(value, _Text) and value.lower() in _WORDS:
        return _WORDS[value.lower()]
    if isinstance(value, bool):
        return value
    raise ValueError


def _as_int(value: object) -> int:
    if isinstance(value, _Text) or (isinstance(value, int) and not isinstance(value, bool)):
        return int(value)
    raise ValueError


def _as_float(value: object) -> float:
    if isinstance(value, _Text) or (
        isinstance(value, (int, float)) and not isinstance(value, bool)
    ):
        number = float(value)
        if not math.isnan(number):
            return number
    raise ValueError


def _as_str(value: object) -> str:
    if isinstance(value, str):
        value.encode("utf-8")  # a ValueError for what no file could hold
        return str(value)
    raise ValueError


def _as_path(value: object) -> Path:
    if isinstance(value, Path):
        return value
    if text := _as_str(value):
        return Path(text).expanduser()
    raise ValueError


_CONVERTERS: Mapping[object, Callable[[object], object]] = {
    bool: _as_bool,
    int: _as_int,
    float: _as_float,
    str: _as_str,
    Path: _as_path,
}


def _filled(
    settings: S, prefix: str, values: Mapping[str, object], origins: Mapping[str, str]
) -> S:
    """The object with those values in place; its class may refuse them with a ValueError."""
    changes: dict[str, Any] = {}
    for field in dataclasses.fields(settings):
        key, value = prefix + field.name, getattr(settings, field.name)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            changes[field.name] = _filled(value, key + ".", values, origins)
        elif key in values:
            changes[field.name] = values[key]
    try:
        return dataclasses.replace(settings, **changes)
    except ValueError as error:
        places = dict.fromkeys(origins[key] for key in values if key.startswith(prefix))
        raise ConfigError(f"{', '.join(places)}: {prefix.rstrip('.')}: {error}") from error


# --- values into TOML --------------------------------------------------------------------------


def as_toml(value: object) -> str:
    """A value as TOML writes it."""
    if value is None:
        return f'"{NONE}"'
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, tuple):
        return "[" + ", ".join(as_toml(item) for item in value) + "]"
    # JSON's escapes are among TOML's, but for the delete character.
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")


def _seen(value: object) -> str:
    if isinstance(value, dict):
        return "a table"
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else text[:59] + "…"
