"""Settings: dataclasses filled from TOML files, `--set` and flags.

A settings class is a frozen dataclass whose fields are sections (further dataclasses) or values.
Defaults are defined only by the dataclass fields. A setting's name is its path: `archive.drafts`.
"""

import dataclasses
import json
import tomllib
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    NoReturn,
    TypeVar,
    get_args,
    get_type_hints,
)

from ownwords.core.errors import ConfigError, OwnwordsError
from ownwords.core.validation import decode, shown, unknown_name

NONE = "none"  # the word for None in optional settings, since TOML has no null

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

S = TypeVar("S", bound="DataclassInstance")


@dataclass(frozen=True)
class Setting:
    """A setting of a settings class: its dotted name, type and default."""

    key: str
    type: object
    default: object


@dataclass(frozen=True)
class Resolved(Generic[S]):
    """The resolved settings, and for each name the origin of its value."""

    settings: S
    origins: Mapping[str, str]


def resolve(
    kind: type[S],
    *,
    toml: Sequence[Path] = (),
    sets: Sequence[str] = (),
    flags: Mapping[str, object] = types.MappingProxyType({}),
) -> Resolved[S]:
    """Resolve the settings of a class from defaults, files, sets and flags.

    Later sources in this order override earlier ones, as do later files. `sets` are "key=value"; a
    flag that is None was not given. Raises ConfigError for an unknown name or an invalid value.
    """
    known = {setting.key: setting for setting in settings_of(kind())}
    values: dict[str, object] = {}
    origins = dict.fromkeys(known, "default")
    for key, value, origin in _given(known, toml, sets, flags):
        values[key] = _value(known[key].type, value, key, origin)
        origins[key] = origin
    return Resolved(_filled(kind(), "", values, origins), origins)


def settings_of(settings: "DataclassInstance", prefix: str = "") -> Iterator[Setting]:
    """Yield every setting of a settings object in order, with its current value as the default."""
    hints = get_type_hints(type(settings), include_extras=True)
    for field in dataclasses.fields(settings):
        key, value = prefix + field.name, getattr(settings, field.name)
        if dataclasses.is_dataclass(hints[field.name]):
            yield from settings_of(value, key + ".")
        else:
            yield Setting(key, hints[field.name], value)


def flag_name(key: str, value: object) -> str:
    """Return the flag of a setting: `archive.drafts` -> `--drafts`, or `--no-drafts` if False."""
    name = key.rpartition(".")[2].replace("_", "-")
    return f"--no-{name}" if value is False else f"--{name}"


# --- sources of values: (key, value, origin), known keys only ----------------------------------


def _given(
    known: Mapping[str, Setting],
    toml: Sequence[Path],
    sets: Sequence[str],
    flags: Mapping[str, object],
) -> Iterator[tuple[str, object, str]]:
    for path in toml:
        yield from _from_table(known, _read(path), "", path.as_posix())
    for assignment in sets:
        key, equals, text = assignment.partition("=")
        key = key.strip()
        if not equals:
            raise ConfigError(
                f'--set {assignment}: "=" is missing',
                hint="--set KEY=VALUE, such as --set archive.drafts=true",
            )
        if key not in known:
            _unknown(key, "--set", known)
        yield key, _Text(text.strip()), "--set"
    for key, value in flags.items():
        if value is not None:
            if key not in known:
                _unknown(key, "settings", known)
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
                f"{origin}: {key} is a section, not a setting with the value {shown(value)}",
                hint=f"write [{key}] on its own line, and its settings below",
            )
        else:
            _unknown(key, origin, known)


def _read(path: Path) -> dict[str, Any]:
    try:
        # utf-8-sig, because Notepad writes a byte order mark.
        return tomllib.loads(path.read_bytes().decode("utf-8-sig"))
    except FileNotFoundError:
        raise ConfigError(f"the settings file {path} does not exist") from None
    except OSError as error:
        raise ConfigError(f"the settings file {path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"the settings file {path} is not UTF-8 text") from error
    except ValueError as error:
        raise ConfigError(f"the settings file {path} is not valid TOML: {error}") from error


def _unknown(name: str, origin: str, known: Iterable[str]) -> NoReturn:
    error = unknown_name(name, known, noun="setting")
    error.message = f"{origin}: {error.message}"
    raise error


# --- conversion of values to their types --------------------------------------------------------


class _Text(str):
    """A value given as text outside TOML: `true`, `0.2`, `a,b`."""

    __slots__ = ()


def _value(kind: Any, value: object, key: str, origin: str) -> object:  # noqa: ANN401 - a type
    if value == NONE and type(None) in get_args(kind):
        return None
    problem: ConfigError | None = None
    for reading in _readings(value) if isinstance(value, _Text) else [value]:
        try:
            return decode(kind, reading, path=key, source=origin)
        except ConfigError as error:
            problem = problem or error
    raise problem or AssertionError(value)


def _readings(text: str) -> Iterator[object]:
    """Yield what a text can mean: a value as in TOML, a text, or a list without its brackets."""
    with suppress(ValueError):
        yield tomllib.loads(f"value = {text}")["value"]
    yield str(text)
    with suppress(ValueError):
        yield tomllib.loads(f"value = [{text}]")["value"]
    if not text.startswith("["):
        yield [item.strip() for item in text.split(",") if item.strip()]


def _filled(
    settings: S, prefix: str, values: Mapping[str, object], origins: Mapping[str, str]
) -> S:
    """Set these values; raise ConfigError with their origins if the class refuses them."""
    changes: dict[str, Any] = {}
    for field in dataclasses.fields(settings):
        key, value = prefix + field.name, getattr(settings, field.name)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            changes[field.name] = _filled(value, key + ".", values, origins)
        elif key in values:
            changes[field.name] = values[key]
    try:
        return dataclasses.replace(settings, **changes)
    except (ValueError, OwnwordsError) as error:
        message = error.message if isinstance(error, OwnwordsError) else f"{prefix[:-1]}: {error}"
        section = [key for key in values if key.startswith(prefix)]
        named = [key for key in section if key.rpartition(".")[2] in message]
        places = dict.fromkeys(origins[key] for key in named or section)
        hint = error.hint if isinstance(error, OwnwordsError) else ""
        raise ConfigError(f"{', '.join(places)}: {message}", hint) from error


# --- TOML -----------------------------------------------------------------------------------------


def toml_beside(module: str, name: str) -> dict[str, Any]:
    """Read a TOML file of the package beside a module, such as its words or selectors."""
    return tomllib.loads(Path(module).with_name(name).read_text("utf-8"))


def as_toml(value: object) -> str:
    """Return the value in TOML syntax."""
    if value is None:
        return f'"{NONE}"'
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, tuple):
        return "[" + ", ".join(as_toml(item) for item in value) + "]"
    # JSON strings are valid in TOML, except that TOML requires the delete character escaped.
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")
