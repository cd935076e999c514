"""The base models you can start from, with the time, memory and quality to expect of each.

Time and memory come from the plan of a training at the speed of this processor; bits per byte were
measured. Nothing here needs torch or reads weights.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ownwords.base import catalogue
from ownwords.base.catalogue import RECOMMENDED, Entry, KnownBase, find_known
from ownwords.core import hardware
from ownwords.core.errors import ConfigError, CorpusError
from ownwords.core.progress import duration
from ownwords.inference.model import has_driver
from ownwords.models.configs.config import ModelConfig
from ownwords.models.directory import license_of
from ownwords.models.weight_mapping import count_parameters
from ownwords.native import bindings
from ownwords.training.plan import BaseModelInfo, Forecast, PlanInputs, make_plan
from ownwords.training.plan_constants import PLAN_CONSTANTS
from ownwords.training.step_time import DeviceSpeeds
from ownwords.view.format import size, times

USUAL_MINUTES = (2.0, 4.0, 6.0)  # minimum, usual and maximum if the user gives none
USUAL_BYTES = 250_000  # of a blog's texts, if none has been read
_MIN_GAIN = 0.02  # of the bits per byte, for a better base to be worth mentioning
# Seconds from the start to the first step: 10 with the built-in base, 40 with Gemma 3 270M.
_START_S, _START_S_PER_PARAMETER = 8.0, 1.2e-7
_TRIMMED = {262_144: 62_000, 151_936: 47_000}  # vocabularies before and after, measured in English
_BYTES_PER_TOKEN = 3.8  # of a trimmed vocabulary, in English
_MAX_S = 48 * 3600.0
_NOTABLE = 1.3  # a training this much shorter is worth offering
_SLACK = 1.25  # a base that needs this much more than the minutes given is still trained
UNLIMITED = 1 << 60  # bytes of memory, to learn how much is needed


@dataclass(frozen=True)
class MeasuredBits:
    """Bits per byte that were measured with a base; docs/log.md says on which texts."""

    english: float  # untuned: the mean of four blogs
    lowest: float  # of these blogs
    highest: float
    other: float | None  # in other languages, tuned


_MEASURED: Mapping[str, MeasuredBits] = {
    catalogue.SHIPPED: MeasuredBits(1.57, 1.39, 1.76, 2.23),
    "smollm2-135m": MeasuredBits(1.20, 1.06, 1.45, None),
    "gemma3-270m": MeasuredBits(1.16, 1.03, 1.39, 1.15),
}


@dataclass(frozen=True)
class BaseOption:
    """A base that is installed, that can be downloaded, or both."""

    name: str
    title: str
    config: ModelConfig | None  # None if it is damaged
    known: KnownBase | None = None
    entry: Entry | None = None

    @classmethod
    def of(cls, entry: Entry) -> "BaseOption":
        """Return the option of an installed base, which may have been renamed."""
        known = find_known(entry.name) or find_known(entry.source.partition(" ")[0])
        title = known.title if known else catalogue.display_name(entry.folder)
        return cls(entry.name, title, entry.config, known, entry)

    @property
    def measured(self) -> MeasuredBits | None:
        return _MEASURED.get(self.known.name if self.known else self.name)


def base_options() -> list[BaseOption]:
    """Return all installed and known bases, the smallest first."""
    installed = [BaseOption.of(entry) for entry in catalogue.entries()]
    names = {option.known.name for option in installed if option.known}
    known = [
        BaseOption(base.name, base.title, base.config, base)
        for base in catalogue.KNOWN_BASES
        if base.name not in names
    ]
    return sorted(
        [*installed, *known],
        key=lambda option: count_parameters(option.config) if option.config else math.inf,
    )


@dataclass(frozen=True)
class TuningTask:
    """What a base is chosen for: the texts, the time and the machine."""

    text_bytes: int
    posts: int
    speeds: DeviceSpeeds
    memory_bytes: int  # free
    keeps_bf16: bool  # whether frozen weights stay in bfloat16
    seconds: float = 60
    is_english: bool = True
    lora_speeds: DeviceSpeeds | None = None  # of a LoRA, if they differ

    def forecast(self, base: BaseOption, seconds: float, memory_bytes: int) -> Forecast | None:
        """Return what to expect of tuning a base; None if time, memory or text are too little."""
        expected = self._forecast(base, seconds, memory_bytes)
        # A plan that is too short to teach anything is extended.
        return expected if expected and expected.seconds <= 1.02 * seconds else None

    def _forecast(self, base: BaseOption, seconds: float, memory_bytes: int) -> Forecast | None:
        assert base.config is not None
        vocabulary = base.config.vocabulary
        shape = replace(base.config, vocabulary=_TRIMMED.get(vocabulary, vocabulary))
        parameters = count_parameters(shape)
        is_lora = parameters >= PLAN_CONSTANTS.lora_parameters
        inputs = PlanInputs(
            self.text_bytes,
            self.posts,
            (is_lora and self.lora_speeds) or self.speeds,
            memory_bytes,
            validation_bytes=self.text_bytes // 8,  # a tenth of all, as is the test part
            tokens=round(self.text_bytes / _BYTES_PER_TOKEN),
            spent_s=_start_s(base.config),
            # A LoRA also learns from English notes; the built-in base replays its own text.
            replay_bytes=self.text_bytes if self.is_english or not is_lora else 0,
            base=BaseModelInfo(shape, parameters, bf16=self.keeps_bf16),
        )
        try:
            return make_plan(inputs, seconds, {}).expected
        except (ConfigError, CorpusError):
            return None

    def bits(self, base: BaseOption, expected: Forecast | None) -> float | None:
        """Return the expected bits per byte of the tuned base on the author's next posts."""
        if base.measured is None:
            return None
        if not self.is_english:
            return base.measured.other
        read = min(1.0, expected.epochs) * self.text_bytes if expected else 0.0
        return base.measured.english * PLAN_CONSTANTS.tuned_share(read)

    def bits_range(self, base: BaseOption, expected: Forecast | None) -> tuple[float, float] | None:
        """Return the lowest and the highest bits per byte to expect, depending on the blog."""
        bits, measured = self.bits(base, expected), base.measured
        if bits is None or measured is None:
            return None
        if not self.is_english:
            return bits, bits
        share = bits / measured.english
        return share * measured.lowest, share * measured.highest

    def shortest(self, base: BaseOption, wanted: float = 0.0) -> Forecast | None:
        """Return the shortest training that reads the texts `wanted` times; None if none does."""
        found = self._forecast(base, 0.0, UNLIMITED) if base.config else None
        if found is None or base.config is None:
            return None
        # The time is not proportional to what is read, because the batch size grows as well.
        overhead_s = _start_s(base.config) + PLAN_CONSTANTS.close_s
        seconds = found.seconds
        while found and found.epochs < wanted:
            factor = wanted / max(found.epochs, 0.01)
            seconds = max(1.02 * seconds, overhead_s + factor * (found.seconds - overhead_s))
            found = self._forecast(base, seconds, UNLIMITED) if seconds <= _MAX_S else None
        return found

    def readings(self, base: BaseOption) -> list[Forecast]:
        """Return the shortest trainings that read a tenth of the texts, all, and as much as helps.

        Only those that differ notably in time; none if no training is possible.
        """
        if base.config is None or (longest := self.forecast(base, _MAX_S, UNLIMITED)) is None:
            return []
        readings = [longest]
        for wanted in (1.0, 0.1):
            shorter = self.shortest(base, wanted)
            if shorter and shorter.seconds < readings[0].seconds / _NOTABLE:
                readings.insert(0, shorter)
        return readings

    def figures(self, base: BaseOption) -> dict[str, Any]:
        """Return a base with what to expect of it, as the command line and the page show it.

        `minutes` are those in which the texts are read once; None beyond two days.
        """
        entry, known = base.entry, base.known
        terms = known.terms if known else None
        longest = self.forecast(base, _MAX_S, UNLIMITED) if base.config else None
        once = self.shortest(base, 1.0) if longest else None
        return {
            "name": base.name,
            "title": base.title,
            "is_installed": entry is not None,
            "is_recommended": base.name == RECOMMENDED,
            "problem": entry.problem if entry else "",
            "source": entry.source if entry else known.repository if known else "",
            "has_package": known is not None and known.package is not None,
            "parameters": count_parameters(base.config) if base.config else None,
            "bytes": entry.bytes if entry else known.download_bytes if known else None,
            "other_languages": known.other_languages if known else None,
            "license": known.license if known else license_of(entry.folder) if entry else "",
            "terms": terms and {"url": terms.url, "title": terms.title, "gist": terms.gist},
            "minutes": once and once.seconds / 60,
            "memory_bytes": longest and (once or longest).memory_bytes,
            "is_too_large": longest and self.forecast(base, _MAX_S, self.memory_bytes) is None,
            "expected_bits_per_byte": longest and self.bits_range(base, longest),
        }


