"""Which token comes next: scores in, an id out. Pure functions on NumPy.

The parts of `SamplingParams` apply in this order, each at its default changing nothing:

1. `bias` is added to the scores.
2. Scores of tokens of the history are lowered: by `repetition_penalty` once for each that is there
   (divided, if negative multiplied), then by `frequency_penalty` times how often it was generated
   and by `presence_penalty` if it was at all.
3. Banned ids, and those that would repeat an n-gram of `no_repeat_ngram_size` tokens, get -inf.
4. At `temperature` 0 the highest score is taken, of equals the lowest id. Else scores are divided
   by it, and only some tokens kept: the `top_k` likeliest, of these the `typical_p`, of these the
   `top_p`, of these the `min_p` ones; probabilities are of what the step before has kept.
5. The draw: the id at which the summed probability, in the order of ids, passes the luck.

The luck is a function of the text's seed and of how many tokens were drawn before, of nothing else:
a text comes out the same alone or in a batch, in any row of it.

A score of -inf is a token that is never chosen. nan, inf and -inf throughout are no distribution:
OwnwordsError, as when everything is banned. Of equal scores the lower ids are kept. Scores that a
penalty drives beyond what float32 holds stay at its end.

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
_Wide = npt.NDArray[np.float64]

_NEVER = float("-inf")
_LARGEST = float(np.finfo(np.float32).max)
_COLDEST = 1e-6  # a temperature closer to zero must not turn differences into infinite ones
_MOST = 1000  # of a penalty: more would only drive scores beyond all numbers
_GROUP = 64  # scores that are looked at together when the likeliest are sought


@dataclass(frozen=True, kw_only=True)
class SamplingParams:
    """How to choose; what each part does, and in which order, is told above."""

    temperature: float = 1.0  # below 1 bolder in what is likely, above 1 more even
    top_k: int = 0  # only so many of the likeliest; 0: all
    top_p: float = 1.0  # only the fewest likeliest that together are so probable
    min_p: float = 0.0  # only those at least so probable as a share of the likeliest
    typical_p: float = 1.0  # only those nearest to the mean surprise, together so probable
    repetition_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    no_repeat_ngram_size: int = 0  # no run of so many tokens comes twice; 0: any may
    bias: Mapping[int, float] = field(default_factory=dict)  # by id; -inf: never

    def __post_init__(self) -> None:
        limits = {
            "temperature": 0 <= self.temperature < math.inf,
            "top_k": self.top_k >= 0,
            "top_p": 0 < self.top_p <= 1,
            "min_p": 0 <= self.min_p <= 1,
            "typical_p": 0 < self.typical_p <= 1,
            "repetition_penalty": 1 / _MOST <= self.repetition_penalty <= _MOST,
            "frequency_penalty": abs(self.frequency_penalty) <= _MOST,
            "presence_penalty": abs(self.presence_penalty) <= _MOST,
            "no_repeat_ngram_size": self.no_repeat_ngram_size >= 0,
            "bias": all(i >= 0 and value < math.inf for i, value in self.bias.items()),
        }
        meant = {
            "temperature": "0 (always the likeliest) or more",
            "top_k": "0 (all) or more",
            "top_p": "more than 0 and at most 1",
            "min_p": "from 0 to 1",
            "typical_p": "more than 0 and at most 1",
            "repetition_penalty": f"from {1 / _MOST} to {_MOST} (1 changes nothing)",
            "frequency_penalty": f"from -{_MOST} to {_MOST} (0 changes nothing)",
            "presence_penalty": f"from -{_MOST} to {_MOST} (0 changes nothing)",
            "no_repeat_ngram_size": "0 (nothing is forbidden) or more",
            "bias": "numbers below infinity by ids from 0 on",
        }
        for name, holds in limits.items():
            if not holds:
                raise ConfigError(f"{name} should be {meant[name]}, and is {getattr(self, name)}")

    @property
    def reach(self) -> float | None:
        """How far below the highest score a token can be that is chosen; None: any, or unknown.

        What lies further down can be left out and nothing changes.
        """
        if self.looks_back or self.bias or self.typical_p < 1 or self.top_p < 1:
            return None
        if self.temperature == 0:
            return 0.0
        if self.min_p == 0:
            return None
        # A little more than that, as scores are compared in single precision.
        return max(self.temperature, _COLDEST) * -math.log(self.min_p) * 1.0001 + 1e-3

    @property
    def looks_back(self) -> bool:
        """Whether a choice depends on the history."""
        return bool(
            self.repetition_penalty != 1
            or self.frequency_penalty
            or self.presence_penalty
            or self.no_repeat_ngram_size
        )


def choose(
    logits_V: Logits,
    sampling: SamplingParams,
    *,
    history: Sequence[int] | Ids = (),
    uniform: float,
    banned: Collection[int] | Ids = (),
    prompt: int = 0,
) -> int:
    """The next id. `uniform` is a number between 0 and 1, such as `draw_uniform` gives.

    The first `prompt` ids of the history were given and not generated: frequency and presence do
    not count them. Ids beyond the vocabulary, in history or bans, are left aside; in `bias` they
    are an error. OwnwordsError where the scores leave nothing to choose.
    """
    scores_V = apply_logits_processors(
        logits_V, sampling, history=history, banned=banned, prompt=prompt
    )
    if sampling.temperature == 0:
        return int(scores_V.argmax())
    return draw(probabilities(scores_V, sampling), uniform)


class Sampler:
    """The same choice for one request again and again: in C++ where that is built, else here.

    What `guard` forbids after a history is banned; in C++ that takes no call of its own. Nothing is
    remembered from call to call. Both choose the same id for the same luck, unless it falls within
    1e-5 of a border between two tokens, or a token's probability within that of a limit: there
    single and double precision may round to different sides.
    """

    def __init__(
        self, sampling: SamplingParams, vocabulary: int, guard: CopyGuard | None = None
    ) -> None:
        self.sampling = sampling
        self.vocabulary = vocabulary
        self._guard = guard
        _check_bias(sampling, vocabulary)
        self._native = native.native_sampler(sampling, vocabulary, guard.native if guard else None)

    def choose(
        self,
        logits_V: Logits,
        history: Ids,
        length: int,
        uniform: float,
        banned: Collection[int] | Ids = (),
        prompt: int = 0,
    ) -> int:
        """The next id after the first `length` of `history`, an array that may be longer."""
        if self._native is None:
            if self._guard is not None:
                banned = [*banned, *self._guard.banned(history[:length])]
            return choose(
                logits_V,
                self.sampling,
                history=history[:length],
                uniform=uniform,
                banned=banned,
                prompt=prompt,
            )
        chosen = self._native(logits_V, history, length, uniform, banned, prompt)
        if chosen < 0:
            raise _no_numbers() if chosen == native.NO_NUMBERS else _nothing_left()
        return chosen


def apply_logits_processors(
    logits_V: Logits,
    sampling: SamplingParams,
    *,
    history: Sequence[int] | Ids = (),
    banned: Collection[int] | Ids = (),
    prompt: int = 0,
) -> Logits:
    """The scores after bias, penalties and bans; what was given stays as it was."""
    scores_V = np.array(logits_V, np.float32)
    if not bool((scores_V < np.inf).all()):  # nan compares as false, too
        raise _no_numbers()
    size = len(scores_V)
    _check_bias(sampling, size)
    for i, value in sampling.bias.items():
        scores_V[i] = _clipped(float(scores_V[i]) + value)
    if sampling.looks_back:
        history_N = np.asarray(history, np.int64)
        _penalise(scores_V, sampling, history_N, prompt)
        if sampling.no_repeat_ngram_size:
            scores_V[_within(_repeating(history_N, sampling.no_repeat_ngram_size), size)] = _NEVER
    if len(banned):
        banned_N = np.asarray(banned if isinstance(banned, np.ndarray) else [*banned], np.int64)
        scores_V[_within(banned_N, size)] = _NEVER
    if not bool((scores_V > _NEVER).any()):
        raise _nothing_left()
    return scores_V


def _penalise(
    scores_V: Logits, sampling: SamplingParams, history_N: npt.NDArray[np.int64], prompt: int
) -> None:
    size = len(scores_V)
    seen = np.unique(_within(history_N, size))
    scores = scores_V[seen].astype(np.float64)
    penalty = sampling.repetition_penalty
    scores = np.where(scores > 0, scores / penalty, scores * penalty)
    counts = np.bincount(_within(history_N[max(0, prompt) :], size), minlength=size)[seen]
    scores -= sampling.frequency_penalty * counts + sampling.presence_penalty * (counts > 0)
    scores_V[seen] = np.where(scores > _NEVER, scores.clip(-_LARGEST, _LARGEST), _NEVER)


def _repeating(history_N: npt.NDArray[np.int64], n: int) -> npt.NDArray[np.int64]:
    """What would complete a run of n tokens that the history holds already."""
    count = len(history_N) - n + 1  # of runs, each followed or ended by a token
    if count < 1:
        return history_N[:0]
    alike = np.ones(count, bool)
    for i in range(n - 1):
        alike &= history_N[i : i + count] == history_N[len(history_N) - n + 1 + i]
    return history_N[n - 1 :][alike]


def probabilities(scores_V: Logits, sampling: SamplingParams) -> _Wide:
    """The distribution that is drawn from; it sums to one. Not for temperature 0."""
    warm_V = scores_V.astype(np.float64)
    warm_V = (warm_V - warm_V.max()) / max(sampling.temperature, _COLDEST)
    # What is too improbable for any limit need not be sorted.
    kept = np.flatnonzero(warm_V > _floor(sampling, len(warm_V)))
    x_N = warm_V[kept]
    total = np.exp(warm_V).sum()
    if 0 < sampling.top_k < len(kept):
        order = np.argsort(-x_N, kind="stable")[: sampling.top_k]
        kept, x_N = kept[order], x_N[order]
        total = np.exp(x_N).sum()
    if sampling.typical_p < 1:
        surprise = np.log(total) - x_N
        mean = float((np.exp(x_N) / total * surprise).sum())
        apart = np.abs(surprise - mean)
        order = np.lexsort((kept, apart))
        kept, x_N = _fewest(kept[order], x_N[order], sampling.typical_p * total)
        total = np.exp(x_N).sum()
    if sampling.top_p < 1:
        order = np.lexsort((kept, -x_N))
        kept, x_N = _fewest(kept[order], x_N[order], sampling.top_p * total)
    if sampling.min_p > 0:
        likely = x_N >= x_N.max() + math.log(sampling.min_p)
        kept, x_N = kept[likely], x_N[likely]
    out_V = np.zeros(len(warm_V))
    out_V[kept] = np.exp(x_N - x_N.max())
    out_V /= out_V.sum()
    return out_V


def _floor(sampling: SamplingParams, size: int) -> float:
    """Below it none is kept: of so few, all together are less than what `top_p` leaves out."""
    if sampling.top_k or sampling.typical_p < 1 or sampling.top_p >= 1:
        return _NEVER
    return min(-1.0, math.log((1 - sampling.top_p) / size))


def _fewest(
    ids_N: npt.NDArray[np.int64], x_N: _Wide, wanted: float
) -> tuple[npt.NDArray[np.int64], _Wide]:
    """The first few that together weigh as much as wanted."""
    weights_N = np.exp(x_N)
    before_N = weights_N.cumsum() - weights_N
    count = max(1, int((before_N < wanted).sum()))
    return ids_N[:count], x_N[:count]


def draw(probabilities_V: _Wide, uniform: float) -> int:
    """The id at which the summed probability passes the luck."""
    reached_V = probabilities_V.cumsum()
    return int(np.searchsorted(reached_V, uniform * reached_V[-1], side="right"))


def log_probabilities(logits_V: Logits, ids: Sequence[int] | npt.NDArray[np.int64]) -> _Wide:
    """The logarithms of the probabilities that the model itself gives these ids."""
    wide_V = np.asarray(logits_V)
    top = float(wide_V.max())
    if not top < math.inf:
        raise _no_numbers()
    if top == _NEVER:
        raise _nothing_left()
    total = float(np.exp(wide_V - np.float32(top)).sum(dtype=np.float64))
    found: _Wide = wide_V[np.asarray(ids, np.int64)].astype(np.float64) - top - math.log(total)
    return found


def top_logprobs(logits_V: Logits, count: int) -> tuple[tuple[int, float], ...]:
    """The `count` likeliest ids and the logarithms of their probabilities, best first."""
    count = min(count, len(logits_V))
    if count < 1:
        return ()
    least = _NEVER
    groups = len(logits_V) // _GROUP
    if groups > count:  # that many groups have a score so high, so it is in reach of the best
        tops = logits_V[: groups * _GROUP].reshape(groups, _GROUP).max(1)
        least = float(np.partition(tops, groups - count)[groups - count])
    found = np.flatnonzero(logits_V >= np.float32(least))
    best = found[np.argsort(-logits_V[found], kind="stable")[:count]]
    return tuple(zip(best.tolist(), log_probabilities(logits_V, best).tolist(), strict=True))


def draw_uniform(seed: int, drawn: int) -> float:
    """A number between 0 and 1, neither included, evenly spread over seeds and draws."""
    key = hashlib.blake2b(f"{seed}/{drawn}".encode(), digest_size=4).digest()
    # Of 32 bits, so that no rounding of a sum in float64 turns it into a whole one.
    return (int.from_bytes(key) + 0.5) / 2**32


def _within(ids_N: npt.NDArray[np.int64], size: int) -> npt.NDArray[np.int64]:
    return ids_N[(ids_N >= 0) & (ids_N < size)]


def _clipped(score: float) -> float:
    return score if score == _NEVER else max(-_LARGEST, min(_LARGEST, score))


def _check_bias(sampling: SamplingParams, vocabulary: int) -> None:
    largest = max(sampling.bias, default=-1)
    if largest >= vocabulary:
        raise ConfigError(
            f"bias names the token {largest}, and the vocabulary has {vocabulary:,}",
            hint="use the ids of this model's own tokenizer",
        )


def _no_numbers() -> OwnwordsError:
    return OwnwordsError(
        "the model's scores are not numbers: its weights are damaged or training went astray",
        hint="use an earlier checkpoint, or the model as it was saved last",
    )


def _nothing_left() -> OwnwordsError:
    return OwnwordsError(
        "every token of the vocabulary is forbidden, and none can be chosen",
        hint="forbid fewer: by bias, no_repeat, or what may not be copied",
    )
