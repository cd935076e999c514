"""The report as one page that needs nothing else: no network, no script, no font, no template."""

from ownwords.archive.report import Report, figures, findings, sections
from ownwords.archive.report import formatting as say
from ownwords.archive.report.html import Html, join, rest, tag
from ownwords.archive.report.page_template import render_page

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


def render_report(report: Report) -> str:
    """The whole page as HTML; the same report gives the same bytes."""
    parts = [part for write in _ORDER if (part := write(report)) is not None]
    title = f"{say.name(report)}: what is in it"
    return render_page(title, "report", _masthead(report), parts, _footer(report))


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
    cells = (
        tag(
            "div",
            tag("dt", label),
            tag("dd", tag("b", figure), tag("small", note) if note else None),
        )
        for figure, label, note in figures.totals(report)
    )
    return join(
        tag("dl", *cells, class_="totals"),
        tag("p", more, class_="quiet more") if (more := figures.average(report)) else None,
    )


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
