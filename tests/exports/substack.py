"""A Substack export as its zip, with drafts, chrome, and lists of readers that must stay closed."""

import csv
import io
from pathlib import Path

from exports import NON_ASCII, write_zip

PUBLISHED = {
    "post/101": ("On hats", "2020-01-31"),
    "post/102": ("Coats, a sequel", "2021-06-02"),
    "post/103": ("For those who pay", "2022-02-03"),
    "post/104": ("About", "2019-12-24"),
}
LEFT_OUT = {"draft": 2}

COLUMNS = (
    *("post_id", "post_date", "is_published", "email_sent_at", "inbox_sent_at"),
    *("type", "audience", "title", "subtitle", "podcast_url"),
)
ROWS = [
    ("101.on-hats", "2020-01-31T10:00:00.000Z", "true", "newsletter", "everyone", "On hats"),
    ("102.coats", "2021-06-02T08:00:00.000Z", "true", "newsletter", "everyone", "Coats, a sequel"),
    ("103.paid", "2022-02-03T08:00:00.000Z", "true", "podcast", "only_paid", "For those who pay"),
    ("104.about", "2019-12-24T08:00:00.000Z", "true", "page", "everyone", "About"),
    ("105.not-yet", "", "false", "newsletter", "everyone", "Not yet"),
    ("106.never", "2023-01-01T08:00:00.000Z", "false", "newsletter", "everyone", "Never"),
    ("107.lost", "2023-01-02T08:00:00.000Z", "true", "newsletter", "everyone", "Lost"),
]
SUBSCRIBE = (
    '<div class="subscription-widget-wrap-editor" data-attrs="{}"><div class="subscription-widget'
    ' show-subscribe"><div class="preamble"><p class="cta-caption">Thanks for reading CHROME!'
    ' Subscribe for free.</p></div><form class="subscription-widget-subscribe"><input type="email"'
    ' placeholder="Type your email…"><input type="submit" value="Subscribe"></form></div></div>'
)
SHARE = (
    '<p class="button-wrapper" data-attrs="{}"><a class="button primary"'
    ' href="https://hats.substack.com/p/on-hats?action=share"><span>Share CHROME</span></a></p>'
)
BODIES = {
    "101.on-hats": f"<p>A hat is a roof one wears. {NON_ASCII}</p>{SUBSCRIBE}"
    "<blockquote><p>A quoted line.</p></blockquote><pre><code>hat = 1 &lt; 2</code></pre>"
    '<p>Noted<a class="footnote-anchor" href="#footnote-1" id="footnote-anchor-1">1</a>.</p>'
    '<div class="footnote"><a class="footnote-number" href="#footnote-anchor-1">1</a>'
    f'<div class="footnote-content"><p>In a footnote.</p></div></div>{SHARE}',
    "102.coats": '<p>After <a href="https://hats.substack.com/p/on-hats">hats</a>, coats.</p>',
    "103.paid": '<p>See <a href="https://hats.substack.com/p/coats?utm_source=x">coats</a>.</p>',
    "104.about": "<p>I write about what one wears.</p>",
    "105.not-yet": "<p>TRASHCANARY in a draft.</p>",
    "106.never": "<p>TRASHCANARY in a post taken down.</p>",
}


def files() -> dict[str, str]:
    """The members of the export by name."""
    table = io.StringIO(newline="")
    writer = csv.writer(table)
    writer.writerow(COLUMNS)
    for post_id, date, published, kind, audience, title in ROWS:
        writer.writerow([post_id, date, published, "", "", kind, audience, title, "A sub", ""])
    return {
        "posts.csv": table.getvalue(),
        **{f"posts/{name}.html": body for name, body in BODIES.items()},
        "posts/101.opens.csv": "email\nINTRUDER@example.com\n",
        "posts/101.delivers.csv": "email\nINTRUDER@example.com\n",
        "email_list.hats.csv": "email\nINTRUDER@example.com\n",
    }


def write(folder: Path) -> Path:
    """Write the export as one zip."""
    return write_zip(folder / "substack.zip", files())
