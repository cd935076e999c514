"""Many texts at once: they come and go while others are under way, and none is changed by it."""

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from ownwords.core.errors import OwnwordsError
from ownwords.inference.engine import Engine, Feed, Scores
from ownwords.inference.generation import Drawn, Finished, Request, Text
from ownwords.inference.speculate import Costs, Proposer, shared

# Of a prompt, tokens read in a step: while others wait for their next token, and while none does.
_PIECE, _WHOLE = 64, 512
_WORTH_WAITING = 16  # tokens of a prompt that another text is just reading


@dataclass(eq=False, slots=True)
class Ticket:
    """A request that was handed in; `error` is why it came to nothing, if it did."""

    request: Request
    finished: Finished | None = None
    error: OwnwordsError | None = None
    is_cancelled: bool = False


@dataclass(eq=False, slots=True)
class _Seat:
    """A text that has a row of the cache."""

    row: int
    ticket: Ticket
    text: Text
    guessed: int = 0  # tokens of the last read


Told = list[tuple[Ticket, list[Drawn], Finished | None]]


class Desk:
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
        self._waiting: deque[tuple[Ticket, Text]] = deque()
        self._seats: list[_Seat] = []
        self._free = list(range(rows))  # the one that was left first is the first
        self._left: list[list[int]] = [[] for _ in range(rows)]  # what each row held then

    @property
    def busy(self) -> bool:
        """Whether there is anything left to write."""
        return bool(self._seats or self._waiting)

    def submit(self, request: Request) -> Ticket:
        """Hand a request in. OwnwordsError for ids that are not in the vocabulary."""
        ticket = Ticket(request)
        self._waiting.append((ticket, Text(request, self.length, self._vocabulary)))
        return ticket

    def cancel(self, ticket: Ticket) -> None:
        """Write no further; no step that begins from now on tells of it."""
        ticket.is_cancelled = True

    def close(self) -> None:
        """Give the memory back; what is under way is lost."""
        for seat in self._seats:
            seat.text.close()
        self._seats.clear()
        self._waiting.clear()
        self._cache.close()

    def step(self) -> Told:
        """Every text's next tokens, and whether it ends with them."""
        for seat in [seat for seat in self._seats if seat.ticket.is_cancelled]:
            self._leave(seat)
        told: Told = []
        if self._waiting:
            self._admit(told)
        writing = [seat for seat in self._seats if seat.text.unread == 1]
        feeds, guesses = [], 0
        for seat in writing:
            ids = seat.text.to_read(1)
            if self._proposer is not None:
                guessed = seat.text.guess(self._costs, self._vocabulary)
                seat.guessed = len(guessed)
                guesses += seat.guessed
                ids = [*ids, *guessed]
            # Where there are several their scores are found together.
            near = seat.text.near if len(self._seats) == 1 and not seat.guessed else None
            feeds.append(Feed(seat.row, ids, near))
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

    def _pieces(self, budget: int) -> tuple[list[_Seat], list[Feed]]:
        """Of the prompts that are not read yet as much as that, of the first to come first."""
        seats, feeds = [], []
        for seat in self._seats:
            if seat.text.unread and budget:
                ids = seat.text.to_read(budget)
                budget -= len(ids)
                seats.append(seat)
                feeds.append(Feed(seat.row, ids))
        return seats, feeds

    def _draw(self, seats: Sequence[_Seat], scores_NV: Scores, told: Told) -> None:
        first = 0
        for seat in seats:
            text, end = seat.text, first + 1 + seat.guessed
            holds = text.held + seat.guessed
            if not text.unread:
                drawn: list[Drawn] = []
                try:
                    drawn = text.draw(scores_NV[first:end])
                except OwnwordsError as error:  # of this request, and none of the others'
                    seat.ticket.error, text.finished = error, "error"
                if text.held < holds:
                    self._cache.cut(seat.row, text.held)
                told.append((seat.ticket, drawn, text.finished))
                if text.finished:
                    seat.ticket.finished = text.finished
                    self._leave(seat)
            first, seat.guessed = end, 0

    def _leave(self, seat: _Seat) -> None:
        self._left[seat.row] = list(seat.text.row)
        seat.text.close()
        self._seats.remove(seat)
        self._free.append(seat.row)

    def _admit(self, told: Told) -> None:
        """Give free rows to those who wait, the first to come first."""
        later = []
        while self._waiting and self._free:
            ticket, text = self._waiting.popleft()
            if ticket.is_cancelled:
                continue
            if text.finished:
                ticket.finished = text.finished
                told.append((ticket, [], text.finished))
            elif not self._begin(ticket, text):
                later.append((ticket, text))
        self._waiting.extendleft(reversed(later))

    def _begin(self, ticket: Ticket, text: Text) -> bool:
        """Give a text a row, with what is there of it already.

        Not yet where another text is just reading much the same, as when several are to be
        written after one prompt.
        """
        ids = text.to_read(text.unread - 1)  # the last is read in any case, for its scores
        text.held, source = 0, -1
        for row, left in enumerate(self._left):
            if (same := shared(left, ids)) > text.held:
                text.held, source = same, row
        for seat in self._seats:
            if (same := shared(seat.text.row, ids)) > text.held:
                text.held, source = same, seat.row
            if shared(seat.text.coming, ids) - text.held >= _WORTH_WAITING:
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
        self._seats.append(_Seat(row, ticket, text))
        return True
