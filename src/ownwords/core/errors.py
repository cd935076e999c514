"""Errors that the user can fix: one sentence each, and what to do about it."""

from collections.abc import Iterator
from contextlib import contextmanager


class OwnwordsError(Exception):
    """An error in the input or the environment, never a bug.

    `message` says what happened and what was seen; `hint` says what to do. The command line prints
    both without a traceback and exits with status 2.
    """

    def __init__(self, message: str, hint: str = "") -> None:
        # Messages quote file contents, which may not be printable.
        self.message = message.encode("utf-8", "backslashreplace").decode()
        self.hint = hint
        super().__init__(self.message)

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


class SourceError(OwnwordsError):
    """A blog, export or folder cannot be read."""


class CorpusError(OwnwordsError):
    """The texts were read but cannot be used."""


class WorkspaceError(OwnwordsError):
    """The workspace folder cannot be used: locked, read-only, full, or not a workspace."""


class InUseError(WorkspaceError):
    """Another process has locked the workspace."""


class ConfigError(OwnwordsError):
    """A setting or field has an unknown name or an invalid value."""


@contextmanager
def resumable(sentence: str) -> Iterator[None]:
    """Add the sentence to a KeyboardInterrupt in the block, unless it already has a message."""
    try:
        yield
    except KeyboardInterrupt as error:
        if str(error):
            raise
        raise KeyboardInterrupt(sentence) from None
