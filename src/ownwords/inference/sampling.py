"""Which token comes next: scores in, ids out. Pure functions, the same on every device.

The luck of a draw is a function of the text's seed and of how many tokens were drawn before, of
nothing else: a text comes out the same alone or in a batch, in any row of it.

Shapes: B texts, V vocabulary.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ownwords.core.errors import ConfigError, OwnwordsError

_NEVER = float("-inf")


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How to choose; the parts apply in this order, each at its default changes nothing.

    At `temperature` 0 the likeliest token is taken and only `repetition_penalty` matters.
    """

    repetition_penalty: float = (
        1.0  # scores of tokens already there: divided, if negative multiplied
    )
    temperature: float = 1.0  # below 1 bolder in what is likely, above 1 more even
    top_k: int = 0  # only so many of the likeliest; 0: all
    top_p: float = 1.0  # only the fewest likeliest that together are so probable
    min_p: float = 0.0  # only those at least so probable as a share of the likeliest

    def __post_init__(self) -> None:
        limits = {
            "repetition_penalty": self.repetition_penalty > 0,
            "temperature": 0 <= self.temperature < float("inf"),
            "top_k": self.top_k >= 0,
            "top_p": 0 < self.top_p <= 1,
            "min_p": 0 <= self.min_p <= 1,
        }
        meant = {
            "repetition_penalty": "more than 0 (1 changes nothing)",
            "temperature": "0 (always the likeliest) or more",
            "top_k": "0 (all) or more",
            "top_p": "more than 0 and at most 1",
            "min_p": "from 0 to 1",
        }
        for name, holds in limits.items():
            if not holds:
                raise ConfigError(f"{name} should be {meant[name]}, and is {getattr(self, name)}")


def choose(
    logits_BV: Tensor,
    sampling: Sampling,
    seeds: Sequence[int],
    drawn: int,
    seen: Sequence[Iterable[int]] | None = None,
) -> Tensor:
    """The next id of each text, [B], on the CPU.

    `seeds` has one a text, `drawn` counts the tokens chosen before; `seen` are each text's ids, for
    the repetition penalty. OwnwordsError where a score is no number.
    """
    scores_BV = logits_BV.detach().to("cpu", torch.float32)
    if not bool((scores_BV < float("inf")).all()):  # nan compares as false, too
        raise OwnwordsError(
            "the model's scores are not numbers: its weights are damaged or training went astray",
            hint="use an earlier checkpoint, or the model as it was saved last",
        )
    if seen is not None:
        scores_BV = penalised(scores_BV, seen, sampling.repetition_penalty)
    if sampling.temperature == 0:
        return greedy(scores_BV)
    chances_B = torch.tensor([chance(seed, drawn) for seed in seeds], dtype=torch.float64)
    return draw(probabilities(scores_BV, sampling), chances_B)


def probabilities(logits_BV: Tensor, sampling: Sampling) -> Tensor:
    """The distribution that is drawn from, [B, V]; each row sums to one."""
    # A temperature close to zero must not push the largest score to infinity.
    scores_BV = logits_BV.float() - logits_BV.float().amax(-1, keepdim=True)
    scores_BV = scores_BV / max(sampling.temperature, 1e-6)
    scores_BV = kept_top_k(scores_BV, sampling.top_k)
    scores_BV = kept_top_p(scores_BV, sampling.top_p)
    scores_BV = kept_min_p(scores_BV, sampling.min_p)
    return scores_BV.softmax(-1)


def greedy(logits_BV: Tensor) -> Tensor:
    """The likeliest id of each row; of equals the first."""
    return logits_BV.argmax(-1)


def penalised(logits_BV: Tensor, seen: Sequence[Iterable[int]], penalty: float) -> Tensor:
    """The scores with those of each row's seen ids made less likely, each once."""
    if penalty == 1:
        return logits_BV
    out_BV = logits_BV.clone()
    for row_V, ids in zip(out_BV, seen, strict=True):
        index = torch.tensor(sorted(set(ids)), dtype=torch.int64, device=row_V.device)
        scores = row_V[index]
        row_V[index] = torch.where(scores > 0, scores / penalty, scores * penalty)
    return out_BV


def kept_top_k(logits_BV: Tensor, k: int) -> Tensor:
    """Only the k highest scores of each row; of equals the lower ids."""
    if not 0 < k < logits_BV.shape[-1]:
        return logits_BV
    order_BV = logits_BV.argsort(dim=-1, descending=True, stable=True)
    return logits_BV.scatter(-1, order_BV[:, k:], _NEVER)


def kept_top_p(logits_BV: Tensor, p: float) -> Tensor:
    """Only the fewest highest scores of each row that together reach probability p."""
    if p >= 1:
        return logits_BV
    sorted_BV, order_BV = logits_BV.sort(dim=-1, descending=True, stable=True)
    chance_BV = sorted_BV.double().softmax(-1)
    enough_BV = chance_BV.cumsum(-1) - chance_BV >= p  # those before already reach it
    enough_BV[:, 0] = False
    return logits_BV.masked_fill(
        torch.zeros_like(enough_BV).scatter(-1, order_BV, enough_BV), _NEVER
    )


def kept_min_p(logits_BV: Tensor, share: float) -> Tensor:
    """Only scores whose probability is at least that share of the highest one's."""
    if share <= 0:
        return logits_BV
    chance_BV = logits_BV.double().softmax(-1)
    too_low_BV = chance_BV < share * chance_BV.amax(-1, keepdim=True)
    return logits_BV.masked_fill(too_low_BV, _NEVER)


def draw(probabilities_BV: Tensor, chances_B: Tensor) -> Tensor:
    """The id at which each row's summed probability passes the row's number from 0 to 1."""
    reached_BV = probabilities_BV.double().cumsum(-1)
    sought_B1 = (chances_B.double() * reached_BV[:, -1])[:, None]
    return torch.searchsorted(reached_BV, sought_B1, right=True)[:, 0]


def chance(seed: int, drawn: int) -> float:
    """A number between 0 and 1, neither included, evenly spread over seeds and draws."""
    key = hashlib.blake2b(f"{seed}/{drawn}".encode(), digest_size=4).digest()
    # Of 32 bits, so that no rounding of a sum in float64 turns it into a whole one.
    return (int.from_bytes(key) + 0.5) / 2**32
