"""What is in an archive, in a handful of figures: the same wherever they are shown."""

from ownwords.archive.report import Report
from ownwords.archive.report import formatting as say

Figure = tuple[str, str, str]  # itself, what it counts, and a note


def totals(report: Report) -> list[Figure]:
    """The figures at the head of the report."""
    of, years = report.totals, say.years_spanned(report)
    return [
        (
            say.count(of.posts),
            say.noun(of.posts, "post"),
            f"and {say.count(of.pages, 'page')}" if of.pages else "",
        ),
        (
            say.count(of.own_words),
            f"{say.noun(of.own_words, 'word')} of your own",
            f"of {say.count(of.words)} in all",
        ),
        (years or "–", "years" if "–" in years or not years else "year", _days(report)),
        (
            say.count(of.internal_links + of.external_links),
            say.noun(of.internal_links + of.external_links, "link"),
            f"{say.count(of.internal_links)} within, {say.count(of.external_links)} out",
        ),
        (
            say.count(of.training_words),
            f"{say.noun(of.training_words, 'word')} to train with",
            say.size(of.training_bytes),
        ),
    ]


def average(report: Report) -> str:
    """How long its texts are, in a sentence; empty where there are none."""
    totals = report.totals
    if not totals.words:
        return ""
    tags = say.count(totals.tags, "tag") if totals.tags else "No tags"
    return (
        f"A text has {totals.average_words:,.0f} words of yours on average, "
        f"{totals.median_words:,.0f} at the median. {tags} in use."
    )


def _days(report: Report) -> str:
    totals = report.totals
    if not totals.first_day:
        return "no dates found"
    return " to ".join(dict.fromkeys([say.day(totals.first_day), say.day(totals.last_day)]))
