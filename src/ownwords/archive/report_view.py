"""The report as a view: its sentences, figures and sections, for every renderer."""

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import Final

from ownwords.archive.report import PostSummary, Report, SourceSummary
from ownwords.view import blocks as b
from ownwords.view.format import (
    count,
    day,
    noun,
    percent,
    plain,
    quoted,
    ratio,
    sentence,
    size,
    title_of,
)

CHOICES_FILE: Final = "choices.toml"
_SIDES: Final = {"train": "Training", "validation": "Validation", "test": "Test"}
_LONGEST = 10  # posts with their own bar
_SOURCES = 12  # named in the report
_TITLES = 40  # named per reason for leaving posts out
MANY: Final = 200  # rows shown of a list; the others are only counted
_GROUPS: Sequence[tuple[str, b.Tone, Sequence[str]]] = (
    ("Your own words", "own", ("prose", "heading", "list", "caption")),
    ("Quoted", "k1", ("quote",)),
    ("Code", "k2", ("code",)),
    ("Logs and dumps", "k3", ("log",)),
    ("Tables", "k4", ("table",)),
)
_FLAGS = {
    "dominant": "outweighs the other posts",
    "unlike": "reads unlike your other posts",
    "language": "is in another language",
    "dump": "contains machine output",
    "duplicate": "shares text with another post",
}
_DECISIONS = {"keep": "All used", "cap": "Part used", "leave out": "Left out"}


def report_view(report: Report) -> b.View:
    """Return the view of a report; the same report gives the same view."""
    first, second = lede(report)
    return b.View(
        kind="report",
        title=f"{name(report)}: archive report",
        kicker="Archive report",
        heading=b.Span(name(report), "title"),
        intro=(
            *_sources(report),
            b.Paragraph(line=first, style="lede"),
            b.Paragraph(line=second, style="follow"),
            b.Figures(rows=_headline_figures(report)),
        ),
        sections=[
            b.Section(anchor, title, blocks)
            for anchor, title, blocks_of in _SECTIONS
            if (blocks := blocks_of(report))
        ],
        footer=[
            f"Written by ownwords {plain(report.version, 30)} on {day(report.created_on)}.",
            (
                "Fingerprint of the texts ",
                b.Span(plain(report.fingerprint)[:12], "code"),
                ". The same texts always have the same fingerprint.",
            ),
        ],
        command="ownwords look --json",
    )


# --- sentences that are also shown elsewhere


def name(report: Report) -> str:
    """Return the name of the site or folder."""
    return plain(report.name, 120) or "Your writing"


def lede(report: Report) -> tuple[str, str]:
    """Return the most important finding and its consequence, in two sentences."""
    totals = report.totals
    if not totals.words:
        return "The archive holds no words yet.", "There is nothing to train on."
    if not totals.own_words:
        return (
            f"None of {count(totals.words, 'word')} is your own.",
            "They are quotations, code, tables or machine output: there is nothing to train on.",
        )
    usable = becomes_of_words(report)
    if len(report.posts) == 1:
        words = count(totals.words, "word")
        if totals.own_words < totals.words:
            words = f"{words}, {count(totals.own_words)} of them your own"
        return f"One {report.posts[0].kind}, {words}.", usable
    top = max(report.posts, key=lambda post: post.share, default=None)
    if top and len(report.posts) > 3 and top.share > 1 / 3:
        return (
            f"One {top.kind} is {percent(top.share)} of your prose: {quoted(top.title, 90)}.",
            f"{_dominant_decision(top)} {usable}",
        )
    own = ratio(totals.own_words, totals.words)
    if own < 0.6:
        return (
            f"{percent(own)} of the words are your own.",
            f"The rest is quotations, code, tables or machine output. {usable}",
        )
    texts = count_texts(totals.posts, totals.pages)
    return f"{count(totals.own_words, 'word')} of your own in {texts}{_when(report)}.", usable


def becomes_of_words(report: Report) -> str:
    """Return what the author's own words are used for, in one sentence."""
    words = report.split.words
    learned, used = words.get("train", 0), sum(words.values())
    parts = [f"A model learns from {count(learned, 'word')}"]
    if held_out := used - learned:
        parts.append(f"{count(held_out)} are held out to judge it")
    if left_out := report.totals.own_words - used:
        parts.append(f"{count(left_out)} are left out")
    return "; ".join(parts) + "."


