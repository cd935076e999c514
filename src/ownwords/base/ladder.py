"""The ladder of bases: which can be had, and what tuning each takes and brings on this machine.

Time and memory are those of the training's own plan, at the speed that this processor has; bits per
byte were measured. Nothing here needs torch or reads weights.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path
from typing import Any

from ownwords.base import catalogue, known_bases
from ownwords.base.catalogue import Entry
from ownwords.base.known_bases import RECOMMENDED, KnownBase, find_known
from ownwords.core import hardware
from ownwords.core.errors import ConfigError, CorpusError
from ownwords.core.progress import duration
from ownwords.inference.model import has_driver
from ownwords.models.configs.config import ModelConfig
from ownwords.models.directory import license_of
from ownwords.models.weight_mapping import count_parameters
from ownwords.native import bindings
from ownwords.training.plan import BaseModelInfo, Plan, PlanInputs
from ownwords.training.plan_constants import PLAN_CONSTANTS
from ownwords.training.planner import make_plan
from ownwords.training.step_time import DeviceSpeeds

USUAL_BYTES = 250_000  # of a blog's texts, where none has been read
_MINUTES = (1, 2, 4, 6, 10, 15, 20, 30, 45, 60, 120, 240, 480, 1440, 2880)
_MARGIN = 0.98  # a base must be better by this factor to be worth mentioning
_LARGE_TEXT = 400_000  # bytes of it are enough to learn from
# Seconds from the start to the first step: 10 with the base in the box, 40 with Gemma 3 270M.
_START_S, _START_S_PER_PARAMETER = 8.0, 1.2e-7
# Tokens that trimming leaves of a vocabulary, measured in English: Gemma's and Qwen3's.
_TRIMMED = {262_144: 62_000, 151_936: 47_000}
_LONG_S = 48 * 3600.0
_NOTABLE = 1.3  # times as long: a shorter training is worth offering
_ENDLESS = 1 << 60  # bytes of memory, to learn how much is needed


@dataclass(frozen=True)
class MeasuredBits:
    """Bits per byte that were measured with a base; docs/log.md says on which texts."""

    english: float  # as it is
    other: float | None  # in other languages, once it is tuned


_MEASURED: Mapping[str, MeasuredBits] = {
    catalogue.SHIPPED: MeasuredBits(1.57, 2.23),
    "smollm2-135m": MeasuredBits(1.20, None),
    "gemma3-270m": MeasuredBits(1.16, 1.15),
}
_BYTES_PER_TOKEN = 3.8  # of a base's trimmed vocabulary, in English


@dataclass(frozen=True)
class Rung:
    """A base that is installed, that can be had, or both."""

    name: str
    title: str
    config: ModelConfig | None  # None if it is damaged
    known: KnownBase | None = None
    entry: Entry | None = None

    @classmethod
    def of(cls, entry: Entry) -> "Rung":
        """The rung of an installed base, which may have been given another name."""
        known = find_known(entry.name) or find_known(entry.source.partition(" ")[0])
        title = known.title if known else catalogue.called(entry.folder)
        return cls(entry.name, title, entry.config, known, entry)

    @property
    def measured(self) -> MeasuredBits | None:
        return _MEASURED.get(self.known.name if self.known else self.name)


def rungs() -> list[Rung]:
    """All installed and known bases, the smallest first."""
    here = [Rung.of(entry) for entry in catalogue.entries()]
    names = {rung.known.name for rung in here if rung.known}
    known = [Rung(base.name, base.title, base.config, base) for base in known_bases.KNOWN_BASES]
    return sorted(
        [*here, *(rung for rung in known if rung.name not in names)],
        key=lambda rung: count_parameters(rung.config) if rung.config else math.inf,
    )


@dataclass(frozen=True)
class Expectation:
    """What tuning a base takes and brings."""

    minutes: float | None  # in which it reads the text once; None: more than two days
    memory_bytes: int
    is_too_large: bool  # for the memory that is free
    bits_per_byte: float | None  # of the author's next posts; None if nobody has measured it


@dataclass(frozen=True)
class Reading:
    """How often a training reads the texts, and the minutes that it takes."""

    times: float
    minutes: float


@dataclass(frozen=True)
class TuningTask:
    """What a base is chosen for: the texts, the time and the machine."""

    text_bytes: int
    posts: int
    speeds: DeviceSpeeds
    memory_bytes: int  # that are free
    keeps_bf16: bool  # whether frozen weights stay in bfloat16
    seconds: float = 60
    is_english: bool = True

    def plan(self, rung: Rung, seconds: float, memory_bytes: int) -> Plan | None:
        """The plan of tuning it; None if time, memory or text are too little to train it."""
        assert rung.config is not None
        start_s = _START_S + _START_S_PER_PARAMETER * count_parameters(rung.config)
        vocabulary = rung.config.vocabulary
        shape = replace(rung.config, vocabulary=_TRIMMED.get(vocabulary, vocabulary))
        parameters = count_parameters(shape)
        inputs = PlanInputs(
            self.text_bytes,
            self.posts,
            self.speeds,
            memory_bytes,
            tokens=round(self.text_bytes / _BYTES_PER_TOKEN),
            spent_s=start_s,
            replay_bytes=0 if parameters >= PLAN_CONSTANTS.lora_parameters else self.text_bytes,
            base=BaseModelInfo(shape, parameters, bf16=self.keeps_bf16),
        )
        try:
            plan = make_plan(inputs, seconds, {})
        except (ConfigError, CorpusError):
            return None
        # The shortest plan takes its time even where that is more than asked.
        fits = plan.recipe.train.steps and plan.expected.seconds <= 1.02 * seconds
        return plan if fits else None

    def bits(self, rung: Rung, plan: Plan | None) -> float | None:
        """Expected bits per byte of the tuned base on the author's next posts."""
        if rung.measured is None:
            return None
        if not self.is_english:
            return rung.measured.other
        read = min(1.0, plan.expected.epochs) * self.text_bytes if plan else 0.0
        return rung.measured.english * PLAN_CONSTANTS.tuned_share(read)

    def expect(self, rung: Rung) -> Expectation | None:
        """What it takes to read the text once, in the task's time or more; None if it cannot be."""
        if rung.config is None:
            return None
        least = min(1.0, _LARGE_TEXT / max(1, self.text_bytes))
        minutes = [self.seconds / 60, *(each for each in _MINUTES if 60 * each > self.seconds)]
        plan = is_enough = None
        for each in minutes:
            plan = self.plan(rung, 60 * each, _ENDLESS)
            if is_enough := plan is not None and plan.expected.epochs >= least:
                break
        if plan is None:
            return None
        memory = plan.expected.memory_bytes
        is_too_large = memory > PLAN_CONSTANTS.memory_share * self.memory_bytes
        return Expectation(each if is_enough else None, memory, is_too_large, self.bits(rung, plan))

    def readings(self, rung: Rung) -> list[Reading]:
        """The shortest trainings that read a tenth of the texts, all once, and as often as helps.

        Only those that differ notably; none if no training is possible.
        """
        if rung.config is None or (most := self.plan(rung, _LONG_S, _ENDLESS)) is None:
            return []
        found = [Reading(most.expected.epochs, most.expected.seconds / 60)]
        for wanted in (1.0, 0.1):
            shortest, low, high = found[0], 0.0, 60 * found[0].minutes
            while high - low > max(3.0, high / 20):
                middle = (low + high) / 2
                plan = self.plan(rung, middle, _ENDLESS)
                if plan and plan.expected.epochs >= wanted:
                    high, shortest = middle, Reading(plan.expected.epochs, middle / 60)
                else:
                    low = middle
            if shortest.minutes < found[0].minutes / _NOTABLE:
                found.insert(0, shortest)
        return found

    def figures(self, rung: Rung) -> dict[str, Any]:
        """A base with what it takes and brings, as the command line and the page show it."""
        entry, known, expected = rung.entry, rung.known, self.expect(rung)
        terms = known.terms if known else None
        return {
            "name": rung.name,
            "title": rung.title,
            "is_installed": entry is not None,
            "is_recommended": rung.name == RECOMMENDED,
            "problem": entry.problem if entry else "",
            "source": entry.source if entry else known.repository if known else "",
            "has_package": known is not None and known.package is not None,
            "parameters": count_parameters(rung.config) if rung.config else None,
            "bytes": entry.bytes if entry else known.download_bytes if known else None,
            "other_languages": known.other_languages if known else None,
            "license": known.license if known else license_of(entry.folder) if entry else "",
            "terms": terms and {"url": terms.url, "title": terms.title, "gist": terms.gist},
            "minutes": expected and expected.minutes,
            "memory_bytes": expected and expected.memory_bytes,
            "is_too_large": expected and expected.is_too_large,
            "expected_bits_per_byte": expected and expected.bits_per_byte,
        }


