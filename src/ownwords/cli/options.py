"""What every verb takes, and what it does with it."""

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from ownwords.cli.all_settings import Settings, settings_files
from ownwords.cli.output import are_terminals, ask, print_json, stdout
from ownwords.cli.progress_bars import ProgressBars
from ownwords.core.config import Resolved, resolve, settings_of
from ownwords.core.progress import Progress

if TYPE_CHECKING:
    from rich.console import Console

    from ownwords.archive.analysis import AskAuthor


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Common:
    """The options all verbs share."""

    workspace: Annotated[
        Path | None,
        Parameter(help="Folder for all that is made. [default: ./NAME.ownwords, after the blog]"),
    ] = None
    config: Annotated[
        Path | None,
        Parameter(
            help="A file of settings (TOML); it wins over ownwords.toml here and in the workspace."
            " [default: none]"
        ),
    ] = None
    sets: Annotated[
        tuple[str, ...],
        Parameter(
            name="--set",
            negative=(),
            show_default=False,
            help="Change one setting, as KEY=VALUE; may be given again. [default: none]",
        ),
    ] = ()
    yes: Annotated[
        bool,
        Parameter(
            negative=(),
            show_default=False,
            help="Ask nothing, take what is proposed. [default: no]",
        ),
    ] = False
    json: Annotated[
        bool,
        Parameter(
            negative=(),
            show_default=False,
            help="All figures as one JSON object on stdout; asks nothing. [default: no]",
        ),
    ] = False
    quiet: Annotated[
        bool,
        Parameter(negative=(), show_default=False, help="Show no progress. [default: no]"),
    ] = False

    def resolve(self, flags: Mapping[str, object], workspace: Path | None) -> Resolved[Settings]:
        """The settings in force for this command, in the workspace it works on."""
        return resolve(
            Settings,
            toml=settings_files(workspace, self.config),
            env=os.environ,
            sets=self.sets,
            flags=flags,
        )

    @contextmanager
    def watched(self) -> Iterator[tuple[Progress, "AskAuthor | None"]]:
        """Progress on stderr, and how to ask; None where there is nobody to be asked."""
        may_ask = are_terminals(sys.stdin, sys.stderr) and not (self.yes or self.json)
        if self.quiet:
            yield Progress(), (lambda question: ask(question, None)) if may_ask else None
            return
        with closing(ProgressBars()) as bars:
            yield Progress(bars), (lambda question: ask(question, bars)) if may_ask else None

    def show(self, figures: Mapping[str, Any], print_text: Callable[["Console"], None]) -> None:
        """The result on stdout: as JSON where it was asked for, else as text."""
        if self.json:
            print_json(figures)
        else:
            print_text(stdout())


DEFAULTS = Common()


def setting(key: str, help: str) -> Parameter:
    """A flag that stands for a setting: its help says the default, which only the setting knows."""
    default = next(known.default for known in settings_of(Settings()) if known.key == key)
    if isinstance(default, bool):
        default = "yes" if default else "no"
    return Parameter(help=f"{help} [default: {default}; setting {key}]")
