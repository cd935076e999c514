"""A text being written: what to go on from, what is read and drawn, and how it ends.

What it becomes depends on its request alone. Each draw has its own luck, by its number, so neither
company nor guesses change a token.

Shapes: N ids read, V vocabulary.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ownwords.core.errors import ConfigError, OwnwordsError
from ownwords.inference.copy_guard import CopyGuard
from ownwords.inference.engine import Engine, ForwardInput, LogitRange, Logits
from ownwords.inference.sampling import (
    Sampler,
    SamplingParams,
    draw_uniform,
    log_probabilities,
    top_logprobs,
)
from ownwords.inference.speculate import Costs, Guesses, Pace, Proposer

FinishReason = Literal["stop", "length", "error"]

_MANY = 10_000  # tokens of a vocabulary; scores of fewer are not worth leaving out


@dataclass(frozen=True, kw_only=True)
class Request:
    """What to go on from and for how long. One of `stops` ends the text and is not part of it.

    Only the first `vocabulary` tokens are written, all of the model's where it is None: a model may
    have more than its tokenizer, as padding. `logprobs` is how many of the likeliest tokens are
    told with each; 0: not even its own chance.
    """

    ids: Sequence[int]
    tokens: int
    sampling: SamplingParams
    vocabulary: int | None = None
    seed: int = 1
    stops: frozenset[int] = frozenset()
    logprobs: int = 0
    guard: CopyGuard | None = None

    def __post_init__(self) -> None:
        if len(self.ids) == 0:
            raise OwnwordsError(
                "there is nothing to begin with: the prompt is empty, and this model knows no token"
                " that begins a text",
                hint="give the first words",
            )
        for name in ("tokens", "logprobs"):
            if getattr(self, name) < 0:
                raise ConfigError(f"{name} should be 0 or more, and is {getattr(self, name)}")
        if self.vocabulary is not None and self.vocabulary < 1:
            raise ConfigError(f"vocabulary should be 1 or more, and is {self.vocabulary}")


@dataclass(frozen=True, slots=True)
class GeneratedToken:
    """A token, the logarithm of its probability and the likeliest tokens with theirs.

    Of the model as it is, before any choice of sampling, among the tokens that can be written; None
    and empty where not asked for.
    """

    id: int
    logprob: float | None = None
    alternatives: tuple[tuple[int, float], ...] = ()


class GenerationState:
    """One text while it is written: what to read next, and what comes of the scores.

    It knows how many of its tokens its row holds; beyond `length` it goes on from its later half.
    """

    def __init__(self, request: Request, length: int, vocabulary: int) -> None:
        lowest, highest = min(request.ids), max(request.ids)
        if lowest < 0 or highest >= vocabulary:
            raise OwnwordsError(
                f"id {lowest if lowest < 0 else highest} is not in the vocabulary"
                f" ({vocabulary} tokens)",
                hint="use the tokenizer that belongs to this model",
            )
        self.request = request
        self.history = list(request.ids)
        self.finished: FinishReason | None = None if request.tokens else "length"
        self.start = 0  # of the history, where that which the row holds begins
        self.held = 0  # so many tokens it holds
        self.length = length
        self._left = request.tokens
        self._prompt = len(self.history)
        # The same once more, as those who choose read it; with room to grow.
        self._history_N = np.array(self.history, np.int32)
        self._writable = min(request.vocabulary or vocabulary, vocabulary)
        self._chooser = Sampler(request.sampling, self._writable, request.guard)
        reach = request.sampling.reach if vocabulary >= _MANY and not request.logprobs else None
        self._near = None if reach is None else LogitRange(reach, self._writable)
        self._guesses: Guesses | None = None
        self._guessed: Sequence[int] = ()  # what the last read checked
        self._pace = Pace()
        self._fit()

    def begin(self, proposer: Proposer) -> None:
        """Have guesses made from now on; they end with `close`."""
        self._guesses = proposer.begin(self._prompt, self.request.sampling, self.request.seed)

    def close(self) -> None:
        if self._guesses is not None:
            self._guesses.close()
            self._guesses = None

    @property
    def unread(self) -> int:
        """How many tokens the row lacks."""
        return len(self.history) - self.start - self.held

    @property
    def row(self) -> Sequence[int]:
        """What the row holds."""
        return self.history[self.start : self.start + self.held]

    @property
    def coming(self) -> Sequence[int]:
        """What it is going to hold."""
        return self.history[self.start :]

    @property
    def near(self) -> LogitRange | None:
        """Which scores decide the next draw, where not all do: what may be forbidden needs all."""
        guard = self.request.guard
        if self._near is not None and guard is not None:
            length = len(self.history)
            return None if len(guard.banned(self._history_N[:length])) else self._near
        return self._near

    def to_read(self, most: int) -> Sequence[int]:
        """The next ids to read, at most so many; `held` then counts them as read."""
        begin = self.start + self.held
        ids = self.history[begin : begin + most]
        self.held += len(ids)
        self._guessed = ()
        return ids

    def guess(self, costs: Costs, vocabulary: int) -> Sequence[int]:
        """What to have checked behind the last token, just to be read: nothing, mostly."""
        if self._guesses is None:
            return ()
        room = min(self._left - 1, self.length - self.held)
        most = min(self._pace.length(costs.each), room)
        if most < 1:
            return ()
        began = time.perf_counter()
        guessed = self._guesses.propose(self.history, most)
        if guessed:
            costs.guessed(time.perf_counter() - began, len(guessed))
            if max(guessed) < vocabulary:  # a smaller model may have been padded to more tokens
                self._guessed = guessed
        return self._guessed

    def draw(self, scores_NV: Logits) -> list[GeneratedToken]:
        """What is drawn after the last token read, and after each guess while they are right.

        `held` then counts the guesses that were right; what the row holds beyond is to be cut.
        """
        request, history, guessed = self.request, self.history, self._guessed
        drawn: list[GeneratedToken] = []
        right = 0
        for scores_V in scores_NV[:, : self._writable]:
            length = len(history)
            chosen = self._chooser.choose(
                scores_V,
                self._history_N,
                length,
                draw_uniform(request.seed, length - self._prompt),
                prompt=self._prompt,
            )
            if chosen in request.stops:
                self.finished = "stop"
                break
            drawn.append(_told(chosen, scores_V, request.logprobs))
            if length == len(self._history_N):
                self._history_N = np.resize(self._history_N, length + max(64, length // 2))
            self._history_N[length] = chosen
            history.append(chosen)
            self._left -= 1
            if not self._left:
                self.finished = "length"
                break
            if right == len(guessed) or guessed[right] != chosen:
                break
            right += 1
        if guessed:
            self.held += right
            self._pace.learn(len(guessed), right)
        self._fit()
        return drawn

    def _fit(self) -> None:
        if len(self.history) - self.start > self.length:
            self.start = len(self.history) - max(1, self.length // 2)
            self.held = 0


def _told(chosen: int, scores_V: Logits, most: int) -> GeneratedToken:
    if not most:
        return GeneratedToken(chosen)
    own = float(log_probabilities(scores_V, [chosen])[0])
    return GeneratedToken(chosen, own, top_logprobs(scores_V, most))


def generate(
    engine: Engine, request: Request, *, proposer: Proposer | None = None
) -> Iterator[GeneratedToken]:
    """What follows the request's ids, token by token. Nothing is read before it is asked for."""
    length = min(len(request.ids) + request.tokens, engine.context)
    text = GenerationState(request, length, engine.vocabulary)
    if text.finished:
        return
    cache = engine.cache(1, text.length)
    if proposer:
        text.begin(proposer)
    costs, holds = Costs(), 0
    try:
        while text.finished is None:
            if text.held < holds:
                cache.cut(0, text.held)
            ids = text.to_read(text.unread)
            holds = text.held
            if proposer is None or len(ids) > 1:
                scores_NV = cache.read([ForwardInput(0, ids, text.near)])
            else:
                guessed = text.guess(costs, engine.vocabulary)
                holds += len(guessed)
                began = time.perf_counter()
                near = None if guessed else text.near
                scores_NV = cache.read(
                    [ForwardInput(0, [*ids, *guessed], near)], every=bool(guessed)
                )
                costs.stepped(time.perf_counter() - began, len(guessed))
            yield from text.draw(scores_NV)
    finally:
        text.close()
        cache.close()
