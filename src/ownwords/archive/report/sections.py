"""The sections of the report page about the words themselves: how many, whose, when."""

from typing import NamedTuple

from ownwords.archive.report import PostSummary, Report, YearCount
from ownwords.archive.report import formatting as say
from ownwords.archive.report.charts import (
    BarSlice,
    YearColumn,
    share_line,
    slice_labels,
    stacked_bar,
    year_columns,
)
from ownwords.archive.report.html import (
    MANY,
    Html,
    folded,
    join,
    long_list,
    post_link,
    rest,
    table,
    tag,
)

LONGEST = 10
_COUNTED = "Counted are your own words, without quotations, code, logs and tables."


class PageSection(NamedTuple):
    """A part of the page: its anchor, its heading, what it says."""

    anchor: str
    title: str
    body: Html


def training(report: Report) -> PageSection | None:
    """What this much text is good for."""
    advice = report.advice
    if not (advice.headline or advice.sentences or advice.rows):
        return None
    rows = (tag("div", tag("dt", question), tag("dd", answer)) for question, answer in advice.rows)
    body = join(
        tag("p", advice.headline, class_="statement") if advice.headline else None,
        *(tag("p", sentence) for sentence in advice.sentences),
        tag("dl", *rows, class_="answers") if advice.rows else None,
    )
    return PageSection("training", "What you can train with this much", body)


def decisions(report: Report) -> PageSection | None:
    """What becomes of the posts that stand out, and how the author changes it."""
    if not report.posts:
        return None
    posts = say.decided(report)
    if not posts:
        body = tag("p", "Nothing stood out: every text is kept in full.")
    else:
        rows = [_decision(post) for post in posts[:MANY]]
        body = long_list(rows, len(posts), "text", "decisions")
    change = tag(
        "div",
        tag("h3", "If you see it differently"),
        tag(
            "p",
            "Nothing was deleted: what is left out can still be searched and cited, it is only "
            "not learned from. The last word is yours. In the file ",
            tag("code", say.CHOICES_FILE),
            " each post has a decision, keep, cap or leave out; change it, and run again:",
        ),
        tag("pre", tag("code", say.plain(report.command))),
        class_="aside",
    )
    return PageSection("decisions", "What was decided, and what you can change", join(body, change))


def _decision(post: PostSummary) -> Html:
    size = say.count(post.words, "word")
    if post.decision == "cap":
        size = f"{say.count(post.training_words)} of {say.count(post.own_words, 'word')} used"
    return tag(
        "li",
        tag(
            "span",
            say.decision(post),
            class_="verdict" if post.decision == "keep" else "verdict on",
        ),
        tag(
            "div",
            tag("p", post_link(post.title, post.url), class_="title"),
            tag("p", say.flags(post).capitalize(), class_="quiet") if post.flags else None,
            tag("p", say.sentence(post.reason)) if post.reason else None,
        ),
        tag(
            "p",
            tag("span", size),
            " ",
            tag("span", f"{say.percent(post.share)} of the prose"),
            class_="amount",
        ),
    )


def lengths(report: Report) -> PageSection | None:
    """How the words spread over the posts."""
    posts = report.posts
    if not posts:
        return None
    longest, others = posts[:LONGEST], posts[LONGEST:]
    body = join(
        _share_bars(longest, others) if len(posts) > 1 else None,
        tag("p", f"{say.evenness(report)} {_COUNTED}".strip()),
        _longest(longest, others),
        folded(
            f"Every text, one by one ({say.count(len(posts))})",
            _every(posts[:MANY]),
            rest(len(posts), MANY, "text"),
            class_="long",
        )
        if len(posts) > 1
        else None,
    )
    return PageSection("lengths", "Where the words are", body)


def _share_bars(longest: list[PostSummary], others: list[PostSummary]) -> Html:
    found = _slices(
        [(post, post.own_words) for post in longest], sum(p.own_words for p in others), others
    )
    bars = [_labelled("shares", "As it was found", "Share of the prose per text", found)]
    changed = any(p.decision != "keep" for p in [*longest, *others])
    if changed and any(p.training_words for p in [*longest, *others]):
        kept = [(post, post.training_words) for post in longest if post.training_words]
        used = _slices(kept, sum(p.training_words for p in others), others)
        bars.append(
            _labelled(
                "used", "As it is used for training", "Share of the training words per text", used
            )
        )
    return join(*bars)


def _slices(
    sized: list[tuple[PostSummary, int]], other_words: int, others: list[PostSummary]
) -> list[BarSlice]:
    total = sum(words for _, words in sized) + other_words
    slices = []
    for rank, (post, words) in enumerate(sized):
        share = say.ratio(words, total)
        tone = "out" if post.decision == "leave out" else "own"
        slices.append(
            BarSlice(say.title_of(post.title), words, tone, 1 - 0.06 * rank, say.percent(share))
        )
    if other_words:
        note = say.percent(say.ratio(other_words, total))
        slices.append(BarSlice(f"{say.count(len(others))} others", other_words, "rest", 1.0, note))
    return slices


def _labelled(name: str, heading: str, title: str, slices: list[BarSlice]) -> Html:
    said = ", ".join(f"{part.label} {part.note}" for part in slices)
    return tag(
        "figure",
        tag("figcaption", heading),
        stacked_bar(name, title, f"{said}.", slices),
        slice_labels(slices),
    )