def task_here(
    text_bytes: int = USUAL_BYTES,
    posts: int = 60,
    *,
    seconds: float = 60,
    is_english: bool = True,
    device: str = "cpu",
) -> TuningTask:
    """What a base is chosen for on this machine."""
    kind, memory = "cpu", hardware.read_memory().available_bytes
    if device != "cpu" and (device != "auto" or has_driver()):
        from ownwords.training.device import choose  # noqa: PLC0415 - it brings PyTorch

        chosen = choose(device)
        kind, memory = chosen.kind, chosen.free_memory()
    native = bindings.load_library()
    keeps_bf16 = kind == "cpu" and native is not None and native.keeps_bf16
    speeds = PLAN_CONSTANTS.assumed_speeds(kind)
    memory = memory or _ENDLESS
    return TuningTask(text_bytes, posts, speeds, memory, keeps_bf16, seconds, is_english)


# --- the base to start from -----------------------------------------------------------------------


@dataclass(frozen=True)
class BaseChoice:
    """The base that was chosen, and the sentences that say why."""

    name: str
    folder: str
    sentences: tuple[str, ...]


def instead_of(base: Path, task: TuningTask, ladder: Sequence[Rung]) -> BaseChoice | None:
    """The best smaller base that is installed, where this one cannot be trained in the time.

    None if there is none, or none that has read the language.
    """
    smaller = list(takewhile(lambda rung: rung.name != base.name, ladder))
    if not task.is_english:
        smaller = [rung for rung in smaller if rung.name != catalogue.SHIPPED]
    best = best_installed(task, smaller)
    if best is None:
        return None
    _, chosen, entry = best
    sentences = (
        f"This machine's speed and free memory do not allow training {catalogue.called(base)} in"
        f" {duration(task.seconds)}: {chosen.title} takes its place.",
        f"With more minutes: `--base {base.name}`.",
    )
    return BaseChoice(entry.name, str(entry.folder), sentences)


