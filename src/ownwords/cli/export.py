"""`ownwords export`."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from ownwords.cli.options import DEFAULTS, CommonOptions, require_package, with_help
from ownwords.core.workspace import resolve_model
from ownwords.view.terminal import DIM, TerminalWriter

if TYPE_CHECKING:
    from rich.console import Console

    from ownwords.inference.export import ExportResult


@with_help
def export(
    model: Annotated[Path, Parameter(name="--model")],
    *,
    to: Literal["hf", "gguf", "ollama", "zip", "adapter"],
    type: Literal["f32", "f16", "bf16", "q8_0", "q4_0"] | None = None,
    out: Path | None = None,
    common: CommonOptions = DEFAULTS,
) -> None:
    """Read a model and write it in another format.

    Args:
        model: A model directory, a GGUF file, or a workspace with one.
        to: The format: a model directory, a GGUF file, a folder for `ollama create`, a zip of the
            directory, or the LoRA alone, for PEFT.
        type: The type of the weights. [default: unchanged for hf, f16 for gguf, q8_0 for ollama]
        out: Where to write it. [default: next to the model, named after it]
    """
    require_package("torch", "exporting a model")
    from ownwords.inference.export import export as export_model

    model = resolve_model(model, Path.cwd())
    with common.watched() as (progress, _), progress.stage(f"Exporting {model.name}"):
        progress.expect("export")
        progress.begin("export")
        written = export_model(model, to, out=out, type=type)
    figures = asdict(written) | {"path": str(written.path), "notes": list(written.notes)}
    common.show(figures, lambda console: _print(written, console))


def _print(written: "ExportResult", console: "Console") -> None:
    writer = TerminalWriter(console)
    kind = f", {written.type}" if written.type else ""
    writer.copied(f"{written.path} ({written.bytes / 1e6:,.1f} MB{kind})")
    for note in written.notes:
        writer.line(note, DIM)
    if written.form == "ollama":
        folder = written.path.parent
        writer.copied(f"Next: cd {folder} && ollama create {folder.name} -f Modelfile")
