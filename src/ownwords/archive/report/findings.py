"""Sections of the report page: duplicates, style, links, phrases, exclusions, privacy, notes."""

from ownwords.archive.report import Duplicate, Phrase, Report, summary
from ownwords.archive.report.formatting import count, plain, title_of
from ownwords.archive.report.html import (
    MANY,
    Html,
    folded,
    join,
    long_list,
    long_table,
    post_link,
    rest,
    tag,
)
from ownwords.archive.report.sections import PageSection
from ownwords.archive.report.summary import PAIRS, PASSAGES, Diff, shorten_passage

_TITLES = 40  # of what was left out


def duplicates(report: Report) -> PageSection | None:
    """The section on near-duplicates, with passages side by side."""
    if len(report.posts) < 2:
        return None
    title, pairs = "Duplicate text", report.duplicates
    if not pairs:
        return PageSection("duplicates", title, tag("p", "No two texts share a long passage."))
    body = join(
        tag(
            "p",
            "A model learns repeated text twice. Words that differ are ",
            tag("mark", "marked"),
            ".",
        ),
        long_list([_pair(pair) for pair in pairs[:PAIRS]], len(pairs), "pair", "pairs"),
    )
    return PageSection("duplicates", title, body)


def _pair(pair: Duplicate) -> Html:
    return tag(
        "li",
        tag(
            "h3",
            tag("bdi", title_of(pair.title)),
            " and ",
            tag("bdi", title_of(pair.other_title)),
        ),
        tag("p", summary.duplicate_extent(pair), class_="quiet"),
        *(_passages(pair, left, right) for left, right in pair.passages[:PASSAGES]),
    )


def _passages(pair: Duplicate, left: str, right: str) -> Html:
    if shorten_passage(left) == shorten_passage(right):
        both = Html(tag("bdi", shorten_passage(left)))
        return tag("div", _passage("In both", both), class_="passages same")
    diffs = summary.diff_passages(left, right)
    return tag(
        "div",
        *(
            _passage(title_of(title), _marked(diff))
            for title, diff in zip((pair.title, pair.other_title), diffs, strict=True)
        ),
        class_="passages",
    )


def _passage(source: str, text: Html) -> Html:
    return tag("blockquote", tag("cite", tag("bdi", source)), tag("p", text, dir="auto"))


def _marked(diff: Diff) -> Html:
    parts: list[str] = []
    for words, differs in diff:
        parts += [tag("mark", words.rstrip()), " "] if differs else [words]
    return join(*parts)


def style(report: Report) -> PageSection | None:
    """The section on posts whose style differs, and the words that show it."""
    if len(report.posts) < 2:
        return None
    title = "Posts in a different style"
    if not report.style_outliers:
        return PageSection("style", title, tag("p", "No post reads unlike your other posts."))
    items = [
        tag(
            "li",
            tag(
                "p",
                tag("span", tag("bdi", title_of(post.title)), class_="title"),
                tag("span", f" {count(post.words, 'word')}", class_="quiet"),
            ),
            tag("p", f"The signs: {summary.style_signs(post)}.")
            if post.evidence or post.language
            else None,
        )
        for post in report.style_outliers[:MANY]
    ]
    body = join(
        tag(
            "p",
            "A guest post, a long quotation, a translation or another period of yours: the small "
            "words differ, and only you know why.",
        ),
        long_list(items, len(report.style_outliers), "post", "stack-list"),
    )
    return PageSection("style", title, body)


def links(report: Report) -> PageSection | None:
    """The section on dead links and on posts that no other post links to."""
    dead = report.dead_links
    if not (dead or len(report.posts) > 1):
        return None
    rows: list[list[str]] = [
        [
            tag("bdi", title_of(link.title)),
            tag("bdi", plain(link.text, 120) or "–"),
            tag("code", summary.link_target(link)),
        ]
        for link in dead
    ]
    heads = ["Text", "Words of the link", "Target"]
    body = join(
        tag("p", summary.internal_links(report)),
        long_table("Dead links", heads, rows, "links told", "link") if rows else None,
        _orphans(report),
    )
    return PageSection("links", "Internal links", body)


