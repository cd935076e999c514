"""What goes wrong in a way the user can mend: one clear sentence, and what to do about it."""


class OwnwordsError(Exception):
    """A mistake in the input or the surroundings, told in one sentence; never a bug of ours.

    `message` says what happened and what was seen; `hint` says what to do. The command line prints
    both without a traceback and ends with status 2.
    """

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


class SourceError(OwnwordsError):
    """What was given as a blog, export or folder cannot be read."""


class CorpusError(OwnwordsError):
    """The texts were read, but nothing can be done with them."""


class WorkspaceError(OwnwordsError):
    """The workspace folder cannot be used: locked, unwritable, full, or not one of ours."""


class InUseError(WorkspaceError):
    """Another process is working in the workspace."""


class ConfigError(OwnwordsError):
    """A setting has an unknown name or a value of the wrong kind."""