def count_texts(posts: int, pages: int) -> str:
    """Return the numbers with their nouns, such as "53 posts and 1 page"."""
    counted = (count(number, kind) for number, kind in ((posts, "post"), (pages, "page")) if number)
    return " and ".join(counted) or "No posts"


def years_spanned(report: Report) -> str:
    """Return "2009–2024", "2024", or "" if no post has a date."""
    first, last = (d[:4].lstrip("0") for d in (report.totals.first_day, report.totals.last_day))
    return plain(first if first == last or not last else f"{first}–{last}")


def flags(post: PostSummary) -> str:
    """Return why a post stands out: "outweighs the other posts, reads unlike your other posts"."""
    return ", ".join(_FLAGS.get(flag, plain(flag, 40)) for flag in post.flags)


def decision(post: PostSummary) -> str:
    """Return the decision on a post, in words."""
    return _DECISIONS.get(post.decision, plain(post.decision, 40).capitalize())


def notable_posts(report: Report) -> list[PostSummary]:
    """Return the posts that need a decision: flagged, capped or left out."""
    return [post for post in report.posts if post.flags or post.decision != "keep"]


# --- the introduction


def _sources(report: Report) -> list[b.Block]:
    lines: list[b.Line] = [
        ("Read from ", b.Span(source.path, "code"), _what_was_read(source))
        for source in report.sources[:_SOURCES]
    ]
    if (more := len(report.sources) - _SOURCES) > 0:
        lines.append(f"And {count(more)} more.")
    return [b.Paragraph(line=line, style="quiet") for line in lines]


def _what_was_read(source: SourceSummary) -> str:
    kind = f", {plain(source.detected_as, 160)}" if source.detected_as else ""
    texts = count(source.documents, "text")
    if not source.newest_day:
        return f"{kind}: {texts}."
    return f"{kind}: {texts}, the newest from {day(source.newest_day)}."


def _when(report: Report) -> str:
    first, last = day(report.totals.first_day), day(report.totals.last_day)
    if not first:
        return ""
    when = f"written on {first}" if first == last else f"written between {first} and {last}"
    return f", {f'the dated ones {when}' if _undated(report) else when}"


def _dominant_decision(post: PostSummary) -> str:
    if post.decision == "leave out":
        return "It is left out for now; you can change that."
    if post.decision == "cap":
        used, words = count(post.training_words), count(post.own_words, "word")
        return f"It is capped to {used} of its {words}; you can change that."
    return "It is kept in full, so a model learns mostly from it."


def _headline_figures(report: Report) -> list[b.Figure]:
    totals, years = report.totals, years_spanned(report)
    days = dict.fromkeys((day(totals.first_day), day(totals.last_day))) if years else []
    own, learned = totals.own_words, report.split.words.get("train", 0)
    pages = f"and {count(totals.pages, 'page')}" if totals.pages else ""
    return [
        b.Figure(count(totals.posts), noun(totals.posts, "post"), pages),
        b.Figure(
            count(own), f"{noun(own, 'word')} of your own", f"of {count(totals.words)} in all"
        ),
        b.Figure(
            years or "–",
            noun(1 + ("–" in years or not years), "year"),
            " to ".join(days) or "no dates found",
        ),
        b.Figure(
            count(learned),
            f"{noun(learned, 'word')} that a model learns from",
            size(round(totals.training_bytes * ratio(learned, totals.training_words))),
        ),
    ]


# --- sections: their blocks, none if there is nothing to say


def _training(report: Report) -> list[b.Block]:
    advice = report.advice
    return [
        *([b.Paragraph(line=advice.headline, style="statement")] if advice.headline else []),
        *(b.Paragraph(line=text) for text in advice.sentences),
    ]


def _decisions(report: Report) -> list[b.Block]:
    if not report.posts:
        return []
    posts = notable_posts(report)
    rows = [_decision_item(post) for post in posts[:MANY]]
    blocks: list[b.Block] = [
        b.Items(rows=rows, style="decisions", total=len(posts))
        if posts
        else b.Paragraph(line="No post stands out: all texts are kept in full.")
    ]
    stays = (
        "Nothing is deleted: you can still search and cite a post that is left out; a model just"
        " does not learn from it."
    )
    if not report.command:  # in the served page, which has buttons
        where = b.Span("Change a decision", page="/posts/decisions")
        return [*blocks, b.Paragraph(line=stays), b.Paragraph(line=where)]
    how: b.Line = (
        "The file ",
        b.Span(CHOICES_FILE, "code"),
        " has a decision for each post: keep, cap or leave out. Change it, and run:",
    )
    change = [b.Paragraph(line=stays), b.Paragraph(line=how), b.Code(text=report.command)]
    return [*blocks, b.Aside(title="To change a decision", blocks=change)]


