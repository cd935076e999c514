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

from ownwords.evaluation.bits_per_byte import EncodedDocuments, evaluating
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
    shards: EncodedDocuments,
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
    training: EncodedDocuments,
    held_out: EncodedDocuments,
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
    model: CausalLM, shards: EncodedDocuments, samples: int, prefix: int, length: int, seed: int
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


def _places(shards: EncodedDocuments, tokens: int, samples: int, seed: int) -> list[int]:
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
