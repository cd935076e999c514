"""How much training text a model knows by heart, and how much of its output is new.

Shapes: B samples, T tokens, C width, V vocabulary.
"""

import re
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ownwords.evaluation.bits_per_byte import evaluating
from ownwords.evaluation.measurements import Extraction, Novelty
from ownwords.models.decoder import CausalLM

PREFIX, LENGTH = 50, 50  # Carlini et al. 2021, 2023: tokens given, tokens to be extracted

_ROWS = 32  # passages per batch
_WORD = re.compile(r"\w+(?:['’]\w+)*")
_Numbers = npt.NDArray[np.uint64]


class EncodedDocuments(Protocol):
    """Documents as ids, concatenated, as training keeps them on disk."""

    @property
    def ids(self) -> npt.NDArray[Any]: ...
    @property
    def offsets_D1(self) -> npt.NDArray[np.int64]: ...  # noqa: N802
    @property
    def row_start(self) -> int | None: ...


def extraction_rate(
    model: CausalLM,
    shards: EncodedDocuments,
    samples: int = 32,
    prefix: int = PREFIX,
    length: int = LENGTH,
    seed: int = 1,
) -> float:
    """Share of random passages that greedy decoding reproduces from the `prefix` before them.

    One forward pass replaces generation: greedy decoding reproduces a passage exactly if each of
    its tokens is the most likely one given the true tokens before it. Passages lie within
    documents. If the context is too short for prefix and passage, both become half of it. The rate
    is 0 if no document is long enough.
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
    """Measure the rate on training documents, and on held-out ones for comparison."""
    prefix, length = _fit_context(model, prefix, length)
    passage = prefix + length

    def independent(shards: EncodedDocuments) -> int:
        return min(samples, int((np.diff(shards.offsets_D1) // passage).sum()))

    return Extraction(
        prefix=prefix,
        length=length,
        training=extraction_rate(model, training, samples, prefix, length, seed),
        training_passages=independent(training),
        held_out=extraction_rate(model, held_out, samples, prefix, length, seed),
        held_out_passages=independent(held_out),
    )


def novelty(
    written: Sequence[str],
    held_out: Sequence[str],
    training: Sequence[str],
    sizes: Sequence[int] = (4, 6, 8),
) -> list[Novelty]:
    """Measure the share of new n-grams in generated texts and in real held-out posts.

    Case and punctuation are ignored; n-grams count as often as they occur.
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
        figures.append(Novelty(n, _share_new(ours, seen), _share_new(real, seen)))
    return figures


def words(text: str) -> list[str]:
    """Return the case-folded words of a text."""
    return _WORD.findall(text.casefold())


def _greedy_runs(
    model: CausalLM, shards: EncodedDocuments, samples: int, prefix: int, length: int, seed: int
) -> tuple[list[int], int]:
    """Return the number of leading tokens of each passage that greedy decoding gets right.

    Also returns the length of the passages, which a short context may limit.
    """
    prefix, length = _fit_context(model, prefix, length)
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
            if shards.row_start is not None:
                ids_BT[:, 0] = shards.row_start
            hidden_BTC = model(ids_BT[:, :-1])[:, prefix - 1 :]
            # Row by row: over a large vocabulary the logits of all rows would take gigabytes.
            is_right_BT = torch.stack(
                [
                    _are_largest(model.logits(hidden_TC), targets_T)
                    for hidden_TC, targets_T in zip(hidden_BTC, ids_BT[:, prefix:], strict=True)
                ]
            )
            runs += is_right_BT.long().cumprod(1).sum(1).tolist()
    return runs, length


def _are_largest(logits_TV: Tensor, targets_T: Tensor) -> Tensor:
    """Whether no logit is larger than the target's; in bfloat16 several are often equal."""
    return logits_TV.gather(-1, targets_T[:, None])[:, 0] == logits_TV.amax(-1)


def _fit_context(model: CausalLM, prefix: int, length: int) -> tuple[int, int]:
    if prefix + length <= model.config.context:
        return prefix, length
    half = max(1, model.config.context // 2)
    return half, half


def _places(shards: EncodedDocuments, tokens: int, samples: int, seed: int) -> list[int]:
    """Draw the start offsets of passages of `tokens` tokens, without replacement."""
    lengths_D = np.diff(shards.offsets_D1)
    free_D = np.maximum(0, lengths_D - tokens + 1)
    ends_D = np.cumsum(free_D)
    total = int(ends_D[-1]) if len(ends_D) else 0
    if total == 0:
        return []
    generator = np.random.default_rng(seed)
    drawn = generator.choice(total, min(samples, total), replace=False, shuffle=False)
    document_B = np.searchsorted(ends_D, drawn, side="right")
    within_B = drawn - (ends_D - free_D)[document_B]
    places: list[int] = (shards.offsets_D1[document_B] + within_B).tolist()
    return places


def _grams(numbers: _Numbers, n: int) -> _Numbers:
    """Hash every run of n words."""
    count = max(0, len(numbers) - n + 1)
    hashes = np.zeros(count, np.uint64)
    for i in range(n):
        hashes = (hashes ^ numbers[i : i + count]) * np.uint64(0x9E3779B97F4A7C15)
        hashes ^= hashes >> np.uint64(29)
    return hashes


def _share_new(texts: list[Any], seen: _Numbers) -> float:
    grams = np.concatenate(texts) if texts else np.zeros(0, np.uint64)
    return float(1 - np.isin(grams, seen).mean()) if len(grams) else 0.0