def _decision_item(post: PostSummary) -> b.Item:
    amount = count(post.own_words, "word")
    if post.decision == "cap":
        amount = f"{count(post.training_words)} of {amount} used"
    lines: list[b.Line] = [b.Span(sentence(flags(post)), "quiet")] if post.flags else []
    lines += [sentence(post.reason)] if post.reason else []
    return b.Item(
        title=_post(post),
        label=decision(post),
        aside=f"{amount}, {percent(post.share)} of the prose",
        lines=lines,
        is_marked=post.decision != "keep",
    )


def _lengths(report: Report) -> list[b.Block]:
    posts = report.posts
    if not posts:
        return []
    counted = "Only your own words count here, not quotations, code, logs or tables."
    rows = []
    for post in posts[:_LONGEST]:
        kind = "page" if post.kind == "page" else ""
        decided = "" if post.decision == "keep" else decision(post)
        below = " · ".join(part for part in (day(post.day), kind, decided) if part)
        rows.append(b.Share(_post(post), post.own_words, _tone(post), below=below))
    if others := posts[_LONGEST:]:
        label = b.Span(f"{count(len(others), 'other')} together", page="/posts?sort=words")
        rows.append(b.Share(label, sum(post.own_words for post in others), "rest"))
    heading = "Longest texts" if others else "All texts, longest first"
    blocks: list[b.Block] = [
        b.Paragraph(line=counted),
        b.Shares(title=heading, rows=rows, heads=("Text", "Words", "Share"), form="rows"),
    ]
    return [*blocks, _all_texts(posts)] if len(posts) > 1 else blocks


def _all_texts(posts: Sequence[PostSummary]) -> b.Block:
    rows = [
        (
            _post(post),
            plain(post.day, 10) or "–",
            count(post.own_words),
            count(post.training_words),
            _SIDES.get(post.split, "–"),
        )
        for post in posts[:MANY]
    ]
    heads = ("Text", "Date", "Words", "Trained on", "Split")
    table = b.Table(caption="All texts", heads=heads, rows=rows, total=len(posts))
    return b.Fold(summary=f"All {count(len(posts))} texts", blocks=[table], is_long=True)


def _tone(post: PostSummary) -> b.Tone:
    return "out" if post.decision == "leave out" else "own"


def _whose(report: Report) -> list[b.Block]:
    words = report.words_by_kind
    rows = [
        b.Share(label, sum(words.get(kind, 0) for kind in kinds), tone)
        for label, tone, kinds in _GROUPS
    ]
    rows = [row for row in rows if row.value]
    if not rows:
        return []
    heads = ("Kind", "Words", "Share")
    blocks: list[b.Block] = [b.Shares(title="Words by kind", rows=rows, heads=heads)]
    if report.dumps:
        posts = {post.id: post for post in report.posts}
        what = "These blocks look like pasted output of a program. The first line of each:"
        items = [
            b.Item(
                title=_post(posts[dump.id]),
                aside=f"{count(dump.words, 'word')} in {count(dump.lines, 'line')}",
                lines=[b.Span(sentence(dump.reason), "quiet")],
                code=plain(dump.first_line, 200),
            )
            for dump in report.dumps[:MANY]
        ]
        blocks += [
            b.Heading(text="Machine output"),
            b.Paragraph(line=what),
            b.Items(rows=items, total=len(report.dumps)),
        ]
    return blocks


def _years(report: Report) -> list[b.Block]:
    posts = [post for post in report.posts if post.kind == "post"]
    years = sorted({post.day[:4] for post in posts if post.day})
    if not years:
        return [b.Paragraph(line="None of your texts has a date.")] if posts else []
    rows = [_year(year, [post for post in posts if post.day[:4] == year]) for year in years]
    blocks: list[b.Block] = []
    if len(rows) > 1:
        most = max(rows, key=lambda row: row.value)
        words = f"{count(most.value, 'word')} in {most.cells[0]}"
        blocks.append(b.Paragraph(line=f"You wrote most in {b.text_of(most.label)}: {words}."))
    heads = ("Year", "Posts", "Words", "Share")
    blocks.append(b.Shares(title="Words and posts per year", rows=rows, heads=heads, form="rows"))
    if undated := _undated(report):
        blocks.append(b.Paragraph(line=undated, style="quiet"))
    return blocks


