"""All settings, and the options that every verb has."""

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from ownwords.archive.settings import ArchiveConfig, ProvenanceConfig, SplitConfig
from ownwords.cli.output import are_terminals, ask, print_json, stdout
from ownwords.cli.parameters import described, flag
from ownwords.cli.progress_bars import ProgressBars
from ownwords.core.config import Resolved, resolve, settings_of
from ownwords.core.progress import Progress, logged_job
from ownwords.core.workspace import Workspace
from ownwords.training.settings import Recipe

if TYPE_CHECKING:
    from rich.console import Console

    from ownwords.archive.analysis import AskAuthor

FILE = "ownwords.toml"


@dataclass(frozen=True)
class Settings(Recipe):
    """The settings, by section: those of a training run, and those of reading an archive."""

    archive: ArchiveConfig = field(default_factory=ArchiveConfig)
    provenance: ProvenanceConfig = field(default_factory=ProvenanceConfig)
    split: SplitConfig = field(default_factory=SplitConfig)


def settings_files(workspace: Path | None, config: Path | None) -> list[Path]:
    """The files to read, the later winning: this folder's, the workspace's, the one asked for."""
    files = [Path(FILE)]
    if workspace and workspace.absolute() != Path.cwd():
        files.append(workspace / FILE)
    return [file for file in files if file.exists()] + ([config] if config else [])


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class CommonOptions:
    """The options that every verb has."""

    workspace: Annotated[
        Path | None,
        Parameter(help="Folder for all results. [default: ./NAME.ownwords, named after the blog]"),
    ] = None
    config: Annotated[
        Path | None,
        Parameter(
            help="A TOML file of settings; it overrides ownwords.toml here and in the workspace."
            " [default: none]"
        ),
    ] = None
    sets: Annotated[
        tuple[str, ...],
        described("Change a setting: KEY=VALUE; may be repeated. [default: none]", name="--set"),
    ] = ()
    yes: Annotated[
        bool,
        flag("Ask nothing; accept what is proposed."),
    ] = False
    json: Annotated[
        bool,
        flag("Print all figures as one JSON object; ask nothing."),
    ] = False
    quiet: Annotated[
        bool,
        flag("Show no progress."),
    ] = False

    def resolve(self, flags: Mapping[str, object], workspace: Path | None) -> Resolved[Settings]:
        """The settings in force, with those of the workspace."""
        return resolve(
            Settings,
            toml=settings_files(workspace, self.config),
            env=os.environ,
            sets=self.sets,
            flags=flags,
        )

    def workspace_for(self, paths: Sequence[Path]) -> Workspace:
        """The workspace the user named, or the default one of the first path."""
        return Workspace(self.workspace) if self.workspace else Workspace.default_for(paths[0])

    @contextmanager
    def watched(self) -> Iterator[tuple[Progress, "AskAuthor | None"]]:
        """Progress on stderr, and how to ask the user; None where nobody can be asked."""
        may_ask = are_terminals(sys.stdin, sys.stderr) and not (self.yes or self.json)
        bars = None if self.quiet else ProgressBars()
        progress = Progress(*([bars] if bars else []))
        with closing(bars) if bars else nullcontext(), logged_job(progress, os.environ):
            yield progress, (lambda question: ask(question, bars)) if may_ask else None

    def show(self, figures: Mapping[str, Any], print_text: Callable[["Console"], None]) -> None:
        """Print the result on stdout, as JSON or as text."""
        if self.json:
            print_json(figures)
        else:
            print_text(stdout())


DEFAULTS = CommonOptions()


def setting(key: str, help: str) -> Parameter:
    """The parameter of a flag that sets `key`; its help takes the default from the setting."""
    default = next(known.default for known in settings_of(Settings()) if known.key == key)
    if isinstance(default, bool):
        default = "yes" if default else "no"
    return Parameter(help=f"{help} [default: {default}; setting {key}]")
