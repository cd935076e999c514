"""The scorecard as a view: its sentences, figures and sections, written once."""

from collections.abc import Sequence

from ownwords.core.progress import duration
from ownwords.evaluation.intervals import Estimate, PairedEstimate
from ownwords.evaluation.scorecard import (
    BitsRow,
    CopiedPassage,
    ModelFacts,
    Scorecard,
    Topic,
    WritingSample,
)
from ownwords.evaluation.verdict import is_bad
from ownwords.evaluation.voice import AuthorClassification, Delta, DeltaDistribution
from ownwords.evaluation.wording import between, bits, compared_with, rate, read_together
from ownwords.view.blocks import (
    Beside,
    Block,
    Figure,
    Figures,
    Fold,
    Gauge,
    Gauges,
    Heading,
    Item,
    Items,
    Pairs,
    Paragraph,
    Quote,
    Section,
    Span,
    View,
)
from ownwords.view.format import count, day, plain, quoted, size

_WHAT_BARS_MEAN = (
    "Each bar is the measured value. The thin line at its end is the 95% confidence interval: where"
    " the value would lie with other posts of yours."
)

_NO_RANGE = "too few posts for a range"
_UNIFORM_BITS = 8  # bits per byte of a uniform guess
_YOURS, _MODELS, _OTHERS = "Your held-out posts", "What it writes", "Other authors"
_MADE_UP_WORDS = "Made-up words"

_EXAMPLES = 3  # broken sentences of each kind

_LETTERS = (
    "A classifier trained on your posts and other authors' decides by groups of letters who wrote a"
    " passage. It has read none of the passages it judges here."
)


def scorecard_view(card: Scorecard) -> View:
    """The view of a scorecard; the same scorecard gives the same view."""
    verdict, about = card.verdict, card.about
    figures = headline(card)
    sections = (
        _samples(card),
        _prediction(card),
        _section(
            card, "voice", "Whether it sounds like you", _voice_panels(card), _how_voice(card)
        ),
        _fluency(card),
        _copying(card),
        _making(card),
    )
    because = Items(rows=[Item(title=text) for text in verdict.because], style="notes")
    return View(
        kind="scorecard",
        title=f"{name(card)}: how good your model is",
        kicker=f"{name(card)}: how good your model is",
        heading=verdict.sentence,
        is_bad=is_bad(verdict),
        intro=(
            *([because] if verdict.because else []),
            *([Figures(rows=figures)] if figures else []),
            Paragraph(line=f"{_learned_from(about)} {judged_on(about)}", style="quiet"),
        ),
        sections=[section for section in sections if section],
        footer=[
            f"Measured by ownwords {plain(about.version, 30)} on {day(about.made_on)}.",
            ("The model: ", Span(plain(about.model, 200), "code")),
        ],
    )


# --- sections -----------------------------------------------------------------------------------


def _section(
    card: Scorecard, topic: Topic, title: str, panels: Sequence[Gauges], how: str, *more: Block
) -> Section:
    """A section: its conclusion, its figures side by side, and how they were measured."""
    blocks: list[Block] = []
    if finding := next((each.sentence for each in card.verdicts if each.about == topic), None):
        blocks.append(Paragraph(line=finding, style="statement"))
    if panels:
        blocks.append(Beside(blocks=panels))
    blocks += more
    if how:
        blocks.append(Paragraph(line=how, style="quiet", detail=True))
    return Section(topic, title, blocks)


def _samples(card: Scorecard) -> Section | None:
    rows = [
        Item(
            title=Span(beginning(sample), "title"),
            lines=[Span(_where_from(sample), "quiet")],
            blocks=[_sample(sample)],
        )
        for sample in in_turn(card.samples)
    ]
    if not rows:
        return None
    blocks = [
        Paragraph(line=_how_sampled(card), detail=True),
        Items(rows=rows, style="samples", noun="sample"),
    ]
    return Section("samples", "What it writes", blocks)


def _sample(sample: WritingSample) -> Block:
    ours = _quote("Your model", sample.tuned, is_ours=True)
    if sample.base is None:
        return ours
    return Beside(blocks=[_quote("Its base", sample.base), ours])


def _quote(author: str, text: str, *, is_ours: bool = False) -> Quote:
    first, rest = _in_two(paragraphs(text))
    return Quote(cite=author, lines=first, rest=rest, is_ours=is_ours)


def _prediction(card: Scorecard) -> Section:
    ours, panels = card.ours, _prediction_panels(card)
    return _section(
        card,
        "prediction",
        "How well it predicts you",
        (),
        _WHAT_BARS_MEAN if ours else "",
        *([Paragraph(line=_what_bits_mean(ours), detail=True)] if ours else []),
        *panels,
    )


