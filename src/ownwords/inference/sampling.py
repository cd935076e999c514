"""Sampling: logits in, a token id out. Pure functions on NumPy.

At 138,000 tokens of vocabulary the default takes 0.1 ms a token: bounds find the few tokens that
may be sampled before anything is exponentiated or sorted.

The parts of `SamplingParams` apply in this order; the default of each changes nothing:

1. `bias` is added to the logits.
2. Penalties lower the logits of tokens in the history: `repetition_penalty` once for each token
   that occurs (dividing it, or multiplying where it is negative), then `frequency_penalty` times
   the number of times it was generated, and `presence_penalty` if it was generated at all.
3. Banned ids, and ids that would repeat an n-gram of `no_repeat_ngram_size` tokens, become -inf.
   `break_loops` lets `GenerationState`, which knows the text, ban what would continue a loop.
4. At `temperature` 0 the highest logit wins, the lowest id of equals. Otherwise logits are divided
   by it and filtered: `top_k`, then `typical_p`, then `top_p`, then `min_p`, each on the
   probabilities that the filter before it left.
5. The draw takes the id at which the cumulative probability, in the order of ids, passes `uniform`.

`uniform` is a function of the text's seed and of the number of tokens drawn before, so a text is
the same whether it is generated alone or in any row of a batch.

A logit of -inf is never sampled. NaN, inf, or -inf everywhere raise OwnwordsError, as does a ban of
everything. Among equal logits the lower ids are kept. Penalized logits are clipped to the range of
float32.

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
_Floats = npt.NDArray[np.float64]

_NEG_INF = float("-inf")
_FLOAT32_MAX = float(np.finfo(np.float32).max)
_MIN_TEMPERATURE = 1e-6  # smaller ones would turn logit differences into infinities
_MAX_TEMPERATURE = 1e30  # larger ones are not numbers in single precision
_SPAN = 80.0  # logarithms of weights further apart: the smaller is never drawn
_MAX_PENALTY = 1000  # larger ones only drive logits out of range
_GROUP = 64  # logits per block maximum when searching for the top ones


@dataclass(frozen=True, kw_only=True)
class SamplingParams:
    """Sampling settings; the module docstring explains each and the order they apply in."""

    temperature: float = 1.0  # below 1 sharpens the distribution, above 1 flattens it
    top_k: int = 0  # keep the k most likely; 0: all
    top_p: float = 1.0  # keep the smallest set of most likely tokens with this probability
    min_p: float = 0.0  # keep tokens with at least this share of the top probability
    typical_p: float = 1.0  # keep the ids nearest to the mean surprisal, up to this probability
    repetition_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    no_repeat_ngram_size: int = 0  # forbid repeating n-grams of this size; 0: off
    break_loops: bool = False  # forbid continuing a loop; without a temperature, nothing is
    bias: Mapping[int, float] = field(default_factory=dict)  # by id; -inf: never sampled

    def __post_init__(self) -> None:
        penalty = f"from -{_MAX_PENALTY} to {_MAX_PENALTY} (0 changes nothing)"
        checks = {
            "temperature": (
                0 <= self.temperature < math.inf,
                "0 (always the most likely) or more",
            ),
            "top_k": (self.top_k >= 0, "0 (all) or more"),
            "top_p": (0 < self.top_p <= 1, "more than 0 and at most 1"),
            "min_p": (0 <= self.min_p <= 1, "from 0 to 1"),
            "typical_p": (0 < self.typical_p <= 1, "more than 0 and at most 1"),
            "repetition_penalty": (
                1 / _MAX_PENALTY <= self.repetition_penalty <= _MAX_PENALTY,
                f"from {1 / _MAX_PENALTY} to {_MAX_PENALTY} (1 changes nothing)",
            ),
            "frequency_penalty": (abs(self.frequency_penalty) <= _MAX_PENALTY, penalty),
            "presence_penalty": (abs(self.presence_penalty) <= _MAX_PENALTY, penalty),
            "no_repeat_ngram_size": (self.no_repeat_ngram_size >= 0, "0 (off) or more"),
            "bias": (
                all(i >= 0 and value < math.inf for i, value in self.bias.items()),
                "numbers below infinity by ids from 0 on",
            ),
        }
        for name, (is_valid, expected) in checks.items():
            if not is_valid:
                raise ConfigError(f"{name} should be {expected}, and is {getattr(self, name)}")

    @property
    def logit_margin(self) -> float | None:
        """How far below the maximum a sampled logit can lie; None: anywhere, or unknown.

        Logits further down can be left out without changing the result.
        """
        if self.uses_history or self.bias or self.typical_p < 1 or self.top_p < 1:
            return None
        if self.temperature == 0:
            return 0.0
        if self.min_p == 0:
            return None
        return _margin(_temperature(self), -math.log(self.min_p))

    @property
    def uses_history(self) -> bool:
        """Whether the next token depends on the history."""
        return bool(
            self.repetition_penalty != 1
            or self.frequency_penalty
            or self.presence_penalty
            or self.no_repeat_ngram_size
        )

    @cached_property
    def bias_arrays(self) -> tuple[_Ints, _Floats]:
        """The ids of `bias`, and what is added to their logits."""
        return np.array([*self.bias], np.int64), np.array([*self.bias.values()], np.float64)

    def check_vocabulary(self, vocabulary: int) -> None:
        """Raise ConfigError if `bias` has ids beyond the vocabulary."""
        largest = max(self.bias, default=-1)
        if largest >= vocabulary:
            raise ConfigError(
                f"bias names the token {largest}, and the vocabulary has {vocabulary:,}",
                hint="use the ids of this model's own tokenizer",
            )


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
    not count them. Ids beyond the vocabulary are ignored in history and bans, and an error in
    `bias`. Raises OwnwordsError when no token can be sampled.
    """
    logits_V = apply_logits_processors(
        logits_V, params, history=history, banned=banned, prompt=prompt
    )
    if params.temperature == 0:
        return int(logits_V.argmax())
    ids_N, weights_N = candidates(logits_V, params)
    cumulative_N = weights_N.cumsum(dtype=np.float64)
    return int(ids_N[cumulative_N.searchsorted(uniform * cumulative_N[-1], side="right")])


