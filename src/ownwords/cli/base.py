"""`ownwords base`."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter
from rich.table import Table
from rich.text import Text

from ownwords.base import catalogue
from ownwords.cli.line_chart import LOUD, QUIET
from ownwords.cli.optional_packages import require_package
from ownwords.cli.options import DEFAULTS, CommonOptions
from ownwords.cli.parameters import SourcePath
from ownwords.cli.training import TRAINING, TrainingOptions, train
from ownwords.core.errors import OwnwordsError
from ownwords.core.progress import printable
from ownwords.core.workspace import source_name
from ownwords.training.forecast import number, size

if TYPE_CHECKING:
    from rich.console import Console

    from ownwords.base.catalogue import Entry

_HEADINGS = ("name", "parameters", "family", "size", "bits a byte", "from")
_FIGURES = frozenset({"parameters", "size", "bits a byte"})

app = App(
    name="base",
    help="The models that tuning may begin with: the one in the box, and others.",
    help_epilogue="ownwords base VERB --help explains each and shows an example.",
    help_format="plaintext",
    usage="Usage: ownwords base [VERB] [OPTIONS]",
    version_flags=(),
)

Name = Annotated[
    str,
    Parameter(
        help="What it is called from now on. [default: as the model, folder or workspace is]",
        show_default=False,
    ),
]


@app.command(
    name="list",
    usage="Usage: ownwords base [list] [OPTIONS]",
    help_epilogue="Example: ownwords base list --json",
    sort_key=0,
)
@app.default
def listed(*, common: CommonOptions = DEFAULTS) -> None:
    """List the bases: how large they are, where they came from."""
    found = catalogue.entries()
    figures = {
        "bases": [_figures(each) for each in found],
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
    """Compare the files with their checksums, see that they fit each other, and open the model."""
    from ownwords.base import checks

    if name:
        folders = {name: catalogue.find(name)}
    else:
        folders = {each.name: each.folder for each in catalogue.entries()}
    if not folders:
        catalogue.shipped()  # raises the sentence for an install without one
    problems: dict[str, list[str]] = {}
    with common.watched() as (progress, _):
        for each, folder in folders.items():
            with progress.stage(f"Verifying {each}"):
                problems[each] = checks.verify(folder)
    wrong = {each: found for each, found in problems.items() if found}
    if wrong:
        said = "; ".join(f"{each}: {', '.join(found)}" for each, found in wrong.items())
        hints = {catalogue.SHIPPED: "install ownwords again"}
        again = [hints.get(each, f"remove {each} and add it again") for each in wrong]
        raise OwnwordsError(f"not as it should be: {said}", hint=", ".join(again))
    figures = {"verified": {each: str(folder) for each, folder in folders.items()}}
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
            help="A model directory, which is copied, or ORG/NAME of a model on huggingface.co:"
            " GPT-2, Llama, Qwen3 or Gemma 3, with safetensors. HF_ENDPOINT names another hub,"
            " HF_TOKEN who asks.",
        ),
    ],
    /,
    *,
    name: Name = "",
    common: CommonOptions = DEFAULTS,
) -> None:
    """Put another model among the bases; what a hub sends is checked, and no code is fetched."""
    from ownwords.base import install

    with common.watched() as (progress, _), _kept():
        folder = install.add(source, name, progress=progress)
    _show_added(folder, common)


@app.command(
    usage="Usage: ownwords base remove NAME [OPTIONS]",
    help_epilogue="Example: ownwords base remove gpt2",
    sort_key=3,
)
def remove(
    name: Annotated[str, Parameter(name="NAME", help="A base that was added.")],
    /,
    *,
    common: CommonOptions = DEFAULTS,
) -> None:
    """Take an added base away, or what came of one that was never fetched whole."""
    from ownwords.base import install

    freed = install.remove(name)
    common.show(
        {"removed": name, "bytes": freed},
        lambda console: console.print(Text(f"{name} is gone: {size(freed)}")),
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
    """Train a model from nothing, as `ownwords pretrain` does, and put it among the bases."""
    require_package("torch", "training a model")
    from ownwords.base import install
    from ownwords.training import recipes

    name = name or source_name(paths[0])
    install.check_free(name)  # now, and not when the hours are spent
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


@contextmanager
def _kept() -> Iterator[None]:
    """Say that an interrupted download is kept."""
    try:
        yield
    except KeyboardInterrupt:
        raise KeyboardInterrupt(
            "what was downloaded is kept; the same command resumes it"
        ) from None


def _figures(each: "Entry") -> dict[str, Any]:
    return asdict(each) | {"folder": str(each.folder)}


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
    console.print(Text(f"Begin with it: ownwords make PATH --base {found.name}"), soft_wrap=True)


def _print_list(found: Sequence["Entry"], console: "Console") -> None:
    console.print()
    if not catalogue.has_shipped():
        console.print(Text("This install came without the model in the box.", style=LOUD))
        console.print(
            Text("Install it again, or begin with another: ownwords base add ORG/NAME"),
            soft_wrap=True,
        )
        console.print()
    if found:
        console.print(_table(found))
        console.print()
    for each in found:
        if each.problem:
            console.print(Text(f"{each.name} cannot be used: {printable(each.problem)}"))
    usable = [each.name for each in found if not each.problem]
    if usable:
        text = f"Begin with one: ownwords make PATH --base {usable[-1]}"
        console.print(Text(text, style=QUIET), soft_wrap=True)
    if any(each.bits_per_byte is not None for each in found):
        text = "Bits a byte are on texts held out when it was made, each base on its own."
        console.print(Text(text, style=QUIET))


def _table(found: Sequence["Entry"]) -> Table:
    table = Table.grid(padding=(0, 2))
    for heading in _HEADINGS:
        table.add_column(
            justify="right" if heading in _FIGURES else "left",
            no_wrap=heading != "from",
            overflow="fold",
        )
    table.add_row(*(Text(heading, style=QUIET) for heading in _HEADINGS))
    for each in found:
        bits = each.bits_per_byte
        table.add_row(
            Text(each.name, style=LOUD),
            Text(number(each.parameters) if each.parameters else "?"),
            Text(each.family or "?"),
            Text(size(each.bytes)),
            Text(f"{bits:.3f}" if bits is not None else "-"),
            Text(printable(each.source)),
        )
    return table


def _print_verified(names: Sequence[str], console: "Console") -> None:
    for name in names:
        console.print(
            Text(name, style=LOUD).append("  whole; it opens and reads", style="not bold")
        )
