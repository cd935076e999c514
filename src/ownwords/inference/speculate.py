"""Guessing what comes next, so that a model checks several tokens in the time of one.

The guess changes nothing of the text: each position is drawn as it would have been, with its own
luck, and what was guessed after the first difference is forgotten.
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from ownwords.core.errors import OwnwordsError
from ownwords.inference.engine import Cache, Engine, ForwardInput
from ownwords.inference.sampling import Sampler, SamplingParams, draw_uniform

_KEPT, _REMEMBERED = 0.8, 6.0  # of the guesses before: what share counts, and at most how many
_NEW = 0.3  # the share by which a measurement changes what costs are taken to be
_PLACES = 32  # where the same few tokens stood before that are looked at


class Guesses(Protocol):
    """Guesses for one text; each time it is given anew, and has grown."""

    def propose(self, history: Sequence[int], most: int) -> Sequence[int]: ...
    def close(self) -> None: ...


class Proposer(Protocol):
    """Where guesses come from; a text has `prompt` tokens before the first that is drawn."""

    def begin(self, prompt: int, sampling: SamplingParams, seed: int) -> Guesses: ...


class PromptLookup:
    """What followed when the last few tokens stood in the text before.

    A gift for answers that quote what they were given. Of several places the latest counts, of
    several lengths from `longest` to `shortest` the longest.
    """

    def __init__(self, longest: int = 4, shortest: int = 2) -> None:
        if not 1 <= shortest <= longest:
            raise OwnwordsError(
                f"runs of {shortest} to {longest} tokens cannot be looked up",
                hint="the shortest must be at least 1 and at most the longest",
            )
        self.longest, self.shortest = longest, shortest

    def begin(self, prompt: int, sampling: SamplingParams, seed: int) -> Guesses:
        return _Lookup(self.longest, self.shortest)


class _Lookup:
    """Where each run of the shortest length ends, the latest first: it grows with the text."""

    def __init__(self, longest: int, shortest: int) -> None:
        self._longest, self._shortest = longest, shortest
        self._last: dict[tuple[int, ...], int] = {}
        # By the end of a run that of the same run before; 0: there is none.
        self._before = [0] * shortest

    def propose(self, history: Sequence[int], most: int) -> Sequence[int]:
        last, before, shortest = self._last, self._before, self._shortest
        for end in range(len(before), len(history)):
            run = tuple(history[end - shortest : end])
            before.append(last.get(run, 0))
            last[run] = end
        best, place = 0, last.get(tuple(history[-shortest:]), 0)
        found = 0
        for _ in range(_PLACES):
            if not place:
                break
            same = self._same(history, place, best)
            if same > best:
                best, found = same, place
                if best == self._longest:
                    break
            place = before[place]
        return history[found : found + most] if found else ()

    def _same(self, history: Sequence[int], end: int, best: int) -> int:
        """How long the run that ends there is also that of the end, if longer than the best."""
        size = max(best, self._shortest)
        if best and history[end - size - 1 : end] != history[-size - 1 :]:
            return 0
        while size < self._longest and size < end and history[end - size - 1] == history[-size - 1]:
            size += 1
        return size

    def close(self) -> None:
        self._last.clear()


class Draft:
    """What a smaller model with the same tokenizer would write.

    It draws with the text's own luck, so that it agrees as often as the two models allow.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._free: list[Cache] = []  # of texts that have ended

    def begin(self, prompt: int, sampling: SamplingParams, seed: int) -> Guesses:
        cache = self._free.pop() if self._free else self.engine.cache(1, self.engine.context)
        cache.cut(0, 0)
        return _Drafted(cache, self._free, Sampler(sampling, self.engine.vocabulary), prompt, seed)


