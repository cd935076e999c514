"""Options and checks that several verbs share."""

import importlib.util
import inspect
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from cyclopts import Parameter

from ownwords.archive.settings import LookSettings
from ownwords.archive.untrusted_files import read_lines
from ownwords.cli.output import are_terminals, choose, print_json, shown_default, stdout
from ownwords.cli.progress_view import ProgressView
from ownwords.core.config import Resolved, resolve, settings_of
from ownwords.core.errors import ConfigError, OwnwordsError
from ownwords.core.packages import install_command
from ownwords.core.progress import Progress, reporting_job
from ownwords.core.workspace import Workspace
from ownwords.training.settings import Recipe

if TYPE_CHECKING:
    from rich.console import Console

    from ownwords.archive.analysis import AskAuthor, PostQuestion

T = TypeVar("T")

FILE = "ownwords.toml"
_STDIN = "-"
# Each optional package: its name for people, and the extra that installs it.
_PACKAGES = {
    "torch": ("PyTorch", "train"),
    "gguf": ("the package gguf", "train"),
    "huggingface_hub": ("the package huggingface_hub", "train"),
    "tokenizers": ("the package tokenizers", "embed"),
    "mcp": ("the package mcp", "mcp"),
    "pygls": ("the package pygls", "lsp"),
}
_LIKE_AN_OPTION = re.compile(r"--?[A-Za-z][\w-]*(=.*)?", re.DOTALL)


@dataclass(frozen=True)
class Settings(LookSettings, Recipe):
    """The settings by section: those of a training run and those of reading an archive."""


# --- one option -----------------------------------------------------------------------------------


def with_help(command: T) -> T:
    """Join the lines of each argument's help in a docstring; cyclopts shows them as they are."""
    command.__doc__ = re.sub(r"\n {8}", " ", inspect.cleandoc(command.__doc__ or ""))
    return command


def setting(key: str, help: str) -> Parameter:
    """Return the parameter of an option that sets `key`; its help gives the setting's default."""
    default = next(known.default for known in settings_of(Settings()) if known.key == key)
    negative = f"--no-{key.partition('.')[2]}"
    return Parameter(
        negative=negative, help=f"{help} [default: {shown_default(default)}; setting {key}]"
    )


SourcePath = Annotated[
    Path,
    Parameter(
        name="PATH",
        required=True,
        help="A blog, an export, a feed or a folder of texts, as `ownwords look` takes them.",
    ),
]
WorkspaceOption = Annotated[
    Path | None,
    Parameter(help="The workspace. [default: this folder, or the only NAME.ownwords here]"),
]
TrainingDevice = Annotated[
    str, Parameter(help="Train on cpu, cuda, rocm, mps or xpu; auto takes the best that works.")
]
Device = Annotated[
    str, Parameter(help="Run on cpu, cuda, rocm, mps or xpu; auto takes cuda if it works.")
]
NoTrim = Annotated[
    bool,
    Parameter(
        help="Keep the whole vocabulary of a large base, not only the tokens that your texts need."
    ),
]


# --- the options of every verb --------------------------------------------------------------------


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
@with_help
class OutputOptions:
    """How results and progress are printed.

    Args:
        json: Print the result as one JSON object; ask nothing.
        quiet: Print nothing but the result.
        yes: Ask nothing; accept what is proposed.
    """

    json: bool = False
    quiet: bool = False
    yes: bool = False

    @property
    def may_ask(self) -> bool:
        """Whether somebody can answer questions."""
        return are_terminals(sys.stdin, sys.stderr) and not self.json and not self.yes

    @contextmanager
    def watched(self) -> Iterator[tuple[Progress, "AskAuthor | None"]]:
        """Yield the progress, shown on stderr, and how to ask the user; None if they cannot be."""
        view = None if self.quiet else ProgressView()
        progress = Progress(*([view] if view else []))

        def ask(question: "PostQuestion") -> str:
            with view.paused() if view else nullcontext():
                return choose(
                    question.title, question.options, text=question.text, default=question.default
                )

        with closing(view) if view else nullcontext(), reporting_job(progress, os.environ):
            yield progress, ask if self.may_ask else None

    def show(self, figures: Mapping[str, Any], print_text: Callable[["Console"], None]) -> None:
        """Print the result on stdout, as JSON or as text."""
        if self.json:
            print_json(figures)
        else:
            print_text(stdout())


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
@with_help
class CommonOptions(OutputOptions):
    """The options of every verb with a workspace and settings.

    Args:
        workspace: Folder for all results. [default: ./NAME.ownwords, named after the blog]
        config: A TOML file of settings; it overrides ownwords.toml here and in the workspace.
            [default: none]
        sets: Change a setting: KEY=VALUE; may be repeated. [default: none]
    """

    workspace: Path | None = None
    config: Path | None = None
    sets: Annotated[tuple[str, ...], Parameter(name="--set")] = ()

    def resolve(self, flags: Mapping[str, object], workspace: Path | None) -> Resolved[Settings]:
        """Return the settings from this folder, the workspace, the file given, and the options."""
        files = [Path(FILE)]
        if workspace and workspace.absolute() != Path.cwd():
            files.append(workspace / FILE)
        files = [file for file in files if file.exists()]
        files += [self.config] if self.config else []
        return resolve(Settings, toml=files, sets=self.sets, flags=flags)

    def workspace_for(self, paths: Sequence[Path]) -> Workspace:
        """Return the workspace that the user named, or the default one of the first path."""
        from ownwords.archive.ingest import workspace_for

        return Workspace(self.workspace) if self.workspace else workspace_for(paths[0])


OUTPUT, DEFAULTS = OutputOptions(), CommonOptions()


# --- checks that several verbs make ---------------------------------------------------------------


def text_of(words: Sequence[str], verb: str) -> str:
    """Return the text given as words on the command line, or standard input for "-"."""
    if option := next(filter(_LIKE_AN_OPTION.fullmatch, words), None):
        raise ConfigError(f"unknown option: {option}", hint=f"{verb} --help")
    if list(words) != [_STDIN]:
        return " ".join(words)
    if sys.stdin is None:  # closed by the parent process
        raise OwnwordsError("there is no standard input to read", hint="give the text itself")
    try:
        return sys.stdin.buffer.read().decode("utf-8").rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise OwnwordsError(
            f"standard input is not UTF-8: {error.reason} at byte {error.start}",
            hint="convert it: iconv -f WINDOWS-1252 -t UTF-8 FILE",
        ) from error


def text_in(path: Path | None, what: str) -> str:
    """Return the text of a file, or standard input for None or "-"; the error names `what`."""
    if path is not None and str(path) != _STDIN:
        return read_lines(path)
    if path is None and are_terminals(sys.stdin):
        raise OwnwordsError(f"ownwords needs {what}", hint="give a text file, or pipe a text in")
    return text_of([_STDIN], "")


def check_positive(option: str, value: int | None) -> None:
    """Raise ConfigError for a count below 1; None passes."""
    if value is not None and value < 1:
        raise ConfigError(f"{option} must be 1 or more, not {value}")


def require_package(package: str, purpose: str) -> None:
    """Raise OwnwordsError if a package is missing, without importing it."""
    if importlib.util.find_spec(package) is None and (missing := missing_package(package, purpose)):
        raise missing


def missing_package(package: str, purpose: str = "this") -> OwnwordsError | None:
    """Return the error that says how to install an optional package; None for any other."""
    if package not in _PACKAGES:
        return None
    name, extras = _PACKAGES[package]
    return OwnwordsError(
        f"{purpose} needs {name}, which is not installed",
        hint=install_command(extras),
    )
