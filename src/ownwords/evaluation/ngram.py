"""An n-gram model over bytes: interpolated Kneser-Ney with three discounts (Chen & Goodman 1998).

Static: it is counted once. Every distribution sums to one over the 256 bytes and the end.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from ownwords.evaluation.ppm import END, SYMBOLS, symbols

_BORDER = chr(END)
_FEW = (0.5, 0.75, 1.0)  # discounts where there is too little to estimate them from


@dataclass(slots=True)
class _Followers:
    """What follows one context: its counts, their sum, and how much the discounts set free."""

    counts: dict[str, int] = field(default_factory=dict)
    total: int = 0
    freed: float = 0.0


class KneserNey:
    """Of `order` symbols, the one predicted among them."""

    def __init__(self, documents: Iterable[bytes], order: int = 7) -> None:
        self.order = order
        full = Counter[str]()
        shorter = Counter[str]()  # those that begin a document, where nothing stands before
        for document in documents:
            text = symbols(document)
            full.update(text[at : at + order] for at in range(len(text) - order + 1))
            shorter.update(text[:length] for length in range(2, min(order, len(text) + 1)))
        self._contexts: dict[str, _Followers] = {}
        self._discounts: list[tuple[float, float, float]] = []
        grams = full
        for length in range(order, 0, -1):
            self._discounts.insert(0, self._keep(grams))
            # A lower order counts in how many contexts a gram was seen, not how often.
            grams = Counter(gram[1:] for gram in grams if length > 1)
            for gram, count in shorter.items():
                if len(gram) == length - 1:
                    grams[gram] = count

    def nats(self, document: bytes) -> float:
        """What a document costs, its end included."""
        text = symbols(document)
        return -math.fsum(math.log(self.probability(text, at)) for at in range(1, len(text)))

    def probability(self, text: str, at: int) -> float:
        """Of the symbol `text[at]` after those before it."""
        value = 1 / SYMBOLS
        for length in range(min(self.order - 1, at) + 1):
            followers = self._contexts.get(text[at - length : at])
            if followers is None:  # then no longer one was seen either
                break
            count = followers.counts.get(text[at], 0)
            discounted = count - self._discount(length, count)
            value = (discounted + followers.freed * value) / followers.total
        return value

    def _keep(self, grams: Counter[str]) -> tuple[float, float, float]:
        """File the grams of one length by their contexts; their discounts."""
        times = Counter(grams.values())
        discounts = _discounts([times[n] for n in (1, 2, 3, 4)])
        contexts: dict[str, _Followers] = defaultdict(_Followers)
        for gram, count in grams.items():
            followers = contexts[gram[:-1]]
            followers.counts[gram[-1]] = count
            followers.total += count
            followers.freed += discounts[min(count, 3) - 1]
        self._contexts.update(contexts)
        return discounts

    def _discount(self, length: int, count: int) -> float:
        return self._discounts[length][min(count, 3) - 1] if count else 0.0


def _discounts(times: list[int]) -> tuple[float, float, float]:
    """For grams seen once, twice, more often, from how many were seen 1, 2, 3 and 4 times."""
    if not all(times):
        return _FEW
    y = times[0] / (times[0] + 2 * times[1])
    once, twice, more = (n - (n + 1) * y * times[n] / times[n - 1] for n in (1, 2, 3))
    # The estimates may leave the range in which every probability is positive.
    return (
        once if 0 < once < 1 else _FEW[0],
        twice if 0 < twice < 2 else _FEW[1],
        more if 0 < more < 3 else _FEW[2],
    )
