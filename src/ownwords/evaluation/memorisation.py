"""How much of the training text a model has by heart, and how much of what it writes is new.

Shapes: B samples, T tokens.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from ownwords.evaluation.bits import Encoded, evaluating
from ownwords.models.decoder import CausalLM

PREFIX, LENGTH = 50, 50  # Carlini et al. 2021, 2023: tokens given, tokens to be extracted

_ROWS = 32  # samples read at once
_WORD = re.compile(r"\w+(?:['’]\w+)*")
_Numbers = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Extraction:
    """Shares of passages that the model goes on with word for word when given what leads to them.

    `held_out` is the floor: of documents it cannot know.
    """

    training: float
    held_out: float
    samples: int
    prefix: int
    length: int


@dataclass(frozen=True, slots=True)
class Run:
    """A passage that stands in the generated text and in a document, character for character."""

    text: str
    document: str  # its name; empty where nothing is shared

    @property
    def words(self) -> int:
        return len(self.text.split())


@dataclass(frozen=True, slots=True)
class Novelty:
    """Share of word n-grams that no training document holds; the author's own posts beside it."""

    n: int
    generated: float
    held_out: float

    @property
    def relative(self) -> float:
        """1: as new as what the author writes next."""
        return self.generated / self.held_out if self.held_out else 0.0


def extraction_rate(
    model: CausalLM,
    shards: Encoded,
    samples: int = 32,
    prefix: int = PREFIX,
    length: int = LENGTH,
    seed: int = 1,
) -> float:
    """Share of sampled passages that greedy decoding would reproduce from the `prefix` before.

    Nothing need be generated: greedy decoding reproduces a passage exactly if each of its tokens is
    the likeliest after the true ones before, and one reading of the passage tells. Passages lie
    within documents, every place as likely as any other. A context too short for both halves them;
    0 where no document is long enough.
    """
    runs, length = _greedy_runs(model, shards, samples, prefix, length, seed)
    return float(np.mean([run == length for run in runs])) if runs else 0.0


def extraction(
    model: CausalLM,
    training: Encoded,
    held_out: Encoded,
    *,
    samples: int = 256,
    prefix: int = PREFIX,
    length: int = LENGTH,
    seed: int = 1,
) -> Extraction:
    """The rate on training documents, and on held-out ones as the floor."""
    prefix, length = _fitting(model, prefix, length)
    rates = [
        extraction_rate(model, shards, samples, prefix, length, seed)
        for shards in (training, held_out)
    ]
    return Extraction(rates[0], rates[1], samples, prefix, length)


def longest_run(written: str, training: Sequence[str], names: Sequence[str] = ()) -> Run:
    """The longest passage of `written` that stands in a training document, and in which."""
    ours = _Text(written)
    best, where = 0, -1
    for number, document in enumerate(training):
        theirs = _Text(document)
        if not ours.shares(theirs, best + 1):
            continue
        # A shared run holds shared runs of every shorter length: double, then halve the gap.
        low, high = best + 1, 2 * (best + 1)
        while ours.shares(theirs, high):
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if ours.shares(theirs, middle) else (low, middle)
        best, where = low, number
    if where < 0:
        return Run("", "")
    at = ours.first_shared(_Text(training[where]), best)
    passage = written[at : at + best]
    if passage not in training[where]:  # two runs of one hash, of which nobody has seen any
        return Run("", "")
    return Run(passage, names[where] if names else str(where))


def novelty(
    written: Sequence[str],
    held_out: Sequence[str],
    training: Sequence[str],
    sizes: Sequence[int] = (4, 6, 8),
) -> list[Novelty]:
    """How new the n-grams of generated texts are, and those of real held-out posts.

    Letters' case and punctuation do not make a passage new; n-grams count as often as they occur.
    """
    numbers: dict[str, int] = {}
    groups = [
        [
            np.array([numbers.setdefault(word, len(numbers)) for word in words(text)], np.uint64)
            for text in texts
        ]
        for texts in (training, written, held_out)
    ]
    figures = []
    for n in sizes:
        known, ours, real = ([_grams(text, n) for text in group] for group in groups)
        seen = np.unique(np.concatenate(known)) if known else np.zeros(0, np.uint64)
        figures.append(Novelty(n, _new(ours, seen), _new(real, seen)))
    return figures


def words(text: str) -> list[str]:
    """The words of a text, in small letters."""
    return _WORD.findall(text.casefold())