def _start_s(config: ModelConfig) -> float:
    return _START_S + _START_S_PER_PARAMETER * count_parameters(config)


def task_here(
    text_bytes: int = USUAL_BYTES,
    posts: int = 60,
    *,
    seconds: float = 60,
    is_english: bool = True,
    device: str = "cpu",
) -> TuningTask:
    """Return the task of tuning a base on this machine."""
    kind, memory = "cpu", hardware.read_memory().available_bytes
    if device != "cpu" and (device != "auto" or has_driver()):
        from ownwords.training.device import choose  # noqa: PLC0415 - it brings PyTorch

        chosen = choose(device)
        kind, memory = chosen.kind, chosen.free_memory()
    native = bindings.load_library()
    keeps_bf16 = kind == "cpu" and native is not None and native.keeps_bf16
    speeds = PLAN_CONSTANTS.assumed_speeds(kind)
    lora_speeds = PLAN_CONSTANTS.assumed_speeds(kind, is_lora=True)
    memory = memory or UNLIMITED
    return TuningTask(
        text_bytes, posts, speeds, memory, keeps_bf16, seconds, is_english, lora_speeds
    )


# --- the base to start from -----------------------------------------------------------------------


@dataclass(frozen=True)
class BaseChoice:
    """The minutes, and the base that was chosen, with the sentences that say why; "" for none."""

    minutes: float
    name: str = ""
    folder: str = ""
    sentences: tuple[str, ...] = ()


