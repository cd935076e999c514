"""The state of one text during generation: its request, its next input and its sampled tokens.

The result depends only on the request: draw n of a text uses a random number derived from the seed
and n, so other texts in the batch never change a token.

Shapes: V vocabulary.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ownwords.core.errors import ConfigError, OwnwordsError
from ownwords.inference.copy_guard import CopyGuard
from ownwords.inference.engine import ForwardInput, LogitRange, Logits, check_token_ids
from ownwords.inference.sampling import (
    SamplingParams,
    draw_uniform,
    log_probabilities,
    sample_token,
    top_logprobs,
)

_MIN_REPEATED, _MAX_REPEATED = 8, 32  # tokens


class LoopDetector:
    """Tells of one text, token by token, which token would continue a loop.

    A small model that has said something three times in a row is likely to go on for ever. A text
    loops if its last tokens repeat those a distance before: by then twice the distance, at least 8
    and at most 32 tokens. So "0000" ends after 9 digits, a sentence of 12 tokens after it has been
    said three times, and a paragraph 32 tokens into its repetition. Of 1,341 posts by five authors
    none has this in its first 400 tokens; of their 1.18 million tokens 67 would have been
    forbidden. Of 56 texts of 400 tokens by tuned models 4 have it (docs/log.md).
    """

    def __init__(self) -> None:
        self._ids: list[int] = []
        self._places: dict[tuple[int, int], list[int]] = {}  # where each pair of tokens ended
        # By distance, how many of the last tokens repeat those so far before them.
        self._runs: dict[int, int] = {}

    def add(self, token: int) -> None:
        """Take note of the next token of the text."""
        ids, place = self._ids, len(self._ids)
        ids.append(token)
        runs = {
            distance: run + 1
            for distance, run in self._runs.items()
            if ids[place - distance] == token
        }
        if place:
            places = self._places.setdefault((ids[place - 1], token), [])
            for earlier in places:
                runs.setdefault(place - earlier, 2)
            places.append(place)
        self._runs = runs

    @property
    def banned(self) -> list[int]:
        """The tokens that would continue a loop; usually none."""
        return [
            self._ids[-distance]
            for distance, run in self._runs.items()
            if run >= min(_MAX_REPEATED, max(_MIN_REPEATED, 2 * distance))
        ]


FinishReason = Literal["stop", "length", "error"]

_LARGE_VOCABULARY = 10_000  # below it, computing a range of the logits saves nothing


@dataclass(frozen=True, kw_only=True)
class GenerationRequest:
    """A prompt and how to continue it. An id of `stop_ids` ends the text and is not part of it.

    Only the first `vocabulary` ids are sampled (None: all), since a model's vocabulary may be
    padded beyond its tokenizer's. `logprobs` is how many of the most likely tokens to report with
    each token; 0 reports no log-probability at all.
    """

    ids: Sequence[int]
    max_tokens: int
    sampling: SamplingParams
    vocabulary: int | None = None
    seed: int = 1
    stop_ids: frozenset[int] = frozenset()
    logprobs: int = 0
    guard: CopyGuard | None = None

    def __post_init__(self) -> None:
        if len(self.ids) == 0:
            raise OwnwordsError(
                "the prompt is empty, and this model has no token that begins a text",
                hint="give the first words",
            )
        for name in ("max_tokens", "logprobs"):
            if getattr(self, name) < 0:
                raise ConfigError(f"{name} should be 0 or more, and is {getattr(self, name)}")
        if self.vocabulary is not None and self.vocabulary < 1:
            raise ConfigError(f"vocabulary should be 1 or more, and is {self.vocabulary}")


@dataclass(frozen=True, slots=True)
class GeneratedToken:
    """A token, its log-probability and the most likely tokens with theirs.

    Log-probabilities are the model's own, before sampling settings, among the tokens that can be
    sampled; None and empty unless requested.
    """

    id: int
    logprob: float | None = None
    alternatives: tuple[tuple[int, float], ...] = ()


class GenerationState:
    """One text while it is generated.

    It tracks how many of its tokens its cache row holds. A text that outgrows `length` continues
    from its later half.
    """

    def __init__(self, request: GenerationRequest, length: int, vocabulary: int) -> None:
        check_token_ids(request.ids, vocabulary)
        self.request = request
        self.length = length
        self.finish_reason: FinishReason | None = None if request.max_tokens else "length"
        self._ids = list(request.ids)
        self._start = 0  # index of the first token in the row
        self.cached = 0  # tokens in the row
        self._prompt = len(self._ids)
        self._vocabulary = min(request.vocabulary or vocabulary, vocabulary)
        request.sampling.check_vocabulary(self._vocabulary)
        samples = request.sampling.temperature > 0
        self._loops = LoopDetector() if request.sampling.break_loops and samples else None
        margin = request.sampling.logit_margin
        self._logit_range: LogitRange | None = None
        if margin is not None and vocabulary >= _LARGE_VOCABULARY and not request.logprobs:
            self._logit_range = LogitRange(margin, self._vocabulary)
        self._truncate_to_length()

    @property
    def uncached(self) -> int:
        """Number of tokens that are not in the cache row yet."""
        return len(self._ids) - self._start - self.cached

    @property
    def cached_ids(self) -> Sequence[int]:
        """The tokens in the row."""
        return self._ids[self._start : self._start + self.cached]

    @property
    def context_ids(self) -> Sequence[int]:
        """The tokens that the row will hold."""
        return self._ids[self._start :]

    @property
    def logit_range(self) -> LogitRange | None:
        """The range of logits that can decide the next token; None for all, as under a ban."""
        return None if self._logit_range is None or self._banned_ids() else self._logit_range

    def next_input(self, row: int, budget: int, *, is_alone: bool = False) -> ForwardInput:
        """Return the next input of at most `budget` ids, and count these as cached."""
        begin = self._start + self.cached
        ids = self._ids[begin : begin + budget]
        self.cached += len(ids)
        # With several rows the logits of all are computed together, without a range.
        return ForwardInput(row, ids, self.logit_range if is_alone and not self.uncached else None)

    def sample(self, logits_V: Logits) -> GeneratedToken | None:
        """Sample the token after the last one read; None if it ends the text."""
        request, length = self.request, len(self._ids)
        logits_V = logits_V[: self._vocabulary]
        uniform = draw_uniform(request.seed, length - self._prompt)
        token = sample_token(
            logits_V,
            request.sampling,
            history=self._ids,
            uniform=uniform,
            banned=self._banned_ids(),
            prompt=self._prompt,
        )
        if token in request.stop_ids:
            self.finish_reason = "stop"
            return None
        if self._loops is not None:
            self._loops.add(token)
        self._ids.append(token)
        if length + 1 - self._prompt == request.max_tokens:
            self.finish_reason = "length"
        self._truncate_to_length()
        if not request.logprobs:
            return GeneratedToken(token)
        logprob = float(log_probabilities(logits_V, [token])[0])
        return GeneratedToken(token, logprob, top_logprobs(logits_V, request.logprobs))

    def _banned_ids(self) -> list[int]:
        """What would continue a loop, or copy too much of the training text."""
        looping = self._loops.banned if self._loops is not None else []
        guard = self.request.guard
        return looping + (guard.banned(self._ids) if guard else [])

    def _truncate_to_length(self) -> None:
        if len(self._ids) - self._start > self.length:
            self._start = len(self._ids) - max(1, self.length // 2)
            self.cached = 0
