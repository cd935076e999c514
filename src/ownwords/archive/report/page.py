"""The report as one page that needs nothing else: no network, no script, no font, no template."""

from ownwords.archive.report import Report, findings, sections
from ownwords.archive.report import words as say
from ownwords.archive.report.frame import framed
from ownwords.archive.report.html import Html, join, rest, tag

_ORDER = (
    sections.training,
    sections.decisions,
    sections.lengths,
    sections.whose,
    sections.years,
    findings.twice,
    findings.unlike,
    findings.links,
    findings.phrases,
    findings.left_out,
    findings.held_back,
    findings.receipt,
    findings.notes,
)


def render(report: Report) -> str:
    """The whole page as HTML; the same report gives the same bytes."""
    parts = [part for write in _ORDER if (part := write(report)) is not None]
    title = f"{say.name(report)}: what is in it"
    return framed(title, "report", _masthead(report), parts, _footer(report))


def _masthead(report: Report) -> Html:
    first, then = say.lede(report)
    sources = (
        tag(
            "p",
            "Read from ",
            tag("code", source.path),
            f", {say.plain(source.seen_as, 160)}" if source.seen_as else None,
            f": {say.count(source.documents, 'text')}.",
            class_="source",
        )
        for source in report.sources[:12]
    )
    return tag(
        "header",
        tag("p", "What is in it", class_="kicker"),
        tag("h1", tag("bdi", say.name(report))),
        *sources,
        rest(len(report.sources), 12, "source"),
        tag("p", first, class_="lede"),
        tag("p", then, class_="follow"),
        _totals(report),
    )


def _totals(report: Report) -> Html:
    totals, years = report.totals, say.years_spanned(report)
    figures = [
        (
            say.count(totals.posts),
            say.noun(totals.posts, "post"),
            f"and {say.count(totals.pages, 'page')}" if totals.pages else "",
        ),
        (
            say.count(totals.own_words),
            f"{say.noun(totals.own_words, 'word')} of your own",
            f"of {say.count(totals.words)} in all",
        ),
        (years or "–", "years" if "–" in years or not years else "year", _days(report)),
        (
            say.count(totals.internal_links + totals.external_links),
            say.noun(totals.internal_links + totals.external_links, "link"),
            f"{say.count(totals.internal_links)} within, {say.count(totals.external_links)} out",
        ),
        (
            say.count(totals.training_words),
            f"{say.noun(totals.training_words, 'word')} to train with",
            say.size(totals.training_bytes),
        ),
    ]
    cells = (
        tag(
            "div",
            tag("dt", label),
            tag("dd", tag("b", figure), tag("small", note) if note else None),
        )
        for figure, label, note in figures
    )
    tags = say.count(totals.tags, "tag") if totals.tags else "No tags"
    more = (
        f"A text has {totals.average_words:,.0f} words of yours on average, "
        f"{totals.median_words:,.0f} at the median. {tags} in use."
    )
    return join(
        tag("dl", *cells, class_="totals"),
        tag("p", more, class_="quiet more") if totals.words else None,
    )


def _days(report: Report) -> str:
    totals = report.totals
    if not totals.first_day:
        return "no dates found"
    return " to ".join(dict.fromkeys([say.day(totals.first_day), say.day(totals.last_day)]))


def _footer(report: Report) -> Html:
    return tag(
        "footer",
        tag(
            "p",
            f"Made by ownwords {say.plain(report.version, 30)} on {say.day(report.made_on)}. ",
            "Fingerprint of the texts ",
            tag("code", say.plain(report.fingerprint)[:12]),
            ". Same texts, same fingerprint.",
        ),
    )
