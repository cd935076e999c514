"""The scorecard as one self-contained HTML page: no network, no scripts, no fonts.

It shares stylesheet and builders with the corpus report.
"""

from ownwords.archive.report.formatting import day, plain
from ownwords.archive.report.html import Html, tag
from ownwords.archive.report.page_template import render_page
from ownwords.evaluation import wording as say
from ownwords.evaluation.card import sections
from ownwords.evaluation.scorecard import Scorecard

_ORDER = (
    sections.samples,
    sections.foresight,
    sections.voice,
    sections.fluency,
    sections.copying,
    sections.dominant,
    sections.making,
)


def render(card: Scorecard) -> str:
    """Render the page; the same scorecard gives the same bytes."""
    parts = [part for write in _ORDER if (part := write(card)) is not None]
    title = f"{say.name(card)}: how good your model is"
    masthead, footer = _masthead(card), _footer(card)
    return render_page(title, "scorecard", masthead, parts, footer, more_style=__package__)


def _masthead(card: Scorecard) -> Html:
    verdict = card.verdict
    return tag(
        "header",
        tag("p", tag("bdi", say.name(card)), ": how good your model is", class_="kicker"),
        tag("h1", verdict.sentence, class_="bad" if say.is_bad(verdict) else None),
        tag("ul", *(tag("li", sentence) for sentence in verdict.because), class_="because"),
        _figures(card),
        tag(
            "p", f"{say.learned_from(card.about)} {say.judged_on(card.about)}", class_="quiet more"
        ),
    )


def _figures(card: Scorecard) -> Html | None:
    figures = say.headline(card)
    if not figures:
        return None
    cells = (
        tag("div", tag("dt", label), tag("dd", tag("b", figure), tag("small", note)))
        for figure, label, note in figures
    )
    return tag("dl", *cells, class_="totals")


def _footer(card: Scorecard) -> Html:
    about = card.about
    return tag(
        "footer",
        tag(
            "p",
            f"Measured by ownwords {plain(about.version, 30)} on {day(about.made_on)}. ",
            "The model: ",
            tag("code", plain(about.model, 200)),
        ),
    )
