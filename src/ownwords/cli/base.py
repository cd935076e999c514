"""`ownwords base`."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from ownwords.base import catalogue, estimates, trimming
from ownwords.base.estimates import BaseOption, TuningTask
from ownwords.cli.options import DEFAULTS, CommonOptions, with_help
from ownwords.cli.output import confirm, examples, stderr
from ownwords.core.errors import OwnwordsError, resumable
from ownwords.core.workspace import resolve_workspace
from ownwords.models.directory import CARD
from ownwords.view.blocks import Span, Table
from ownwords.view.format import number, size
from ownwords.view.terminal import BOLD, DIM, TerminalWriter

if TYPE_CHECKING:
    from rich.console import Console

    from ownwords.base.catalogue import Entry, KnownBase

_HEADINGS = ("name", "params", "size", "license", "memory", "min", "bits", "installed")
_RESUMES = "what was downloaded is saved; the same command resumes"

app = App(
    name="base",
    help="The models that training can start from: the built-in one, and others.",
    help_epilogue="ownwords base COMMAND --help explains a command, with examples.",
    help_format="plaintext",
    usage="Usage: ownwords base [COMMAND] [OPTIONS]",
    version_flags=(),
)


@app.command(
    name="list",
    help_epilogue=examples("base list", "", "--json"),
    sort_key=0,
)
@app.default
def listed(*, common: CommonOptions = DEFAULTS) -> None:
    """List the bases, with the time, memory and quality to expect of tuning each here."""
    task, listed = _task(common.workspace), estimates.base_options()
    bases = [task.figures(option) for option in listed]
    figures = {
        "bases": bases,
        "has_shipped": catalogue.has_shipped(),
        "folder": str(catalogue.bases_folder()),
        "text_bytes": task.text_bytes,
    }
    common.show(figures, lambda console: _print_list(listed, bases, task, console))


def _task(workspace: Path | None) -> TuningTask:
    """Return the task of tuning on the workspace's texts, or on a usual blog without one."""
    from ownwords.archive.corpus import read_corpus

    try:
        place = resolve_workspace(workspace, Path.cwd())
    except OwnwordsError:
        if workspace:
            raise
        return estimates.task_here()
    texts = read_corpus(place.archive).train
    is_english = trimming.are_english([text.text for text in texts])
    return estimates.task_here(texts.bytes, len(texts), is_english=is_english)


@app.command(
    help_epilogue=examples("base add", "smollm2-135m", "openai-community/gpt2 --name gpt2"),
    sort_key=1,
)
@with_help
def add(
    source: Annotated[str, Parameter(name="SOURCE")],
    /,
    *,
    name: str = "",
    accept_terms: str = "",
    common: CommonOptions = DEFAULTS,
) -> None:
    """Add a model to the bases; downloads are checked, and no code is downloaded.

    Args:
        source: A name from `ownwords base list`; a model directory or a workspace with a model,
            which is copied; a GGUF file, which is converted; or ORG/NAME of a model on
            huggingface.co: GPT-2, Llama, Qwen2, Qwen3 or Gemma 3, with safetensors. HF_ENDPOINT
            selects another hub, HF_TOKEN gives access to gated models.
        name: The base's name here. [default: the name of the model, folder or workspace]
        accept_terms: Accept the terms of use of the base with this name; --yes does not. [default:
            ask]
    """
    from ownwords.base import install

    known = catalogue.find_known(source)
    if known and known.terms and not accept_terms and _accepts(known, common):
        accept_terms = known.name
    with common.watched() as (progress, _), resumable(_RESUMES):
        progress.expect("download")
        progress.expect("open")
        progress.begin("download")
        folder = install.add(source, name, progress=progress, accepted_terms=accept_terms)
    found = catalogue.entry(folder.name, folder)
    figures = estimates.task_here().figures(BaseOption.of(found))
    common.show(figures, lambda console: _print_added(found, console))


