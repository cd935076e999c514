"""The report as one HTML page without network, script or font."""

from ownwords.archive.report import Report, findings, sections, summary
from ownwords.archive.report.formatting import count, day, plain
from ownwords.archive.report.html import Html, join, rest, tag
from ownwords.archive.report.page_template import render_page

_SOURCES = 12  # that are named
_ORDER = (
    sections.training,
    sections.decisions,
    sections.lengths,
    sections.whose,
    sections.years,
    findings.duplicates,
    findings.style,
    findings.links,
    findings.phrases,
    findings.excluded,
    sections.split,
    findings.privacy,
    findings.notes,
)


def render_report(report: Report) -> str:
    """The report as an HTML page; the same report gives the same bytes."""
    parts = [part for write in _ORDER if (part := write(report)) is not None]
    title = f"{summary.name(report)}: archive report"
    return render_page(title, "report", _masthead(report), parts, _footer(report))


def _masthead(report: Report) -> Html:
    first, second = summary.lede(report)
    sources = (
        tag(
            "p",
            "Read from ",
            tag("code", source.path),
            f", {plain(source.detected_as, 160)}" if source.detected_as else None,
            f": {count(source.documents, 'text')}.",
            class_="source",
        )
        for source in report.sources[:_SOURCES]
    )
    return tag(
        "header",
        tag("p", "Archive report", class_="kicker"),
        tag("h1", tag("bdi", summary.name(report))),
        *sources,
        rest(len(report.sources), _SOURCES, "source"),
        tag("p", first, class_="lede"),
        tag("p", second, class_="follow"),
        _totals(report),
    )


def _totals(report: Report) -> Html:
    cells = (
        tag(
            "div",
            tag("dt", label),
            tag("dd", tag("b", figure), tag("small", note) if note else None),
        )
        for figure, label, note in summary.headline_figures(report)
    )
    return join(
        tag("dl", *cells, class_="totals"),
        tag("p", more, class_="quiet more") if (more := summary.average(report)) else None,
    )


def _footer(report: Report) -> Html:
    return tag(
        "footer",
        tag(
            "p",
            f"Written by ownwords {plain(report.version, 30)} on {day(report.created_on)}. ",
            "Fingerprint of the texts ",
            tag("code", plain(report.fingerprint)[:_SOURCES]),
            ". Same texts, same fingerprint.",
        ),
    )
