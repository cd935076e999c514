"""Word wrap for text that arrives in pieces."""

from collections.abc import Callable, Iterable
from typing import IO

from rich.cells import cell_len

from ownwords.core.progress import printable


class StreamingWordWrap:
    """Writes pieces to a stream as lines of `width` columns behind a margin, word by word.

    `shown` turns a word into what the stream can show, without control characters.
    """

    def __init__(
        self,
        stream: IO[str],
        *,
        width: int,
        margin: int = 0,
        shown: Callable[[str], str] = printable,
    ) -> None:
        self._stream, self._shown = stream, shown
        self._limit, self._margin = max(8, width - margin), " " * margin
        self._column = 0  # columns used
        self._gap = ""  # the space before the next word
        self._word = ""

    def write(self, pieces: Iterable[str]) -> None:
        """Write all pieces, then end the line, also when interrupted."""
        try:
            for piece in pieces:
                self.add(piece)
        finally:
            self.end()

    def add(self, piece: str) -> None:
        """Add a piece of the text."""
        for letter in piece:
            if letter.isspace():
                self._put_word()
                self._gap += letter
            else:
                self._word += letter
                # Scripts without spaces break at the end of the line.
                if cell_len(self._word) >= self._limit:
                    self._put_word()
        self._stream.flush()

    def end(self) -> None:
        """Write the last word and end its line."""
        self._put_word()
        if self._column:
            self._stream.write("\n")
        self._column, self._gap = 0, ""
        self._stream.flush()

    def _put_word(self) -> None:
        if not self._word:
            return
        word, size = self._shown(self._word), cell_len(self._word)
        lines = min(2, self._gap.count("\n"))
        if lines and self._column:
            self._stream.write("\n" * lines)
            self._column = 0
        elif self._column and self._gap:
            if self._column + 1 + size > self._limit:
                self._stream.write("\n")
                self._column = 0
            else:
                self._stream.write(" ")
                self._column += 1
        elif self._column and self._column + size > self._limit:
            self._stream.write("\n")
            self._column = 0
        self._stream.write(word if self._column else self._margin + word)
        self._column += size
        self._word = self._gap = ""
