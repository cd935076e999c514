"""What tells a damaged archive: checksums of its rows, and SQLite's errors in plain words."""

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path

from ownwords.core.errors import InUseError, WorkspaceError

CHECKSUM_BYTES = 16


class DamagedArchiveError(WorkspaceError):
    """The archive file is damaged; `ownwords look` rebuilds it from the author's own files."""

    def __init__(self, path: Path, reason: str) -> None:
        self.reason = reason
        super().__init__(
            f"{path} is damaged ({reason})",
            hint="run the same `ownwords look` again: it rebuilds the archive from your own files,"
            " which are untouched",
        )


@contextmanager
def translate_sqlite_errors(path: Path) -> Iterator[None]:
    """Translate SQLite's errors to errors that explain what is wrong with the archive at `path`."""
    try:
        yield
    except (sqlite3.ProgrammingError, sqlite3.NotSupportedError):
        raise  # a bug in ownwords
    except UnicodeDecodeError as error:  # SQLite's message quotes damaged bytes
        raise DamagedArchiveError(path, "its schema is garbled") from error
    except sqlite3.DatabaseError as error:
        message = str(error)
        if "full" in message or "disk I/O" in message:
            raise WorkspaceError(
                f"the disk is full or failing: {path} could not be written ({message})",
                hint="free some space and run the command again; the archive is as it was",
            ) from error
        if "locked" in message:
            raise InUseError(
                f"another program is writing to {path}", hint="try again when it has finished"
            ) from error
        if "readonly" in message or "unable to open" in message:
            raise WorkspaceError(
                f"{path} cannot be written: {message}",
                hint="close the program that uses it, or give another folder to --workspace",
            ) from error
        raise DamagedArchiveError(path, message) from error


def checksum(rows: Iterable[Sequence[object]]) -> bytes:
    """A digest of rows of text, numbers and bytes, in order."""
    digest = blake2b(digest_size=CHECKSUM_BYTES)
    for row in rows:
        for value in row:
            data = (
                value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogatepass")
            )
            # Include the type: a flipped bit can turn a text into a blob of the same bytes.
            digest.update(b"%s %d:" % (type(value).__name__.encode(), len(data)))
            digest.update(data)
        digest.update(b"\n")
    return digest.digest()