def _fluency(card: Scorecard) -> Section:
    rows = [
        Item(title=(f"{kind}: ", text if kind == _MADE_UP_WORDS else Span(text, "quote")))
        for kind, text in _examples(card)
    ]
    examples = Fold(summary="Examples from the samples", blocks=[Items(rows=rows, style="notes")])
    panels, how = _fluency_panels(card), _how_fluency(card)
    return _section(card, "fluency", "How fluent it is", panels, how, *([examples] if rows else []))


def _copying(card: Scorecard) -> Section:
    passages = [_copied(passage, how) for passage, how in _copied_passages(card)]
    title = "The longest passage copied from your posts"
    more = (Heading(text=title), *passages) if passages else ()
    return _section(card, "copying", "Whether it copies you", _copying_panels(card), "", *more)


def _copied(passage: CopiedPassage, how: str) -> Block:
    if not passage.text:
        return Paragraph(line=f"{how}: nothing.")
    where: list[str | Span] = [f"{how}: {count(passage.words, 'word')} in "]
    where.append(
        Span(plain(passage.title, 90), "title", url=passage.url)
        if passage.title
        else "one of your posts"
    )
    where += [f", {day(passage.day)}"] if passage.day else []
    return Quote(cite=where, lines=[f"… {plain(passage.text, 900)} …"])


def _making(card: Scorecard) -> Section:
    blocks: list[Block] = [Pairs(rows=_made_of(card), style="facts")]
    for title, texts in (
        ("Forecast and outcome", card.plan),
        ("Limits of these figures", card.notes),
    ):
        if texts:
            blocks += [
                Heading(text=title),
                Items(rows=[Item(title=text) for text in texts], style="notes"),
            ]
    return Section("making", "How it was made", blocks)


# --- sentences ----------------------------------------------------------------------------------


def name(card: Scorecard) -> str:
    """Name of the blog."""
    return plain(card.name, 120) or "Your writing"


def _learned_from(about: ModelFacts) -> str:
    """Size of the model, its base and its training data."""
    origin = f"fine-tuned from {plain(about.base, 60)}" if about.base else "trained from scratch"
    return (
        f"{about.parameters / 1e6:,.1f} million parameters, {origin} on"
        f" {count(about.training_words, 'word')} in {count(about.training_posts, 'post')}"
        f" ({size(about.training_bytes)})."
    )


def judged_on(about: ModelFacts) -> str:
    """The held-out posts behind the figures."""
    if not about.judged_posts:
        return "No post was held out to measure it on."
    of = "" if about.judged_posts == about.test_posts else f" of {count(about.test_posts)}"
    posts = (
        f"{count(about.judged_posts)}{of} held-out {'post' if about.test_posts == 1 else 'posts'}"
    )
    text = (
        f"Measured on {posts} ({size(about.judged_bytes)}), used neither for training nor for"
        " choosing a model."
    )
    if about.validation_posts:
        text += " Voice and fluency are also compared with posts held out to choose a model."
    return text


def _what_bits_mean(ours: BitsRow) -> str:
    """Explain bits per byte with the model's own figure."""
    return (
        "The model predicts each next letter of a post it has never seen. Bits per byte say how"
        f" much it is surprised: lower is better. {bits(ours.bits)} is like choosing between"
        f" {2**ours.bits:.1f} equally likely letters each time; a blind guess takes"
        f" {_UNIFORM_BITS}."
    )


def _note(row: BitsRow) -> str:
    """What a row is, how long it was trained, and how the model compares."""
    trained = f"trained for {duration(row.seconds)}" if row.seconds else ""
    compared = "" if row.gain is None else f"your model is {compared_with(row)}"
    return " · ".join(part for part in (plain(row.how, 120), trained, compared) if part)


def in_turn(samples: Sequence[WritingSample]) -> list[WritingSample]:
    """Samples with a base's text first; among these, continued and new texts alternate."""
    paired = [sample for sample in samples if sample.base is not None] or list(samples)
    continued = [sample for sample in paired if sample.prompt]
    new = [sample for sample in paired if not sample.prompt]
    first = [sample for pair in zip(continued, new, strict=False) for sample in pair]
    return first + [sample for sample in samples if sample not in first]


def _how_sampled(card: Scorecard) -> str:
    """How the samples were written."""
    text = "Written by your model; nothing was selected or edited."
    if any(sample.base is not None for sample in card.samples):
        text = (
            "The same beginning and the same seed, first with the base model, then with yours;"
            " nothing was selected or edited."
        )
    if any(sample.prompt for sample in card.samples):
        text += " Some texts are new; others continue the first words of an unseen post."
    return text


def beginning(sample: WritingSample) -> str:
    """How a sample begins."""
    prompt = sample.prompt.removeprefix(sample.title).strip() if sample.title else sample.prompt
    return f"{plain(prompt, 160)} …" if sample.prompt else "A new text"


