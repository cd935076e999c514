"""Sampling: logits in, a token id out.

The fields of `SamplingParams` apply in this order; the default of each changes nothing:

1. `bias` is added to the logits.
2. Penalties lower the logits of tokens in the history: `repetition_penalty` once for each token
   that occurs (it divides a positive logit and multiplies a negative one); then subtract
   `frequency_penalty` times the number of times the token was generated, and `presence_penalty` if
   it was generated at all.
3. Banned ids become -inf; with `break_loops` the generation bans ids that would continue a loop.
4. At `temperature` 0 the highest logit wins, and the lowest id among equal ones. Otherwise logits
   are divided by it and filtered: `top_k`, then `top_p`, then `min_p`, each on the probabilities
   that the previous filter left. Among equal logits the lower ids are kept.
5. The draw takes the id at which the cumulative probability, in the order of ids, passes `uniform`.

`uniform` depends only on the text's seed and on the number of tokens drawn before, so a text is the
same whether it is generated alone or in any row of a batch.

Shapes: V vocabulary, N ids.
"""

import hashlib
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ownwords.core.errors import ConfigError, OwnwordsError
from ownwords.core.validation import ValidationError

Logits = npt.NDArray[np.float32]
_Ints = npt.NDArray[np.int64]

_NEG_INF = float("-inf")
_MIN_TEMPERATURE = 1e-6  # smaller ones would turn differences of logits into infinities
_SPAN = 80.0  # a weight is never drawn if its logarithm is this far below the largest
# The bounds of each setting.
_LIMITS = {
    "temperature": (0, 1000),
    "top_k": (0, 1 << 31),
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
    break_loops: bool = False  # ban tokens that would continue a loop; no effect at temperature 0
    bias: Mapping[int, float] = field(default_factory=dict)  # by id; -inf: never sampled

    def __post_init__(self) -> None:
        for name, (low, high) in _LIMITS.items():
            value = getattr(self, name)
            if not low <= value <= high:
                message = f"{name} must be from {low} to {high}, not {value}"
                raise ValidationError(message, name, "value")
        if not all(i >= 0 and value < math.inf for i, value in self.bias.items()):
            raise ConfigError(
                f"bias must map token ids, from 0, to numbers below infinity; it is {self.bias}"
            )


class Sampler:
    """Samples one text's ids; the steps that its parameters need are chosen once.

    The first `prompt` ids of a history are the prompt; frequency and presence penalties do not
    count them. Ids beyond the vocabulary are ignored in histories and bans.
    """

    def __init__(self, params: SamplingParams, prompt: int = 0) -> None:
        self._params = params
        self._processors: list[Processor] = []
        if params.bias:
            self._processors.append(_bias(params.bias))
        penalties = params.frequency_penalty, params.presence_penalty
        if params.repetition_penalty != 1 or any(penalties):
            self._processors.append(_penalties(params.repetition_penalty, *penalties, prompt))
        self._filters: list[Filter] = []
        if params.top_k > 0:
            self._filters.append(_top_k(params.top_k))
        if params.top_p < 1:
            self._filters.append(_top_p(params.top_p))
        if params.min_p > 0:
            self._filters.append(_min_p(params.min_p))

    def sample(
        self,
        logits_V: Logits,
        uniform: float,
        history: Sequence[int] = (),
        banned: Collection[int] = (),
    ) -> int:
        """Return the next id. `uniform` is a number between 0 and 1, as from `draw_uniform`.

        Raises OwnwordsError if a logit is NaN or +inf, or if all are -inf.
        """
        if self._processors or banned:
            logits_V = self.process(logits_V, history, banned)
        if self._params.temperature == 0:
            token = int(logits_V.argmax())
            if not _NEG_INF < logits_V[token] < math.inf:
                raise _no_token_error(logits_V[token])
            return token
        ids_N, weights_N = self.candidates(logits_V)
        cumulative_N = weights_N.cumsum(dtype=np.float64)
        return int(ids_N[cumulative_N.searchsorted(uniform * cumulative_N[-1], side="right")])

    def process(
        self, logits_V: Logits, history: Sequence[int] = (), banned: Collection[int] = ()
    ) -> Logits:
        """Return a copy of the logits after bias, penalties and bans."""
        logits_V = logits_V.copy()
        for processor in self._processors:
            processor(logits_V, history)
        logits_V[[i for i in banned if 0 <= i < len(logits_V)]] = _NEG_INF
        return logits_V

    def candidates(self, logits_V: Logits) -> tuple[_Ints, Logits]:
        """Return the ids that the filters leave, ascending, and their weights, the largest being 1.

        Not for temperature 0.
        """
        params, top = self._params, logits_V.max()
        if not _NEG_INF < top < math.inf:  # NaN compares as false
            raise _no_token_error(top)
        temperature = max(params.temperature, _MIN_TEMPERATURE)
        # Exponentiating and sorting a large vocabulary is slow, so drop beforehand what no filter
        # can keep.
        span, total = _SPAN, 0.0
        if params.top_k == 0:
            if 0 < params.top_p < 1:  # the total weight below this is less than 1 - top_p
                span = min(span, max(1.0, math.log(len(logits_V) / (1 - params.top_p))))
            if params.min_p > 0:
                span = min(span, -math.log(params.min_p))
            if params.top_p < 1:
                total = float(np.exp((logits_V - top) / temperature).sum(dtype=np.float64))
        # A little lower than computed, because logits are compared in single precision.
        threshold = float(top) - temperature * span * 1.0001 - 1e-3
        if 0 < params.top_k < len(logits_V):
            threshold = max(threshold, float(np.partition(logits_V, -params.top_k)[-params.top_k]))
        ids_N = (logits_V >= threshold).nonzero()[0]
        x_N = (logits_V[ids_N] - top) / temperature
        for keep in self._filters:
            kept = keep(x_N, total)
            ids_N, x_N = ids_N[kept], x_N[kept]
        return ids_N, np.exp(x_N - x_N.max())


# --- steps ----------------------------------------------------------------------------------------

Processor = Callable[[Logits, Sequence[int]], None]  # changes logits in place, given the history
# Takes logarithms of weights and the total of all weights (0: of these); returns the indices to
# keep, ascending.
Filter = Callable[[Logits, float], _Ints]


def _bias(bias: Mapping[int, float]) -> Processor:
    ids, values = [*bias], np.array([*bias.values()], np.float32)

    def process(logits_V: Logits, _: Sequence[int]) -> None:
        logits_V[ids] += values

    return process


def _penalties(repetition: float, frequency: float, presence: float, prompt: int) -> Processor:
    def process(logits_V: Logits, history: Sequence[int]) -> None:
        history_N = np.asarray(history, np.int64)
        ids_N = np.unique(_in_vocabulary(history_N, len(logits_V)))
        generated_N = _in_vocabulary(history_N[max(0, prompt) :], len(logits_V))
        counts_N = np.bincount(ids_N.searchsorted(generated_N), minlength=len(ids_N))
        x_N = logits_V[ids_N]
        x_N = np.where(x_N > 0, x_N / repetition, x_N * repetition)
        x_N -= frequency * counts_N + presence * (counts_N > 0)
        logits_V[ids_N] = x_N

    return process


def _in_vocabulary(ids_N: _Ints, size: int) -> _Ints:
    return ids_N[(ids_N >= 0) & (ids_N < size)]


def _top_k(count: int) -> Filter:
    return lambda x_N, _: _largest(x_N, min(count, len(x_N)))


def _top_p(share: float) -> Filter:
    def keep(x_N: Logits, total: float) -> _Ints:
        total = total or float(np.exp(x_N).sum(dtype=np.float64))
        sums_N = np.exp(np.sort(x_N)[::-1]).cumsum(dtype=np.float64)
        return _largest(x_N, min(len(x_N), 1 + int(sums_N.searchsorted(share * total))))

    return keep


def _min_p(share: float) -> Filter:
    return lambda x_N, _: (x_N >= x_N.max() + math.log(share)).nonzero()[0]


def _largest(x_N: Logits, count: int) -> _Ints:
    """Return the indices of the `count` largest numbers, ascending; the first of equal ones."""
    border = np.partition(x_N, -count)[-count]
    is_kept = x_N > border
    equals = np.flatnonzero(x_N == border)
    is_kept[equals[: count - np.count_nonzero(is_kept)]] = True
    return np.flatnonzero(is_kept)


def draw_uniform(seed: int, drawn: int) -> float:
    """Return a pseudo-random number in (0, 1) for the token of a text after `drawn` others."""
    key = hashlib.blake2b(f"{seed}/{drawn}".encode(), digest_size=4).digest()
    # 32 bits, so that rounding a sum in float64 never turns it into 1.
    return (int.from_bytes(key) + 0.5) / 2**32


def _no_token_error(top: np.float32) -> OwnwordsError:
    if top == _NEG_INF:
        return OwnwordsError(
            "every token of the vocabulary is forbidden, so none can be sampled",
            hint="forbid fewer: through bias, or the copy guard",
        )
    return OwnwordsError(
        "the model's logits are not finite numbers: its weights are damaged or training diverged",
        hint="use an earlier checkpoint, or the model as last saved",
    )
