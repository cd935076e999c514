"""Sections of the report page about the words: training, decisions, lengths, years, split."""

from typing import NamedTuple

from ownwords.archive.report import PostSummary, Report, summary
from ownwords.archive.report import formatting as fmt
from ownwords.archive.report.charts import share_labels, share_line, stacked_bar, year_columns
from ownwords.archive.report.formatting import count, percent, plain
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
from ownwords.archive.report.summary import Share

_COUNTED = "Only your own words count here, not quotations, code, logs or tables."


class PageSection(NamedTuple):
    """A section of the page: its anchor, heading and content."""

    anchor: str
    title: str
    body: Html


def training(report: Report) -> PageSection | None:
    """The section on what can be trained with this much text."""
    advice = report.advice
    if not (advice.headline or advice.sentences or advice.rows):
        return None
    rows = (tag("div", tag("dt", question), tag("dd", answer)) for question, answer in advice.rows)
    body = join(
        tag("p", advice.headline, class_="statement") if advice.headline else None,
        *(tag("p", sentence) for sentence in advice.sentences),
        tag("dl", *rows, class_="answers") if advice.rows else None,
    )
    return PageSection("training", "What you can train with this much text", body)


def decisions(report: Report) -> PageSection | None:
    """The section on the decision about each post that stands out, and how to change it."""
    if not report.posts:
        return None
    posts = summary.notable_posts(report)
    if not posts:
        body = tag("p", "No post stands out: all texts are kept in full.")
    else:
        rows = [_decision(post) for post in posts[:MANY]]
        body = long_list(rows, len(posts), "text", "decisions")
    change = tag(
        "div",
        tag("h3", "To change a decision"),
        tag(
            "p",
            "Nothing is deleted: you can still search and cite a post that is left out; a model "
            "just does not learn from it. The file ",
            tag("code", summary.CHOICES_FILE),
            " has a decision for each post: keep, cap or leave out. Change it, and run:",
        ),
        tag("pre", tag("code", plain(report.command))),
        class_="aside",
    )
    return PageSection("decisions", "Decisions, and how to change them", join(body, change))


def _decision(post: PostSummary) -> Html:
    size = count(post.words, "word")
    if post.decision == "cap":
        size = f"{count(post.training_words)} of {count(post.own_words, 'word')} used"
    return tag(
        "li",
        tag(
            "span",
            summary.decision(post),
            class_="verdict" if post.decision == "keep" else "verdict on",
        ),
        tag(
            "div",
            tag("p", post_link(post.title, post.url), class_="title"),
            tag("p", summary.flags(post).capitalize(), class_="quiet") if post.flags else None,
            tag("p", fmt.sentence(post.reason)) if post.reason else None,
        ),
        tag(
            "p",
            tag("span", size),
            " ",
            tag("span", f"{percent(post.share)} of the prose"),
            class_="amount",
        ),
    )


def lengths(report: Report) -> PageSection | None:
    """The section on how the words are distributed over the posts."""
    posts = report.posts
    if not posts:
        return None
    bars = every = None
    if len(posts) > 1:
        bars = _bar("shares", "In the archive", "Share of the prose per text", report)
        if summary.is_selected(report):
            title = "Share of the training words per text"
            bars = join(bars, _bar("used", "In training", title, report, training=True))
        every = folded(
            f"All {count(len(posts))} texts",
            _every(posts[:MANY]),
            rest(len(posts), MANY, "text"),
            class_="long",
        )
    evenness = tag("p", f"{summary.evenness(report)} {_COUNTED}".strip())
    body = join(bars, evenness, _longest(posts), every)
    return PageSection("lengths", "Where the words are", body)


def _bar(name: str, heading: str, title: str, report: Report, *, training: bool = False) -> Html:
    shares = summary.shares(report, training=training)
    return tag(
        "figure",
        tag("figcaption", heading),
        stacked_bar(name, title, shares),
        share_labels(shares),
    )


def _longest(posts: list[PostSummary]) -> Html:
    longest, others = posts[: summary.LONGEST], posts[summary.LONGEST :]
    most = max((post.share for post in longest), default=0.0) or 1.0
    rows: list[list[str]] = []
    for post in longest:
        about = [fmt.day(post.day), "page" if post.kind == "page" else ""]
        about.append("" if post.decision == "keep" else summary.decision(post).lower())
        line = " · ".join(part for part in about if part)
        name = join(
            tag("span", post_link(post.title, post.url), class_="title"),
            tag("span", line, class_="quiet") if line else None,
            share_line(post.share / most, "out" if post.decision == "leave out" else "own"),
        )
        rows.append([name, count(post.own_words), percent(post.share)])
    if others:
        words, share = sum(p.own_words for p in others), sum(p.share for p in others)
        rows.append([f"{count(len(others), 'other')} together", count(words), percent(share)])
    heading = "Longest texts" if others else "All texts, longest first"
    return table(heading, ["Text", "Words", "Share"], rows, "shares titled")


