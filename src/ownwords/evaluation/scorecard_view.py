"""Builds the view of a scorecard: its sentences, figures and sections."""

import json
from collections.abc import Sequence
from pathlib import Path

from ownwords.core.workspace import write_atomically
from ownwords.evaluation.intervals import Estimate
from ownwords.evaluation.scorecard import (
    DATA,
    PAGE,
    BitsRow,
    CopiedPassage,
    ModelFacts,
    Scorecard,
    Topic,
    WritingSample,
)
from ownwords.evaluation.verdict import between, bits, compared_with, is_bad, rate
from ownwords.view import blocks as b
from ownwords.view import html
from ownwords.view.format import count, day, plain, quoted, size

_NO_RANGE = "too few posts for a range"
_UNIFORM_BITS = 8  # bits per byte of a uniform guess
_YOURS, _MODELS, _OTHERS = "Your held-out posts", "What it writes", "Other authors"
_MIN_LINE = 60  # characters that a line takes up
_MEASURES = (
    (
        "non_words",
        "Made-up words",
        "Words in no training post and in no word list. Names do not count.",
    ),
    ("new_words", "New words", "Words in no training post."),
    (
        "unknown_names",
        "Invented names",
        "Words with a capital in mid-sentence that are in no training post and in no word list.",
    ),
    (
        "broken",
        "Broken sentences",
        "Sentences with no end, an open quotation mark or bracket, an absurd length or a doubled"
        " word.",
    ),
    ("repeated", "Repetition", "Runs of four words that occurred before in the same text."),
)


def write_scorecard(card: Scorecard, folder: Path) -> tuple[Path, Path]:
    """Write the page and the data atomically into a folder; return their paths."""
    page, data = folder / PAGE, folder / DATA
    text = json.dumps(card.to_dict(), ensure_ascii=False, indent=1, allow_nan=False)
    write_atomically(data, text + "\n")
    write_atomically(page, html.document(scorecard_view(card)))
    return page, data


def scorecard_view(card: Scorecard) -> b.View:
    """Return the view of a scorecard."""
    verdict, about = card.verdict, card.about
    title = f"{plain(about.name, 120) or 'Your writing'}: how good your model is"
    because, figures = _notes(verdict.because), headline(card)
    origin = f"fine-tuned from {plain(about.base, 60)}" if about.base else "trained from scratch"
    learned_from = (
        f"{about.parameters / 1e6:,.1f} million parameters, {origin} on"
        f" {count(about.training_words, 'word')} in {count(about.training_posts, 'post')}"
        f" ({size(about.training_bytes)})."
    )
    return b.View(
        kind="scorecard",
        title=title,
        kicker=title,
        heading=verdict.sentence,
        is_bad=is_bad(verdict),
        intro=(
            *([because] if verdict.because else []),
            *([b.Figures(rows=figures)] if figures else []),
            b.Paragraph(line=f"{learned_from} {judged_on(about)}", style="quiet"),
        ),
        sections=[
            *([_samples(card)] if card.samples else []),
            _prediction(card),
            _voice(card),
            _fluency(card),
            _copying(card),
            *_making(card),
        ],
        footer=[
            f"Measured by ownwords {plain(about.version, 30)} on {day(about.made_on)}.",
            # The page may be shared, so it does not reveal the author's folders.
            ("The model: ", b.Span(plain("/".join(Path(about.model).parts[-2:]), 200), "code")),
        ],
    )


def headline(card: Scorecard) -> list[b.Figure]:
    """Return the main figures, each with its meaning and a comparison."""
    rows: list[b.Figure] = []
    ours, base = card.ours, card.base
    if ours:
        rival = f"{bits(base.bits)} for its base" if base else f"{_UNIFORM_BITS} for a blind guess"
        rows.append(b.Figure(bits(ours.bits), "bits per byte on unseen posts", rival))
    if card.voice and (shares := card.voice.classification):
        real = f"{rate(shares.held_out.value)} of your own unseen ones"
        rows.append(
            b.Figure(rate(shares.samples.value), "of its passages are taken for yours", real)
        )
    if card.fluency:
        strange = card.fluency.non_words or card.fluency.new_words
        label = "made-up words" if card.fluency.non_words else "words in no training post"
        real = f"{rate(strange.held_out.value)} in your unseen posts" if strange.held_out.of else ""
        rows.append(b.Figure(rate(strange.samples.value), label, real))
    if card.memorised:
        passage = card.memorised.guarded or card.memorised.unguarded
        one = passage.words == 1
        label = "word copied in a row at most" if one else "words copied in a row at most"
        guard = "with the copy guard" if card.memorised.guarded else "without the copy guard"
        rows.append(b.Figure(count(passage.words), label, guard))
    return rows


