"""The HTML template that all reports share: one file without network, scripts or fonts."""

from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Final

from ownwords.archive.report.html import Html, tag
from ownwords.archive.report.sections import PageSection

SHARED_STYLE: Final = Path(__file__).with_name("shared.css")  # with the page of `ownwords serve`
# Content security policy: nothing may be loaded, even if a title were not escaped.
_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; "
    "base-uri 'none'; form-action 'none'"
)


def render_page(
    title: str,
    what: str,
    masthead: Html,
    parts: Sequence[PageSection],
    footer: Html,
    *,
    more_style: str = "",
) -> str:
    """An HTML page; `what` names it ("report") in the links for screen readers.

    `more_style` is a package with its own `page.css`, whose rules follow the shared ones.
    """
    styles = [SHARED_STYLE.read_text("utf-8"), _stylesheet("ownwords.archive.report")]
    styles += [_stylesheet(more_style)] if more_style else []
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("title", title),
        tag("style", Html("\n".join(styles))),
    )
    body = tag(
        "body",
        tag("a", f"To the {what}", href=f"#{what}", class_="skip"),
        masthead,
        tag("nav", _contents(parts), aria_label=f"In this {what}"),
        tag("main", *(_section(part) for part in parts), id=what),
        footer,
    )
    return f"<!DOCTYPE html>\n{tag('html', head, body, lang='en')}\n"


@cache
def _stylesheet(package: str) -> str:
    return files(package).joinpath("page.css").read_text("utf-8")


def _contents(parts: Sequence[PageSection]) -> Html:
    return tag("ol", *(tag("li", tag("a", part.title, href=f"#{part.anchor}")) for part in parts))


def _section(part: PageSection) -> Html:
    return tag(
        "section",
        tag("h2", part.title, id=f"{part.anchor}-heading"),
        tag("div", part.body, class_="body"),
        id=part.anchor,
        aria_labelledby=f"{part.anchor}-heading",
    )
