"""`ownwords check`."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from ownwords.cli.options import OUTPUT, OutputOptions, text_in
from ownwords.view.terminal import TerminalWriter


def check(
    draft: Annotated[
        Path | None,
        Parameter(name="DRAFT", help="A text file. [default: standard input]"),
    ] = None,
    *,
    workspace: Annotated[
        Path | None,
        Parameter(help="The workspace. [default: this folder, or the only NAME.ownwords here]"),
    ] = None,
    output: OutputOptions = OUTPUT,
) -> None:
    """Say how much a draft sounds like you, which sentences do not, and what you wrote before.

    It counts, and needs no model. English only; nothing leaves this machine.
    """
    from ownwords.archive.corpus import load_corpus
    from ownwords.archive.store import Archive
    from ownwords.core.validation import encode
    from ownwords.core.workspace import resolve_workspace
    from ownwords.drafts.check import AuthorStyle
    from ownwords.drafts.check_view import check_view

    text = text_in(draft, "draft to check")
    place = resolve_workspace(workspace, Path.cwd())
    with Archive(place.archive) as archive:
        found = AuthorStyle.of(load_corpus(archive)).check(text)
    output.show(encode(found), lambda console: TerminalWriter(console).blocks(check_view(found)))
