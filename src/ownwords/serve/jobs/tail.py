"""Reads a log of events as it grows."""

import os
from pathlib import Path

from ownwords.core.progress import Event, parse_event

_MAX_BYTES = 16 << 20  # at once; the rest comes with the next call


class EventTail:
    """Reads the events of a log incrementally, a bounded part of it at a time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._inode = -1

    def read(self) -> tuple[bool, list[Event]]:
        """Return whether the file was replaced, and the events since the last call."""
        try:
            with self._path.open("rb") as file:
                stat = os.fstat(file.fileno())
                is_replaced = stat.st_ino != self._inode or stat.st_size < self._offset
                if is_replaced:
                    self._inode, self._offset = stat.st_ino, 0
                file.seek(self._offset)
                data = file.read(_MAX_BYTES)
        except OSError:  # not there yet, or deleted
            was_there, self._inode, self._offset = self._inode != -1, -1, 0
            return was_there, []
        complete = data.rfind(b"\n") + 1  # the last line may be incomplete
        self._offset += complete
        events = map(parse_event, data[:complete].splitlines())
        return is_replaced, [event for event in events if event is not None]
