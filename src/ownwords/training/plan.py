"""A plan (every setting of a run with its reason), its inputs, and the forecast of the run."""

import tomllib
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, Literal

from ownwords.core.config import Resolved, as_toml, resolve, settings_of
from ownwords.core.errors import ConfigError, WorkspaceError
from ownwords.core.progress import duration
from ownwords.models.configs.config import ModelConfig
from ownwords.training.plan_constants import PLAN_CONSTANTS
from ownwords.training.settings import Recipe
from ownwords.training.step_time import DeviceSpeeds
from ownwords.view.format import number, size, times

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

    @property
    def is_lora(self) -> bool:
        """Whether a LoRA is trained unless the user sets its rank."""
        if self.lora is None:
            return self.parameters >= PLAN_CONSTANTS.lora_parameters
        return self.lora


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
class Forecast:
    """The expected outcome of a plan; bits per byte are on held-out text."""

    bits_low: float
    bits_high: float
    seconds: float  # of the whole run, from start to saved model
    tokens: int
    epochs: float
    memory_bytes: int
    tokens_per_s: float
    held_out_bytes: int  # bytes read at each evaluation
    evaluation_s: float = 0.0  # seconds for that

    def epochs_of(self, tokens: int) -> float:
        """How often the text is read with so many tokens."""
        return tokens / max(self.tokens, 1) * self.epochs

    def sentences(self) -> tuple[str, ...]:
        """The forecast as sentences for the user."""
        return (
            f"About {duration(self.seconds)}, including start and saving: {number(self.tokens)}"
            f" tokens at {number(self.tokens_per_s)} per second, which reads the text"
            f" {times(self.epochs)}.",
            f"{self.bits_low:.2f} to {self.bits_high:.2f} bits per byte on held-out texts, and"
            f" about {size(self.memory_bytes)} of memory.",
        )


@dataclass(frozen=True)
class Plan:
    """The planned settings of a run, each with its reason, and the forecast."""

    reasons: tuple[PlannedValue, ...]
    expected: Forecast

    @cached_property
    def recipe(self) -> Recipe:
        """All settings of the run: the planned ones, and the defaults of the others."""
        sections: dict[str, dict[str, Any]] = {}
        for each in self.reasons:
            section, _, name = each.key.partition(".")
            sections.setdefault(section, {})[name] = each.value
        recipe = Recipe()
        planned = {name: replace(getattr(recipe, name), **sections[name]) for name in sections}
        return replace(recipe, **planned)

    def resolved(self) -> Resolved[Recipe]:
        """The recipe with the origin of each value, for a listing of all settings."""
        origins = dict.fromkeys((setting.key for setting in settings_of(self.recipe)), "default")
        for each in self.reasons:
            reason = "" if each.origin == "setting" else f": {each.reason} [{each.source}]"
            origins[each.key] = each.origin + reason
        return Resolved(self.recipe, origins)

    def to_toml(self) -> str:
        """The plan as TOML, from which `read_plan` makes an equal plan."""
        lines = ["# Each number of this run with its reason, and the forecast.\n"]
        for each in self.reasons:
            lines.append("\n[[number]]\n" + _table(each))
        lines.append("\n[expected]\n" + _table(self.expected))
        return "".join(lines)


def read_plan(text: str) -> Plan:
    """Read a plan from TOML; WorkspaceError if it is damaged or of another version."""
    try:
        table = tomllib.loads(text)
        values = {each["key"]: each["value"] for each in table["number"]}
        recipe = resolve(Recipe, flags=values).settings
        known = {setting.key: setting.default for setting in settings_of(recipe)}
        reasons = [
            PlannedValue(**{**each, "value": known[each["key"]]}) for each in table["number"]
        ]
        return Plan(tuple(reasons), Forecast(**table["expected"]))
    except (tomllib.TOMLDecodeError, LookupError, TypeError, ConfigError) as error:
        raise WorkspaceError(
            f"the plan of this run is damaged or of another version ({error})",
            hint="delete the run's folder",
        ) from error


def _table(part: PlannedValue | Forecast) -> str:
    return "".join(f"{k} = {as_toml(v)}\n" for k, v in asdict(part).items())


# --- the outcome beside the forecast --------------------------------------------------------------


def compare_forecast(
    expected: Forecast,
    bits: float | None,
    seconds: float,
    tokens: int,
    memory_bytes: int,
    *,
    stopped_early: bool = False,
) -> tuple[str, ...]:
    """Compare the forecast with the outcome, in one sentence per figure.

    `bits` per byte are None if no text was held out.
    """
    sentences = []
    low, high = expected.bits_low, expected.bits_high
    if bits is not None:
        if low <= bits <= high:
            judged = "as expected"
        elif bits < low:
            judged = f"better than expected, by {low - bits:.2f}"
        else:
            judged = f"worse than expected, by {bits - high:.2f}"
        sentences.append(f"Bits per byte: {bits:.3f}, expected {low:.2f} to {high:.2f}: {judged}.")
    off = _off(seconds, expected.seconds)
    sentences.append(f"Time: {duration(seconds)}, expected {duration(expected.seconds)} ({off}).")
    off = _off(tokens, expected.tokens)
    sentences.append(f"Tokens: {number(tokens)}, expected {number(expected.tokens)} ({off}).")
    if stopped_early:
        sentences.append("It stopped early.")
    if memory_bytes:
        off, forecast = _off(memory_bytes, expected.memory_bytes), size(expected.memory_bytes)
        sentences.append(f"Memory: {size(memory_bytes)} at most, expected {forecast} ({off}).")
    return tuple(sentences)


def _off(real: float, expected: float) -> str:
    share = real / max(expected, 1e-9) - 1
    if abs(share) < 0.005:
        return "as expected"
    return f"{share:.0%} above" if share > 0 else f"{-share:.0%} below"
