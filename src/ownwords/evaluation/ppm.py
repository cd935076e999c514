"""Prediction by partial matching (PPM) over bytes, as a strong compressor to compare with.

Method D (Howard 1993) with exclusion and update exclusion, as in the PPMd family but without its
inheritance and secondary escapes: simple enough to be checked by hand. In a context with n events
and q different symbols, a symbol seen c times has probability (2c - 1) / 2n, and the escape to the
next shorter context q / 2n; symbols of the longer contexts are excluded there.
"""

import math
from collections.abc import Iterable

END = 256  # end of a document; the bytes are 0 to 255
SYMBOLS = 257


class PPM:
    """PPM model: counts of the symbols that followed each context of up to `order` symbols."""

    def __init__(self, order: int = 5) -> None:
        self.order = order
        # Symbols are characters, so that contexts are slices of a str: the fastest dict keys.
        self._contexts: dict[str, dict[str, int]] = {}
        self._journal: list[tuple[str, str]] | None = None

    def learn(self, documents: Iterable[bytes]) -> None:
        """Count the symbols of documents, including the end of each."""
        for document in documents:
            text = symbols(document)
            for at in range(1, len(text)):
                self._update(text, at)

    def nats(self, document: bytes, *, adaptive: bool = True) -> float:
        """Return the cost of a document and its end, and restore all counts afterwards.

        `adaptive`: count every symbol after scoring it, as a compressor does.
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
        """Return the probability of the symbol `text[at]` given the symbols before it."""
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
            # All symbols are known here, so there is no escape.
            weight = 2 * events
            if len(excluded) + different == SYMBOLS:
                weight -= different
            if wanted in seen:
                return share * (2 * seen[wanted] - 1) / weight
            share *= different / weight
            excluded.update(seen)
        return share / (SYMBOLS - len(excluded))

    def _update(self, text: str, at: int) -> None:
        """Count a symbol in its contexts, from the longest to the first that has seen it before."""
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
    """Return the bytes of a document as characters, with `END` before and after."""
    return f"{chr(END)}{document.decode('latin-1')}{chr(END)}"
