"""A `config.json` as read from outside: every field checked for kind and range as it is taken."""

import math
from collections.abc import Mapping

from ownwords.core.errors import ConfigError

_LARGEST = 2**31 - 1


class Fields:
    """Takes fields out of a parsed `config.json`; a missing or wrong one is named in the error.

    A default of None makes a field required; a field that is null counts as missing.
    """

    def __init__(self, data: Mapping[str, object], where: str = "config.json") -> None:
        self.data = data
        self.where = where

    def integer(self, name: str, default: int | None = None) -> int:
        """A whole number above zero."""
        value = self._take(name, default)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= _LARGEST:
            raise self._wrong(name, value, "a whole number above zero")
        return value

    def whole(self, name: str, default: int | None = None) -> int:
        """A whole number, zero included."""
        value = self.data.get(name)
        return 0 if value == 0 and isinstance(value, int) else self.integer(name, default)

    def number(self, name: str, default: float | None = None) -> float:
        """A finite number above zero."""
        value = self._take(name, default)
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf:
            return float(value)
        raise self._wrong(name, value, "a number above zero")

    def optional_number(self, name: str) -> float | None:
        return None if self.data.get(name) is None else self.number(name)

    def flag(self, name: str, default: bool) -> bool:
        value = self._take(name, default)
        if not isinstance(value, bool):
            raise self._wrong(name, value, "true or false")
        return value

    def table(self, name: str) -> "Fields | None":
        """The fields inside the field `name`; None where it is missing, null or empty."""
        value = self.data.get(name)
        if value is None or value == {}:
            return None
        if not isinstance(value, Mapping):
            raise self._wrong(name, value, "a table")
        return Fields(value, f"{name} in {self.where}")

    def only(self, name: str, *allowed: object) -> None:
        """Refuse a feature that is not implemented; missing is allowed, and so is null."""
        value = self.data.get(name)
        # 1 == True in Python; in a config they are different things, but equally "on".
        if value is not None and value not in allowed:
            named = " or ".join(repr(one) for one in allowed) or "nothing"
            raise ConfigError(
                f"{self.where} has {name} = {value!r:.80}, which is not implemented here",
                hint=f"only models with {name} = {named} can be used",
            )

    def sliding_layers(self, layers: int) -> tuple[bool, ...] | None:
        """`layer_types`: which layers attend through a window; None where it is missing."""
        value = self.data.get("layer_types")
        if value is None:
            return None
        kinds = ("full_attention", "sliding_attention")
        if not isinstance(value, list) or not all(kind in kinds for kind in value):
            raise self._wrong("layer_types", value, "a list of " + " and ".join(kinds))
        if len(value) != layers:
            raise ConfigError(
                f"{self.where} has {len(value)} layer_types for {layers} num_hidden_layers"
            )
        return tuple(kind == "sliding_attention" for kind in value)

    def _take(self, name: str, default: object) -> object:
        value = self.data.get(name)
        if value is not None:
            return value
        if default is None:
            raise ConfigError(f"{self.where} has no {name}")
        return default

    def _wrong(self, name: str, value: object, wanted: str) -> ConfigError:
        return ConfigError(f"{self.where} has {name} = {value!r:.80}, where {wanted} is needed")
