"""What is said of a checked draft, as blocks for the terminal and for the page."""

from ownwords.drafts.check import Check, Range
from ownwords.view import blocks as b
from ownwords.view.format import count, day, plain

_MOST = 300  # characters of a sentence


def check_view(check: Check) -> list[b.Block]:
    """The verdict, where the draft lies, the sentences unlike the author's, and earlier words."""
    marked = [sentence for sentence in check.sentences if sentence.is_marked]
    rows = [
        b.Gauge("This draft", check.yours, f"{check.yours:.0%}", is_ours=True),
        _gauge("Passages of yours", check.own),
        _gauge("Other authors today", check.others),
    ]
    sentences, place = count(len(check.sentences), "sentence"), f"{check.above:.0%}"
    how_many = f"{len(marked)} of {sentences} sound unlike you" if marked else ""
    found: list[b.Block] = [
        b.Paragraph(line=check.sentence, style="statement"),
        b.Paragraph(line=f"{place} of the passages of your own posts score lower."),
        b.Gauges(title="How likely it is yours", rows=rows, scale_end=1.0),
        b.Heading(text=how_many or f"None of {sentences} sounds unlike you"),
    ]
    if marked:
        usual = "About one in ten of your own sentences would be marked as well."
        items = [b.Item(title=_quoted(each.text), lines=list(each.because)) for each in marked]
        found += [
            b.Paragraph(line=usual, style="quiet"),
            b.Items(rows=items, style="notes"),
        ]
    if check.written_before:
        items = []
        for each in check.written_before:
            post = b.Span(
                plain(each.title, 90) or "(untitled)", url=each.url, page=b.post_page(each.post)
            )
            parts: list[str | b.Span] = [post, f", {day(each.day)}" if each.day else ""]
            items.append(b.Item(title=_quoted(each.text), lines=[parts]))
        found += [b.Heading(text="You wrote this before"), b.Items(rows=items, style="notes")]
    return found


def _gauge(label: str, of: Range) -> b.Gauge:
    span = f"most from {of.low:.0%} to {of.high:.0%}"
    return b.Gauge(label, of.middle, f"{of.middle:.0%}", of.low, of.high, span)


def _quoted(text: str) -> b.Line:
    return b.Span(plain(text, _MOST), "quote")
