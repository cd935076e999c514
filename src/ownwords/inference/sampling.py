"""Sampling: logits in, a token id out. Pure functions on NumPy.

The parts of `SamplingParams` apply in this order; the default of each changes nothing:

1. `bias` is added to the logits.
2. Penalties lower the logits of tokens in the history: `repetition_penalty` once for each token
   that occurs (dividing it, or multiplying where it is negative), then `frequency_penalty` times
   the number of times it was generated, and `presence_penalty` if it was generated at all.
3. Banned ids become -inf. `break_loops` lets the generation ban what would continue a loop.
4. At `temperature` 0 the highest logit wins, the lowest id of equals. Otherwise logits are divided
   by it and filtered: `top_k`, then `top_p`, then `min_p`, each on the probabilities
   that the filter before it left. Among equal logits the lower ids are kept.
5. The draw takes the id at which the cumulative probability, in the order of ids, passes `uniform`.

`uniform` is a function of the text's seed and of the number of tokens drawn before, so a text is
the same whether it is generated alone or in any row of a batch.

Shapes: V vocabulary, N ids.
"""

import hashlib
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from ownwords.core.errors import ConfigError, OwnwordsError

Logits = npt.NDArray[np.float32]
_Ints = npt.NDArray[np.int64]

_NEG_INF = float("-inf")
_MIN_TEMPERATURE = 1e-6  # smaller ones would turn differences of logits into infinities
_SPAN = 80.0  # logarithms of weights further apart: the smaller is never drawn
# What each setting must lie between.
_LIMITS = {
    "temperature": (0, 1000),
    "top_k": (0, math.inf),
    "top_p": (0, 1),
    "min_p": (0, 1),
    "repetition_penalty": (0.001, 1000),
    "frequency_penalty": (-1000, 1000),
    "presence_penalty": (-1000, 1000),
}


@dataclass(frozen=True, kw_only=True)
class SamplingParams:
    """Sampling settings; the module docstring explains each and the order they apply in."""

    temperature: float = 1.0  # below 1 sharpens the distribution, above 1 flattens it
    top_k: int = 0  # keep the k most likely; 0: all
    top_p: float = 1.0  # keep the smallest set of most likely tokens with this probability
    min_p: float = 0.0  # keep tokens with at least this share of the top probability
    repetition_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    break_loops: bool = False  # forbid continuing a loop; without a temperature, nothing is
    bias: Mapping[int, float] = field(default_factory=dict)  # by id; -inf: never sampled

    def __post_init__(self) -> None:
        for name, (least, most) in _LIMITS.items():
            value = getattr(self, name)
            if not least <= value <= most:
                raise ConfigError(
                    f"{name} should be {least} or more, and is {value}"
                    if most == math.inf
                    else f"{name} should be from {least} to {most}, and is {value}"
                )
        if not all(i >= 0 and value < math.inf for i, value in self.bias.items()):
            raise ConfigError(
                f"bias should be numbers below infinity by ids from 0 on, and is {self.bias}"
            )

    @cached_property
    def uses_history(self) -> bool:
        """Whether the next token depends on the history."""
        penalties = self.frequency_penalty, self.presence_penalty
        return self.repetition_penalty != 1 or any(penalties)


def sample_token(
    logits_V: Logits,
    params: SamplingParams,
    *,
    history: Sequence[int] = (),
    uniform: float,
    banned: Collection[int] = (),
    prompt: int = 0,
) -> int:
    """Sample the next id. `uniform` is a number between 0 and 1, as from `draw_uniform`.

    The first `prompt` ids of the history were not generated; frequency and presence penalties do
    not count them. Ids beyond the vocabulary are ignored in history and bans. Raises OwnwordsError
    for logits that are not finite, but -inf, and when all are -inf.
    """
    if params.bias or params.uses_history or banned:
        logits_V = apply_logits_processors(logits_V, params, history, banned, prompt)
    if params.temperature == 0:
        token = int(logits_V.argmax())
        if not _NEG_INF < logits_V[token] < math.inf:
            raise _no_token_error(logits_V[token])
        return token
    ids_N, weights_N = candidates(logits_V, params)
    cumulative_N = weights_N.cumsum(dtype=np.float64)
    return int(ids_N[cumulative_N.searchsorted(uniform * cumulative_N[-1], side="right")])