def judged_on(about: ModelFacts) -> str:
    """Return a sentence on the held-out posts behind the figures."""
    if not about.judged_posts:
        return "No post was held out to measure it."
    posts = count(about.test_posts, "held-out post")
    if about.judged_posts != about.test_posts:
        posts = f"{count(about.judged_posts)} out of {posts}"
    text = (
        f"Measured on {posts} ({size(about.judged_bytes)}), used neither for training nor for"
        " choosing a model."
    )
    if about.validation_posts:
        text += (
            " Voice and fluency are also compared with posts that were held out to choose the"
            " model."
        )
    return text


# --- samples --------------------------------------------------------------------------------------


def _samples(card: Scorecard) -> b.Section:
    how = "Written by your model; nothing was selected or edited."
    if any(sample.base is not None for sample in card.samples):
        how = (
            "The same beginning and the same seed, first with the base model, then with yours;"
            " nothing was selected or edited."
        )
    if any(sample.prompt for sample in card.samples):
        how += " Some texts are new; others continue the first words of an unseen post."
    rows = []
    for sample in in_turn(card.samples):
        continues = f"continues {quoted(sample.title, 90)}, " if sample.title else ""
        written: b.Block = _quote("Your model", sample.tuned, is_ours=True)
        if sample.base is not None:
            written = b.Beside(blocks=[_quote("Its base", sample.base), written])
        rows.append(
            b.Item(
                title=b.Span(beginning(sample), "title"),
                lines=[b.Span(f"{continues}seed {sample.seed}", "quiet")],
                blocks=[written],
            )
        )
    blocks = [
        b.Paragraph(line=how, detail=True),
        b.Items(rows=rows, style="samples"),
    ]
    return b.Section("samples", "What it writes", blocks)


def in_turn(samples: Sequence[WritingSample]) -> list[WritingSample]:
    """Return the samples with a base text first; continued and new texts alternate."""
    paired = [sample for sample in samples if sample.base is not None] or list(samples)
    continued = [sample for sample in paired if sample.prompt]
    new = [sample for sample in paired if not sample.prompt]
    first = [sample for pair in zip(continued, new, strict=False) for sample in pair]
    return first + [sample for sample in samples if sample not in first]


def beginning(sample: WritingSample) -> str:
    """Return the beginning of a sample, as its title."""
    prompt = sample.prompt.removeprefix(sample.title).strip() if sample.title else sample.prompt
    return f"{plain(prompt, 160)} …" if sample.prompt else "A new text"


def paragraphs(text: str) -> list[str]:
    """Return the non-empty lines of a sample, with an ellipsis if it stops in mid-sentence.

    A mark that ends the prompt's sentence is left out: the prompt is shown above with "…".
    """
    lines = [line for line in map(plain, text.lstrip(" .,;:!?\n").split("\n")) if line]
    if lines and lines[-1][-1] not in ".!?…\"'”’)":
        lines[-1] += " …"
    return lines or ["(nothing)"]


def _quote(author: str, text: str, *, is_ours: bool = False) -> b.Quote:
    first, rest = _in_two(paragraphs(text))
    return b.Quote(cite=author, lines=first, rest=rest, is_ours=is_ours)


def _in_two(lines: Sequence[str], limit: int = 620) -> tuple[list[str], list[str]]:
    """Split the lines of a sample into those shown immediately and the rest."""
    shown: list[str] = []
    for number, line in enumerate(lines):
        if len(line) > limit:
            cut = line.rfind(" ", 0, limit) if limit > 80 else -1
            if cut < 0:
                return shown, list(lines[number:])
            return [*shown, f"{line[:cut]} …"], [f"… {line[cut + 1 :]}", *lines[number + 1 :]]
        shown.append(line)
        limit -= max(len(line), _MIN_LINE)
    return shown, []


# --- the other sections ---------------------------------------------------------------------------


def _section(card: Scorecard, topic: Topic, title: str, blocks: Sequence[b.Block]) -> b.Section:
    """Return a section that begins with its conclusion."""
    conclusions = (each.sentence for each in card.verdicts if each.about == topic)
    statements = [b.Paragraph(line=sentence, style="statement") for sentence in conclusions]
    return b.Section(topic, title, [*statements[:1], *blocks])


def _how(text: str) -> b.Paragraph:
    return b.Paragraph(line=text, style="quiet", detail=True)


def _notes(texts: Sequence[str]) -> b.Items:
    return b.Items(rows=[b.Item(title=text) for text in texts], style="notes")


def _prediction(card: Scorecard) -> b.Section:
    blocks: list[b.Block] = []
    if ours := card.ours:
        what_bits_mean = (
            "The model predicts each next letter of a post it has never seen. Bits per byte say"
            f" how much it is surprised: lower is better. {bits(ours.bits)} is like choosing"
            f" between {2**ours.bits:.1f} equally likely letters each time; a blind guess takes"
            f" {_UNIFORM_BITS}."
        )
        rows = [_bits_gauge(row) for row in sorted(card.bits, key=lambda row: row.bits)]
        blocks = [
            b.Paragraph(line=what_bits_mean, detail=True),
            b.Gauges(title="Bits per byte", rows=rows),
            _how(
                "Each bar is the measured value. The thin line at its end is the 95%"
                " confidence interval: with other posts of yours, the value would probably be"
                " within it."
            ),
        ]
    return _section(card, "prediction", "How well it predicts you", blocks)


