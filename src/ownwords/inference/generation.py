"""Generates several texts in one batch; no text affects another's tokens.

A text depends only on its request: the random number of draw n is a function of the seed and n.

Shapes: V vocabulary.
"""

import math
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from ownwords.core.errors import ConfigError, OwnwordsError
from ownwords.inference.copy_guard import CopyGuard, GuardedText
from ownwords.inference.engine import Engine, EngineCache, Logits, check_token_ids
from ownwords.inference.sampling import Sampler, SamplingParams, draw_uniform

FinishReason = Literal["stop", "length", "error"]

_MIN_REPEATED, _MAX_REPEATED = 8, 32  # tokens
# Prompt tokens per prefill step while other texts are decoding, and otherwise.
_CHUNK_WHILE_DECODING, _CHUNK = 64, 512
_SHARED_PREFIX_WORTH_WAITING = 16  # prompt tokens in common with a text that is being prefilled
_WORTH_KEEPING = 64  # cached tokens beyond the common prefix for which a row is not overwritten


class LoopDetector:
    """Finds the tokens that would continue a loop.

    A small model that has repeated something three times is likely to repeat it forever. A text
    loops if its last N tokens also occur at some distance before, where N is twice the distance, at
    least 8 and at most 32. So "0000" ends after 9 digits, a sentence of 12 tokens after its third
    occurrence, and a paragraph 32 tokens into its repetition. Measured: docs/log.md.
    """

    def __init__(self) -> None:
        self._ids: list[int] = []
        self._places: dict[tuple[int, int], list[int]] = {}  # where each pair of tokens ended
        self._runs: dict[int, int] = {}  # by distance, the number of last tokens that are repeats

    def add(self, token: int) -> list[int]:
        """Add the next token; return the tokens that would continue a loop after it."""
        ids, place = self._ids, len(self._ids)
        ids.append(token)
        runs = {}
        for distance, run in self._runs.items():
            if ids[place - distance] == token:
                runs[distance] = run + 1
        if place:
            places = self._places.setdefault((ids[place - 1], token), [])
            for earlier in places:
                runs.setdefault(place - earlier, 2)
            places.append(place)
        self._runs = runs
        banned = []
        for distance, run in runs.items():
            if run >= min(_MAX_REPEATED, max(_MIN_REPEATED, 2 * distance)):
                banned.append(ids[-distance])
        return banned


class Opening(Protocol):
    """The bytes that a text must begin with."""

    data: bytes

    def allowed(self, generated: Sequence[int]) -> npt.NDArray[np.uint32] | None:
        """Return the ids that may come next; None once the opening is complete."""


@dataclass(frozen=True, kw_only=True)
class GenerationRequest:
    """A prompt and how to continue it. An id of `stop_ids` ends the text and is not part of it.

    Only the first `vocabulary` ids are sampled (None: all), because a model's vocabulary may be
    padded beyond its tokenizer's. The guard bans nothing within the `opening`.
    """

    ids: Sequence[int]
    max_tokens: int
    sampling: SamplingParams
    vocabulary: int | None = None
    seed: int = 1
    stop_ids: frozenset[int] = frozenset()
    guard: CopyGuard | None = None
    opening: Opening | None = None

    def __post_init__(self) -> None:
        if len(self.ids) == 0:
            raise OwnwordsError(
                "the prompt is empty, and this model has no token that begins a text",
                hint="give the first words",
            )
        for name, low in (("max_tokens", 0), ("vocabulary", 1)):
            value = getattr(self, name)
            if value is not None and value < low:
                raise ConfigError(f"{name} must be {low} or more, not {value}")


