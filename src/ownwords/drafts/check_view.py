"""What is said of a checked draft, as blocks for the terminal and for the page."""

from ownwords.drafts.check import Check, Range
from ownwords.view import blocks as b
from ownwords.view.format import count, day, plain

_MOST = 300  # characters of a sentence
_LIMIT = "This compares you with other people; it cannot tell a language model’s prose from yours."
_NO_REASON = "other people put words together in this way more often than you"


def check_view(check: Check) -> list[b.Block]:
    """The verdict, where the draft lies, the sentences unlike the author's, and earlier words."""
    marked = [sentence for sentence in check.sentences if sentence.is_marked]
    found: list[b.Block] = [b.Paragraph(line=check.sentence, style="statement")]
    if check.is_long_enough:
        rows = [
            b.Gauge("This draft", check.yours, f"{check.yours:.0%}", is_ours=True),
            _gauge("Passages of yours", check.own),
            _gauge("Other people today", check.others),
        ]
        found += [
            b.Paragraph(line=_LIMIT),
            b.Paragraph(line=f"{check.above:.0%} of the passages of your own posts score lower."),
            b.Gauges(title="Yours rather than another person’s", rows=rows, scale_end=1.0),
        ]
    sentences = count(len(check.sentences), "sentence")
    heading = f"None of {sentences} is unlike yours"
    if marked:
        heading = f"{len(marked)} of {sentences} are unlike yours"
    elif not check.sentences:
        heading = "No sentence is long enough to be judged"
    found.append(b.Heading(text=heading))
    if marked:
        usual = (
            "Sentences of eight words or more are judged; about one in ten of your own would be"
            " marked as well."
        )
        items = [
            b.Item(title=_quoted(each.text), lines=list(each.because) or [_NO_REASON])
            for each in marked
        ]
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
