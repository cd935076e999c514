"""The sections of the report page about what was found in the texts, and what became of it."""

from ownwords.archive.report import Duplicate, Phrase, Report, SplitCounts
from ownwords.archive.report import formatting as say
from ownwords.archive.report.beside import PAIRS, PASSAGES, Pieces, marked, shown
from ownwords.archive.report.charts import BarSlice, stacked_bar
from ownwords.archive.report.html import (
    MANY,
    Html,
    folded,
    join,
    long_list,
    long_table,
    post_link,
    rest,
    table,
    tag,
)
from ownwords.archive.report.sections import PageSection

_SIDES = ("train", "validation", "test")
_SIDE_NAMES = {"train": "Training", "validation": "Validation", "test": "Test"}


def twice(report: Report) -> PageSection | None:
    """Near-duplicates, their passages side by side."""
    if len(report.posts) < 2:
        return None
    pairs = report.duplicates
    if not pairs:
        said = tag("p", "No two texts share more than a passing phrase.")
        return PageSection("twice", "Said twice", said)
    body = join(
        tag(
            "p",
            "Text that appears twice is learned twice. Words that differ are ",
            tag("mark", "marked"),
            ".",
        ),
        long_list([_pair(pair) for pair in pairs[:PAIRS]], len(pairs), "pair", "pairs"),
    )
    return PageSection("twice", "Said twice", body)


def _pair(pair: Duplicate) -> Html:
    if pair.exact:
        said = "The same text, word for word."
    else:
        said = f"{say.percent(pair.share)} of the shorter text also stands in the longer one."
    return tag(
        "li",
        tag(
            "h3",
            tag("bdi", say.title_of(pair.title)),
            " and ",
            tag("bdi", say.title_of(pair.other_title)),
        ),
        tag("p", said, class_="quiet"),
        *(_passages(pair, one, other) for one, other in pair.passages[:PASSAGES]),
    )


def _passages(pair: Duplicate, one: str, other: str) -> Html:
    if shown(one) == shown(other):
        both = Html(tag("bdi", shown(one)))
        return tag("div", _passage("In both", both), class_="passages same")
    left, right = marked(one, other)
    return tag(
        "div",
        _passage(say.title_of(pair.title), _pieces(left)),
        _passage(say.title_of(pair.other_title), _pieces(right)),
        class_="passages",
    )


def _passage(source: str, text: Html) -> Html:
    return tag("blockquote", tag("cite", tag("bdi", source)), tag("p", text, dir="auto"))


def _pieces(pieces: Pieces) -> Html:
    parts: list[str] = []
    for words, differs in pieces:
        parts += [tag("mark", words.rstrip()), " "] if differs else [words]
    return join(*parts)


def unlike(report: Report) -> PageSection | None:
    """Posts that read unlike the others, and by which signs."""
    if len(report.posts) < 2:
        return None
    title = "Unlike the rest"
    if not report.unlike:
        return PageSection("unlike", title, tag("p", "No post reads unlike your other posts."))
    items = [
        tag(
            "li",
            tag(
                "p",
                tag("span", tag("bdi", say.title_of(post.title)), class_="title"),
                " reads unlike your other posts.",
                tag("span", f" {say.count(post.words, 'word')}", class_="quiet"),
            ),
            tag("p", f"The signs: {say.evidence(post)}.") if post.evidence else None,
        )
        for post in report.unlike[:MANY]
    ]
    body = join(
        tag(
            "p",
            "A guest, a long quotation, a translation, or you on another day: "
            "the small words differ, and only you know why.",
        ),
        long_list(items, len(report.unlike), "post", "stack-list"),
    )
    return PageSection("unlike", title, body)


def links(report: Report) -> PageSection | None:
    """Links that lead nowhere, and posts that no link leads to."""
    dead = report.dead_links
    if not (dead or len(report.posts) > 1):
        return None
    rows: list[list[str]] = [
        [
            tag("bdi", say.title_of(link.title)),
            tag("bdi", say.plain(link.text, 120) or "–"),
            tag("code", say.address(link)),
        ]
        for link in dead
    ]
    if rows:
        body = join(
            tag(
                "p",
                f"{say.count(len(dead), 'link')} from post to post "
                f"{'leads' if len(dead) == 1 else 'lead'} nowhere.",
            ),
            long_table(
                "Dead links", ["In", "On the words", "Leads to"], rows, "links told", "link"
            ),
        )
    elif report.totals.internal_links:
        body = tag("p", "Every link from one of your posts to another arrives.")
    else:
        body = tag("p", "Your posts do not link to each other.")
    return PageSection("links", "Links within the site", join(body, _orphans(report)))


def _orphans(report: Report) -> Html | None:
    said, known = say.orphans(report), {post.id: post for post in report.posts}
    if not said:
        return None
    shown = (known.get(orphan) for orphan in report.orphans[:MANY])
    items = (tag("li", post_link(post.title, post.url)) for post in shown if post)
    return join(
        tag("p", said),
        folded(
            "Which ones",
            tag("ul", *items, class_="columns-list"),
            rest(len(report.orphans), MANY, "text"),
        ),
    )


def phrases(report: Report) -> PageSection | None:
    """What the author likes to say, over all years and in each."""
    if not report.posts:
        return None
    title = "Turns of phrase"
    years = say.by_year(report.phrases)
    overall = years.pop(0, [])
    if not (overall or years):
        said = "No turn of phrase comes back often enough to be called a favourite."
        return PageSection("phrases", title, tag("p", said))
    rows: list[list[str]] = [
        [str(year), join(*_run_in(found[:6]))] for year, found in years.items()
    ]
    body = join(
        tag("ol", *(_phrase(phrase) for phrase in overall[:16]), class_="phrases")
        if overall
        else None,
        long_table(
            "Favourites of each year", ["Year", "Phrases"], rows, "told keyed titled", "year"
        )
        if rows
        else None,
    )
    return PageSection("phrases", title, body)