def _accepts(known: "KnownBase", common: CommonOptions) -> bool:
    """Show the terms of a base, and ask; return False if nobody can be asked."""
    # --yes does not accept terms, nor prevent the question.
    if known.terms is None or not replace(common, yes=False).may_ask:
        return False
    writer = TerminalWriter(stderr())
    writer.line(f"{known.name} is subject to the {known.terms.title}", BOLD)
    writer.copied(known.terms.url)
    writer.line(known.terms.gist)
    return confirm("Do you accept these terms?", default=False)


@app.command(
    help_epilogue=examples("base remove", "gpt2", "smollm2-135m --yes"),
    sort_key=2,
)
@with_help
def remove(
    name: Annotated[str, Parameter(name="NAME")],
    /,
    *,
    common: CommonOptions = DEFAULTS,
) -> None:
    """Remove an added base, or an interrupted download.

    Args:
        name: A base that you added.
    """
    from ownwords.base import install

    freed = install.remove(name)
    common.show(
        {"removed": name, "bytes": freed},
        lambda console: console.print(f"Removed {name}, which frees {size(freed)}", markup=False),
    )


def _print_added(found: "Entry", console: "Console") -> None:
    writer = TerminalWriter(console)
    what = f"  {number(found.parameters)} parameters, {size(found.bytes)}"
    writer.line([Span(text=found.name, style="strong"), what])
    writer.copied(f"To start from it: ownwords make PATH --base {found.name}")


def _print_list(
    listed: Sequence[BaseOption],
    bases: Sequence[Mapping[str, Any]],
    task: TuningTask,
    console: "Console",
) -> None:
    writer = TerminalWriter(console)
    writer.space()
    if not catalogue.has_shipped():
        writer.line("The built-in model is missing from this installation.", BOLD)
        writer.line("Install ownwords again, or add a base: ownwords base add ORG/NAME")
        writer.space()
    writer.blocks([Table(heads=_HEADINGS, rows=[_row(base) for base in bases])])
    writer.space()
    entries = [option.entry for option in listed if option.entry]
    for entry in entries:
        if entry.problem:
            writer.line(f"{entry.name} cannot be used: {entry.problem}")
        if entry.text_licenses:
            writer.line(
                f"{entry.name} was trained on texts under {', '.join(entry.text_licenses)};"
                f" {entry.folder / CARD} names their authors.",
                DIM,
            )
    if large := [base["name"] for base in bases if base["is_too_large"]]:
        writer.line(f"Too large for the free memory: {', '.join(large)}.")
    language = "in English" if task.is_english else "in another language"
    writer.line(
        "Memory, minutes and bits per byte are estimates for this machine, with"
        f" {size(task.text_bytes)} of text {language}, read once. Bits per byte depend on the blog"
        " and show how well a model predicts new posts: lower is better. ? means not measured.",
        DIM,
    )
    usable = [entry.name for entry in entries if not entry.problem]
    if usable:
        writer.copied(f"ownwords make PATH --base {usable[-1]}", "To start from one: ")
    if known := [option.name for option in listed if not option.entry]:
        writer.copied(f"ownwords base add {known[0]}", "To add one: ")


def _row(base: Mapping[str, Any]) -> list[str]:
    memory, minutes, bits = (
        base[name] for name in ("memory_bytes", "minutes", "expected_bits_per_byte")
    )
    return [
        base["name"],
        _short(base["parameters"]) if base["parameters"] else "?",
        size(base["bytes"] or 0),
        base["license"] or "-",
        size(memory) if memory else "?",
        f"{math.ceil(minutes)}" if minutes else "?",
        f"{bits[0]:.1f}-{bits[1]:.1f}" if bits else "?",
        "yes" if base["is_installed"] else "no",
    ]


def _short(parameters: int) -> str:
    billions = parameters / 1e9
    return f"{billions:.3g}B" if billions >= 0.9995 else f"{1000 * billions:.3g}M"