def _greedy_runs(
    model: CausalLM, shards: Encoded, samples: int, prefix: int, length: int, seed: int
) -> tuple[list[int], int]:
    """For each sampled passage, how many of its tokens greedy decoding gets right from the first.

    Also the length looked at, which a short context may have cut.
    """
    prefix, length = _fitting(model, prefix, length)
    places = _places(shards, prefix + length, samples, seed)
    device = next(model.final_norm.parameters()).device
    runs: list[int] = []
    with evaluating(model), torch.no_grad():
        for start in range(0, len(places), _ROWS):
            rows = [
                np.asarray(shards.ids[at : at + prefix + length], dtype=np.int64)
                for at in places[start : start + _ROWS]
            ]
            ids_BT = torch.from_numpy(np.stack(rows)).to(device)
            hidden_BTC = model(ids_BT[:, :-1])[:, prefix - 1 :]
            likeliest_BT = model.logits(hidden_BTC).argmax(-1)
            right_BT = likeliest_BT == ids_BT[:, prefix:]
            runs += right_BT.long().cumprod(1).sum(1).tolist()
    return runs, length


def _fitting(model: CausalLM, prefix: int, length: int) -> tuple[int, int]:
    if prefix + length <= model.config.context:
        return prefix, length
    half = max(1, model.config.context // 2)
    return half, half


def _places(shards: Encoded, tokens: int, samples: int, seed: int) -> list[int]:
    """Where in the ids passages of so many tokens begin, drawn without any coming twice."""
    lengths_D = np.diff(shards.offsets_D1)
    free_D = np.maximum(0, lengths_D - tokens + 1)
    ends_D = np.cumsum(free_D)
    total = int(ends_D[-1]) if len(ends_D) else 0
    if total == 0:
        return []
    generator = np.random.default_rng(seed)
    drawn = generator.choice(total, min(samples, total), replace=False, shuffle=False)
    found_B = np.searchsorted(ends_D, drawn, side="right")
    within_B = drawn - (ends_D - free_D)[found_B]
    places: list[int] = (shards.offsets_D1[found_B] + within_B).tolist()
    return places


class _Text:
    """Characters with a hash of every run of any length at hand.

    sum(c[i] * base**i) over a run, divided by base**start, does not depend on where the run lies;
    modulo 2**64 an odd base has an inverse.
    """

    _BASE = 0x9E3779B97F4A7C15
    _INVERSE = pow(_BASE, -1, 1 << 64)

    def __init__(self, text: str) -> None:
        codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
        mixed = (codes.astype(np.uint64) + np.uint64(1)) * np.uint64(0xBF58476D1CE4E5B9)
        mixed ^= mixed >> np.uint64(31)
        self.length = len(codes)
        self._inverse = _powers(self._INVERSE, self.length)
        sums = np.cumsum(mixed * _powers(self._BASE, self.length), dtype=np.uint64)
        self._sums = np.concatenate((np.zeros(1, np.uint64), sums))
        self._sorted: tuple[int, _Numbers] = (0, np.zeros(0, np.uint64))

    def hashes(self, length: int) -> _Numbers:
        count = self.length - length + 1
        if count < 1:
            return np.zeros(0, np.uint64)
        return (self._sums[length:] - self._sums[:count]) * self._inverse[:count]

    def shares(self, other: "_Text", length: int) -> bool:
        """Whether a run of that length stands in both."""
        if self._sorted[0] != length:
            self._sorted = length, np.unique(self.hashes(length))
        mine, others = self._sorted[1], other.hashes(length)
        if not len(mine) or not len(others):
            return False
        at = np.minimum(np.searchsorted(mine, others), len(mine) - 1)
        return bool((mine[at] == others).any())

    def first_shared(self, other: "_Text", length: int) -> int:
        """Where the first such run begins in this text."""
        return int(np.isin(self.hashes(length), other.hashes(length)).argmax())


def _powers(base: int, count: int) -> _Numbers:
    factors = np.full(count, base, np.uint64)
    factors[:1] = 1
    return np.cumprod(factors, dtype=np.uint64)


def _grams(numbers: _Numbers, n: int) -> _Numbers:
    """A hash of each run of n words."""
    count = max(0, len(numbers) - n + 1)
    hashes = np.zeros(count, np.uint64)
    for i in range(n):
        hashes = (hashes ^ numbers[i : i + count]) * np.uint64(0x9E3779B97F4A7C15)
        hashes ^= hashes >> np.uint64(29)
    return hashes


def _new(texts: list[Any], seen: _Numbers) -> float:
    grams = np.concatenate(texts) if texts else np.zeros(0, np.uint64)
    return float(1 - np.isin(grams, seen).mean()) if len(grams) else 0.0
