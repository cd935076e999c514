"""Many texts at once: they come and go while others are under way, and none is changed by it."""

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from ownwords.core.errors import OwnwordsError
from ownwords.inference.engine import Engine, ForwardInput, Logits
from ownwords.inference.generation import FinishReason, GeneratedToken, GenerationState, Request
from ownwords.inference.speculate import Costs, Proposer, shared

# Of a prompt, tokens read in a step: while others wait for their next token, and while none does.
_PIECE, _WHOLE = 64, 512
_WORTH_WAITING = 16  # tokens of a prompt that another text is just reading


@dataclass(eq=False, slots=True)
class RequestHandle:
    """A request that was handed in; `error` is why it came to nothing, if it did."""

    request: Request
    finished: FinishReason | None = None
    error: OwnwordsError | None = None
    is_cancelled: bool = False


@dataclass(eq=False, slots=True)
class Slot:
    """A text that has a row of the cache."""

    row: int
    handle: RequestHandle
    text: GenerationState
    guessed: int = 0  # tokens of the last read


Told = list[tuple[RequestHandle, list[GeneratedToken], FinishReason | None]]


class BatchScheduler:
    """Where requests are handed in, and written together.

    Each step gives every text its next tokens, and reads on in the prompts of those that have not
    begun. A row keeps what it has read: a request that begins with it does not read it again.
    Texts longer than `length` go on from their later half. `submit` and `cancel` may be called by
    other threads than the one that calls `step`.
    """

    def __init__(
        self, engine: Engine, *, rows: int, length: int, proposer: Proposer | None = None
    ) -> None:
        self.length = min(length, engine.context)
        self._vocabulary = engine.vocabulary
        self._proposer = proposer
        self._costs = Costs()
        self._cache = engine.cache(rows, self.length)
        self._waiting: deque[tuple[RequestHandle, GenerationState]] = deque()
        self._slots: list[Slot] = []
        self._free = list(range(rows))  # the one that was left first is the first
        self._left: list[list[int]] = [[] for _ in range(rows)]  # what each row held then

    @property
    def busy(self) -> bool:
        """Whether there is anything left to write."""
        return bool(self._slots or self._waiting)

    def submit(self, request: Request) -> RequestHandle:
        """Hand a request in. OwnwordsError for ids that are not in the vocabulary."""
        handle = RequestHandle(request)
        self._waiting.append((handle, GenerationState(request, self.length, self._vocabulary)))
        return handle

    def cancel(self, handle: RequestHandle) -> None:
        """Write no further; no step that begins from now on tells of it."""
        handle.is_cancelled = True

    def close(self) -> None:
        """Give the memory back; what is under way is lost."""
        for slot in self._slots:
            slot.text.close()
        self._slots.clear()
        self._waiting.clear()
        self._cache.close()

    def step(self) -> Told:
        """Every text's next tokens, and whether it ends with them."""
        for slot in [slot for slot in self._slots if slot.handle.is_cancelled]:
            self._leave(slot)
        told: Told = []
        if self._waiting:
            self._admit(told)
        writing = [slot for slot in self._slots if slot.text.unread == 1]
        feeds, guesses = [], 0
        for slot in writing:
            ids = slot.text.to_read(1)
            if self._proposer is not None:
                guessed = slot.text.guess(self._costs, self._vocabulary)
                slot.guessed = len(guessed)
                guesses += slot.guessed
                ids = [*ids, *guessed]
            # Where there are several their scores are found together.
            near = slot.text.near if len(self._slots) == 1 and not slot.guessed else None
            feeds.append(ForwardInput(slot.row, ids, near))
        reading, pieces = self._pieces(_PIECE if writing else _WHOLE)
        began = time.perf_counter()
        if guesses:
            # Apart from the prompts, of which only the last scores are of use.
            scores_NV = self._cache.read(feeds, every=True)
            self._costs.stepped(time.perf_counter() - began, guesses)
            self._draw(writing, scores_NV, told)
            if pieces:
                self._draw(reading, self._cache.read(pieces), told)
        elif feeds or pieces:
            scores_NV = self._cache.read(feeds + pieces)
            if not pieces:
                self._costs.stepped(time.perf_counter() - began, 0)
            self._draw(writing + reading, scores_NV, told)
        return told

    def _pieces(self, budget: int) -> tuple[list[Slot], list[ForwardInput]]:
        """Of the prompts that are not read yet as much as that, of the first to come first."""
        slots, feeds = [], []
        for slot in self._slots:
            if slot.text.unread and budget:
                ids = slot.text.to_read(budget)
                budget -= len(ids)
                slots.append(slot)
                feeds.append(ForwardInput(slot.row, ids))
        return slots, feeds

    def _draw(self, slots: Sequence[Slot], scores_NV: Logits, told: Told) -> None:
        first = 0
        for slot in slots:
            text, end = slot.text, first + 1 + slot.guessed
            holds = text.held + slot.guessed
            if not text.unread:
                drawn: list[GeneratedToken] = []
                try:
                    drawn = text.draw(scores_NV[first:end])
                except OwnwordsError as error:  # of this request, and none of the others'
                    slot.handle.error, text.finished = error, "error"
                if text.held < holds:
                    self._cache.cut(slot.row, text.held)
                told.append((slot.handle, drawn, text.finished))
                if text.finished:
                    slot.handle.finished = text.finished
                    self._leave(slot)
            first, slot.guessed = end, 0

    def _leave(self, slot: Slot) -> None:
        self._left[slot.row] = list(slot.text.row)
        slot.text.close()
        self._slots.remove(slot)
        self._free.append(slot.row)

    def _admit(self, told: Told) -> None:
        """Give free rows to those who wait, the first to come first."""
        later = []
        while self._waiting and self._free:
            handle, text = self._waiting.popleft()
            if handle.is_cancelled:
                continue
            if text.finished:
                handle.finished = text.finished
                told.append((handle, [], text.finished))
            elif not self._begin(handle, text):
                later.append((handle, text))
        self._waiting.extendleft(reversed(later))

    def _begin(self, handle: RequestHandle, text: GenerationState) -> bool:
        """Give a text a row, with what is there of it already.

        Not yet where another text is just reading much the same, as when several are to be
        written after one prompt.
        """
        ids = text.to_read(text.unread - 1)  # the last is read in any case, for its scores
        text.held, source = 0, -1
        for row, left in enumerate(self._left):
            if (same := shared(left, ids)) > text.held:
                text.held, source = same, row
        for slot in self._slots:
            if (same := shared(slot.text.row, ids)) > text.held:
                text.held, source = same, slot.row
            if shared(slot.text.coming, ids) - text.held >= _WORTH_WAITING:
                text.held = 0
                return False
        if source in self._free:
            row = source
            self._free.remove(row)
        else:
            row = self._free.pop(0)
        if source not in (row, -1):
            self._cache.copy(source, row, text.held)
        self._cache.cut(row, text.held)
        self._left[row] = []
        if self._proposer is not None:
            text.begin(self._proposer)
        self._slots.append(Slot(row, handle, text))
        return True