class GenerationState:
    """A text while it is generated; `error` is set if it failed.

    Row `row` of the cache holds its tokens from `start` to `read`. A text that outgrows the length
    of its row continues from its second half.
    """

    def __init__(self, request: GenerationRequest, length: int, vocabulary: int) -> None:
        check_token_ids(request.ids, vocabulary)
        self.request = request
        self.finish_reason: FinishReason | None = None if request.max_tokens else "length"
        self.error: OwnwordsError | None = None
        self.is_cancelled = False
        self.row = -1
        self.ids = list(request.ids)
        self.start = self.read = 0
        self._length = length
        self._vocabulary = min(request.vocabulary or vocabulary, vocabulary)
        sampling = request.sampling
        self._sampler = Sampler(sampling, prompt=len(request.ids))
        self._loops = LoopDetector() if sampling.break_loops and sampling.temperature > 0 else None
        self._looping: list[int] = []
        self._guarded = GuardedText(request.guard) if request.guard else None
        self._guarded_tokens = 0  # tokens that the guard has seen
        self._banned: list[int] = []
        self._allowed: npt.NDArray[np.uint32] | None = None  # None: all that are not banned
        self._truncate_to_length()

    def next_ids(self, budget: int) -> Sequence[int]:
        """Return the next ids to read, at most `budget`, and count these as read."""
        ids = self.ids[self.read : self.read + budget]
        self.read += len(ids)
        if self.read == len(self.ids):
            opening = self.request.opening
            self._allowed = opening.allowed(self.ids[len(self.request.ids) :]) if opening else None
            self._banned = self._looping
            if self._guarded is not None:
                new = self.ids[self._guarded_tokens :]
                self._banned = [*self._looping, *self._guarded.append(new)]
                self._guarded_tokens = len(self.ids)
        return ids

    def sample(self, logits_V: Logits) -> int | None:
        """Sample the token after the last one read; None if it ends the text, or fails."""
        request, generated = self.request, len(self.ids) - len(self.request.ids)
        logits_V, banned = logits_V[: self._vocabulary], self._banned
        if self._allowed is not None:
            allowed_V = np.full_like(logits_V, -np.inf)
            allowed_V[self._allowed] = logits_V[self._allowed]
            logits_V, banned = allowed_V, []
        try:
            uniform = draw_uniform(request.seed, generated)
            token = self._sampler.sample(logits_V, uniform, self.ids, banned)
        except OwnwordsError as error:  # concerns this text only
            self.error, self.finish_reason = error, "error"
            return None
        if token in request.stop_ids:
            self.finish_reason = "stop"
            return None
        if self._loops is not None:
            self._looping = self._loops.add(token)
        self.ids.append(token)
        if generated + 1 == request.max_tokens:
            self.finish_reason = "length"
        if len(self.ids) - self.start > self._length:
            self._truncate_to_length()
        return token

    def _truncate_to_length(self) -> None:
        excess = len(self.ids) - self.start - self._length
        if excess > 0:
            # In large steps, so that a long text that grows between requests mostly stays cached.
            step = self._length + 1 - max(1, self._length // 2)
            self.start += -(-excess // step) * step
            self.read = self.start


_IS_CANCELLED = attrgetter("is_cancelled")

# For each text that advanced: its new token, or None if it ended without one.
StepOutputs = list[tuple[GenerationState, int | None]]


class BatchScheduler:
    """Generates several texts together.

    Each step decodes the next token of every text and prefills part of new prompts. Rows keep their
    cached tokens, so a request that shares a prefix with a cached text prefills only the rest.
    `submit` and `cancel` may be called from threads other than the one that calls `step`.
    """

    def __init__(self, engine: Engine, *, rows: int, length: int) -> None:
        self.length = min(length, engine.context)
        self._vocabulary = engine.vocabulary
        self._engine, self._rows = engine, rows
        # With a single row the whole prompt is prefilled at once, which is faster than in chunks.
        self._chunk = _CHUNK if rows > 1 else self.length
        self._waiting: deque[GenerationState] = deque()
        self._running: list[GenerationState] = []
        self._free = list(range(rows))  # least recently used first
        self._freed_ids: list[Sequence[int]] = [()] * rows  # tokens in each free row

    @cached_property
    def _cache(self) -> EngineCache:
        """Allocated by the first step, in its thread: the memory may not suffice."""
        return self._engine.cache(self._rows, self.length)

    @property
    def busy(self) -> bool:
        return bool(self._running or self._waiting)

    def submit(self, request: GenerationRequest) -> GenerationState:
        """Queue a request. Raises OwnwordsError for ids outside the vocabulary."""
        text = GenerationState(request, self.length, self._vocabulary)
        self._waiting.append(text)
        return text

    def cancel(self, text: GenerationState) -> None:
        """Stop generating; later steps return no output for the text."""
        text.is_cancelled = True

    def close(self) -> None:
        """Release the memory; unfinished texts are lost."""
        self._running.clear()
        self._waiting.clear()
        if "_cache" in vars(self):
            self._cache.close()

    def step(self) -> StepOutputs:
        """Advance every text by a token; return the new tokens and which texts ended."""
        outputs: StepOutputs = []
        if self._waiting or any(map(_IS_CANCELLED, self._running)):
            self._admit(outputs)
        texts, inputs, prompts = [], {}, []
        for text in self._running:
            if text.read == len(text.ids) - 1:
                texts.append(text)
                inputs[text.row] = text.next_ids(1)
            else:
                prompts.append(text)
        budget = _CHUNK_WHILE_DECODING if texts else self._chunk
        for text in prompts:
            if budget:
                inputs[text.row] = text.next_ids(budget)
                budget -= len(inputs[text.row])
                texts.append(text)
        if inputs:
            for text, logits_V in zip(texts, self._cache.forward(inputs), strict=True):
                if text.read < len(text.ids):  # a part of a prompt
                    continue
                outputs.append((text, text.sample(logits_V)))
                if text.finish_reason:
                    self._release(text)
                elif text.read == text.start:  # it outgrew its row
                    self._cache.truncate(text.row, 0)
        return outputs

    def score(self, prefix: Sequence[int], continuations: Sequence[Sequence[int]]) -> list[float]:
        """Return the bits that the model assigns to each continuation of a prefix.

        The prefix is read once, and only the part of it that no row has cached.
        """
        longest = len(prefix) + max(map(len, continuations), default=0)
        if longest > self.length:
            raise OwnwordsError(f"{longest} tokens do not fit into {self.length}")
        self._admit([])
        cached, source = self._longest_cached(prefix[:-1])
        row = self._take_row(cached, source)
        try:
            first_1V = self._cache.forward({row: prefix[cached:]})
            bits = []
            for ids in continuations:
                logits_TV = first_1V
                if len(ids) > 1:
                    more = self._cache.forward({row: ids[:-1]}, all_positions=True)
                    logits_TV = np.concatenate([first_1V, more])
                    self._cache.truncate(row, len(prefix))
                logits_TV = logits_TV[: len(ids)].astype(np.float64)
                chosen_T = logits_TV[np.arange(len(ids)), ids]
                nats = (np.logaddexp.reduce(logits_TV, axis=1) - chosen_T).sum()
                bits.append(float(nats / math.log(2)))
            self._freed_ids[row] = prefix
        finally:
            self._free.append(row)
        return bits

    def _release(self, text: GenerationState) -> None:
        # After an error the row may lack the last tokens that should have been read.
        read = min(text.read - text.start, self._cache.cached_length(text.row))
        self._freed_ids[text.row] = text.ids[text.start :][:read]
        self._running.remove(text)
        self._free.append(text.row)

    def _admit(self, outputs: StepOutputs) -> None:
        """Free the rows of cancelled texts, and assign rows to waiting texts in order."""
        for text in list(self._running):
            if text.is_cancelled:
                self._release(text)
        postponed = []
        while self._waiting and self._free:
            text = self._waiting.popleft()
            if text.is_cancelled:
                continue
            if text.finish_reason:
                outputs.append((text, None))
            elif not self._start(text):
                postponed.append(text)
        self._waiting.extendleft(reversed(postponed))

    def _start(self, text: GenerationState) -> bool:
        """Give a text a row with its longest cached prefix.

        Returns False, to be tried again, while another text is reading much of the same prompt.
        """
        ids = text.ids[text.start : -1]  # the last one is always read, for its logits
        cached, source = self._longest_cached(ids)
        for other in self._running:
            coming = shared_prefix(other.ids[other.start :], ids)
            if coming - cached >= _SHARED_PREFIX_WORTH_WAITING:
                return False
        text.read = text.start + cached
        text.row = self._take_row(cached, source)
        self._running.append(text)
        return True

    def _longest_cached(self, ids: Sequence[int]) -> tuple[int, int]:
        """Return the length of the longest cached prefix of the ids, and its row or -1."""
        cached, source = 0, -1
        rows = [(row, stored) for row, stored in enumerate(self._freed_ids) if stored]
        rows += [(other.row, other.ids[other.start : other.read]) for other in self._running]
        for row, stored in rows:
            if (shared := shared_prefix(stored, ids)) > cached:
                cached, source = shared, row
        return cached, source

    def _take_row(self, cached: int, source: int) -> int:
        """Take a free row and make it hold the first `cached` tokens of `source`, and no others."""
        row = source if source in self._free else self._free[0]
        if source >= 0 and len(self._freed_ids[source]) - cached >= _WORTH_KEEPING:
            row = self._free[0]  # keep the source: the user may edit the middle, then the end again
        self._free.remove(row)
        if source not in (row, -1):
            self._cache.copy_prefix(source, row, cached)
        self._cache.truncate(row, cached)
        self._freed_ids[row] = ()
        return row


def generate(engine: Engine, request: GenerationRequest) -> Iterator[int]:
    """Generate the ids of one text; starts when the first token is requested."""
    scheduler = BatchScheduler(engine, rows=1, length=len(request.ids) + request.max_tokens)
    try:
        text = scheduler.submit(request)
        while text.finish_reason is None:
            for _, token in scheduler.step():
                if text.error:
                    raise text.error
                if token is not None:
                    yield token
    finally:
        scheduler.close()


def shared_prefix(first: Sequence[int], second: Sequence[int]) -> int:
    """Return the number of leading ids that two texts have in common."""
    pairs = enumerate(zip(first, second, strict=False))
    return next((place for place, (a, b) in pairs if a != b), min(len(first), len(second)))
