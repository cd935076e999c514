"""Chooses the base whose tuned model is expected to have the fewest bits per byte.

Expectations come from measured curves in expected_bits.json: bits per byte of each base as it is,
and what it gains by reading an author's text. Nothing here needs torch or reads weights.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ownwords.base import catalogue
from ownwords.base.known_bases import find_known
from ownwords.core import hardware
from ownwords.core.progress import duration
from ownwords.core.validation import decode
from ownwords.inference.model import has_driver

_MEMORY_SHARE = 0.7  # of the free memory, that a training may take
_MIN_TOKENS = 20_000  # read in a training that is worth its time
_MINUTES = (1, 2, 4, 6, 10, 15, 20, 30, 45, 60, 120, 240, 480)
_MARGIN = 0.98  # a base must be better by this factor to be worth mentioning


@dataclass(frozen=True)
class Gain:
    """What tuning a base brings: the share of its bits per byte that it saves."""

    bits_per_byte: float  # as it is
    gain: float  # with `full_gain_bytes` of text


@dataclass(frozen=True)
class BaseCurve:
    """What was measured of one base."""

    name: str
    source: str  # on the hub
    flops_per_token: float  # of training
    bytes_per_token: float
    start_s: float  # from the start to the first step
    memory_bytes: float
    english: Gain
    other: Gain | None = None  # of another language; None: not measured

    @property
    def title(self) -> str:
        known = find_known(self.name)
        return known.title if known else catalogue.SHIPPED_TITLE


@dataclass(frozen=True)
class ExpectedBits:
    """All measured curves, and the speeds that they are read at."""

    source: str
    cpu_gflops_per_core: Mapping[str, float]
    gpu_gflops: float
    full_gain_bytes: float
    gain_power: float
    bases: tuple[BaseCurve, ...]

    @classmethod
    @cache
    def load(cls) -> "ExpectedBits":
        path = Path(__file__).with_name("expected_bits.json")
        return decode(cls, json.loads(path.read_bytes()), source=str(path))

    def flops_per_s(self, device: str = "cpu") -> float:
        """The speed at which this machine is expected to train."""
        if device != "cpu" and (device != "auto" or has_driver()):
            return 1e9 * self.gpu_gflops
        cpu = hardware.read_cpu()
        known = [g for name, g in self.cpu_gflops_per_core.items() if name in cpu.instruction_sets]
        each = max(known, default=self.cpu_gflops_per_core["other"])
        return 1e9 * each * max(1, cpu.usable_cores)


@dataclass(frozen=True)
class TuningTask:
    """What a base is chosen for."""

    seconds: float
    text_bytes: float
    is_english: bool = True
    flops_per_s: float = 5e11
    memory_bytes: float = 8e9

    def tokens_read(self, base: BaseCurve, seconds: float) -> float:
        """Tokens that training reads in that time."""
        return max(0.0, seconds - base.start_s) * self.flops_per_s / base.flops_per_token

    def gain_of(self, base: BaseCurve) -> Gain | None:
        """What tuning this base brings in the language of the texts; None if not measured."""
        return base.english if self.is_english else base.other

    def bits(self, base: BaseCurve, seconds: float | None = None) -> float:
        """Expected bits per byte of the tuned base, which is measured, on the next posts."""
        seconds = self.seconds if seconds is None else seconds
        curves, of = ExpectedBits.load(), self.gain_of(base)
        assert of is not None
        read = min(self.text_bytes, self.tokens_read(base, seconds) * base.bytes_per_token)
        gain: float = of.gain * (read / curves.full_gain_bytes) ** curves.gain_power
        return of.bits_per_byte * (1 - min(0.6, gain))

    def allows(self, base: BaseCurve, seconds: float) -> bool:
        """Whether memory and so much time are enough to train this base."""
        fits = base.memory_bytes <= _MEMORY_SHARE * self.memory_bytes
        return fits and self.tokens_read(base, seconds) >= _MIN_TOKENS

    def reading_s(self, base: BaseCurve) -> float:
        """The seconds in which it starts and reads the text once."""
        tokens = self.text_bytes / base.bytes_per_token
        return base.start_s + tokens * base.flops_per_token / self.flops_per_s

    def minutes_for(self, base: BaseCurve) -> float | None:
        """The minutes in which it reads the text once; None if memory is too small for it."""
        once = min(self.text_bytes, 4e5) / base.bytes_per_token
        for minutes in _MINUTES:
            enough = self.tokens_read(base, 60 * minutes) >= once
            if 60 * minutes >= self.seconds and enough and self.allows(base, 60 * minutes):
                return float(minutes)
        return None


@dataclass(frozen=True)
class BaseChoice:
    """The base that was chosen, and the sentences that say why."""

    name: str
    folder: str
    sentences: tuple[str, ...]


def curve_of(name: str, source: str) -> BaseCurve | None:
    """What was measured of the base of this name or source; None if nothing was."""
    curves = ExpectedBits.load().bases
    return next((curve for curve in curves if name == curve.name or source == curve.source), None)


def built_in_instead_of(base: Path, seconds: float) -> BaseChoice:
    """The built-in base, where another cannot be trained here in that time."""
    sentences = (
        f"This machine's speed and free memory do not allow to train {catalogue.called(base)} in"
        f" {duration(seconds)}: {catalogue.SHIPPED_TITLE} takes its place.",
        f"With more minutes: `--base {base.name}`.",
    )
    return BaseChoice(catalogue.SHIPPED, str(catalogue.shipped()), sentences)


def choose_base(task: TuningTask, entries: Sequence[catalogue.Entry]) -> BaseChoice | None:
    """The best of these installed bases that time and memory allow; None if none is measured."""
    curves = ExpectedBits.load().bases
    usable = ((curve_of(entry.name, entry.source), entry) for entry in entries if not entry.problem)
    installed = [(curve, entry) for curve, entry in usable if curve and task.gain_of(curve)]
    if not installed:
        return None
    allowed = [pair for pair in installed if task.allows(pair[0], task.seconds)] or installed[:1]
    curve, entry = min(allowed, key=lambda pair: task.bits(pair[0]))
    bits = task.bits(curve)
    sentences = [
        f"From {curve.title} in {duration(task.seconds)}: about {bits:.2f} bits per byte, on a"
        " typical blog."
    ]
    names = {one.name for one, _ in installed}
    for other in curves:
        minutes = task.minutes_for(other)
        if other is curve or minutes is None or not task.gain_of(other):
            continue
        there = task.bits(other, max(task.seconds, 60 * minutes))
        if there < _MARGIN * bits:
            how = "" if other.name in names else f" Get it: `ownwords base add {other.name}`."
            sentences.append(
                f"With {other.title} and {duration(60 * minutes)}: about {there:.2f} instead of"
                f" {bits:.2f}.{how}"
            )
    return BaseChoice(entry.name, str(entry.folder), tuple(sentences))
