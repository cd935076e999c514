"""Formatted figures and sentences about them that verdicts and the scorecard share."""

from collections.abc import Callable

from ownwords.evaluation.intervals import Estimate
from ownwords.evaluation.scorecard import BitsRow, CopiedPassage
from ownwords.evaluation.voice import Voice
from ownwords.view.format import day, quoted


def bits(value: float) -> str:
    """Format bits per byte: 1.49."""
    return f"{value:.2f}"


def rate(share: float) -> str:
    """Format a share: 1.2%, 14%; never "0.0%" for something."""
    if share in (0, 1):
        return f"{share:.0%}"
    if 0 < share < 0.0005:
        return "<0.1%"
    if 0.9995 <= share < 1:
        return ">99.9%"
    return f"{100 * share:.1f}%" if share < 0.0995 or 0.985 < share < 1 else f"{share:.0%}"


def between(low: float | None, high: float | None, format_value: Callable[[float], str]) -> str:
    """Format a range; empty if it is unknown."""
    return "" if low is None or high is None else f"{format_value(low)} to {format_value(high)}"


def rate_with_range(estimate: Estimate) -> str:
    """Format a share with its interval: "62% (51% to 72%)"."""
    interval = estimate.interval
    span = f" ({between(interval.low, interval.high, rate)})" if interval else ""
    return rate(estimate.value) + span


def compared_with(row: BitsRow) -> str:
    """How much better the model is than a row: "6.9% better (5.7% to 8.2%)"."""
    rival_bits, gain = row.bits or 1.0, row.gain or 0.0
    if gain < -rival_bits:
        return f"{1 - gain / rival_bits:.1f} times worse"
    better = f"{rate(abs(gain) / rival_bits)} {'better' if gain >= 0 else 'worse'}"
    if row.gain_low is None or row.gain_high is None:
        return better
    low, high = row.gain_low / rival_bits, row.gain_high / rival_bits
    if low < 0 < high:
        return f"{better} ({rate(-low)} worse to {rate(high)} better)"
    low, high = sorted((abs(low), abs(high)))
    return f"{better} ({between(low, high, rate)})"


def read_together(voice: Voice) -> str:
    """One sentence on what the classifier and Burrows' Delta say together; empty without both."""
    letters, delta = voice.letters, voice.delta
    if letters is None or delta is None or delta.others is None:
        return ""
    middle = delta.samples.median.value
    is_your_phrasing = letters.samples_taken.value >= letters.halfway
    are_your_common_words = middle <= (delta.held_out.median.value + delta.others.median.value) / 2
    if is_your_phrasing and are_your_common_words:
        return (
            "Both measures place it near you: the classifier by its phrases, Burrows’ Delta by how"
            " often it uses common words."
        )
    if is_your_phrasing:
        return (
            "The classifier recognizes your phrases, while Burrows’ Delta shows that it uses common"
            " words (“the”, “but”) more as other authors do: it has picked up what you say more"
            " than how you build sentences."
        )
    if are_your_common_words:
        return (
            "It uses common words about as often as you do, which even shuffled text would; the"
            " classifier, which sees phrases, tells it apart from you."
        )
    return "Both measures place it nearer to other authors than to you."


def source(passage: CopiedPassage) -> str:
    """Where a passage occurs: "in “Title”, 9 March 2014"."""
    if not passage.title:
        return "in one of your posts"
    return f"in {quoted(passage.title, 90)}" + (f", {day(passage.day)}" if passage.day else "")