def _every(posts: list[PostSummary]) -> Html:
    rows: list[list[str]] = [
        [
            post_link(post.title, post.url),
            plain(post.day, 10) or "–",
            count(post.own_words),
            count(post.training_words),
            plain(post.split, 12) or "–",
        ]
        for post in posts
    ]
    return table("All texts", ["Text", "Date", "Words", "Trained on", "Split"], rows, "every")


def _legend_rows(shares: list[Share], *more: list[str]) -> list[list[str]]:
    """Table rows, one per share: swatch and label, further columns, value, percentage."""
    total = sum(share.value for share in shares)
    columns = zip(*more, strict=True) if more else [()] * len(shares)
    return [
        [
            join(tag("i", class_=f"swatch {share.tone}", aria_hidden="true"), share.label),
            *further,
            count(share.value),
            percent(fmt.ratio(share.value, total)),
        ]
        for share, further in zip(shares, columns, strict=True)
    ]


def whose(report: Report) -> PageSection | None:
    """The section on the author's words, other people's, and machine output."""
    kinds = summary.word_kinds(report)
    if not kinds:
        return None
    title = "Words by whose they are"
    body = join(
        tag("figure", stacked_bar("kinds", title, kinds)),
        table(title, ["Kind", "Words", "Share"], _legend_rows(kinds), "legend"),
        _logs(report),
    )
    return PageSection("whose", "Whose words these are", body)


def _logs(report: Report) -> Html | None:
    if not report.dumps:
        return None
    items = [
        tag(
            "li",
            tag(
                "p",
                tag("span", tag("bdi", fmt.title_of(dump.title)), class_="title"),
                " ",
                tag(
                    "span",
                    f"{count(dump.words, 'word')} in {count(dump.lines, 'line')}",
                    class_="quiet",
                ),
            ),
            tag("pre", tag("code", plain(dump.first_line, 200))),
            tag("p", fmt.sentence(dump.reason), class_="quiet"),
        )
        for dump in report.dumps[:MANY]
    ]
    return join(
        tag("h3", "Machine output"),
        tag("p", "These blocks look like pasted output of a program. The first line of each:"),
        long_list(items, len(report.dumps), "block", "stack-list"),
    )


def years(report: Report) -> PageSection | None:
    """The section on words and posts per year."""
    title, bars, undated = "Year by year", summary.year_bars(report), summary.undated(report)
    if not bars:
        if not report.posts:
            return None
        return PageSection("years", title, tag("p", "None of your texts has a date."))
    sentence = summary.longest_year(bars)
    rows: list[list[str]] = [
        [str(bar.year), count(bar.words), count(bar.posts)] for bar in bars if bar.posts
    ]
    description = (
        f"Columns from {bars[0].year} to {bars[-1].year}. {sentence} The numbers follow as a table."
    )
    caption = "Words and posts per year"
    body = join(
        tag("p", sentence) if sentence else None,
        tag(
            "figure",
            tag("figcaption", "Words above the line, posts below it"),
            year_columns("years", caption, description, bars),
        ),
        tag("p", undated, class_="quiet") if undated else None,
        folded("The numbers", table(caption, ["Year", "Words", "Posts"], rows, "legend")),
    )
    return PageSection("years", title, body)


def split(report: Report) -> PageSection | None:
    """The section on the posts held out from training."""
    posts, words = report.split.posts, report.split.words
    if not sum(posts.values()):
        return None
    shares = [
        Share(summary.SIDES.get(side, plain(side, 30)), words.get(side, 0), tone)
        for side, tone in zip(posts, ("own", "k1", "k2", *["k4"] * len(posts)), strict=False)
    ]
    caption = "Posts and words per split"
    rows = _legend_rows(shares, [count(number) for number in posts.values()])
    body = join(
        tag(
            "p",
            "A model must be tested on posts it has never seen, so whole posts are held out. The "
            "model learns from the training posts, the validation posts decide when to stop, and "
            "the test posts are used once, at the end.",
        ),
        tag("figure", stacked_bar("split", "Words per split", shares), class_="slim"),
        table(caption, ["Split", "Posts", "Words", "Share"], rows, "legend"),
    )
    return PageSection("split", "Training, validation and test", body)
