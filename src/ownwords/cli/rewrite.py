"""`ownwords rewrite`."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from ownwords.cli.draft import load_model
from ownwords.cli.options import OUTPUT, OutputOptions, described, flag, text_in
from ownwords.cli.output import print_json, stderr
from ownwords.cli.write import MODEL, ModelOptions
from ownwords.core.workspace import resolve_workspace


def rewrite(
    text: Annotated[
        Path | None, Parameter(name="DRAFT", help="A text file. [default: standard input]")
    ] = None,
    *,
    free: Annotated[
        bool,
        flag("Let the model write each sentence anew; one that would say more or less stays."),
    ] = False,
    without: Annotated[
        tuple[int, ...],
        described("Undo the edit of this number; may be repeated. [default: none]"),
    ] = (),
    workspace: Annotated[
        Path | None,
        Parameter(help="The workspace. [default: this folder, or the only NAME.ownwords here]"),
    ] = None,
    options: ModelOptions = MODEL,
    output: OutputOptions = OUTPUT,
) -> None:
    """Rewrite a draft by your habits: contractions, spelling, numerals, marks, long sentences.

    Each change replaces a form by another of the same, so that what the draft says stays.
    """
    from rich.text import Text

    from ownwords.archive.corpus import load_corpus
    from ownwords.archive.store import Archive
    from ownwords.drafts import rewriting
    from ownwords.drafts.edits import Habits

    draft = text_in(text, "draft")
    place = resolve_workspace(workspace or options.model, Path.cwd())
    with Archive(place.archive) as archive:
        habits = Habits(post.text for post in load_corpus(archive).train)
    used = replace(options, model=options.model or place.root)  # the workspace's own model
    model = load_model(used) if free else None
    rewritten = rewriting.rewrite(draft, habits, model, seed=options.seed or 1).without(without)
    if output.json:
        print_json(rewritten.to_dict())
        return
    print(rewritten)
    if output.quiet:
        return
    console = stderr()
    for sentence in rewritten.sentences:
        if sentence.is_rewritten:
            console.print(f"- {sentence.before}", style="red", markup=False, highlight=False)
            console.print(f"+ {sentence.after}", style="green", markup=False, highlight=False)
    if free:
        same = sum(not sentence.is_rewritten for sentence in rewritten.sentences)
        print(f"{same} of {len(rewritten.sentences)} sentences stay.", file=sys.stderr)
    for number, edit in enumerate(rewritten.edits, 1):
        line = Text(f"{number:3} ").append(edit.before or "nothing", "red").append(" -> ")
        console.print(line.append(edit.after or "nothing", "green").append(f"  {edit.because}"))