def apply_logits_processors(
    logits_V: Logits,
    params: SamplingParams,
    history: Sequence[int] = (),
    banned: Collection[int] = (),
    prompt: int = 0,
) -> Logits:
    """Return a copy of the logits after bias, penalties and bans."""
    size = len(logits_V)
    logits_V = logits_V.copy()
    logits_V[[*params.bias]] += np.array([*params.bias.values()], np.float32)
    if params.uses_history:
        history_N = np.asarray(history, np.int64)
        ids_N = np.unique(_in_vocabulary(history_N, size))
        generated_N = _in_vocabulary(history_N[max(0, prompt) :], size)
        counts_N = np.bincount(ids_N.searchsorted(generated_N), minlength=len(ids_N))
        x_N, penalty = logits_V[ids_N], params.repetition_penalty
        x_N = np.where(x_N > 0, x_N / penalty, x_N * penalty)
        x_N -= params.frequency_penalty * counts_N + params.presence_penalty * (counts_N > 0)
        logits_V[ids_N] = x_N
    logits_V[[i for i in banned if 0 <= i < size]] = _NEG_INF
    return logits_V


def _in_vocabulary(ids_N: _Ints, size: int) -> _Ints:
    return ids_N[(ids_N >= 0) & (ids_N < size)]


def candidates(logits_V: Logits, params: SamplingParams) -> tuple[_Ints, Logits]:
    """Return the ids that the filters leave, ascending, and their weights, the largest being 1.

    Not for temperature 0.
    """
    top = logits_V.max()
    if not _NEG_INF < top < math.inf:  # NaN compares as false
        raise _no_token_error(top)
    temperature = max(params.temperature, _MIN_TEMPERATURE)
    # What no filter can leave goes first: exponentiating and sorting a large vocabulary is slow.
    span = _SPAN
    if params.top_k == 0:
        if 0 < params.top_p < 1:  # all below this weigh less than 1 - top_p together
            span = min(span, max(1.0, math.log(len(logits_V) / (1 - params.top_p))))
        if params.min_p > 0:
            span = min(span, -math.log(params.min_p))
    # A little lower than computed, because logits are compared in single precision.
    least = float(top) - temperature * span * 1.0001 - 1e-3
    if 0 < params.top_k < len(logits_V):
        least = max(least, float(np.partition(logits_V, -params.top_k)[-params.top_k]))
    ids_N = (logits_V >= least).nonzero()[0]
    x_N = (logits_V[ids_N] - top) / temperature
    if 0 < params.top_k < len(ids_N):
        kept = _largest(x_N, params.top_k)
        ids_N, x_N = ids_N[kept], x_N[kept]
    if params.top_p < 1:
        all_N = x_N if params.top_k > 0 else (logits_V - top) / temperature
        weight = params.top_p * float(np.exp(all_N).sum(dtype=np.float64))
        kept = _largest(x_N, _count_reaching(np.exp(np.sort(x_N)[::-1]), weight))
        ids_N, x_N = ids_N[kept], x_N[kept]
    if params.min_p > 0:
        kept = (x_N >= x_N.max() + math.log(params.min_p)).nonzero()[0]
        ids_N, x_N = ids_N[kept], x_N[kept]
    return ids_N, np.exp(x_N - x_N.max())


def _largest(x_N: Logits, count: int) -> _Ints:
    """Return the ascending places of the `count` largest numbers, the first of equals."""
    border = np.partition(x_N, -count)[-count]
    is_kept = x_N > border
    equals = np.flatnonzero(x_N == border)
    is_kept[equals[: count - np.count_nonzero(is_kept)]] = True
    return np.flatnonzero(is_kept)


def _count_reaching(weights_N: Logits, weight: float) -> int:
    """Return how many of the first weights it takes to sum to `weight`, at least one."""
    sums_N = weights_N.cumsum(dtype=np.float64)
    return min(len(weights_N), 1 + int(sums_N.searchsorted(weight)))


def draw_uniform(seed: int, drawn: int) -> float:
    """Return a pseudo-random number in (0, 1) for the token after `drawn` others of a text."""
    key = hashlib.blake2b(f"{seed}/{drawn}".encode(), digest_size=4).digest()
    # 32 bits, so that rounding a sum in float64 never turns it into 1.
    return (int.from_bytes(key) + 0.5) / 2**32


def _no_token_error(top: np.float32) -> OwnwordsError:
    """The error for logits with this maximum, among which none can be sampled."""
    if top == _NEG_INF:
        return OwnwordsError(
            "every token of the vocabulary is forbidden, so none can be sampled",
            hint="forbid fewer: through bias, or the copy guard",
        )
    return OwnwordsError(
        "the model's logits are not finite numbers: its weights are damaged or training diverged",
        hint="use an earlier checkpoint, or the model as last saved",
    )