def _where_from(sample: WritingSample) -> str:
    """Seed of a sample, and the post whose beginning it continues."""
    continues = f"continues {quoted(sample.title, 90)}, " if sample.title else ""
    return f"{continues}seed {sample.seed}"


def paragraphs(text: str) -> list[str]:
    """The non-empty lines of a sample, with an ellipsis where it stops in mid-sentence."""
    lines = [line for line in map(plain, text.split("\n")) if line]
    if lines and lines[-1][-1] not in ".!?…\"'”’)":
        lines[-1] += " …"
    return lines or ["(nothing)"]


def headline(card: Scorecard) -> list[Figure]:
    """The main figures: (figure, what it measures, comparison)."""
    rows: list[Figure] = []
    ours, base = card.ours, card.untouched
    if ours:
        rival = f"{bits(base.bits)} for its base" if base else f"{_UNIFORM_BITS} for a blind guess"
        rows.append(Figure(bits(ours.bits), "bits per byte on unseen posts", rival))
    letters = card.voice.letters if card.voice else None
    if letters:
        real = f"{rate(letters.held_out_taken.value)} of your own unseen ones"
        rows.append(
            Figure(rate(letters.samples_taken.value), "of its passages classified as yours", real)
        )
    if card.fluency:
        strange = card.fluency.non_words or card.fluency.new_words
        label = "made-up words" if card.fluency.non_words else "words new to it"
        real = f"{rate(strange.held_out.value)} in your unseen posts" if strange.held_out.of else ""
        rows.append(Figure(rate(strange.samples.value), label, real))
    if card.memorised:
        passage = card.memorised.guarded or card.memorised.unguarded
        guard = "with" if card.memorised.guarded else "without"
        label = f"{'word' if passage.words == 1 else 'words'} copied in a row at most"
        rows.append(Figure(count(passage.words), label, f"{guard} the copy guard"))
    return rows


def _how_voice(card: Scorecard) -> str:
    """How the voice was measured, and how to read its two measures together."""
    voice = card.voice
    if voice is None or voice.delta is None:
        return ""  # the reason is the conclusion then
    text = (
        f"Measured on passages of {count(voice.passage_words, 'word')}: {count(voice.training)}"
        f" from your training posts, {count(voice.held_out)} from your held-out posts,"
        f" {count(voice.samples)} from the model"
    )
    if voice.authors:
        text += f", {count(voice.others)} by {count(voice.authors, 'other author')}"
    return " ".join(part for part in (f"{text}.", voice.reason, read_together(voice)) if part)


def _how_fluency(card: Scorecard) -> str:
    """How fluency was measured."""
    if card.fluency is None:
        return ""
    return (
        f"Measured on texts of {count(card.fluency.passage_words, 'word')}, its own and yours,"
        f" since longer texts repeat more. {card.fluency.reason}"
    ).strip()


def _made_of(card: Scorecard) -> list[tuple[str, str]]:
    """Data, size and origin of the model, and the time each stage took."""
    about = card.about
    return [
        (
            "Trained on",
            f"{count(about.training_posts, 'post')}, {count(about.training_words, 'word')}"
            f" ({size(about.training_bytes)})",
        ),
        ("Held out to choose a model", count(about.validation_posts, "post")),
        ("Held out to measure it", count(about.test_posts, "post")),
        ("Size", f"{about.parameters / 1e6:,.1f} million parameters"),
        ("Fine-tuned from", plain(about.base, 80) or "nothing: trained on your posts only"),
        *((plain(stage.name, 40).capitalize(), duration(stage.seconds)) for stage in card.seconds),
    ]


_LINE = 60  # characters that a line takes up at least


def _in_two(lines: Sequence[str], limit: int = 620) -> tuple[list[str], list[str]]:
    """Split the lines of a sample into what is shown at once and the rest."""
    shown: list[str] = []
    for number, line in enumerate(lines):
        if len(line) > limit:
            cut = line.rfind(" ", 0, limit) if limit > 80 else -1
            if cut < 0:
                return shown, list(lines[number:])
            return [*shown, f"{line[:cut]} …"], [f"… {line[cut + 1 :]}", *lines[number + 1 :]]
        shown.append(line)
        limit -= max(len(line), _LINE)  # a list of short lines is long, too
    return shown, []


# --- figures ------------------------------------------------------------------------------------


def _prediction_panels(card: Scorecard) -> list[Gauges]:
    """Bits per byte of the model and of those it is compared with."""
    rows = sorted(card.bits, key=lambda row: row.bits)
    return [Gauges(title="Bits per byte", rows=[_bits_gauge(row) for row in rows])] if rows else []


def _voice_panels(card: Scorecard) -> list[Gauges]:
    """Which passages are classified as the author's, and their distance from the author's posts."""
    voice = card.voice
    if voice is None:
        return []
    panels = []
    if voice.letters:
        panels.append(_classified(voice.letters, "Classified as yours", _LETTERS))
    if voice.delta:
        panels.append(_delta(voice.delta))
    return panels


