"""Continuous batching: texts join and leave a batch without affecting each other's tokens."""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ownwords.core.errors import OwnwordsError
from ownwords.inference.engine import Engine, Logits
from ownwords.inference.generation import (
    FinishReason,
    GeneratedToken,
    GenerationRequest,
    GenerationState,
)

# Prompt tokens per prefill step: while other texts are decoding, and otherwise.
_CHUNK_WHILE_DECODING, _CHUNK = 64, 512
_SHARED_PREFIX_WORTH_WAITING = 16  # prompt tokens that another text is currently prefilling


@dataclass(eq=False, slots=True)
class RequestHandle:
    """A submitted request; `error` is set if it failed."""

    request: GenerationRequest
    finish_reason: FinishReason | None = None
    error: OwnwordsError | None = None
    is_cancelled: bool = False
    is_paused: bool = False  # keeps its row and gets no tokens


@dataclass(eq=False, slots=True)
class Slot:
    """A text that owns a row of the cache."""

    row: int
    handle: RequestHandle
    state: GenerationState


# For each text that advanced: its new tokens, and the finish reason if it ended.
StepOutputs = list[tuple[RequestHandle, list[GeneratedToken], FinishReason | None]]


class BatchScheduler:
    """Generates several texts together.

    Each step decodes the next token of every text and prefills part of new prompts. Rows keep their
    cached tokens, so a request that shares a prefix with a cached text prefills only the rest. A
    text longer than `length` continues from its later half. `submit` and `cancel` may be called
    from other threads than the one that calls `step`.
    """

    def __init__(self, engine: Engine, *, rows: int, length: int) -> None:
        self.length = min(length, engine.context)
        self._vocabulary = engine.vocabulary
        self._cache = engine.cache(rows, self.length)
        # With a single row the whole prompt is prefilled at once, which is faster than in chunks.
        self._chunk = _CHUNK if rows > 1 else self.length
        self._waiting: deque[tuple[RequestHandle, GenerationState]] = deque()
        self._slots: list[Slot] = []
        self._free = list(range(rows))  # least recently used first
        self._freed_ids: list[list[int]] = [[] for _ in range(rows)]  # tokens in each free row

    @property
    def busy(self) -> bool:
        """Whether any text is unfinished."""
        return bool(self._slots or self._waiting)

    def submit(self, request: GenerationRequest) -> RequestHandle:
        """Queue a request. Raises OwnwordsError for ids outside the vocabulary."""
        handle = RequestHandle(request)
        self._waiting.append((handle, GenerationState(request, self.length, self._vocabulary)))
        return handle

    def cancel(self, handle: RequestHandle) -> None:
        """Stop generating; later steps return no output for the request."""
        handle.is_cancelled = True

    def close(self) -> None:
        """Release the memory; unfinished texts are lost."""
        self._slots.clear()
        self._waiting.clear()
        self._cache.close()

    def step(self) -> StepOutputs:
        """Advance every text by a token; return the new tokens and which texts ended."""
        for slot in [slot for slot in self._slots if slot.handle.is_cancelled]:
            self._release(slot)
        outputs: StepOutputs = []
        if self._waiting:
            self._admit(outputs)
        is_alone = len(self._slots) == 1
        active = [slot for slot in self._slots if not slot.handle.is_paused]
        slots = [slot for slot in active if slot.state.uncached == 1]
        inputs = [slot.state.next_input(slot.row, 1, is_alone=is_alone) for slot in slots]
        budget = _CHUNK_WHILE_DECODING if slots else self._chunk
        for slot in active:
            if slot.state.uncached and budget:
                prompt_chunk = slot.state.next_input(slot.row, budget, is_alone=is_alone)
                budget -= len(prompt_chunk.ids)
                slots.append(slot)
                inputs.append(prompt_chunk)
        if inputs:
            self._sample(slots, self._cache.forward(inputs), outputs)
        return outputs

    def _sample(self, slots: Sequence[Slot], logits_NV: Logits, outputs: StepOutputs) -> None:
        for slot, logits_V in zip(slots, logits_NV, strict=True):
            state, handle = slot.state, slot.handle
            if state.uncached:
                continue
            token = None
            try:
                token = state.sample(logits_V)
            except OwnwordsError as error:  # concerns this request only
                handle.error, state.finish_reason = error, "error"
            handle.finish_reason = state.finish_reason
            outputs.append((handle, [token] if token else [], state.finish_reason))
            if state.finish_reason:
                self._release(slot)
            elif not state.cached:  # the text outgrew its row and continues from its later half
                self._cache.truncate(slot.row, 0)

    def _release(self, slot: Slot) -> None:
        self._freed_ids[slot.row] = list(slot.state.cached_ids)
        self._slots.remove(slot)
        self._free.append(slot.row)

    def _admit(self, outputs: StepOutputs) -> None:
        """Give free rows to waiting requests, first come first served."""
        postponed = []
        while self._waiting and self._free:
            handle, state = self._waiting.popleft()
            if handle.is_cancelled:
                continue
            if state.finish_reason:
                handle.finish_reason = state.finish_reason
                outputs.append((handle, [], state.finish_reason))
            elif not self._start(handle, state):
                postponed.append((handle, state))
        self._waiting.extendleft(reversed(postponed))

    def _start(self, handle: RequestHandle, state: GenerationState) -> bool:
        """Give a text a row with the longest cached prefix of it.

        Returns False, to be tried again, while another text is reading much of the same prompt.
        """
        ids = state.context_ids[:-1]  # the last one is always read, for its logits
        state.cached, source = 0, -1
        for row, freed_ids in enumerate(self._freed_ids):
            if (shared := shared_prefix(freed_ids, ids)) > state.cached:
                state.cached, source = shared, row
        for slot in self._slots:
            if (shared := shared_prefix(slot.state.cached_ids, ids)) > state.cached:
                state.cached, source = shared, slot.row
            coming = shared_prefix(slot.state.context_ids, ids)
            if coming - state.cached >= _SHARED_PREFIX_WORTH_WAITING:
                state.cached = 0
                return False
        row = source if source in self._free else self._free[0]
        self._free.remove(row)
        if source not in (row, -1):
            self._cache.copy_prefix(source, row, state.cached)
        self._cache.truncate(row, state.cached)
        self._freed_ids[row] = []
        self._slots.append(Slot(row, handle, state))
        return True


def generate(engine: Engine, request: GenerationRequest) -> Iterator[GeneratedToken]:
    """Generate one text token by token; starts when the first token is requested."""
    scheduler = BatchScheduler(engine, rows=1, length=len(request.ids) + request.max_tokens)
    try:
        handle = scheduler.submit(request)
        while scheduler.busy:
            for _, tokens, _ in scheduler.step():
                if handle.error:
                    raise handle.error
                yield from tokens
    finally:
        scheduler.close()


def shared_prefix(first: Sequence[int], second: Sequence[int]) -> int:
    """Return the number of leading ids that two texts have in common."""
    low, high = 0, min(len(first), len(second))
    if first[:high] == second[:high]:
        return high
    while high - low > 1:  # the first `low` ids agree, the first `high` do not
        middle = (low + high) // 2
        if first[low:middle] == second[low:middle]:
            low = middle
        else:
            high = middle
    return low