def _bits_gauge(row: BitsRow) -> b.Gauge:
    compared = "" if row.gain is None else f"your model is {compared_with(row)}"
    note = " · ".join(part for part in (plain(row.how, 120), compared) if part)
    span = between(row.low, row.high, bits) or _NO_RANGE
    return b.Gauge(row.name, row.bits, bits(row.bits), row.low, row.high, span, note, row.is_ours)


def _voice(card: Scorecard) -> b.Section:
    voice, title = card.voice, "Whether it sounds like you"
    shares = voice.classification if voice else None
    if voice is None or shares is None:
        return _section(card, "voice", title, ())
    rows = [
        _share_gauge(_MODELS, shares.samples, is_ours=True),
        *([_share_gauge("The untouched base", shares.base)] if shares.base else []),
        _share_gauge(_YOURS, shares.held_out),
        _share_gauge(_OTHERS, shares.others),
    ]
    meaning = (
        "A passage is taken for yours, or for another's, by which words follow which in your"
        " posts and in those of other authors today. Words that reveal the topic are masked,"
        " and no passage is judged by a model that has read it."
    )
    how = (
        f"Measured on passages of about {count(voice.passage_words, 'word')}:"
        f" {count(voice.training)} from your training posts, {count(voice.held_out)} from your"
        f" held-out posts, {count(voice.samples)} from the model."
        f" {count(voice.others)} are from {count(voice.sources)} blogs and books of today."
    )
    gauges = b.Gauges(title="Taken for yours", meaning=meaning, rows=rows, scale_end=1.0)
    return _section(card, "voice", title, [gauges, _how(how)])


def _fluency(card: Scorecard) -> b.Section:
    fluency, title = card.fluency, "How fluent it is"
    if fluency is None:
        return _section(card, "fluency", title, ())
    panels = [
        b.Gauges(
            title=label,
            meaning=meaning,
            rows=[
                _share_gauge(_MODELS, pair.samples, is_ours=True),
                _share_gauge(_YOURS, pair.held_out),
            ],
        )
        for field, label, meaning in _MEASURES
        if (pair := fluency.measured(field))
    ]
    how = (
        f"Measured on texts of {count(fluency.passage_words, 'word')}, the model's and yours,"
        " because longer texts repeat more."
    )
    blocks = [b.Beside(blocks=panels), _how(f"{how} {fluency.reason}".strip())]
    return _section(card, "fluency", title, blocks)


def _copying(card: Scorecard) -> b.Section:
    memorised, title = card.memorised, "Whether it copies you"
    if memorised is None:
        return _section(card, "copying", title, ())
    by_heart = b.Gauges(
        title="Known by heart",
        meaning=f"How often, given {count(memorised.words, 'word')} of a post, the model's"
        " choices for"
        f" the next {memorised.words} match the post exactly. For unseen posts, a match is"
        " chance.",
        rows=(
            _share_gauge("Training posts", memorised.training, is_ours=True),
            _share_gauge("Unseen posts", memorised.held_out),
        ),
        scale_end=1.0,
    )
    passages = [
        (memorised.guarded, "With the copy guard"),
        (memorised.unguarded, "Without the copy guard" if memorised.guarded else _MODELS),
        (memorised.real, "Your own held-out posts, for comparison"),
    ]
    blocks = [
        b.Beside(blocks=[by_heart]),
        b.Heading(text="The longest passage copied from your posts"),
        *(_copied(passage, whose) for passage, whose in passages if passage),
    ]
    return _section(card, "copying", title, blocks)


def _copied(passage: CopiedPassage, whose: str) -> b.Block:
    if not passage.text:
        return b.Paragraph(line=f"{whose}: nothing.")
    where: list[str | b.Span] = [f"{whose}: {count(passage.words, 'word')} in "]
    where.append(
        b.Span(plain(passage.title, 90), "title", url=passage.url)
        if passage.title
        else "one of your posts"
    )
    where += [f", {day(passage.day)}"] if passage.day else []
    return b.Quote(cite=where, lines=[f"… {plain(passage.text, 900)} …"])


def _making(card: Scorecard) -> list[b.Section]:
    blocks: list[b.Block] = []
    if card.plan:
        blocks += [b.Heading(text="Forecast and outcome"), _notes(card.plan)]
    if card.notes:
        blocks += [b.Heading(text="Limits of these figures"), _notes(card.notes)]
    return [b.Section("making", "How it was made", blocks)] if blocks else []


def _share_gauge(label: str, share: Estimate, *, is_ours: bool = False) -> b.Gauge:
    if not share.of:
        return b.Gauge(label, 0.0, "–", note="nothing to measure", is_ours=is_ours)
    low, high = (share.interval.low, share.interval.high) if share.interval else (None, None)
    span = between(low, high, rate) or _NO_RANGE
    return b.Gauge(label, share.value, rate(share.value), low, high, span, "", is_ours)