def check_fits(name: str, task: TuningTask, options: Sequence[BaseOption]) -> None:
    """Raise ConfigError if a base needs notably more minutes, or memory that is not free.

    A base that is not among the options is not checked.
    """
    base = next((option for option in options if option.name == name), None)
    if base is None or base.config is None:
        return
    seconds = _SLACK * task.seconds
    if task.forecast(base, seconds, task.memory_bytes):
        return
    if expected := task.forecast(base, seconds, UNLIMITED):
        needed = expected.memory_bytes / PLAN_CONSTANTS.memory_share
        raise ConfigError(
            f"training {base.title} needs {size(needed)} of free memory, and"
            f" {size(task.memory_bytes)} are free",
            hint="close other programs, or start from a smaller base",
        )
    if (shortest := task.shortest(base)) is None:
        return  # the plan says why
    needed_s = 60 * math.ceil(shortest.seconds / 60)
    raise ConfigError(
        f"{duration(task.seconds)} is too short to train {base.title} on this machine: it needs"
        f" {duration(needed_s)}",
        hint=f"give it {duration(needed_s)}, or start from a smaller base",
    )


def usual_minutes(name: str, task: TuningTask, options: Sequence[BaseOption]) -> float:
    """Return the minutes of a training for which the user gives none.

    A large base gets as many as it needs to read the texts once, from 2 to 6; with fewer, the first
    model would make no sense. The built-in base, or a training from scratch, gets 4.
    """
    lowest, usual, highest = USUAL_MINUTES
    longest = replace(task, seconds=60.0 * highest)
    base = best_installed(longest, [option for option in options if name in ("", option.name)])
    if base is None or not base.config:
        return usual
    if count_parameters(base.config) < PLAN_CONSTANTS.lora_parameters:
        return usual
    once = task.shortest(base, 1.0)
    minutes = math.ceil(once.seconds / 60) if once else math.inf
    return float(min(highest, max(lowest, minutes)))


def best_installed(task: TuningTask, options: Sequence[BaseOption]) -> BaseOption | None:
    """Return the installed base with the best expected bits per byte that time and memory allow.

    If they allow none, the first measured one; None if none is measured.
    """
    best, lowest = None, math.inf
    for base in options:
        if base.entry and base.config and base.measured:
            expected = task.forecast(base, task.seconds, task.memory_bytes)
            bits = task.bits(base, expected)
            if bits and (best is None or (expected and bits < lowest)):
                best, lowest = base, bits
    return best


def choose_base(task: TuningTask, options: Sequence[BaseOption]) -> BaseChoice | None:
    """Return the best installed base, and why; None if none is measured."""
    chosen = best_installed(task, options)
    if chosen is None or chosen.entry is None:
        return None
    given = duration(task.seconds)
    expected = task.forecast(chosen, task.seconds, task.memory_bytes)
    if expected:
        given = f"{given}, reading your texts {times(expected.epochs)}"
    bits = task.bits(chosen, expected)
    low, high = task.bits_range(chosen, expected) or (0.0, 0.0)
    sentences = [
        f"From {chosen.title} in {given}: {low:.1f} to {high:.1f} bits per byte, depending on the"
        " blog."
    ]
    for base in options:
        once = task.shortest(base, 1.0) if base is not chosen and base.measured else None
        if not once or task.forecast(base, _MAX_S, task.memory_bytes) is None:
            continue
        minutes = max(math.ceil(once.seconds / 60), task.seconds / 60)
        better = task.bits(base, task.forecast(base, 60 * minutes, UNLIMITED))
        if bits and better and better < (1 - _MIN_GAIN) * bits:
            how = "" if base.entry else f" Get it: `ownwords base add {base.name}`."
            sentences.append(
                f"With {base.title} and {duration(60 * minutes)}: about"
                f" {1 - better / bits:.0%} fewer.{how}"
            )
    folder = str(chosen.entry.folder)
    return BaseChoice(task.seconds / 60, chosen.name, folder, tuple(sentences))
