"""Groups the figures into panels and says what they mean, for the page and the terminal."""

from ownwords.archive.report.formatting import count, plain
from ownwords.evaluation import wording as say
from ownwords.evaluation.card.gauges import Gauge, Panel
from ownwords.evaluation.intervals import Estimate, PairedEstimate
from ownwords.evaluation.scorecard import BitsRow, CopiedPassage, Memorised, Scorecard
from ownwords.evaluation.voice import AuthorClassification, Delta, DeltaDistribution

YOURS, MODELS, OTHERS = "Your held-out posts", "What it writes", "Other authors"
MADE_UP_WORDS = "Made-up words"

_EXAMPLES = 3  # broken sentences of each kind

_LETTERS = (
    "A classifier trained on your posts and other authors' decides by groups of letters who wrote a"
    " passage. It has read none of the passages it judges here."
)
_MASKED = "The same with all but the most frequent words hidden, so that only style counts."


def foresight(card: Scorecard) -> list[Panel]:
    """Bits per byte of static models, and of models that adapt to the text."""
    scale_end = max((row.high or row.bits for row in card.bits), default=0.0)
    kinds = (
        ("static", "Fixed models", "These do not change while they read an unseen post."),
        (
            "adaptive",
            "Models that learn as they read",
            "Compressors learn from every letter, so your model may learn as well here. Do not"
            " compare these figures with those above.",
        ),
    )
    panels = []
    for kind, title, meaning in kinds:
        rows = sorted((row for row in card.bits if row.kind == kind), key=lambda row: row.bits)
        if rows:
            panels.append(Panel(title, meaning, tuple(map(_bits_gauge, rows)), scale_end))
    return panels


def voice(card: Scorecard) -> list[Panel]:
    """Which passages are classified as the author's, and their distance from the author's posts."""
    voice = card.voice
    if voice is None:
        return []
    panels = []
    if voice.letters:
        panels.append(_classified(voice.letters, "Classified as yours", _LETTERS))
    if voice.masked:
        panels.append(_classified(voice.masked, "Classified as yours, topic hidden", _MASKED))
    if voice.delta:
        panels.append(_delta(voice.delta))
    return panels


def fluency(card: Scorecard) -> list[Panel]:
    """Faults of the samples' language, each compared with the held-out posts."""
    fluency = card.fluency
    if fluency is None:
        return []
    measures: list[tuple[str, str, PairedEstimate | None]] = [
        (
            MADE_UP_WORDS,
            "Words in no training post and in no word list. Names do not count.",
            fluency.non_words,
        ),
        (
            "New words",
            "Words in no training post.",
            None if fluency.non_words else fluency.new_words,
        ),
        (
            "Invented names",
            "Words with a capital in mid-sentence that are in no training post and in no word"
            " list.",
            fluency.unknown_names,
        ),
        (
            "Broken sentences",
            "Sentences with no end, an open quotation mark or bracket, an absurd length or a"
            " doubled word.",
            fluency.broken,
        ),
        (
            "Unusual word order",
            "New word sequences whose pattern is in none of your posts. A lower figure than yours"
            " means that it keeps to what you often say.",
            fluency.odd_turns,
        ),
        (
            "Repetition",
            "Runs of four words that occurred before in the same text.",
            fluency.repeated,
        ),
    ]
    return [
        Panel(
            title,
            meaning,
            (
                _share_gauge(MODELS, pair.samples, is_ours=True),
                _share_gauge(YOURS, pair.held_out),
            ),
        )
        for title, meaning, pair in measures
        if pair
    ]


def copying(card: Scorecard) -> list[Panel]:
    """What the model knows by heart, and how new its texts are."""
    memorised = card.memorised
    if memorised is None:
        return []
    by_heart = Panel(
        "Known by heart",
        f"How often, given {count(memorised.words, 'word')} of a post, the model's choices for the"
        f" next {memorised.words} match the post exactly. For unseen posts that is chance.",
        (
            _share_gauge("Training posts", memorised.training, is_ours=True),
            _share_gauge("Unseen posts", memorised.held_out),
        ),
        1.0,
    )
    return [by_heart, _novelty(memorised)] if memorised.novelty else [by_heart]


