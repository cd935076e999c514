"""Sampling: logits in, a token id out. Pure functions on NumPy.

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

import numpy as np
import numpy.typing as npt

from ownwords.core.errors import ConfigError, OwnwordsError
from ownwords.inference.copy_guard import CopyGuard
from ownwords.native import sampling as native

Logits = npt.NDArray[np.float32]
Ids = npt.NDArray[np.int32]
_Ints = npt.NDArray[np.int64]
_Floats = npt.NDArray[np.float64]

_NEG_INF = float("-inf")
_FLOAT32_MAX = float(np.finfo(np.float32).max)
_MIN_TEMPERATURE = 1e-6  # smaller ones would turn logit differences into infinities
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
        # A small safety margin, since logits are compared in single precision.
        return max(self.temperature, _MIN_TEMPERATURE) * -math.log(self.min_p) * 1.0001 + 1e-3

    @property
    def uses_history(self) -> bool:
        """Whether the next token depends on the history."""
        return bool(
            self.repetition_penalty != 1
            or self.frequency_penalty
            or self.presence_penalty
            or self.no_repeat_ngram_size
        )


def sample_token(
    logits_V: Logits,
    params: SamplingParams,
    *,
    history: Sequence[int] | Ids = (),
    uniform: float,
    banned: Collection[int] | Ids = (),
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
    return draw_token(probabilities(logits_V, params), uniform)


class Sampler:
    """Samples the tokens of one request: in C++ if compiled, otherwise in NumPy.

    Tokens that `guard` forbids after a history are banned. Calls are stateless. Both
    implementations sample the same id for the same `uniform`, unless it falls within 1e-5 of the
    border between two tokens, or a probability within that of a limit, where single and double
    precision may round to different sides.
    """

    def __init__(
        self, params: SamplingParams, vocabulary: int, guard: CopyGuard | None = None
    ) -> None:
        self._params = params
        self._guard = guard
        _check_bias(params, vocabulary)
        self._native = native.native_sampler(params, vocabulary, guard.native if guard else None)

    def sample(
        self,
        logits_V: Logits,
        history: Ids,
        length: int,
        uniform: float,
        banned: Collection[int] | Ids = (),
        prompt: int = 0,
    ) -> int:
        """Sample the id after the first `length` of `history`, an array that may be longer."""
        if self._native is None:
            history = history[:length]
            if self._guard is not None:
                banned = [*banned, *self._guard.banned(history)]
            return sample_token(
                logits_V,
                self._params,
                history=history,
                uniform=uniform,
                banned=banned,
                prompt=prompt,
            )
        token = self._native(logits_V, history, length, uniform, banned, prompt)
        if token < 0:
            raise _not_numbers() if token == native.NO_NUMBERS else _all_banned()
        return token


def apply_logits_processors(
    logits_V: Logits,
    params: SamplingParams,
    *,
    history: Sequence[int] | Ids = (),
    banned: Collection[int] | Ids = (),
    prompt: int = 0,
) -> Logits:
    """Return a copy of the logits after bias, penalties and bans."""
    logits_V = np.array(logits_V, np.float32)
    if not bool((logits_V < np.inf).all()):  # NaN compares as false, too
        raise _not_numbers()
    size = len(logits_V)
    _check_bias(params, size)
    for i, value in params.bias.items():
        logits_V[i] = _clip(float(logits_V[i]) + value)
    if params.uses_history:
        history_N = np.asarray(history, np.int64)
        _apply_penalties(logits_V, params, history_N, prompt)
        if n := params.no_repeat_ngram_size:
            logits_V[_in_vocabulary(_repeated_ngram_ids(history_N, n), size)] = _NEG_INF
    if len(banned):
        banned_N = np.asarray(banned if isinstance(banned, np.ndarray) else [*banned], np.int64)
        logits_V[_in_vocabulary(banned_N, size)] = _NEG_INF
    if not bool((logits_V > _NEG_INF).any()):
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
    counts = np.bincount(_in_vocabulary(history_N[max(0, prompt) :], size), minlength=size)[ids]
    logits -= params.frequency_penalty * counts + params.presence_penalty * (counts > 0)
    clipped = logits.clip(-_FLOAT32_MAX, _FLOAT32_MAX)
    logits_V[ids] = np.where(logits > _NEG_INF, clipped, _NEG_INF)


def _repeated_ngram_ids(history_N: _Ints, n: int) -> _Ints:
    """Return the ids that would complete an n-gram that already occurs in the history."""
    count = len(history_N) - n + 1
    if count < 1:
        return history_N[:0]
    has_same_prefix = np.ones(count, bool)
    for i in range(n - 1):
        has_same_prefix &= history_N[i : i + count] == history_N[len(history_N) - n + 1 + i]
    return history_N[n - 1 :][has_same_prefix]


def probabilities(logits_V: Logits, params: SamplingParams) -> _Floats:
    """Return the filtered distribution [V], which sums to one. Not for temperature 0."""
    x_V = logits_V.astype(np.float64)
    x_V = (x_V - x_V.max()) / max(params.temperature, _MIN_TEMPERATURE)
    # Ids too improbable to survive the filters need not be sorted.
    ids_N = np.flatnonzero(x_V > _log_floor(params, len(x_V)))
    x_N = x_V[ids_N]
    total = np.exp(x_V).sum()
    if 0 < params.top_k < len(ids_N):
        order = np.argsort(-x_N, kind="stable")[: params.top_k]
        ids_N, x_N = ids_N[order], x_N[order]
        total = np.exp(x_N).sum()
    if params.typical_p < 1:
        surprise_N = np.log(total) - x_N
        mean = float((np.exp(x_N) / total * surprise_N).sum())
        order = np.lexsort((ids_N, np.abs(surprise_N - mean)))
        ids_N, x_N = _smallest_set(ids_N[order], x_N[order], params.typical_p * total)
        total = np.exp(x_N).sum()
    if params.top_p < 1:
        order = np.lexsort((ids_N, -x_N))
        ids_N, x_N = _smallest_set(ids_N[order], x_N[order], params.top_p * total)
    if params.min_p > 0:
        is_likely = x_N >= x_N.max() + math.log(params.min_p)
        ids_N, x_N = ids_N[is_likely], x_N[is_likely]
    out_V = np.zeros(len(x_V))
    out_V[ids_N] = np.exp(x_N - x_N.max())
    out_V /= out_V.sum()
    return out_V


def _log_floor(params: SamplingParams, size: int) -> float:
    """Return a bound below which no logit survives: their total weight is below 1 - top_p."""
    if params.top_k or params.typical_p < 1 or params.top_p >= 1:
        return _NEG_INF
    return min(-1.0, math.log((1 - params.top_p) / size))


def _smallest_set(ids_N: _Ints, x_N: _Floats, weight: float) -> tuple[_Ints, _Floats]:
    """The first ids whose total weight reaches `weight`."""
    weights_N = np.exp(x_N)
    before_N = weights_N.cumsum() - weights_N
    count = max(1, int((before_N < weight).sum()))
    return ids_N[:count], x_N[:count]


def draw_token(probabilities_V: _Floats, uniform: float) -> int:
    """Return the id at which the cumulative probability passes `uniform`."""
    cumulative_V = probabilities_V.cumsum()
    return int(np.searchsorted(cumulative_V, uniform * cumulative_V[-1], side="right"))


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
    least = _NEG_INF
    groups = len(logits_V) // _GROUP
    if groups > count:  # `count` blocks reach this bound, so the top `count` ids do as well
        tops = logits_V[: groups * _GROUP].reshape(groups, _GROUP).max(1)
        least = float(np.partition(tops, groups - count)[groups - count])
    ids = np.flatnonzero(logits_V >= np.float32(least))
    best = ids[np.argsort(-logits_V[ids], kind="stable")[:count]]
    return tuple(zip(best.tolist(), log_probabilities(logits_V, best).tolist(), strict=True))


def draw_uniform(seed: int, drawn: int) -> float:
    """Return a pseudo-random number in (0, 1) for the token after `drawn` others of a text."""
    key = hashlib.blake2b(f"{seed}/{drawn}".encode(), digest_size=4).digest()
    # 32 bits, so that rounding a sum in float64 never turns it into 1.
    return (int.from_bytes(key) + 0.5) / 2**32


def _in_vocabulary(ids_N: _Ints, size: int) -> _Ints:
    return ids_N[(ids_N >= 0) & (ids_N < size)]


def _clip(logit: float) -> float:
    return logit if logit == _NEG_INF else max(-_FLOAT32_MAX, min(_FLOAT32_MAX, logit))


def _check_bias(params: SamplingParams, vocabulary: int) -> None:
    largest = max(params.bias, default=-1)
    if largest >= vocabulary:
        raise ConfigError(
            f"bias names the token {largest}, and the vocabulary has {vocabulary:,}",
            hint="use the ids of this model's own tokenizer",
        )


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
