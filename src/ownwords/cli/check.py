"""`ownwords check`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from ownwords.cli.options import OUTPUT, OutputOptions, text_in
from ownwords.view.blocks import Block, Gauge, Gauges, Heading, Item, Items, Paragraph, Span
from ownwords.view.format import count, day, plain
from ownwords.view.terminal import TerminalWriter

if TYPE_CHECKING:
    from ownwords.drafts.check import Check, Range


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

    text = text_in(draft, "draft to check")
    place = resolve_workspace(workspace, Path.cwd())
    with Archive(place.archive) as archive:
        found = AuthorStyle.of(load_corpus(archive)).check(text)
    output.show(encode(found), lambda console: TerminalWriter(console).blocks(blocks(found)))


def blocks(check: "Check") -> list[Block]:
    """What is said of a draft."""
    marked = [sentence for sentence in check.sentences if sentence.is_marked]
    rows = [
        Gauge("This draft", check.yours, f"{check.yours:.0%}", is_ours=True),
        _gauge("Passages of yours", check.own),
        _gauge("Other authors today", check.others),
    ]
    place = f"{check.above:.0%} of the passages of your own posts score lower."
    found: list[Block] = [
        Paragraph(line=check.sentence, style="statement"),
        Paragraph(line=place),
        Gauges(title="How likely it is yours", rows=rows, scale_end=1.0),
    ]
    if marked:
        how_many = f"{len(marked)} of {count(len(check.sentences), 'sentence')} sound unlike you"
        items = [
            Item(title=Span(plain(each.text, 300), "quote"), lines=list(each.because))
            for each in marked
        ]
        found += [Heading(text=how_many), Items(rows=items, style="notes", noun="sentence")]
    if check.written_before:
        items = [
            Item(
                title=Span(plain(each.text, 300), "quote"),
                lines=[", ".join(filter(None, (plain(each.title, 90), day(each.day), each.url)))],
            )
            for each in check.written_before
        ]
        found += [Heading(text="You wrote this before"), Items(rows=items, style="notes")]
    return found


def _gauge(label: str, of: "Range") -> Gauge:
    span = f"most from {of.low:.0%} to {of.high:.0%}"
    return Gauge(label, of.middle, f"{of.middle:.0%}", of.low, of.high, span)