def examples(card: Scorecard) -> list[tuple[str, str]]:
    """Examples of faults in the samples: (fault, text)."""
    fluency = card.fluency
    if fluency is None:
        return []
    items = []
    if fluency.sample_loop.words:
        items.append(("Repeated over and over", plain(fluency.sample_loop.text, 240)))
    for kind, texts in fluency.examples.items():
        if texts and kind == "non-words":
            items.append((MADE_UP_WORDS, ", ".join(plain(text, 40) for text in texts)))
        else:
            items += [(kind.capitalize(), plain(text, 240)) for text in texts[:_EXAMPLES]]
    return items


def copied_passages(card: Scorecard) -> list[tuple[CopiedPassage, str]]:
    """The longest copied passages, and who wrote each."""
    memorised = card.memorised
    if memorised is None:
        return []
    passages = [
        (memorised.guarded, "With the copy guard"),
        (memorised.unguarded, "Without the copy guard" if memorised.guarded else MODELS),
        (memorised.real, "Your own held-out posts, for comparison"),
    ]
    return [(passage, how) for passage, how in passages if passage]


def _bits_gauge(row: BitsRow) -> Gauge:
    span = say.between(row.low, row.high, say.bits) or say.NO_RANGE
    text = say.bits(row.bits)
    return Gauge(row.name, row.bits, text, row.low, row.high, span, say.note(row), row.is_ours)


def _classified(shares: AuthorClassification, title: str, meaning: str) -> Panel:
    rows = (
        _share_gauge(MODELS, shares.samples_taken, is_ours=True),
        _share_gauge(YOURS, shares.held_out_taken),
        _share_gauge(OTHERS, shares.others_taken),
    )
    return Panel(title, meaning, rows, 1.0)


def _delta(delta: Delta) -> Panel:
    rows = [
        _distance_gauge(MODELS, delta.samples, is_ours=True),
        _distance_gauge(YOURS, delta.held_out),
    ]
    if delta.others:
        rows.append(_distance_gauge(OTHERS, delta.others))
    return Panel(
        "Burrows’ Delta",
        f"How far the use of the {delta.words} most common words, which nobody chooses on purpose,"
        f" is from yours, in passages of {count(delta.passage_words, 'word')}. Lower is closer.",
        tuple(rows),
    )


def _distance_gauge(label: str, distances: DeltaDistribution, *, is_ours: bool = False) -> Gauge:
    low, high = _limits(distances.median)
    return Gauge(
        label,
        distances.median.value,
        say.bits(distances.median.value),
        low,
        high,
        say.between(low, high, say.bits) or say.NO_RANGE,
        f"middle half {say.between(distances.low, distances.high, say.bits)}",
        is_ours,
    )


def _novelty(memorised: Memorised) -> Panel:
    rows = []
    for runs in memorised.novelty:
        value = runs.unguarded if runs.guarded is None else runs.guarded
        notes = (
            "" if runs.guarded is None else f"{say.rate(runs.unguarded)} without the copy guard",
            "" if runs.real is None else f"{say.rate(runs.real)} in your own held-out posts",
        )
        note = " · ".join(part for part in notes if part)
        label = f"{runs.n} words in a row"
        rows.append(Gauge(label, value, say.rate(value), note=note, is_ours=True))
    return Panel(
        "New word sequences",
        "The share of the word runs it writes that are in no training post.",
        tuple(rows),
        1.0,
    )


def _share_gauge(label: str, share: Estimate, *, is_ours: bool = False) -> Gauge:
    if not share.of:
        return Gauge(label, 0.0, "–", note="nothing to measure", is_ours=is_ours)
    low, high = _limits(share)
    span = say.between(low, high, say.rate) or say.NO_RANGE
    return Gauge(label, share.value, say.rate(share.value), low, high, span, "", is_ours)


def _limits(estimate: Estimate) -> tuple[float | None, float | None]:
    interval = estimate.interval
    return (interval.low, interval.high) if interval else (None, None)