def _orphans(report: Report) -> Html | None:
    sentence, by_id = summary.orphans(report), {post.id: post for post in report.posts}
    if not sentence:
        return None
    posts = (by_id.get(orphan) for orphan in report.orphans[:MANY])
    items = (tag("li", post_link(post.title, post.url)) for post in posts if post)
    return join(
        tag("p", sentence),
        folded(
            "Show them",
            tag("ul", *items, class_="columns-list"),
            rest(len(report.orphans), MANY, "text"),
        ),
    )


def phrases(report: Report) -> PageSection | None:
    """The section on the phrases the author repeats, overall and by year."""
    if not report.posts:
        return None
    title = "Favourite phrases"
    years = summary.phrases_by_year(report.phrases)
    overall = years.pop(0, [])
    if not (overall or years):
        return PageSection("phrases", title, tag("p", "No phrase comes back often enough."))
    rows: list[list[str]] = [
        [str(year), join(*_phrase_list(phrases[:6]))] for year, phrases in years.items()
    ]
    body = join(
        tag("ol", *(_phrase(phrase) for phrase in overall[:16]), class_="phrases")
        if overall
        else None,
        long_table("By year", ["Year", "Phrases"], rows, "told keyed titled", "year")
        if rows
        else None,
    )
    return PageSection("phrases", title, body)


def _phrase(phrase: Phrase) -> Html:
    where = f"{count(phrase.count, 'time')} in {count(phrase.posts, 'post')}"
    return tag(
        "li", tag("q", tag("bdi", plain(phrase.text, 80))), tag("span", where, class_="quiet")
    )


def _phrase_list(phrases: list[Phrase]) -> list[str]:
    parts: list[str] = []
    for phrase in phrases:
        parts += [
            ", " if parts else "",
            tag("q", tag("bdi", plain(phrase.text, 80))),
            Html(f"&nbsp;{phrase.count:,}×"),
        ]
    return parts


def excluded(report: Report) -> PageSection:
    """The section on what is not in the archive, by reason."""
    title = "What is not in the archive"
    groups = summary.exclusion_reasons(report.excluded)
    if not groups:
        return PageSection("excluded", title, tag("p", "Nothing was left out."))
    rows: list[list[str]] = [
        [count(number, what), join(reason, _titles(titles))]
        for what, reason, number, titles in groups
    ]
    body = join(
        tag("p", "You cannot search any of this either."),
        long_table("Left out", ["What", "Why"], rows, "told keyed", "reason"),
    )
    return PageSection("excluded", title, body)


def _titles(titles: list[str]) -> Html | None:
    if not titles:
        return None
    shown = join(*(part for t in titles[:_TITLES] for part in (tag("bdi", t), tag("br"))))
    if len(titles) <= 4:
        return tag("span", shown, class_="quiet block")
    return folded(
        f"{count(len(titles))} titles",
        tag("span", shown, class_="quiet block"),
        rest(len(titles), _TITLES, "title"),
    )


def privacy(report: Report) -> PageSection:
    """The section on privacy: what was read, what was not, and personal data in the texts."""
    lines = summary.privacy_lines(report)
    slip = tag("dl", *(tag("div", tag("dt", k), tag("dd", v)) for k, v in lines), class_="receipt")
    addresses: Html | None = None
    if report.privacy.found_in:
        rows: list[list[str]] = [
            [tag("bdi", title_of(title)), tag("code", masked)]
            for title, masked in report.privacy.found_in
        ]
        addresses = join(
            tag(
                "p",
                "Check these before you share the archive or a model trained on it. They are "
                "masked here, but not in your texts.",
            ),
            long_table("Addresses and numbers", ["Text", "Found"], rows, "told legend", "place"),
        )
    return PageSection("privacy", "Privacy", join(slip, addresses))


def notes(report: Report) -> PageSection | None:
    """The section with the sources' notes."""
    if not report.notes:
        return None
    items = tag("ul", *(tag("li", note) for note in report.notes[:40]), class_="notes")
    return PageSection("notes", "Notes", join(items, rest(len(report.notes), 40, "note")))
