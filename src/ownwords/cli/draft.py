"""`ownwords draft`."""

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from ownwords.cli.options import OUTPUT, OutputOptions, check_positive, text_in
from ownwords.cli.output import print_json
from ownwords.cli.write import MODEL, ModelOptions, Threads, resolve_model_directory
from ownwords.drafts import drafting
from ownwords.inference.model import Model

NotesFile = Annotated[
    Path | None,
    Parameter(
        name="NOTES",
        help="A text file with a line for each sentence; a blank line begins a paragraph, and a"
        " first line that begins with # is the title. [default: standard input]",
    ),
]


def draft(
    notes: NotesFile = None,
    *,
    samples: Annotated[int, Parameter(help="Write this many drafts.")] = 1,
    threads: Threads = None,
    options: ModelOptions = MODEL,
    output: OutputOptions = OUTPUT,
) -> None:
    """Write a text from notes, a sentence a line.

    Every number, name, link and quotation of a line is kept, or the line stays as a note in
    [brackets]. The model is small: a sentence may still say something that you did not mean.
    """
    check_positive("--samples", samples)
    check_positive("--threads", threads)
    read = drafting.Notes.parse(text_in(notes, "notes"))
    model = load_model(options, threads)
    seed = options.first_seed
    drafts = [drafting.draft(model, read, seed=seed, rank=rank) for rank in range(samples)]
    if output.json:
        figures = [{"seed": seed, **each.to_dict()} for each in drafts]
        print_json(figures[0] if samples == 1 else {"drafts": figures})
        return
    for number, each in enumerate(drafts, 1):
        if samples > 1:
            print(f"--- {number}")
        print(each)
        left = sum(not line.kept for line in each.lines)
        if left and not output.quiet:
            print(f"{left} of {len(each.lines)} lines stay as notes, in brackets.", file=sys.stderr)


def load_model(options: ModelOptions, threads: int | None = None) -> Model:
    """Load a model that has learned to write from notes; OwnwordsError for any other."""
    folder = resolve_model_directory(options.model)
    drafting.require_learned(folder)
    return Model.load(folder, device=options.device, threads=threads)