def best_installed(task: TuningTask, ladder: Sequence[Rung]) -> tuple[float, Rung, Entry] | None:
    """The best installed base that time and memory allow, after its expected bits per byte.

    None if none of them is measured.
    """
    best: tuple[float, Rung, Entry] | None = None
    for rung in ladder:
        if rung.entry and rung.config and task.bits(rung, None):
            plan = task.plan(rung, task.seconds, task.memory_bytes)
            bits = task.bits(rung, plan)
            if bits and (best is None or (plan and bits < best[0])):
                best = bits, rung, rung.entry
    return best


def choose_base(task: TuningTask, ladder: Sequence[Rung]) -> BaseChoice | None:
    """The best installed base, and why; None if none is measured."""
    best = best_installed(task, ladder)
    if best is None:
        return None
    bits, chosen, entry = best
    sentences = [
        f"From {chosen.title} in {duration(task.seconds)}: about {bits:.2f} bits per byte, on a"
        " typical blog."
    ]
    for rung in ladder:
        there = task.expect(rung) if rung is not chosen else None
        if not there or not there.bits_per_byte or not there.minutes or there.is_too_large:
            continue
        if there.bits_per_byte < _MARGIN * bits:
            how = "" if rung.entry else f" Get it: `ownwords base add {rung.name}`."
            sentences.append(
                f"With {rung.title} and {duration(60 * there.minutes)}: about"
                f" {there.bits_per_byte:.2f} instead of {bits:.2f}.{how}"
            )
    return BaseChoice(entry.name, str(entry.folder), tuple(sentences))