def _year(year: str, posts: Sequence[PostSummary]) -> b.Share:
    left_out = sum(post.own_words for post in posts if post.decision == "leave out")
    return b.Share(
        label=b.Span(year, page=f"/posts?year={year}"),
        value=sum(post.own_words for post in posts),
        cells=(count(len(posts), "post"),),
        below=f"{count(left_out, 'word')} left out" if left_out else "",
    )


def _undated(report: Report) -> str:
    undated = [post.own_words for post in report.posts if post.kind == "post" and not post.day]
    if not undated:
        return ""
    return f"{count(len(undated), 'text')} ({count(sum(undated), 'word')}) without a date."


def _duplicates(report: Report) -> list[b.Block]:
    if len(report.posts) < 2:
        return []
    if not report.duplicates:
        return [b.Paragraph(line="No two texts share a long passage.", detail=True)]
    posts, rows = {post.id: post for post in report.posts}, []
    for pair in report.duplicates[:MANY]:
        extent = "The same text, word for word."
        if not pair.exact:
            extent = f"{percent(pair.share)} of the shorter text also appears in the longer one."
        title = (_post(posts[pair.id]), " and ", _post(posts[pair.other_id]))
        rows.append(b.Item(title=title, lines=[b.Span(extent, "quiet")]))
    return [
        b.Paragraph(line="A model learns repeated text twice.", detail=True),
        b.Items(rows=rows, total=len(report.duplicates)),
    ]


def _excluded(report: Report) -> list[b.Block]:
    if not report.excluded:
        return [b.Paragraph(line="Nothing was left out.", detail=True)]
    counts: Counter[tuple[str, str]] = Counter()
    titles = defaultdict[tuple[str, str], list[str]](list)
    for item in report.excluded:
        key = plain(item.what, 40), plain(item.reason, 300)
        counts[key] += item.count
        if label := item.title or item.ref:
            titles[key].append(title_of(label))
    rows: list[tuple[b.Line, b.Line]] = []
    for key, number in sorted(counts.items(), key=lambda entry: (-entry[1], entry[0])):
        (what, reason), named = key, titles[key]
        more = f" and {count(len(named) - _TITLES)} more" if len(named) > _TITLES else ""
        names = b.Span(f" {'; '.join(named[:_TITLES])}{more}", "quiet")
        rows.append((count(number, what), [reason, names] if named else reason))
    return [
        b.Paragraph(line="You cannot search any of this either.", detail=True),
        b.Table(caption="Left out", heads=("What", "Why"), rows=rows, style="words"),
    ]


def _split(report: Report) -> list[b.Block]:
    posts, words = report.split.posts, report.split.words
    if not sum(posts.values()):
        return []
    tones: tuple[b.Tone, ...] = ("own", "k1", "k2")
    rows = [
        b.Share(_SIDES.get(side, plain(side, 30)), words[side], tone, cells=(count(n, "post"),))
        for (side, n), tone in zip(posts.items(), tones, strict=False)
    ]
    why = (
        "A model must be tested on posts it has never seen, so whole posts are held out. The model"
        " learns from the training posts, the validation posts decide when to stop, and the test"
        " posts are used once, at the end."
    )
    heads = ("Split", "Posts", "Words", "Share")
    return [
        b.Paragraph(line=why, detail=True),
        b.Shares(title="Words per split", rows=rows, heads=heads),
    ]


def _notes(report: Report) -> list[b.Block]:
    rows = [b.Item(title=plain(note, 300)) for note in report.notes[:MANY]]
    notes = b.Items(rows=rows, style="notes", total=len(report.notes))
    return [notes] if rows else []


def _post(post: PostSummary) -> b.Span:
    return b.Span(title_of(post.title), "title", url=post.url, page=b.post_page(post.id))


_SECTIONS: Sequence[tuple[str, str, Callable[[Report], list[b.Block]]]] = (
    ("training", "What you can train with this much text", _training),
    ("decisions", "Decisions, and how to change them", _decisions),
    ("lengths", "Where the words are", _lengths),
    ("whose", "Whose words these are", _whose),
    ("years", "Year by year", _years),
    ("duplicates", "Duplicate text", _duplicates),
    ("excluded", "What is not in the archive", _excluded),
    ("split", "Training, validation and test", _split),
    ("notes", "Notes", _notes),
)