def apply_logits_processors(
    logits_V: Logits,
    params: SamplingParams,
    *,
    history: Sequence[int] = (),
    banned: Collection[int] = (),
    prompt: int = 0,
) -> Logits:
    """Return the logits after bias, penalties and bans, in a copy if there are any."""
    logits_V = np.asarray(logits_V, np.float32)
    top = logits_V.max()
    if not top < np.inf:  # NaN compares as false, too
        raise _not_numbers()
    size = len(logits_V)
    if params.bias or params.uses_history or len(banned):
        params.check_vocabulary(size)
        logits_V = logits_V.copy()
        ids, bias = params.bias_arrays
        logits_V[ids] = _to_float32(logits_V[ids] + bias)
        if params.uses_history:
            history_N = np.asarray(history, np.int64)
            _apply_penalties(logits_V, params, history_N, prompt)
            if n := params.no_repeat_ngram_size:
                logits_V[_in_vocabulary(_repeated_ngram_ids(history_N, n), size)] = _NEG_INF
        banned_N = np.fromiter(banned, np.int64, len(banned))
        logits_V[_in_vocabulary(banned_N, size)] = _NEG_INF
        top = logits_V.max()
    if top == _NEG_INF:
        raise _all_banned()
    return logits_V


def _apply_penalties(
    logits_V: Logits, params: SamplingParams, history_N: _Ints, prompt: int
) -> None:
    size = len(logits_V)
    ids = np.unique(_in_vocabulary(history_N, size))
    logits = logits_V[ids].astype(np.float64)
    penalty = params.repetition_penalty
    logits = np.where(logits > 0, logits / penalty, logits * penalty)
    generated_N = _in_vocabulary(history_N[max(0, prompt) :], size)
    counts = np.bincount(ids.searchsorted(generated_N), minlength=len(ids))
    logits -= params.frequency_penalty * counts + params.presence_penalty * (counts > 0)
    logits_V[ids] = _to_float32(logits)


def _repeated_ngram_ids(history_N: _Ints, n: int) -> _Ints:
    """Return the ids that would complete an n-gram that already occurs in the history."""
    count = len(history_N) - n + 1
    if count < 1:
        return history_N[:0]
    has_same_prefix = np.ones(count, bool)
    for i in range(n - 1):
        has_same_prefix &= history_N[i : i + count] == history_N[len(history_N) - n + 1 + i]
    return history_N[n - 1 :][has_same_prefix]


def candidates(logits_V: Logits, params: SamplingParams) -> tuple[_Ints, Logits]:
    """Return the ids that the filters leave, ascending, and their weights, the largest being 1.

    Not for temperature 0.
    """
    top = logits_V.max()
    ids_N = np.flatnonzero(logits_V >= _least_logit(logits_V, float(top), params))
    x_N = _scaled(logits_V[ids_N], top, params)
    if 0 < params.top_k < len(ids_N):
        kept = _largest(x_N, params.top_k)
        ids_N, x_N = ids_N[kept], x_N[kept]
    if params.typical_p < 1:
        p_N = np.exp(x_N)
        p_N /= p_N.sum()
        order = np.argsort(np.abs(x_N - p_N @ x_N), kind="stable")  # nearest to the mean surprisal
        kept = np.sort(order[: _count_reaching(p_N[order], params.typical_p)])
        ids_N, x_N = ids_N[kept], x_N[kept]
    if params.top_p < 1:
        is_filtered = params.top_k > 0 or params.typical_p < 1
        if is_filtered:
            total = np.exp(x_N).sum(dtype=np.float64)
        else:
            least = np.float32(max(top - _SPAN * _temperature(params), -_FLOAT32_MAX))
            all_V = _scaled(np.maximum(logits_V, least), top, params)
            total = np.exp(all_V).sum(dtype=np.float64)
        weight = params.top_p * float(total)
        kept = _largest(x_N, _count_reaching(np.exp(np.sort(x_N)[::-1]), weight))
        ids_N, x_N = ids_N[kept], x_N[kept]
    if params.min_p > 0:
        kept = np.flatnonzero(x_N >= x_N.max() + math.log(params.min_p))
        ids_N, x_N = ids_N[kept], x_N[kept]
    return ids_N, np.exp(x_N - x_N.max())


