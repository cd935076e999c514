"""Prediction by partial matching over bytes: what a good compressor makes of the same text.

Method D (Howard 1993) with exclusion and update exclusion, as in the PPMd family but without its
inheritance and secondary escapes: plain enough to be checked by hand. Where a context of n events
with q different symbols has seen a symbol c times, that symbol has (2c - 1) / 2n and the escape to
the context one shorter has q / 2n; symbols of the contexts escaped from are excluded there.
"""

import math
from collections.abc import Iterable

END = 256  # of a document; the bytes are 0 to 255
SYMBOLS = 257


class PPM:
    """Counts of what followed each context of up to `order` symbols."""

    def __init__(self, order: int = 5) -> None:
        self.order = order
        # Symbols as characters: slices of a str are the quickest keys there are.
        self._contexts: dict[str, dict[str, int]] = {}
        self._journal: list[tuple[str, str]] | None = None

    def learn(self, documents: Iterable[bytes]) -> None:
        """Count documents, each with its end."""
        for document in documents:
            text = symbols(document)
            for at in range(1, len(text)):
                self._update(text, at)

    def nats(self, document: bytes, *, adaptive: bool = True) -> float:
        """What a document costs, its end included; afterwards all counts are as before.

        `adaptive`: every symbol is counted once it is scored, as a compressor does.
        """
        text = symbols(document)
        total = 0.0
        self._journal = []
        try:
            for at in range(1, len(text)):
                total -= math.log(self.probability(text, at))
                if adaptive:
                    self._update(text, at)
        finally:
            self._undo()
        return total

    def probability(self, text: str, at: int) -> float:
        """Of the symbol `text[at]` after those before it."""
        wanted = text[at]
        share = 1.0
        excluded: set[str] = set()
        for length in range(min(self.order, at), -1, -1):
            seen = self._contexts.get(text[at - length : at])
            if seen is None:
                continue
            if excluded:
                seen = {symbol: count for symbol, count in seen.items() if symbol not in excluded}
                if not seen:
                    continue
            events, different = sum(seen.values()), len(seen)
            # With every symbol there is in sight, there is nothing to escape to.
            weight = 2 * events
            if len(excluded) + different == SYMBOLS:
                weight -= different
            if wanted in seen:
                return share * (2 * seen[wanted] - 1) / weight
            share *= different / weight
            excluded.update(seen)
        return share / (SYMBOLS - len(excluded))

    def _update(self, text: str, at: int) -> None:
        """Count a symbol in its contexts, from the longest down to the first that knew it."""
        symbol = text[at]
        contexts = self._contexts
        for length in range(min(self.order, at), -1, -1):
            key = text[at - length : at]
            seen = contexts.get(key)
            if seen is None:
                contexts[key] = {symbol: 1}
                known = 0
            else:
                known = seen.get(symbol, 0)
                seen[symbol] = known + 1
            if self._journal is not None:
                self._journal.append((key, symbol))
            if known:
                return

    def _undo(self) -> None:
        journal, self._journal = self._journal or [], None
        for key, symbol in reversed(journal):
            seen = self._contexts[key]
            if seen[symbol] > 1:
                seen[symbol] -= 1
            else:
                del seen[symbol]
                if not seen:
                    del self._contexts[key]


def symbols(document: bytes) -> str:
    """A document as characters of its bytes, the end of another before it and its own behind."""
    return f"{chr(END)}{document.decode('latin-1')}{chr(END)}"
