"""A Ghost export (version 5) with edge cases."""

import json
from pathlib import Path
from typing import Any

from exports import NON_ASCII

PUBLISHED = {
    "post/a1": ("Hats & caps", "2020-01-31"),
    "post/a2": ("A newsletter only", "2021-02-03"),
    "post/a3": ("For members", "2022-03-04"),
    "page/a4": ("About", "2019-12-31"),
}
LEFT_OUT = {"draft": 1, "scheduled": 1}
OTHERS = 2


_LETTER = (
    "<h2>Hats &lt; caps</h2><p>One, <strong>two</strong><br>"
    '<a href="__GHOST_URL__/about/">about</a></p><ol><li>first</li></ol>'
    "<blockquote>Said by another.</blockquote>"
    '<pre class="language-python">if a &lt; b:\n    pass</pre>'
)
_MEMBERS = '<p>I <strong>like</strong><br><a href="__GHOST_URL__/hats/">hats &amp; caps</a></p>'
_HTML = (
    f"<p>{NON_ASCII}: I like hats.</p><blockquote>A quoted line that another wrote.</blockquote>"
    '<pre><code class="language-python">a &lt; b</code></pre>'
    '<p>See <a href="__GHOST_URL__/letter/">the letter</a>.</p>'
)
_ABOUT = '<p>Read <a href="__GHOST_URL__/hats/">hats</a>.</p>'
_CANARY = "<p>TRASHCANARY should be read by nobody.</p>"


def post(number: str, title: str, slug: str, day: str, **more: object) -> dict[str, Any]:
    return {
        "id": number,
        "title": title,
        "slug": slug,
        "mobiledoc": None,
        "lexical": None,
        "html": None,
        "plaintext": None,
        "type": "post",
        "status": "published",
        "visibility": "public",
        "published_at": f"{day}T10:00:00.000Z",
        "created_at": f"{day}T09:00:00.000Z",
    } | more


def export() -> dict[str, Any]:
    comment = {"id": "c", "post_id": "a1", "html": "<p>INTRUDER was here</p>"}
    tables = {
        "comments": [comment, comment],
        "posts": [
            post("a1", "Hats & caps", "hats", "2020-01-31", html=_HTML, custom_excerpt="Of hats."),
            post("a2", "A newsletter only", "letter", "2021-02-03", html=_LETTER, status="sent"),
            post("a3", "For members", "x", "2022-03-04", html=_MEMBERS, visibility="paid"),
            post("a4", "About", "about", "2019-12-31", html=_ABOUT, type="page"),
            post("a5", "A draft", "draft", "2023-01-01", html=_CANARY, status="draft"),
            post("a6", "To come", "to-come", "2099-01-01", html=_CANARY, status="scheduled"),
        ],
        "posts_authors": [{"post_id": "a1", "author_id": "u1", "sort_order": 0}],
        "posts_meta": [{"post_id": "a2", "meta_description": "A letter."}],
        "posts_tags": [
            {"post_id": "a1", "tag_id": tag, "sort_order": place}
            for tag, place in (("t2", 1), ("t1", 0), ("t3", 2))
        ],
        "settings": [{"key": "title", "value": "Hats & Heads"}],
        "tags": [
            {"id": "t1", "name": "Hats"},
            {"id": "t2", "name": "Zażółć"},
            {"id": "t3", "name": "#import", "visibility": "internal"},
        ],
        "users": [{"id": "u1", "name": "Ann Author", "email": "ann@example.com"}],
    }
    meta = {"exported_on": 1700000000000, "version": "5.75.0"}
    return {"db": [{"meta": meta, "data": tables}]}


def write(folder: Path) -> Path:
    """Writes the export into `folder` and returns its file."""
    path = folder / "hats.ghost.2024-01-01.json"
    path.write_text(json.dumps(export(), ensure_ascii=False), encoding="utf-8")
    return path