def _longest(longest: list[PostSummary], others: list[PostSummary]) -> Html:
    most = max((post.share for post in longest), default=0.0) or 1.0
    rows: list[list[str]] = []
    for post in longest:
        out = post.decision == "leave out"
        about = [say.day(post.day), "page" if post.kind == "page" else ""]
        about.append("" if post.decision == "keep" else say.decision(post).lower())
        line = " · ".join(part for part in about if part)
        name = join(
            tag("span", post_link(post.title, post.url), class_="title"),
            tag("span", line, class_="quiet") if line else None,
            share_line(post.share / most, "out" if out else "own"),
        )
        rows.append([name, say.count(post.own_words), say.percent(post.share)])
    if others:
        words, share = sum(p.own_words for p in others), sum(p.share for p in others)
        rows.append(
            [f"{say.count(len(others))} others together", say.count(words), say.percent(share)]
        )
    heading = "The longest" if others else "Every text, longest first"
    return table(heading, ["Text", "Words", "Share"], rows, "shares titled")


def _every(posts: list[PostSummary]) -> Html:
    rows: list[list[str]] = [
        [
            post_link(post.title, post.url),
            say.plain(post.day, 10) or "–",
            say.count(post.own_words),
            say.count(post.training_words),
            say.plain(post.split, 12) or "–",
        ]
        for post in posts
    ]
    return table("Every text", ["Text", "Date", "Words", "Trained on", "Side"], rows, "every")


def whose(report: Report) -> PageSection | None:
    """The author's words, other people's, and a machine's."""
    kinds = say.kinds(report)
    if not kinds:
        return None
    total = sum(words for _, words in kinds)
    tones = {"Your own words": "own", "Quoted": "k1", "Code": "k2", "Logs and dumps": "k3"}
    slices = [
        BarSlice(name, words, tones.get(name, "k4"), 1.0, say.percent(say.ratio(words, total)))
        for name, words in kinds
    ]
    said = ", ".join(f"{part.label} {part.note}" for part in slices)
    rows: list[list[str]] = [
        [
            join(tag("i", class_=f"swatch {part.tone}", aria_hidden="true"), part.label),
            say.count(int(part.value)),
            part.note,
        ]
        for part in slices
    ]
    body = join(
        tag("figure", stacked_bar("kinds", "Words by whose they are", f"{said}.", slices)),
        table("Words by whose they are", ["Kind", "Words", "Share"], rows, "legend"),
        _dumps(report),
    )
    return PageSection("whose", "Whose words these are", body)


def _dumps(report: Report) -> Html | None:
    if not report.dumps:
        return None
    items = [
        tag(
            "li",
            tag(
                "p",
                tag("span", tag("bdi", say.title_of(dump.title)), class_="title"),
                " ",
                tag(
                    "span",
                    f"{say.count(dump.words, 'word')} in {say.count(dump.lines, 'line')}",
                    class_="quiet",
                ),
            ),
            tag("pre", tag("code", say.plain(dump.first_line, 200))),
            tag("p", say.sentence(dump.reason), class_="quiet"),
        )
        for dump in report.dumps[:MANY]
    ]
    return join(
        tag("h3", "Blocks a machine wrote"),
        tag("p", "These stretches look like output that was pasted in. The first line of each:"),
        long_list(items, len(report.dumps), "block", "stack-list"),
    )


def years(report: Report) -> PageSection | None:
    """Words and posts per year."""
    dated = [year for year in report.years if year.year]
    aside = tag("p", say.undated(report), class_="quiet") if say.undated(report) else None
    if not dated:
        if not report.posts:
            return None
        said = tag("p", "None of your texts carries a date, so there are no years to show.")
        return PageSection("years", "Year by year", said)
    out = _left_out_by_year(report.posts)
    columns = _with_gaps(dated, out)
    most = max(dated, key=lambda year: year.words)
    sentence = (
        f"{most.year} was your longest year: {say.count(most.words, 'word')} "
        f"in {say.count(most.posts, 'post')}."
    )
    if aside_words := out.get(most.year, 0):
        sentence += f" Of these, {say.count(aside_words)} are in what was left out."
    rows: list[list[str]] = [
        [str(year.year), say.count(year.words), say.count(year.posts)] for year in dated
    ]
    first, last = columns[0].year, columns[-1].year
    chart = year_columns(
        "years",
        "Words and posts per year",
        f"Columns from {first} to {last}; {sentence} The numbers follow as a table.",
        columns,
    )
    body = join(
        tag("p", sentence) if len(dated) > 1 else None,
        tag(
            "figure",
            tag("figcaption", "Words above the line, posts below it"),
            chart,
        ),
        aside,
        folded(
            "The numbers",
            table("Words and posts per year", ["YearCount", "Words", "Posts"], rows, "legend"),
        ),
    )
    return PageSection("years", "Year by year", body)


def _with_gaps(dated: list[YearCount], out: dict[int, int]) -> list[YearColumn]:
    """Silent years are part of the story, unless a stray date would open a gap of centuries."""
    known = {y.year: YearColumn(y.year, y.posts, y.words, out.get(y.year, 0)) for y in dated}
    first, last = min(known), max(known)
    span = range(first, last + 1) if last - first < 60 else sorted(known)
    return [known.get(year, YearColumn(year, 0, 0, 0)) for year in span]


def _left_out_by_year(posts: list[PostSummary]) -> dict[int, int]:
    words: dict[int, int] = {}
    for post in posts:
        # The years count posts alone, so pages stay out here too.
        if post.kind == "post" and post.decision == "leave out" and post.day[:4].isdecimal():
            words[int(post.day[:4])] = words.get(int(post.day[:4]), 0) + post.own_words
    return words
