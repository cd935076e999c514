"""An n-gram model over bytes: interpolated Kneser-Ney with three discounts (Chen & Goodman 1998).

The model is static: it does not adapt to the text it scores. Every distribution sums to one over
the 256 bytes and the end of a document.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from ownwords.evaluation.ppm import END, SYMBOLS, symbols

_BORDER = chr(END)
_FEW = (0.5, 0.75, 1.0)  # discounts where there is too little data to estimate them


@dataclass(slots=True)
class _Followers:
    """The symbols that follow one context: counts, their sum, and the discounted mass."""

    counts: dict[str, int] = field(default_factory=dict)
    total: int = 0
    freed: float = 0.0


class KneserNey:
    """Kneser-Ney model of n-grams with `order` symbols, including the predicted one."""

    def __init__(self, documents: Iterable[bytes], order: int = 7) -> None:
        self.order = order
        full = Counter[str]()
        shorter = Counter[str]()  # n-grams at the start of a document
        for document in documents:
            text = symbols(document)
            full.update(text[at : at + order] for at in range(len(text) - order + 1))
            shorter.update(text[:length] for length in range(2, min(order, len(text) + 1)))
        self._contexts: dict[str, _Followers] = {}
        self._discounts: list[tuple[float, float, float]] = []
        grams = full
        for length in range(order, 0, -1):
            self._discounts.insert(0, self._keep(grams))
            # Lower orders use continuation counts: in how many contexts an n-gram was seen.
            # At the start of a document there is no context, so occurrences are counted.
            grams = Counter(gram[1:] for gram in grams if length > 1)
            for gram, count in shorter.items():
                if len(gram) == length - 1:
                    grams[gram] = count

    def nats(self, document: bytes) -> float:
        """Return the cost of a document and its end."""
        text = symbols(document)
        return -math.fsum(math.log(self.probability(text, at)) for at in range(1, len(text)))

    def probability(self, text: str, at: int) -> float:
        """Return the probability of the symbol `text[at]` given the symbols before it."""
        value = 1 / SYMBOLS
        for length in range(min(self.order - 1, at) + 1):
            followers = self._contexts.get(text[at - length : at])
            if followers is None:  # longer contexts were not seen either
                break
            count = followers.counts.get(text[at], 0)
            discounted = count - self._discount(length, count)
            value = (discounted + followers.freed * value) / followers.total
        return value

    def _keep(self, grams: Counter[str]) -> tuple[float, float, float]:
        """Store the n-grams of one length by context and return their discounts."""
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
    """Return the discounts for n-grams seen once, twice and more often.

    `times`: how many n-grams were seen 1, 2, 3 and 4 times.
    """
    if not all(times):
        return _FEW
    y = times[0] / (times[0] + 2 * times[1])
    once, twice, more = (n - (n + 1) * y * times[n] / times[n - 1] for n in (1, 2, 3))
    # Replace estimates outside the range in which every probability is positive.
    return (
        once if 0 < once < 1 else _FEW[0],
        twice if 0 < twice < 2 else _FEW[1],
        more if 0 < more < 3 else _FEW[2],
    )
