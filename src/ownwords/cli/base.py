"""`ownwords base`."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from ownwords.base import catalogue, known_bases
from ownwords.base.expected_bits import ExpectedBits, TuningTask, curve_of
from ownwords.cli.options import DEFAULTS, CommonOptions, OutputOptions, described
from ownwords.cli.output import confirm, stderr
from ownwords.core.errors import OwnwordsError, resumable
from ownwords.models import directory
from ownwords.models.directory import CARD
from ownwords.view.blocks import Span, Table
from ownwords.view.format import number, size
from ownwords.view.terminal import BOLD, DIM, TerminalWriter

if TYPE_CHECKING:
    from rich.console import Console

    from ownwords.base.catalogue import Entry
    from ownwords.base.known_bases import KnownBase

_HEADINGS = ("name", "params", "size", "license", "memory", "minutes", "bits", "installed")
_RESUMES = "what was downloaded is saved; the same command resumes"
_BLOG_BYTES = 250_000  # of the text that the needs in the list are for

app = App(
    name="base",
    help="The models that training can start from: the one in the box, and others.",
    help_epilogue="ownwords base VERB --help explains each and shows an example.",
    help_format="plaintext",
    usage="Usage: ownwords base [VERB] [OPTIONS]",
    version_flags=(),
)


@app.command(
    name="list",
    help_epilogue="Example: ownwords base list --json",
    sort_key=0,
)
@app.default
def listed(*, common: CommonOptions = DEFAULTS) -> None:
    """List the bases with their sizes and origins."""
    found = catalogue.entries()
    here = {entry.name for entry in found}
    known = [base for base in known_bases.KNOWN_BASES if base.name not in here]
    figures = {
        "bases": [_figures(entry) for entry in found],
        "known": [_figures(base) for base in known],
        "has_shipped": catalogue.has_shipped(),
        "folder": str(catalogue.bases_folder()),
    }
    common.show(figures, lambda console: _print_list(found, known, console))


@app.command(
    usage="Usage: ownwords base verify [OPTIONS] [NAME]",
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
                problems[entry] = catalogue.verify(folder)
    wrong = {entry: found for entry, found in problems.items() if found}
    if wrong:
        details = "; ".join(f"{entry}: {', '.join(found)}" for entry, found in wrong.items())
        hints = {catalogue.SHIPPED: "install ownwords again"}
        again = [hints.get(entry, f"remove {entry} and add it again") for entry in wrong]
        raise OwnwordsError(f"verification failed: {details}", hint=", ".join(again))
    figures = {"verified": {entry: str(folder) for entry, folder in folders.items()}}
    common.show(figures, lambda console: _print_verified(list(folders), console))


@app.command(
    help_epilogue="Example: ownwords base add openai-community/gpt2 --name gpt2",
    sort_key=2,
)
def add(
    source: Annotated[
        str,
        Parameter(
            name="SOURCE",
            help="A name from `ownwords base list`, a model directory or a workspace with a model,"
            " which is copied, a GGUF file, which is converted, or ORG/NAME of a model on"
            " huggingface.co: GPT-2, Llama, Qwen3 or Gemma 3, with safetensors. HF_ENDPOINT names"
            " another hub, HF_TOKEN gives access to gated models.",
        ),
    ],
    /,
    *,
    name: Annotated[
        str,
        described("Its name from now on. [default: the name of the model, folder or workspace]"),
    ] = "",
    accept_terms: Annotated[
        str,
        described(
            "Accept the terms of use of the base of this name; --yes does not. [default: ask]"
        ),
    ] = "",
    common: CommonOptions = DEFAULTS,
) -> None:
    """Add a model to the bases; downloads are checked, and no code is downloaded."""
    from ownwords.base import install

    known = known_bases.find_known(source)
    if known and known.terms and not accept_terms and _accepts(known, common):
        accept_terms = known.name
    with common.watched() as (progress, _), resumable(_RESUMES):
        progress.expect("download")
        progress.expect("open")
        progress.begin("download")
        folder = install.add(source, name, progress=progress, accepted_terms=accept_terms)
    found = catalogue.entry(folder.name, folder, "added")
    common.show(_figures(found), lambda console: _print_added(found, console))


def _accepts(known: "KnownBase", common: CommonOptions) -> bool:
    """Show the terms of a base, and ask; False where nobody can be asked."""
    # --yes accepts no terms, and forbids no question about them.
    if known.terms is None or not OutputOptions(json=common.json).may_ask:
        return False
    writer = TerminalWriter(stderr())
    writer.line(f"{known.name} comes under the {known.terms.title}", BOLD)
    writer.copied(known.terms.url)
    writer.line(known.terms.gist)
    return confirm("Do you accept these terms?", default=False)


@app.command(
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
        lambda console: console.print(f"{name} is removed: {size(freed)} freed", markup=False),
    )


def _figures(base: "Entry | KnownBase") -> dict[str, Any]:
    """A base as `--json` prints it, with what tuning it takes here, where that was measured."""
    if isinstance(base, known_bases.KnownBase):
        source = base.repository
        figures = {
            "name": base.name,
            "repository": base.repository,
            "parameters": base.parameters,
            "download_bytes": base.download_bytes,
            "license": base.license,
            "languages": base.languages,
            "terms": base.terms.url if base.terms else None,
        }
    else:
        source = base.source
        license = directory.license_of(base.folder)
        figures = asdict(base) | {"folder": str(base.folder), "license": license}
    task = TuningTask(0, _BLOG_BYTES, flops_per_s=ExpectedBits.load().flops_per_s())
    curve = curve_of(base.name, source)
    seconds = task.reading_s(curve) if curve else None
    return figures | {
        "memory_bytes": curve.memory_bytes if curve else None,
        "reading_s": seconds,
        "expected_bits_per_byte": task.bits(curve, seconds) if curve else None,
    }


def _print_added(found: "Entry", console: "Console") -> None:
    writer = TerminalWriter(console)
    what = f"  {number(found.parameters)} parameters, {found.family}, {size(found.bytes)}"
    writer.line([Span(text=found.name, style="strong"), what])
    writer.copied(f"To start from it: ownwords make PATH --base {found.name}")


def _print_verified(names: Sequence[str], console: "Console") -> None:
    writer = TerminalWriter(console)
    for name in names:
        writer.line([Span(text=name, style="strong"), "  complete; it opens and works"])


def _print_list(found: Sequence["Entry"], known: Sequence["KnownBase"], console: "Console") -> None:
    writer = TerminalWriter(console)
    writer.space()
    if not catalogue.has_shipped():
        writer.line("This installation lacks the model in the box.", BOLD)
        writer.line("Install ownwords again, or add a base: ownwords base add ORG/NAME")
        writer.space()
    bases: list[Entry | KnownBase] = [*found, *known]
    rows = [_row(_figures(base)) for base in bases]
    writer.blocks([Table(heads=_HEADINGS, rows=rows)])
    writer.space()
    for entry in found:
        if entry.problem:
            writer.line(f"{entry.name} cannot be used: {entry.problem}")
        if entry.text_licenses:
            writer.line(
                f"{entry.name} has read texts under {', '.join(entry.text_licenses)};"
                f" {entry.folder / CARD} names their authors.",
                DIM,
            )
    writer.line(
        f"Memory, minutes and bits per byte: to tune it once on a blog of {size(_BLOG_BYTES)} in"
        " English on this machine, and what to expect of it then; - was not measured.",
        DIM,
    )
    usable = [entry.name for entry in found if not entry.problem]
    if usable:
        writer.copied(f"ownwords make PATH --base {usable[-1]}", "To start from one: ")
    if known:
        writer.copied(f"ownwords base add {known[0].name}", "To add one: ")


def _row(base: Mapping[str, Any]) -> list[str]:
    memory, seconds, bits = (
        base[name] for name in ("memory_bytes", "reading_s", "expected_bits_per_byte")
    )
    return [
        base["name"],
        f"{base['parameters'] / 1e6:.3g}M" if base["parameters"] else "?",
        size(base.get("bytes") or base.get("download_bytes") or 0),
        base["license"] or "-",
        size(memory) if memory else "-",
        f"{seconds / 60:.1f}" if seconds else "-",
        f"{bits:.2f}" if bits else "-",
        {catalogue.SHIPPED: "in the box", "added": "yes"}.get(base.get("origin", ""), "no"),
    ]
