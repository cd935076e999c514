"""Stop strings: a text ends where one of them would begin, wherever tokens divide it.

Of a text that is written on and on, the first stop string to be complete ends it; of several that
are complete at once, the one that began first. What is shown does not depend on the pieces in which
the text comes: only what may yet become a stop string is held back, and no longer than that.
"""

from collections.abc import Sequence

from ownwords.core.errors import ConfigError


class StopMatcher:
    """Follows one text. `found` is the stop string that ended it, None as long as none did."""

    def __init__(self, stops: Sequence[str]) -> None:
        if isinstance(stops, str) or not all(stops):
            raise ConfigError(
                f"stop strings should be texts that are not empty, and are {[*stops]!r:.80}",
                hint="an empty one would end every text before it begins",
            )
        self.found: str | None = None
        self._stops = tuple(dict.fromkeys(stops))
        self._held = ""

    def feed(self, piece: str) -> str:
        """What of the text can be shown now that this piece has come; nothing after the end."""
        if self.found is not None:
            return ""
        text = self._held + piece
        ends = [(at + len(stop), at, stop) for stop in self._stops if (at := text.find(stop)) >= 0]
        if ends:
            _, begin, self.found = min(ends)
            self._held = ""
            return text[:begin]
        held = max((_begun(text, stop) for stop in self._stops), default=0)
        self._held = text[len(text) - held :]
        return text[: len(text) - held]

    def finish(self) -> str:
        """What was held back, where the text ended without becoming a stop string."""
        held, self._held = self._held, ""
        return held


def _begun(text: str, stop: str) -> int:
    """How many characters at the end of the text begin this stop string."""
    for size in range(min(len(text), len(stop) - 1), 0, -1):
        if text.endswith(stop[:size]):
            return size
    return 0
