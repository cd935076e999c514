"""What a plan is made from, and what it is: numbers with their reasons, kept with the run."""

import dataclasses
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from ownwords.core.config import Resolved, as_toml, resolve, settings_of
from ownwords.core.errors import ConfigError, WorkspaceError
from ownwords.models.configs.config import ModelConfig
from ownwords.training.forecast import Forecast
from ownwords.training.settings import Recipe
from ownwords.training.throughput import DeviceSpeeds

Origin = Literal["plan", "measured", "setting"]


@dataclass(frozen=True)
class BaseModelInfo:
    """The model that is tuned. Rates are its own peak rates, None where nobody knows them."""

    shape: ModelConfig
    parameters: int
    bits_per_byte: float | None = None  # on the validation text, before
    kind: str | None = None
    muon_lr: float | None = None
    learning_rate: float | None = None
    lora: bool = False


@dataclass(frozen=True)
class PlanInputs:
    """What the plan is made from."""

    text_bytes: int  # of the training texts: the author's own words
    documents: int
    speeds: DeviceSpeeds
    memory_bytes: int  # that can be had
    validation_bytes: int = 0
    own_share: float = 1.0  # of all the words found, those that are the author's own
    tokens: int | None = None  # of the training texts; None: not counted yet
    vocabulary: int | None = None  # of the tokenizer at hand
    spent_s: float = 0.0  # of the seconds given, gone already
    replay_bytes: int = 0  # of the base's own text, where it is at hand
    base: BaseModelInfo | None = None
    processes: int = 1  # that train together


@dataclass(frozen=True)
class PlannedValue:
    """One number of the plan, why it is so, and who says so."""

    key: str
    value: int | float | bool | str
    reason: str
    source: str
    origin: Origin


@dataclass(frozen=True)
class Plan:
    """All settings of a run, with the reason of each that was derived, and what to expect."""

    recipe: Recipe
    reasons: tuple[PlannedValue, ...]
    expected: Forecast
    is_second: bool = False  # made after the first steps of a run, which were not as planned

    def resolved(self) -> Resolved[Recipe]:
        """The recipe with the origin of each value, as a run's config.toml has it."""
        said = {one.key: one for one in self.reasons}
        origins = {
            setting.key: _origin(said[setting.key]) if setting.key in said else "default"
            for setting in settings_of(self.recipe)
        }
        return Resolved(self.recipe, origins)

    def to_toml(self) -> str:
        """The plan as a file, which `read_plan` makes the same plan of."""
        lines = ["# Each number of this run, why it is so, and what was expected beforehand.\n"]
        if self.is_second:
            lines.append("\nis_second = true\n")
        for one in self.reasons:
            lines.append("\n[[number]]\n" + _table(dataclasses.asdict(one)))
        lines.append("\n[expected]\n" + _table(dataclasses.asdict(self.expected)))
        return "".join(lines)


def typed_settings(fixed: Mapping[str, object]) -> dict[str, object]:
    """The user's settings in their types; ConfigError for an unknown name or a wrong value."""
    settings = resolve(Recipe, flags=fixed).settings
    return {one.key: one.default for one in settings_of(settings) if one.key in fixed}


def read_plan(text: str) -> Plan:
    """What `to_toml` wrote; WorkspaceError if it is damaged."""
    try:
        said = tomllib.loads(text)
        reasons = tuple(PlannedValue(**one) for one in said["number"])
        forecast = Forecast(**said["expected"])
        is_second = bool(said.get("is_second", False))
        recipe = resolve(Recipe, flags={one.key: one.value for one in reasons}).settings
    except (tomllib.TOMLDecodeError, LookupError, TypeError, ConfigError) as error:
        raise WorkspaceError(
            f"the plan of this run is damaged ({error})", hint="delete the run's folder"
        ) from error
    return Plan(recipe, reasons, forecast, is_second)


def _table(values: Mapping[str, object]) -> str:
    return "".join(f"{k} = {as_toml(v)}\n" for k, v in values.items() if v is not None)


def _origin(one: PlannedValue) -> str:
    if one.origin == "setting":
        return "setting"
    return f"{one.origin}: {one.reason} [{one.source}]"