def _scaled(logits_N: Logits, top: np.float32, params: SamplingParams) -> Logits:
    """Return logits as logarithms of weights, the largest weight of all being 1."""
    half = np.float32(0.5)  # so that no difference is too large for single precision
    return (logits_N * half - top * half) / (_temperature(params) * 0.5)


def _temperature(params: SamplingParams) -> float:
    return min(max(params.temperature, _MIN_TEMPERATURE), _MAX_TEMPERATURE)


def _least_logit(logits_V: Logits, top: float, params: SamplingParams) -> np.float32:
    """Return a finite bound below which no logit survives the filters."""
    span = _SPAN
    if params.top_k == 0 and params.typical_p == 1:
        if params.top_p < 1:  # all below this weigh less than 1 - top_p together
            span = min(span, max(1.0, math.log(len(logits_V) / (1 - params.top_p))))
        if params.min_p > 0:
            span = min(span, -math.log(params.min_p))
    least = top - _margin(_temperature(params), span)
    if params.top_k:
        least = max(least, _kth_bound(logits_V, params.top_k))
    return np.float32(max(least, -_FLOAT32_MAX))


def _margin(temperature: float, span: float) -> float:
    """Return by how much logits of one distribution differ at most, given the same of their log.

    With a small safety margin, since logits are compared in single precision.
    """
    return temperature * span * 1.0001 + 1e-3


def _kth_bound(logits_V: Logits, count: int) -> float:
    """Return a logit that at least `count` ids reach, and not many more."""
    groups = len(logits_V) // _GROUP
    if groups <= count:
        return _NEG_INF
    tops = logits_V[: groups * _GROUP].reshape(groups, _GROUP).max(1)
    return float(np.partition(tops, groups - count)[groups - count])


def _largest(x_N: Logits, count: int) -> _Ints:
    """Return the ascending places of the `count` largest numbers, the first of equals."""
    border = np.partition(x_N, len(x_N) - count)[len(x_N) - count]
    is_kept = x_N > border
    equals = np.flatnonzero(x_N == border)
    is_kept[equals[: count - np.count_nonzero(is_kept)]] = True
    return np.flatnonzero(is_kept)


def _count_reaching(weights_N: Logits, weight: float) -> int:
    """Return how many of the first weights it takes to sum to `weight`, at least one."""
    sums_N = weights_N.cumsum(dtype=np.float64)
    return min(len(weights_N), 1 + int(sums_N.searchsorted(weight)))


def log_probabilities(logits_V: Logits, ids: Sequence[int] | _Ints) -> _Floats:
    """Return the log-probabilities of these ids under the unfiltered logits."""
    logits_V = np.asarray(logits_V)
    top = float(logits_V.max())
    if not top < math.inf:
        raise _not_numbers()
    if top == _NEG_INF:
        raise _all_banned()
    total = float(np.exp(logits_V - np.float32(top)).sum(dtype=np.float64))
    logits_N: _Floats = logits_V[np.asarray(ids, np.int64)].astype(np.float64)
    return logits_N - top - math.log(total)


def top_logprobs(logits_V: Logits, count: int) -> tuple[tuple[int, float], ...]:
    """Return the `count` most likely ids with their log-probabilities, best first."""
    count = min(count, len(logits_V))
    if count < 1:
        return ()
    ids = np.flatnonzero(logits_V >= np.float32(_kth_bound(logits_V, count)))
    best = ids[np.argsort(-logits_V[ids], kind="stable")[:count]]
    return tuple(zip(best.tolist(), log_probabilities(logits_V, best).tolist(), strict=True))


def draw_uniform(seed: int, drawn: int) -> float:
    """Return a pseudo-random number in (0, 1) for the token after `drawn` others of a text."""
    key = hashlib.blake2b(f"{seed}/{drawn}".encode(), digest_size=4).digest()
    # 32 bits, so that rounding a sum in float64 never turns it into 1.
    return (int.from_bytes(key) + 0.5) / 2**32


def _in_vocabulary(ids_N: _Ints, size: int) -> _Ints:
    return ids_N[(ids_N >= 0) & (ids_N < size)]


def _to_float32(logits_N: _Floats) -> _Floats:
    """Clip to the range of float32; -inf stays."""
    return np.where(logits_N > _NEG_INF, logits_N.clip(-_FLOAT32_MAX, _FLOAT32_MAX), _NEG_INF)


def _not_numbers() -> OwnwordsError:
    return OwnwordsError(
        "the model's logits are not finite numbers: its weights are damaged or training diverged",
        hint="use an earlier checkpoint, or the model as last saved",
    )


def _all_banned() -> OwnwordsError:
    return OwnwordsError(
        "every token of the vocabulary is forbidden, so none can be sampled",
        hint="forbid fewer: through bias, no_repeat_ngram_size, or the copy guard",
    )