class _Drafted:
    def __init__(
        self,
        cache: Cache,
        free: list[Cache],
        chooser: Sampler,
        prompt: int,
        seed: int,
    ) -> None:
        self._cache, self._free, self._chooser = cache, free, chooser
        self._prompt, self._seed = prompt, seed
        self._start = 0  # of the text, where what the cache holds begins
        self._read: list[int] = []  # what it holds

    def propose(self, history: Sequence[int], most: int) -> Sequence[int]:
        length = self._cache.length
        most = min(most, length - 1)
        if len(history) - self._start + most > length:
            self._start = len(history) - max(1, (length - most) // 2)
            self._read = []
        text = list(history)
        wanted = text[self._start :]
        # The last must be read again in any case: its scores were not kept.
        same = min(shared(self._read, wanted), len(wanted) - 1)
        self._cache.cut(0, same)
        self._read, unread = wanted[:same], wanted[same:]
        is_known = max(unread) < self._chooser.vocabulary  # not of the larger model alone
        if most < 1 or not is_known:
            return ()
        looks_back = self._chooser.sampling.looks_back
        for _ in range(most):
            scores_V = self._cache.read([ForwardInput(0, unread)])[0]
            uniform = draw_uniform(self._seed, len(text) - self._prompt)
            seen_N = np.array(text if looks_back else (), np.int32)
            try:
                chosen = self._chooser.choose(
                    scores_V, seen_N, len(seen_N), uniform, prompt=self._prompt
                )
            except OwnwordsError:  # nothing it may choose; whoever asked will see for itself
                self._read = text[self._start :]
                return text[len(history) :]
            unread = [chosen]
            text += unread
        self._read = text[self._start : -1]
        return text[len(history) :]

    def close(self) -> None:
        self._free.append(self._cache)


class Pace:
    """How many guesses are worth checking in one text, learned from how many were right.

    The k-th guess is right with the k-th power of the share that is right, and is worth it while
    that is more than what it costs. Where none is, none is made for a while, each time for longer;
    then a single one shows whether the text has changed.
    """

    def __init__(self, most: int = 16) -> None:
        self._most = most
        self._right, self._checked = 0.5, 1.0
        self._rest, self._next_rest = 0, 4
        self._trying = False

    def length(self, cost: float) -> int:
        """How many to guess now, where one costs such a share of a step."""
        if self._rest:
            self._rest -= 1
            return 0
        if self._trying:
            return 1
        share, count = self._right / self._checked, 0
        worth = share
        while count < self._most and worth > cost:
            count, worth = count + 1, worth * share
        if count == 0:
            self._rest, self._next_rest = self._next_rest, min(2 * self._next_rest, 64)
            self._right, self._checked, self._trying = 0.0, 0.5, True
        return count

    def learn(self, guessed: int, right: int) -> None:
        """So many were guessed, so many of these were right before the first that was not."""
        self._trying = False
        self._right = _KEPT * self._right + right
        self._checked = _KEPT * self._checked + right + (right < guessed)
        if self._checked > _REMEMBERED:  # what was right for long may have just ended
            self._right *= _REMEMBERED / self._checked
            self._checked = _REMEMBERED
        if right:
            self._next_rest = 4


class Costs:
    """What a guess costs to make and to check, as a share of a step; measured while writing."""

    def __init__(self) -> None:
        self._step_s = 0.0
        self._check, self._guess = 0.1, 0.0

    @property
    def each(self) -> float:
        return self._check + self._guess

    def guessed(self, seconds: float, guesses: int) -> None:
        """So many guesses were made in that time."""
        if self._step_s:
            self._guess += _NEW * (min(seconds / guesses / self._step_s, 1.0) - self._guess)

    def stepped(self, seconds: float, guesses: int) -> None:
        """A step in which so many guesses were checked took so long."""
        if guesses == 0:
            # The least counts, since whatever disturbs adds; a text that grows slows its steps.
            self._step_s = min(seconds, 1.05 * self._step_s) if self._step_s else seconds
        elif self._step_s:
            share = (seconds / self._step_s - 1) / guesses
            self._check += _NEW * (min(max(share, 0.01), 1.0) - self._check)


def shared(first: Sequence[int], second: Sequence[int]) -> int:
    """How many ids two texts have in common before they differ."""
    low, high = 0, min(len(first), len(second))
    if first[:high] == second[:high]:
        return high
    while high - low > 1:  # the first `low` are the same, the first `high` are not
        middle = (low + high) // 2
        if first[low:middle] == second[low:middle]:
            low = middle
        else:
            high = middle
    return low
