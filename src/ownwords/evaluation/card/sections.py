"""The sections of the page; their figures come from `panels`."""

from ownwords.archive.report.formatting import count, day, percent, plain, quoted
from ownwords.archive.report.html import Html, folded, join, post_link, table, tag
from ownwords.archive.report.sections import PageSection
from ownwords.evaluation import wording as say
from ownwords.evaluation.card import panels
from ownwords.evaluation.card.gauges import render_panels, render_panels_stacked
from ownwords.evaluation.scorecard import CopiedPassage, Scorecard, Topic, WritingSample

_OPEN = 4  # samples shown expanded


def samples(card: Scorecard) -> PageSection | None:
    """Samples with the same prompts and seeds from the base and from the tuned model."""
    ordered = say.in_turn(card.samples)
    if not ordered:
        return None
    more = ordered[_OPEN:]
    body = join(
        tag("p", say.how_sampled(card)),
        tag("ul", *map(_sample, ordered[:_OPEN]), class_="samples"),
        folded(f"{count(len(more))} more", tag("ul", *map(_sample, more), class_="samples"))
        if more
        else None,
    )
    return PageSection("samples", "What it writes", body)


def _sample(sample: WritingSample) -> Html:
    texts = [("Your model", sample.tuned, "tuned")]
    if sample.base is not None:
        texts.insert(0, ("Its base", sample.base, "base"))
    return tag(
        "li",
        tag("h3", tag("bdi", say.beginning(sample))),
        tag("p", say.where_from(sample), class_="quiet"),
        tag(
            "div",
            *(_quote(author, text, style) for author, text, style in texts),
            class_="passages" if sample.base is not None else "passages same",
        ),
    )


def _quote(author: str, text: str, style: str) -> Html:
    first, rest = say.in_two(say.paragraphs(text))
    return tag(
        "blockquote",
        tag("cite", author),
        *(tag("p", line) for line in first),
        folded("The rest", *(tag("p", line) for line in rest)) if rest else None,
        class_=style,
    )


def foresight(card: Scorecard) -> PageSection:
    """Bits per byte, with separate panels for static and adaptive figures."""
    ours = card.ours
    body = join(
        _conclusion(card, "foresight"),
        tag("p", say.what_bits_mean(ours)) if ours else None,
        render_panels_stacked(panels.foresight(card)),
        tag("p", say.WHAT_BARS_MEAN, class_="quiet") if ours else None,
    )
    return PageSection("foresight", "How well it predicts you", body)


def voice(card: Scorecard) -> PageSection:
    """How close its style is to the author's."""
    how = say.how_voice(card)
    body = join(
        _conclusion(card, "voice"),
        render_panels(panels.voice(card)),
        tag("p", how, class_="quiet") if how else None,
    )
    return PageSection("voice", "Whether it sounds like you", body)


def fluency(card: Scorecard) -> PageSection:
    """Made-up words, broken sentences, repetition."""
    how = say.how_fluency(card)
    body = join(
        _conclusion(card, "fluency"),
        render_panels(panels.fluency(card)),
        _examples(card),
        tag("p", how, class_="quiet") if how else None,
    )
    return PageSection("fluency", "How fluent it is", body)


def _examples(card: Scorecard) -> Html | None:
    """Examples of the faults in the samples."""
    items = [
        tag("li", f"{kind}: ", text if kind == panels.MADE_UP_WORDS else tag("q", text))
        for kind, text in panels.examples(card)
    ]
    return folded("Examples from the samples", tag("ul", *items, class_="notes")) if items else None


def copying(card: Scorecard) -> PageSection:
    """What it knows by heart, and the longest copied passages with their sources."""
    body = join(_conclusion(card, "copying"), render_panels(panels.copying(card)))
    if passages := panels.copied_passages(card):
        body = join(
            body,
            tag("h3", "The longest passage copied from your posts"),
            *(_copied(passage, how) for passage, how in passages),
        )
    return PageSection("copying", "Whether it copies you", body)


def _copied(passage: CopiedPassage, how: str) -> Html:
    if not passage.text:
        return tag("p", f"{how}: nothing.", class_="run")
    where = join(
        f"{how}: {count(passage.words, 'word')} in ",
        post_link(passage.title, passage.url) if passage.title else "one of your posts",
        f", {day(passage.day)}" if passage.day else None,
    )
    text = tag("p", f"… {plain(passage.text, 900)} …")
    return tag("blockquote", tag("cite", where), text, class_="run")


def dominant(card: Scorecard) -> PageSection | None:
    """The post that outweighs the others, before and after the decision about it."""
    post = card.dominant
    if post is None:
        return None
    is_measured = any(row.bits is not None for row in post.rows)
    heads = ["Trained on it", "Its words", "Share", *(["Bits per byte"] if is_measured else [])]
    rows: list[list[str]] = [
        [row.how.capitalize(), count(row.words), percent(row.share)]
        + ([say.bits(row.bits) if row.bits is not None else "–"] if is_measured else [])
        for row in post.rows
    ]
    body = join(
        tag(
            "p",
            post_link(post.title, post.url),
            f", {day(post.day)}, outweighs your other posts."
            if post.day
            else " outweighs your other posts.",
        ),
        table(f"{quoted(post.title, 90)}, before and after", heads, rows, "legend"),
        tag("p", say.effect_of_decision(post)),
    )
    return PageSection("dominant", "The post that outweighs the others", body)


def making(card: Scorecard) -> PageSection:
    """Its data and training, and how the forecasts compare with what happened."""
    rows = (tag("div", tag("dt", left), tag("dd", right)) for left, right in say.made_of(card))
    lists = (
        ("Forecast and outcome", card.plan),
        ("Limits of these figures", card.notes),
    )
    body = join(
        tag("dl", *rows, class_="answers"),
        *(
            join(tag("h3", title), tag("ul", *(tag("li", text) for text in items), class_="notes"))
            for title, items in lists
            if items
        ),
    )
    return PageSection("making", "How it was made", body)


def _conclusion(card: Scorecard, topic: Topic) -> Html | None:
    sentence = next((verdict.sentence for verdict in card.verdicts if verdict.about == topic), None)
    return tag("p", sentence, class_="statement") if sentence else None