def _phrase(phrase: Phrase) -> Html:
    where = f"{say.count(phrase.count, 'time')} in {say.count(phrase.posts, 'post')}"
    return tag(
        "li", tag("q", tag("bdi", say.plain(phrase.text, 80))), tag("span", where, class_="quiet")
    )


def _run_in(found: list[Phrase]) -> list[str]:
    parts: list[str] = []
    for phrase in found:
        parts += [
            ", " if parts else "",
            tag("q", tag("bdi", say.plain(phrase.text, 80))),
            Html(f"&nbsp;{phrase.count:,}×"),
        ]
    return parts


def left_out(report: Report) -> PageSection:
    """What is not in the archive, by reason."""
    title = "What was not taken in, and why"
    groups = say.by_reason(report.left_out)
    if not groups:
        said = "Nothing: everything that was found was taken in."
        return PageSection("left-out", title, tag("p", said))
    rows: list[list[str]] = []
    for what, reason, number, titles in groups:
        rows.append([say.count(number, what), join(reason, _titles(titles))])
    body = join(
        tag("p", "None of this is in the archive, so it cannot be searched either."),
        long_table("Not taken in", ["What", "Why"], rows, "told keyed", "reason"),
    )
    return PageSection("left-out", title, body)


def _titles(titles: list[str]) -> Html | None:
    if not titles:
        return None
    shown = join(*(part for t in titles[:40] for part in (tag("bdi", t), tag("br"))))
    if len(titles) <= 4:
        return tag("span", shown, class_="quiet block")
    return folded(
        f"{say.count(len(titles))} titles",
        tag("span", shown, class_="quiet block"),
        rest(len(titles), 40, "title"),
    )


def held_back(report: Report) -> PageSection | None:
    """Which posts a model will not be trained on."""
    if not report.splits:
        return None
    body = join(
        tag(
            "p",
            "A model must be examined on posts it has never seen, so some are held back whole. "
            "It learns from the training posts; the validation posts say when to stop; the test "
            "posts are looked at once, at the end.",
        ),
        tag("div", *(_split(split, i) for i, split in enumerate(report.splits)), class_="splits"),
    )
    return PageSection("held-back", "Held back for the test", body)


def _split(split: SplitCounts, number: int) -> Html:
    sides = [*_SIDES, *(side for side in split.posts if side not in _SIDES)]
    total = sum(split.words.values())
    slices, rows = [], []
    for side, tone in zip(sides, ["own", "k1", "k2"] + ["k4"] * len(sides), strict=False):
        posts, words = split.posts.get(side, 0), split.words.get(side, 0)
        label = _SIDE_NAMES.get(side, say.plain(side, 30))
        slices.append(BarSlice(label, words, tone, 1.0, say.percent(say.ratio(words, total))))
        row: list[str] = [
            join(tag("i", class_=f"swatch {tone}", aria_hidden="true"), label),
            say.count(posts),
            say.count(words),
            slices[-1].note,
        ]
        rows.append(row)
    name = say.plain(split.name, 30)
    said = ", ".join(f"{part.label} {part.note}" for part in slices)
    heading = {"random": "Drawn by lot", "by date": "The latest by date"}.get(
        name, name.capitalize()
    )
    return tag(
        "div",
        tag("h3", heading),
        tag(
            "figure",
            stacked_bar(f"split-{number}", f"Words per side, {name}", f"{said}.", slices),
            class_="slim",
        ),
        table(f"Posts and words, {name}", ["Side", "Posts", "Words", "Share"], rows, "legend"),
    )


def receipt(report: Report) -> PageSection:
    """What was read, what was not, and what the texts give away."""
    privacy = report.privacy
    lines: list[tuple[str, str]] = [("Sources read", say.count(len(report.sources)))]
    lines += [
        (f"{say.status(name)}, not taken in", say.count(number))
        for name, number in privacy.statuses_excluded.items()
    ]
    lines += [
        ("E-mail addresses found", say.count(privacy.emails) if privacy.emails else "none"),
        ("Phone numbers found", say.count(privacy.phones) if privacy.phones else "none"),
        (
            "Network calls made",
            say.count(privacy.network_calls) if privacy.network_calls else "none",
        ),
    ]
    slip = tag("dl", *(tag("div", tag("dt", k), tag("dd", v)) for k, v in lines), class_="receipt")
    found: Html | None = None
    if privacy.found_in:
        rows: list[list[str]] = [
            [tag("bdi", say.title_of(title)), tag("code", masked)]
            for title, masked in privacy.found_in
        ]
        found = join(
            tag(
                "p",
                "Look at these before you share a model or an archive made from this. "
                "They are masked here, not in your texts.",
            ),
            long_table("Addresses and numbers", ["In", "Found"], rows, "told legend", "place"),
        )
    return PageSection("privacy", "Privacy receipt", join(slip, found))


def notes(report: Report) -> PageSection | None:
    """What the readers of the sources had to remark."""
    if not report.notes:
        return None
    items = tag("ul", *(tag("li", note) for note in report.notes[:40]), class_="notes")
    return PageSection("notes", "Notes", join(items, rest(len(report.notes), 40, "note")))
