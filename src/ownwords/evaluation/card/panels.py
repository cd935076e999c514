"""Which figures are shown together, and what they mean, for the page and the terminal alike."""

from ownwords.archive.report.formatting import count
from ownwords.evaluation import wording as say
from ownwords.evaluation.bootstrap import Estimate, PairedEstimate
from ownwords.evaluation.card.gauges import Gauge, Panel
from ownwords.evaluation.scorecard import BitsRow, Memorised, Scorecard
from ownwords.evaluation.voice import AuthorClassification, Delta, DeltaDistribution

YOURS, ITS, THEIRS = "Your own held-out posts", "What it writes", "Other authors"


def foresight(card: Scorecard) -> list[Panel]:
    """Bits a byte, of what stays as it is and of what learns on the way."""
    top = max((row.high or row.bits for row in card.bits), default=0.0)
    kinds = (
        ("static", "As it is", "What stays as it is while it reads a post it has never seen."),
        (
            "adaptive",
            "Learning while it reads",
            "Compressors learn with every letter, so beside them stands your model when it may too."
            " These figures cannot be compared with those above.",
        ),
    )
    panels = []
    for kind, title, meaning in kinds:
        rows = sorted((row for row in card.bits if row.kind == kind), key=lambda row: row.bits)
        if rows:
            panels.append(Panel(title, meaning, tuple(map(_of_bits, rows)), top))
    return panels


def voice(card: Scorecard) -> list[Panel]:
    """Whose passages are taken for the author's, and how far they lie from his posts."""
    found = card.voice
    if found is None:
        return []
    panels = []
    if found.letters:
        panels.append(_taken(found.letters, "Taken for you", _BY_LETTERS))
    if found.masked:
        panels.append(_taken(found.masked, "Taken for you, whatever the subject", _MASKED))
    if found.delta:
        panels.append(_distance(found.delta))
    return panels


def fluency(card: Scorecard) -> list[Panel]:
    """What of the samples is no language, each beside the held-out posts."""
    found = card.fluency
    if found is None:
        return []
    measures: list[tuple[str, str, PairedEstimate | None]] = [
        (
            "Non-words",
            "Of its words, those that stand in no post it learned from and in no list of words;"
            " names are not counted.",
            found.non_words,
        ),
        (
            "Words new to it",
            "Of its words, those that stand in no post it learned from.",
            None if found.non_words else found.new_words,
        ),
        (
            "Names of nobody",
            "Words with a capital in mid-sentence that stand in no post it learned from and in no"
            " list of words.",
            found.unknown_names,
        ),
        (
            "Broken sentences",
            "Sentences without an end, with a quotation mark or bracket left open, absurdly long,"
            " or with a word doubled.",
            found.broken,
        ),
        (
            "Odd turns",
            "Of the ways in which its words follow one another, those that none of your posts has;"
            " fewer than yours: it keeps to what you often say.",
            found.odd_turns,
        ),
        (
            "Said again",
            "Of runs of four words, those that came before in the same text.",
            found.repeated,
        ),
    ]
    return [_beside(title, meaning, one) for title, meaning, one in measures if one]


def copying(card: Scorecard) -> list[Panel]:
    """What it has by heart, and how new what it writes is."""
    found = card.memorised
    if found is None:
        return []
    by_heart = Panel(
        "Known by heart",
        f"Given {count(found.prefix, 'token')} of a post, so often the next {found.length} it"
        " would choose are those that stand there, word for word. Of posts it has never seen"
        " that is luck.",
        (
            _of_share("Posts it learned from", found.training, is_ours=True),
            _of_share("Posts it has never seen", found.held_out),
        ),
        1.0,
    )
    return [by_heart, _novelty(found)] if found.novelty else [by_heart]


_BY_LETTERS = (
    "A judge that has read your posts and other authors' decides by groups of letters whose a"
    " passage is; what it judges here it has never read."
)
_MASKED = (
    "The same where all but the most frequent words are hidden, so that only the manner shows."
)


def _of_bits(row: BitsRow) -> Gauge:
    span = say.between(row.low, row.high, say.bits)
    said = say.bits(row.bits)
    return Gauge(row.name, row.bits, said, row.low, row.high, span, say.note(row), row.is_ours)


def _taken(told: AuthorClassification, title: str, meaning: str) -> Panel:
    rows = (
        _of_share(ITS, told.samples_taken, is_ours=True),
        _of_share(YOURS, told.held_out_taken),
        _of_share(THEIRS, told.others_taken),
    )
    return Panel(title, meaning, rows, 1.0)


def _distance(delta: Delta) -> Panel:
    rows = [_of_distance(ITS, delta.samples, is_ours=True), _of_distance(YOURS, delta.held_out)]
    if delta.others:
        rows.append(_of_distance(THEIRS, delta.others))
    return Panel(
        "Burrows’ Delta",
        f"How far the use of the {delta.words} most frequent words, which nobody chooses, lies"
        f" from yours, in passages of {count(delta.passage_words, 'word')}: less is nearer.",
        tuple(rows),
    )


def _of_distance(label: str, one: DeltaDistribution, *, is_ours: bool = False) -> Gauge:
    found = one.median.interval
    low, high = (found.low, found.high) if found else (None, None)
    return Gauge(
        label,
        one.median.value,
        say.bits(one.median.value),
        low,
        high,
        say.between(low, high, say.bits),
        f"the middle half {say.between(one.low, one.high, say.bits)}",
        is_ours,
    )


def _beside(title: str, meaning: str, one: PairedEstimate) -> Panel:
    return Panel(
        title, meaning, (_of_share(ITS, one.samples, is_ours=True), _of_share(YOURS, one.held_out))
    )


def _novelty(found: Memorised) -> Panel:
    rows = []
    for one in found.novelty:
        value = one.unguarded if one.guarded is None else one.guarded
        notes = (
            "" if one.guarded is None else f"copy guard off {say.rate(one.unguarded)}",
            "" if one.real is None else f"your own held-out posts {say.rate(one.real)}",
        )
        note = " · ".join(part for part in notes if part)
        label = f"{one.n} words in a row"
        rows.append(Gauge(label, value, say.rate(value), note=note, is_ours=True))
    return Panel(
        "New words in a row",
        "So many of the runs of words it writes stand in no post it learned from.",
        tuple(rows),
        1.0,
    )


def _of_share(label: str, one: Estimate, *, is_ours: bool = False) -> Gauge:
    if not one.of:
        return Gauge(label, 0.0, "–", note="nothing to measure", is_ours=is_ours)
    found = one.interval
    low, high = (found.low, found.high) if found else (None, None)
    span = say.between(low, high, say.rate)
    return Gauge(label, one.value, say.rate(one.value), low, high, span, "", is_ours)
