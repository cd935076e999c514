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
from ownwords.view.format import size, times

USUAL_MINUTES = (2.0, 4.0, 6.0)  # the fewest, usual, and most, where none are given
USUAL_BYTES = 250_000  # of a blog's texts, where none has been read
_MARGIN = 0.98  # a base must be better by this factor to be worth mentioning
# Seconds from the start to the first step: 10 with the base in the box, 40 with Gemma 3 270M.
_START_S, _START_S_PER_PARAMETER = 8.0, 1.2e-7
# Tokens that trimming leaves of a vocabulary, measured in English: Gemma's and Qwen3's.
_TRIMMED = {262_144: 62_000, 151_936: 47_000}
_LONG_S = 48 * 3600.0
_NOTABLE = 1.3  # times as long: a shorter training is worth offering
ENDLESS = 1 << 60  # bytes of memory, to learn how much is needed
_ROOM = 1.25  # times the minutes asked: a base that needs so many is still trained


@dataclass(frozen=True)
class MeasuredBits:
    """Bits per byte that were measured with a base; docs/log.md says on which texts."""

    english: float  # as it is: the mean of four blogs
    lowest: float  # of these blogs
    highest: float
    other: float | None  # in other languages, once it is tuned


_MEASURED: Mapping[str, MeasuredBits] = {
    catalogue.SHIPPED: MeasuredBits(1.57, 1.39, 1.76, 2.23),
    "smollm2-135m": MeasuredBits(1.20, 1.06, 1.45, None),
    "gemma3-270m": MeasuredBits(1.16, 1.03, 1.39, 1.15),
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
    # The least and the most of the author's next posts, by the blog; None if nobody has measured it
    bits_per_byte: tuple[float, float] | None


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
    lora_speeds: DeviceSpeeds | None = None  # of a LoRA, if they are others

    def plan(self, rung: Rung, seconds: float, memory_bytes: int) -> Plan | None:
        """The plan of tuning it; None if time, memory or text are too little to train it."""
        assert rung.config is not None
        start_s = _START_S + _START_S_PER_PARAMETER * count_parameters(rung.config)
        vocabulary = rung.config.vocabulary
        shape = replace(rung.config, vocabulary=_TRIMMED.get(vocabulary, vocabulary))
        parameters = count_parameters(shape)
        is_lora = parameters >= PLAN_CONSTANTS.lora_parameters
        inputs = PlanInputs(
            self.text_bytes,
            self.posts,
            (is_lora and self.lora_speeds) or self.speeds,
            memory_bytes,
            tokens=round(self.text_bytes / _BYTES_PER_TOKEN),
            spent_s=start_s,
            replay_bytes=0 if is_lora else self.text_bytes,
            base=BaseModelInfo(shape, parameters, bf16=self.keeps_bf16),
        )
        try:
            plan = make_plan(inputs, seconds, {})
        except (ConfigError, CorpusError):
            return None
        # The shortest plan takes its time even where that is more than asked.
        return plan if plan.expected.seconds <= 1.02 * seconds else None

    def bits(self, rung: Rung, plan: Plan | None) -> float | None:
        """Expected bits per byte of the tuned base on the author's next posts."""
        if rung.measured is None:
            return None
        if not self.is_english:
            return rung.measured.other
        read = min(1.0, plan.expected.epochs) * self.text_bytes if plan else 0.0
        return rung.measured.english * PLAN_CONSTANTS.tuned_share(read)

    def bits_range(self, rung: Rung, plan: Plan | None) -> tuple[float, float] | None:
        """The least and the most bits per byte to expect, since blogs differ."""
        bits, measured = self.bits(rung, plan), rung.measured
        if bits is None or measured is None:
            return None
        if not self.is_english:
            return bits, bits
        share = bits / measured.english
        return share * measured.lowest, share * measured.highest

    def expect(self, rung: Rung) -> Expectation | None:
        """What it takes to read the text once; None if it cannot be trained."""
        if rung.config is None or (most := self.plan(rung, _LONG_S, ENDLESS)) is None:
            return None
        shortest = self.shortest(rung, min(1.0, most.expected.epochs))
        once = (shortest and self.plan(rung, 63 * shortest.minutes, ENDLESS)) or most
        return Expectation(
            shortest.minutes if shortest and shortest.times >= 1 else None,
            once.expected.memory_bytes,
            self.plan(rung, _LONG_S, self.memory_bytes) is None,
            self.bits_range(rung, most),
        )

    def shortest(self, rung: Rung, wanted: float = 0.0) -> Reading | None:
        """The shortest training that reads the texts so often; None if none does in two days."""
        found: Reading | None = None
        low, high = 0.0, _LONG_S
        while high - low > max(3.0, high / 20):
            middle = (low + high) / 2
            plan = self.plan(rung, middle, ENDLESS)
            if plan and plan.expected.epochs >= wanted:
                high = min(middle, 1.02 * plan.expected.seconds)
                found = Reading(plan.expected.epochs, high / 60)
            else:
                low = middle
        return found

    def readings(self, rung: Rung) -> list[Reading]:
        """The shortest trainings that read a tenth of the texts, all once, and as often as helps.

        Only those that differ notably; none if no training is possible.
        """
        if rung.config is None or (most := self.plan(rung, _LONG_S, ENDLESS)) is None:
            return []
        found = [Reading(most.expected.epochs, most.expected.seconds / 60)]
        for wanted in (1.0, 0.1):
            shortest = self.shortest(rung, wanted)
            if shortest and shortest.minutes < found[0].minutes / _NOTABLE:
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
    of_loras = PLAN_CONSTANTS.assumed_speeds(kind, is_lora=True)
    memory = memory or ENDLESS
    return TuningTask(text_bytes, posts, speeds, memory, keeps_bf16, seconds, is_english, of_loras)


# --- the base to start from -----------------------------------------------------------------------


@dataclass(frozen=True)
class BaseChoice:
    """The base that was chosen, and the sentences that say why."""

    name: str
    folder: str
    sentences: tuple[str, ...]


class BaseDoesNotFitError(ConfigError):
    """A base cannot be trained in the minutes or the memory; `choices` are what can be, if any."""

    def __init__(self, message: str, hint: str, choices: Sequence[Mapping[str, Any]]) -> None:
        super().__init__(message, hint)
        self.choices = choices  # each with a base, its title, and minutes


def check_fits(base: str, task: TuningTask, ladder: Sequence[Rung]) -> None:
    """Raise BaseDoesNotFitError if the base needs notably more minutes, or memory that is not free.

    A base that is not in the ladder is not checked.
    """
    rung = next((rung for rung in ladder if rung.name == base), None)
    if rung is None or rung.config is None:
        return
    seconds = _ROOM * task.seconds
    if task.plan(rung, seconds, task.memory_bytes):
        return
    best = best_installed(task, [each for each in ladder if each is not rung])
    smaller = []
    if best and task.plan(best[1], seconds, task.memory_bytes):
        smaller = [_choice(best[1], task.seconds / 60)]
    if plan := task.plan(rung, seconds, ENDLESS):
        needed = plan.expected.memory_bytes / PLAN_CONSTANTS.memory_share
        raise BaseDoesNotFitError(
            f"training {rung.title} needs {size(needed)} of free memory, and"
            f" {size(task.memory_bytes)} are free",
            "close other programs, or start from a smaller base",
            smaller,
        )
    if (shortest := task.shortest(rung)) is None:
        return  # the plan says why
    minutes = math.ceil(shortest.minutes)
    raise BaseDoesNotFitError(
        f"{duration(task.seconds)} are too few to train {rung.title} on this machine: it needs"
        f" {duration(60 * minutes)}",
        f"give it {duration(60 * minutes)}, or start from a smaller base",
        [_choice(rung, minutes), *smaller],
    )


def _choice(rung: Rung, minutes: float) -> dict[str, Any]:
    return {"base": rung.name, "title": rung.title, "minutes": minutes}


def usual_minutes(base: str, task: TuningTask, ladder: Sequence[Rung]) -> float:
    """The minutes of a training for which none are given.

    As many as a large base needs to read the texts once, from 2 to 6, so that the first model is
    not one that makes no sense; 4 for the built-in base, or from scratch.
    """
    longest = replace(task, seconds=60.0 * max(USUAL_MINUTES))
    best = best_installed(longest, [rung for rung in ladder if base in ("", rung.name)])
    if best is None or not (config := best[1].config):
        return USUAL_MINUTES[1]
    if count_parameters(config) < PLAN_CONSTANTS.lora_parameters:
        return USUAL_MINUTES[1]
    once = task.shortest(best[1], 1.0)
    minutes = math.ceil(once.minutes) if once else math.inf
    return float(min(USUAL_MINUTES[2], max(USUAL_MINUTES[0], minutes)))


def instead_of(base: Path, task: TuningTask, ladder: Sequence[Rung]) -> BaseChoice | None:
    """The best smaller base that is installed, where there is too little memory for this one.

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
        f"This machine's free memory does not allow training {catalogue.called(base)}:"
        f" {chosen.title} takes its place.",
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
    plan = task.plan(chosen, task.seconds, task.memory_bytes)
    low, high = task.bits_range(chosen, plan) or (bits, bits)
    expected = f"{low:.1f} to {high:.1f} bits per byte, depending on the blog."
    sentences = [f"From {chosen.title} in {duration(task.seconds)}: {expected}"]
    if plan:
        read = times(plan.expected.epochs)
        given = duration(task.seconds)
        sentences = [f"From {chosen.title} in {given}, reading your texts {read}: {expected}"]
    for rung in ladder:
        there = task.expect(rung) if rung is not chosen else None
        if not there or not there.minutes or there.is_too_large:
            continue
        minutes = max(math.ceil(there.minutes), task.seconds / 60)
        better = task.bits(rung, task.plan(rung, 60 * minutes, ENDLESS))
        if better and better < _MARGIN * bits:
            how = "" if rung.entry else f" Get it: `ownwords base add {rung.name}`."
            sentences.append(
                f"With {rung.title} and {duration(60 * minutes)}: about"
                f" {1 - better / bits:.0%} fewer.{how}"
            )
    return BaseChoice(entry.name, str(entry.folder), tuple(sentences))