def _fluency_panels(card: Scorecard) -> list[Gauges]:
    """Faults of the samples' language, each compared with the held-out posts."""
    fluency = card.fluency
    if fluency is None:
        return []
    measures: list[tuple[str, str, PairedEstimate | None]] = [
        (
            _MADE_UP_WORDS,
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
            "Repetition",
            "Runs of four words that occurred before in the same text.",
            fluency.repeated,
        ),
    ]
    return [
        Gauges(
            title=title,
            meaning=meaning,
            rows=(
                _share_gauge(_MODELS, pair.samples, is_ours=True),
                _share_gauge(_YOURS, pair.held_out),
            ),
        )
        for title, meaning, pair in measures
        if pair
    ]


def _copying_panels(card: Scorecard) -> list[Gauges]:
    """What the model knows by heart."""
    memorised = card.memorised
    if memorised is None:
        return []
    by_heart = Gauges(
        title="Known by heart",
        meaning=f"How often, given {count(memorised.words, 'word')} of a post, the model's choices"
        f" for the next {memorised.words} match the post exactly. For unseen posts that is chance.",
        rows=(
            _share_gauge("Training posts", memorised.training, is_ours=True),
            _share_gauge("Unseen posts", memorised.held_out),
        ),
        scale_end=1.0,
    )
    return [by_heart]


def _examples(card: Scorecard) -> list[tuple[str, str]]:
    """Examples of faults in the samples: (fault, text)."""
    fluency = card.fluency
    if fluency is None:
        return []
    items = []
    if fluency.sample_loop.words:
        items.append(("Repeated over and over", plain(fluency.sample_loop.text, 240)))
    for kind, texts in fluency.examples.items():
        if texts and kind == "non-words":
            items.append((_MADE_UP_WORDS, ", ".join(plain(text, 40) for text in texts)))
        else:
            items += [(kind.capitalize(), plain(text, 240)) for text in texts[:_EXAMPLES]]
    return items


def _copied_passages(card: Scorecard) -> list[tuple[CopiedPassage, str]]:
    """The longest copied passages, and who wrote each."""
    memorised = card.memorised
    if memorised is None:
        return []
    passages = [
        (memorised.guarded, "With the copy guard"),
        (memorised.unguarded, "Without the copy guard" if memorised.guarded else _MODELS),
        (memorised.real, "Your own held-out posts, for comparison"),
    ]
    return [(passage, how) for passage, how in passages if passage]


def _bits_gauge(row: BitsRow) -> Gauge:
    span = between(row.low, row.high, bits) or _NO_RANGE
    text = bits(row.bits)
    return Gauge(row.name, row.bits, text, row.low, row.high, span, _note(row), row.is_ours)


def _classified(shares: AuthorClassification, title: str, meaning: str) -> Gauges:
    rows = (
        _share_gauge(_MODELS, shares.samples_taken, is_ours=True),
        _share_gauge(_YOURS, shares.held_out_taken),
        _share_gauge(_OTHERS, shares.others_taken),
    )
    return Gauges(title=title, meaning=meaning, rows=rows, scale_end=1.0)


def _delta(delta: Delta) -> Gauges:
    rows = [
        _distance_gauge(_MODELS, delta.samples, is_ours=True),
        _distance_gauge(_YOURS, delta.held_out),
    ]
    if delta.others:
        rows.append(_distance_gauge(_OTHERS, delta.others))
    return Gauges(
        title="Burrows’ Delta",
        meaning=(
            f"How far the use of the {delta.words} most common words, which nobody chooses on"
            f" purpose, is from yours, in passages of {count(delta.passage_words, 'word')}. Lower"
            " is closer."
        ),
        rows=rows,
    )


def _distance_gauge(label: str, distances: DeltaDistribution, *, is_ours: bool = False) -> Gauge:
    low, high = _limits(distances.median)
    return Gauge(
        label,
        distances.median.value,
        bits(distances.median.value),
        low,
        high,
        between(low, high, bits) or _NO_RANGE,
        f"middle half {between(distances.low, distances.high, bits)}",
        is_ours,
    )


def _share_gauge(label: str, share: Estimate, *, is_ours: bool = False) -> Gauge:
    if not share.of:
        return Gauge(label, 0.0, "–", note="nothing to measure", is_ours=is_ours)
    low, high = _limits(share)
    span = between(low, high, rate) or _NO_RANGE
    return Gauge(label, share.value, rate(share.value), low, high, span, "", is_ours)


def _limits(estimate: Estimate) -> tuple[float | None, float | None]:
    interval = estimate.interval
    return (interval.low, interval.high) if interval else (None, None)
