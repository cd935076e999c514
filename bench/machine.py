"""A benchmark and a training in the background take turns on one machine.

`measuring` is for benchmarks: it waits until every `BackgroundWork` has paused, and keeps it
paused. The system drops the locks of a process that dies. The files are in the system's temporary
folder, so that all copies of the repository on a machine share them.
"""

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

if sys.platform == "win32":  # nothing pauses there

    def _lock(file: IO[str], *, shared: bool) -> None: ...

    def _unlock(file: IO[str]) -> None: ...

else:
    import fcntl

    def _lock(file: IO[str], *, shared: bool) -> None:
        fcntl.flock(file, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)

    def _unlock(file: IO[str]) -> None:
        fcntl.flock(file, fcntl.LOCK_UN)


def lock_files(folder: Path | None = None) -> tuple[Path, Path]:
    """Return the locks: benchmarks hold `turn`, running background work `busy` (both shared)."""
    user = os.getuid() if hasattr(os, "getuid") else 0
    directory = folder or Path(tempfile.gettempdir())
    return directory / f"ownwords-{user}-turn.lock", directory / f"ownwords-{user}-busy.lock"


@contextmanager
def measuring(folder: Path | None = None) -> Iterator[None]:
    """Pause background work within the block; several benchmarks may run at once."""
    with ExitStack() as stack:
        turn, busy = (stack.enter_context(path.open("a")) for path in lock_files(folder))
        _lock(turn, shared=True)  # from here on, no background work starts a step
        _lock(busy, shared=False)  # and each has ended the step it was in
        _unlock(busy)
        yield


class BackgroundWork:
    """Work that pauses while a benchmark measures: call `give_way` before each short step."""

    def __init__(self, folder: Path | None = None) -> None:
        self._turn, self._busy = (path.open("a") for path in lock_files(folder))

    def give_way(self) -> None:
        """Wait until no benchmark measures."""
        _unlock(self._busy)
        # Benchmarks hold `turn` shared, so waiting for it alone waits for all of them.
        _lock(self._turn, shared=False)
        _lock(self._busy, shared=True)
        _unlock(self._turn)

    def close(self) -> None:
        """Release the locks."""
        files: tuple[IO[str], ...] = (self._turn, self._busy)
        for file in files:
            file.close()
