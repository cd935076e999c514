"""A plan (every setting of a run with its reason), and the inputs it is made from."""

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
    """The base model of a fine-tuning; its learning rates are None if they are unknown."""

    shape: ModelConfig
    parameters: int
    bits_per_byte: float | None = None  # on the validation text, before fine-tuning
    kind: str | None = None
    muon_lr: float | None = None
    learning_rate: float | None = None
    lora: bool | None = None  # None: the plan chooses between a LoRA and all weights
    bf16: bool = False  # a LoRA is trained beside weights in bfloat16, by the compiled block


@dataclass(frozen=True)
class PlanInputs:
    """Everything that a plan depends on, except the user's settings."""

    text_bytes: int  # of the training texts
    documents: int
    speeds: DeviceSpeeds
    memory_bytes: int  # available
    validation_bytes: int = 0
    own_share: float = 1.0  # fraction of the words found that are the author's own
    tokens: int | None = None  # of the training texts; None: not counted yet
    vocabulary: int | None = None  # of the tokenizer; None: there is none yet
    spent_s: float = 0.0  # before the plan is made
    replay_bytes: int = 0  # of text of the base
    base: BaseModelInfo | None = None
    processes: int = 1  # training together


@dataclass(frozen=True)
class PlannedValue:
    """One number of a plan, with its reason and source."""

    key: str
    value: int | float | bool | str
    reason: str
    source: str
    origin: Origin


@dataclass(frozen=True)
class Plan:
    """All settings of a run, the reason for each planned one, and the forecast."""

    recipe: Recipe
    reasons: tuple[PlannedValue, ...]
    expected: Forecast

    def resolved(self) -> Resolved[Recipe]:
        """The recipe with the origin of each value, as in a run's config.toml."""
        reasons = {number.key: number for number in self.reasons}
        origins = {
            setting.key: _origin(reasons[setting.key]) if setting.key in reasons else "default"
            for setting in settings_of(self.recipe)
        }
        return Resolved(self.recipe, origins)

    def to_toml(self) -> str:
        """The plan as TOML, from which `read_plan` makes an equal plan."""
        lines = ["# Each number of this run with its reason, and the forecast.\n"]
        for number in self.reasons:
            lines.append("\n[[number]]\n" + _table(dataclasses.asdict(number)))
        lines.append("\n[expected]\n" + _table(dataclasses.asdict(self.expected)))
        return "".join(lines)


def typed_settings(fixed: Mapping[str, object]) -> dict[str, object]:
    """The user's settings, parsed; ConfigError for an unknown name or an invalid value."""
    settings = resolve(Recipe, flags=fixed).settings
    return {each.key: each.default for each in settings_of(settings) if each.key in fixed}


def read_plan(text: str) -> Plan:
    """Read a plan from TOML; WorkspaceError if it is damaged or of another version."""
    try:
        table = tomllib.loads(text)
        reasons = tuple(PlannedValue(**number) for number in table["number"])
        forecast = Forecast(**table["expected"])
        recipe = resolve(Recipe, flags={number.key: number.value for number in reasons}).settings
    except (tomllib.TOMLDecodeError, LookupError, TypeError, ConfigError) as error:
        raise WorkspaceError(
            f"the plan of this run is damaged or of another version ({error})",
            hint="delete the run's folder",
        ) from error
    return Plan(recipe, reasons, forecast)


def _table(values: Mapping[str, object]) -> str:
    return "".join(f"{k} = {as_toml(v)}\n" for k, v in values.items() if v is not None)


def _origin(number: PlannedValue) -> str:
    if number.origin == "setting":
        return "setting"
    return f"{number.origin}: {number.reason} [{number.source}]"
