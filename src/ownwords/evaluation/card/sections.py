"""The sections of the page; the figures in them are those of `panels`."""

from ownwords.archive.report.formatting import count, day, percent, plain, quoted
from ownwords.archive.report.html import Html, folded, join, post_link, table, tag
from ownwords.archive.report.sections import PageSection
from ownwords.evaluation import wording as say
from ownwords.evaluation.card import panels
from ownwords.evaluation.card.gauges import drawn, drawn_wide
from ownwords.evaluation.scorecard import CopiedPassage, Scorecard, Topic, WritingSample

_OPEN = 4  # samples that are not folded
_EXAMPLES = 3  # broken sentences of each kind


def samples(card: Scorecard) -> PageSection | None:
    """The same beginnings and the same luck, with the base and with the tuned model."""
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


def _sample(one: WritingSample) -> Html:
    texts = [("Your model", one.tuned, "tuned")]
    if one.base is not None:
        texts.insert(0, ("Its base", one.base, "base"))
    return tag(
        "li",
        tag("h3", tag("bdi", say.beginning(one))),
        tag("p", say.where_from(one), class_="quiet"),
        tag(
            "div",
            *(_quote(who, text, look) for who, text, look in texts),
            class_="passages" if one.base is not None else "passages same",
        ),
    )


def _quote(who: str, text: str, look: str) -> Html:
    first, rest = say.in_two(say.paragraphs(text))
    return tag(
        "blockquote",
        tag("cite", who),
        *(tag("p", line) for line in first),
        folded("The rest", *(tag("p", line) for line in rest)) if rest else None,
        class_=look,
    )


def foresight(card: Scorecard) -> PageSection:
    """Bits a byte, the static figures and the adaptive ones apart."""
    ours = card.ours
    body = join(
        _finding(card, "foresight"),
        tag("p", say.what_bits_mean(ours)) if ours else None,
        drawn_wide(panels.foresight(card)),
        tag("p", say.WHAT_BARS_MEAN, class_="quiet") if ours else None,
    )
    return PageSection("foresight", "How well it foresees you", body)


def voice(card: Scorecard) -> PageSection:
    """Whose manner it has."""
    how = say.how_voice(card)
    body = join(
        _finding(card, "voice"),
        drawn(panels.voice(card)),
        tag("p", how, class_="quiet") if how else None,
    )
    return PageSection("voice", "Whether it sounds like you", body)


def fluency(card: Scorecard) -> PageSection:
    """Words that are none, sentences that are broken, what is said again."""
    how = say.how_fluency(card)
    body = join(
        _finding(card, "fluency"),
        drawn(panels.fluency(card)),
        _examples(card),
        tag("p", how, class_="quiet") if how else None,
    )
    return PageSection("fluency", "Whether it is language", body)


def _examples(card: Scorecard) -> Html | None:
    """What was found in the samples, to be seen."""
    found = card.fluency
    if found is None:
        return None
    items: list[Html] = []
    if found.sample_loop.words:
        items.append(
            tag("li", "Said over and over: ", tag("q", plain(found.sample_loop.text, 240)))
        )
    for kind, texts in found.examples.items():
        if texts and kind == "non-words":
            items.append(tag("li", "Non-words: ", ", ".join(plain(text, 40) for text in texts)))
        elif texts:
            items += (
                tag("li", f"{kind.capitalize()}: ", tag("q", plain(text, 240)))
                for text in texts[:_EXAMPLES]
            )
    return (
        folded("What was found in the samples", tag("ul", *items, class_="notes"))
        if items
        else None
    )


def copying(card: Scorecard) -> PageSection:
    """What it has by heart, and the longest passage that came out, with its source."""
    found = card.memorised
    body = join(
        _finding(card, "copying"),
        drawn(panels.copying(card)),
        tag("h3", "The longest passage it took from you") if found else None,
        *(
            _run(run, how)
            for run, how in (
                (found.guarded, "As you have it"),
                (found.unguarded, "Copy guard off" if found.guarded else "As you have it"),
                (found.real, "Your own held-out posts, for comparison"),
            )
            if run
        )
        if found
        else (),
    )
    return PageSection("copying", "Whether it copies you", body)


def _run(run: CopiedPassage, how: str) -> Html:
    if not run.text:
        return tag("p", f"{how}: nothing at all.", class_="run")
    where = join(
        f"{how}: {count(run.words, 'word')}, which stand in ",
        post_link(run.title, run.url) if run.title else "one of your posts",
        f", {day(run.day)}" if run.day else None,
    )
    return tag(
        "blockquote", tag("cite", where), tag("p", f"… {plain(run.text, 900)} …"), class_="run"
    )


def dominant(card: Scorecard) -> PageSection | None:
    """The post that outweighed the others, before and after."""
    one = card.dominant
    if one is None:
        return None
    scored = any(row.bits is not None for row in one.rows)
    heads = ["Learned from", "Its words", "Share", *(["Bits a byte"] if scored else [])]
    rows: list[list[str]] = [
        [row.how.capitalize(), count(row.words), percent(row.share)]
        + ([say.bits(row.bits) if row.bits is not None else "–"] if scored else [])
        for row in one.rows
    ]
    body = join(
        tag(
            "p",
            post_link(one.title, one.url),
            f", {day(one.day)}, outweighs your other posts."
            if one.day
            else " outweighs your other posts.",
        ),
        table(f"{quoted(one.title, 90)}, before and after", heads, rows, "legend"),
        tag("p", say.what_dropping_did(one)),
    )
    return PageSection("dominant", "The post that outweighs the others", body)


def making(card: Scorecard) -> PageSection:
    """What it learned from, what was foretold, what it took."""
    rows = (tag("div", tag("dt", left), tag("dd", right)) for left, right in say.made_of(card))
    body = join(
        tag("dl", *rows, class_="answers"),
        *(
            part
            for title, sentences in (
                ("Foretold, and what came of it", card.plan),
                ("What bounds these figures", card.notes),
            )
            if sentences
            for part in (
                tag("h3", title),
                tag("ul", *(tag("li", one) for one in sentences), class_="notes"),
            )
        ),
    )
    return PageSection("making", "How it was made", body)


def _finding(card: Scorecard, topic: Topic) -> Html | None:
    one = next((one for one in card.verdicts if one.about == topic), None)
    return tag("p", one.sentence, class_="statement") if one else None
