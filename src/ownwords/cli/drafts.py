"""`ownwords check`, `draft` and `rewrite`."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from ownwords.cli.options import (
    OUTPUT,
    OutputOptions,
    WorkspaceOption,
    check_positive,
    described,
    flag,
    text_in,
)
from ownwords.cli.output import print_json, relative_path, stderr
from ownwords.cli.write import MODEL, ModelOptions, Threads, show_pieces
from ownwords.core.workspace import has_model, path_text, resolve_workspace

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ownwords.drafts.drafting import DraftLine
    from ownwords.inference.model import Model

DraftFile = Annotated[
    Path | None, Parameter(name="DRAFT", help="A text file. [default: standard input]")
]
NotesFile = Annotated[
    Path | None,
    Parameter(
        name="NOTES",
        help="A text file with one line per sentence; a blank line begins a paragraph, and a first"
        " line that begins with # is the title. [default: standard input]",
    ),
]


def check(
    draft: DraftFile = None, *, workspace: WorkspaceOption = None, output: OutputOptions = OUTPUT
) -> None:
    """Judge whether a draft is more like your posts than like others' writing, and where not.

    Others are other people and language models. It counts words and needs no model. English only;
    nothing leaves this machine.
    """
    from ownwords.archive.store import Archive
    from ownwords.core.validation import encode
    from ownwords.drafts.check import AuthorStyle, check_view
    from ownwords.view.terminal import TerminalWriter

    text = text_in(draft, "a draft to check")
    place = resolve_workspace(workspace, Path.cwd())
    with Archive(place.archive) as archive:
        found = AuthorStyle.of(archive).check(text)
    output.show(encode(found), lambda console: TerminalWriter(console).blocks(check_view(found)))


def draft(
    notes: NotesFile = None,
    *,
    samples: Annotated[int, Parameter(help="Write this many drafts.")] = 1,
    threads: Threads = None,
    options: ModelOptions = MODEL,
    output: OutputOptions = OUTPUT,
) -> None:
    """Write a text from notes, one sentence per line, and show each line as it is written."""
    from ownwords.drafts import drafting

    check_positive("--samples", samples)
    check_positive("--threads", threads)
    read = drafting.Notes.parse(text_in(notes, "notes"))
    folder, model = _load_drafting(options, threads, is_quiet=output.quiet or output.json)
    seed = options.first_seed
    drafts: list[drafting.Draft] = []
    if output.json:
        for number in range(samples):
            drafts.append(drafting.draft(model, read, seed=seed + number, others=drafts))
        about = {"model": path_text(folder)}
        figures = [about | {"seed": seed + n} | each.to_dict() for n, each in enumerate(drafts)]
        print_json(figures[0] if samples == 1 else {"drafts": figures})
        return
    for number in range(samples):
        if samples > 1:
            print(f"--- {number + 1}")
        lines: list[drafting.DraftLine] = []
        written = drafting.write_lines(model, read, seed=seed + number, others=drafts)
        show_pieces(_pieces(written, lines), has_whole_words=True)
        drafts.append(drafting.Draft(tuple(lines)))
        left = sum(not line.kept for line in lines)
        if left and not output.quiet:
            print(f"{left} of {len(lines)} lines stay as notes, in brackets.", file=sys.stderr)


def rewrite(
    text: DraftFile = None,
    *,
    free: Annotated[
        bool,
        flag(
            "Also let the model rewrite each sentence; changes of more than its manner are dropped."
        ),
    ] = False,
    without: Annotated[
        tuple[int, ...],
        described("Undo the edit of this number; may be repeated. [default: none]"),
    ] = (),
    options: ModelOptions = MODEL,
    output: OutputOptions = OUTPUT,
) -> None:
    """Rewrite a draft by your habits: contractions, spelling, numerals, marks, long sentences.

    Each edit replaces one form by another with the same meaning.
    """
    from rich.text import Text

    from ownwords.archive.store import Archive
    from ownwords.drafts import rewriting
    from ownwords.drafts.rewriting import Habits

    draft = text_in(text, "a draft to rewrite")
    place = resolve_workspace(options.workspace or options.model, Path.cwd())
    with Archive(place.archive) as archive:
        habits = Habits.of(archive)
    used = replace(options, model=options.model or place.root)  # the workspace's own model
    model = _load_model(used) if free else None
    rewritten = rewriting.rewrite(draft, habits, model, seed=options.seed or 1).without(without)
    if output.json:
        print_json(rewritten.to_dict())
        return
    print(str(rewritten).removesuffix("\n"))
    if output.quiet:
        return
    console = stderr()
    for sentence in rewritten.sentences:
        if sentence.is_rewritten:
            console.print(f"- {sentence.before}", style="red", markup=False, highlight=False)
            console.print(f"+ {sentence.after}", style="green", markup=False, highlight=False)
    if free:
        print(
            f"Unchanged: {rewritten.unchanged} of {len(rewritten.sentences)} sentences.",
            file=sys.stderr,
        )
    for number, edit in enumerate(rewritten.edits, 1):
        line = Text(f"{number:3} ").append(edit.before or "nothing", "red").append(" -> ")
        console.print(line.append(edit.after or "nothing", "green").append(f"  {edit.because}"))


def _pieces(written: "Iterable[DraftLine]", lines: "list[DraftLine]") -> "Iterator[str]":
    """Yield the text of a draft line by line, and collect the lines."""
    for line in written:
        lines.append(line)
        yield f"{line.before}{line}"


def _load_drafting(
    options: ModelOptions, threads: int | None, *, is_quiet: bool
) -> "tuple[Path, Model]":
    """Load the model given, that of the workspace, or a base with its adapter; print which."""
    from ownwords.base import catalogue
    from ownwords.drafts import drafting
    from ownwords.inference.model import Model

    place = options.workspace or Path.cwd()
    own = options.directory if options.model or has_model(place) or not place.exists() else None
    if options.model and own and not drafting.can_write(own):
        drafting.require_learned(own)
    folder = drafting.choose_model(own)
    adapter = drafting.adapter_of(folder)
    model = Model.load(folder, device=options.device, threads=threads, adapter=adapter)
    if not is_quiet:
        name = f"the model in {relative_path(folder)}"
        if adapter:
            name = f"{catalogue.display_name(folder)}, which has read none of your posts"
        if own and own != folder:
            name += f"; the model in {relative_path(own)} has not learned to write from notes"
        print(f"Writing with {name}.", file=sys.stderr)
    return folder, model


def _load_model(options: ModelOptions) -> "Model":
    """Load a model that has learned to write from notes; OwnwordsError for any other."""
    from ownwords.drafts import drafting
    from ownwords.inference.model import Model

    folder = options.directory
    drafting.require_learned(folder)
    return Model.load(folder, device=options.device)
