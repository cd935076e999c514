"""A Publii site as Publii stores it, with edge cases."""

import json
import sqlite3
from contextlib import closing
from datetime import datetime
from pathlib import Path

from exports import NON_ASCII

PUBLISHED = {
    "post/1": ("On hats", "2019-01-01"),
    "post/2": ("On backups", "2019-02-28"),
    "post/3": ("On <blocks> & other things", "2022-12-31"),
    "post/4": ("Zażółć", "2024-02-29"),
    "page/9": ("About me", "2018-06-01"),
    "page/10": ("My tools", "2018-06-02"),
}
LEFT_OUT = {"draft": 2, "trashed": 2, "hidden": 1}

# Publii's own, which has not changed since 2018.
SCHEMA = (Path(__file__).parents[2] / "examples" / "blog" / "schema.sql").read_text("utf-8")
SETTINGS = {
    "name": "hats",
    "displayName": "Hats and Backups",
    "domain": "https://hats.example.org/",
    "advanced": {
        "urls": {
            "cleanUrls": True,
            "postsPrefix": "blog",
            "tagsPrefix": "tags",
            "authorsPrefix": "authors",
        }
    },
}
PAGES = [{"id": 9, "subpages": [{"id": 10, "subpages": []}]}]

_HTML = (
    f"<p>{NON_ASCII}: I wrote this with one hand on my hat, and the other on the keys.</p>\n"
    '<p><img class="post__image" src="#DOMAIN_NAME#hat.jpg" alt="My hat"> See'
    ' <a href="#INTERNAL_LINK#/post/2">what I said of backups</a>,'
    ' <a href="#INTERNAL_LINK#/tag/1">hats</a>, <a href="#INTERNAL_LINK#/tag/9">a gone tag</a>,'
    ' <a href="#INTERNAL_LINK#/author/ann">me</a>, <a href="#INTERNAL_LINK#/frontpage/1">home</a>,'
    ' <a href="#INTERNAL_LINK#/file/media/files/a.pdf">a file</a> and'
    ' <a href="#INTERNAL_LINK#/post/99">what is gone</a>.</p>\n'
    "<blockquote><p>A quoted line that another wrote.</p></blockquote>\n"
    '<pre class="language-python"><code>print("hat" &lt; "cap")</code></pre>\n<p>&nbsp;</p>'
)
_MARKDOWN = (
    "The trouble with backups is *when*.\n\n---READMORE---\n\n"
    'See [blocks](#INTERNAL_LINK#/post/3). ![disk](#DOMAIN_NAME#disk.png =640x480 "A disk")\n\n'
    "> Somebody else said so.\n\n```sh\ncp -a a b\n```\n"
)
_BLOCKS = [
    {
        "id": 1600000000000,
        "type": "publii-header",
        "config": {"headingLevel": 2},
        "content": "One",
    },
    {
        "id": "5b1e",
        "type": "publii-paragraph",
        "config": {"textAlign": "left", "link": {}},
        "content": 'Blocks, and a <a href="#INTERNAL_LINK#/page/9">page</a>. “Quotes” too.',
    },
    {"id": "q", "type": "publii-quote", "config": {}, "content": {"text": "Q.", "author": "W."}},
    {"id": "c", "type": "publii-code", "config": {"language": "c"}, "content": 'puts("<hat>");'},
]
_ABOUT = '<p>I wrote <a href="#INTERNAL_LINK#/post/1">of hats</a>.</p>'
_CANARY = "<p>TRASHCANARY should be read by nobody.</p>"
_IN_MARKDOWN = {"editor": "markdown", "metaDesc": "Of copies."}
_ELSEWHERE = {"editor": "tinymce", "canonicalUrl": "https://elsewhere.example.com/zazolc"}
# id, title, authors, slug, text, date, status, _core
_POSTS = [
    (1, "On hats", "1", "on-hats", _HTML, "2019-01-01", "published,featured", None),
    (2, "On backups", "1,2", "on-backups", _MARKDOWN, "2019-02-28", "published", _IN_MARKDOWN),
    (
        *(3, "On <blocks> & other things", "1", "on-blocks", json.dumps(_BLOCKS)),
        *("2022-12-31", "published,excluded_homepage", {"editor": "blockeditor"}),
    ),
    (4, "Zażółć", "1", "zazolc", "No tags.\n\nOnly lines.", "2024-02-29", "published", _ELSEWHERE),
    (5, "Not yet", "1", "not-yet", _CANARY, "2024-03-01", "draft", {}),
    (6, "Of no status", "1", "no-status", _CANARY, "2024-03-02", "", {}),
    (7, "Thrown away", "1", "thrown", _CANARY, "2024-03-03", "published,trashed", {}),
    (8, "Thrown earlier", "1", "thrown-2", _CANARY, "2024-03-04", "draft,trashed", {}),
    (9, "About me", "1", "about", _ABOUT, "2018-06-01", "published,is-page", {}),
    (10, "My tools", "1", "tools", "<p>A pen.</p>", "2018-06-02", "published,is-page", {}),
    (11, "Unlisted", "1", "unlisted", _CANARY, "2024-03-05", "published,hidden,newflag", {}),
]


def write(folder: Path) -> Path:
    """Writes the site into `folder` and returns its own folder."""
    site = folder / "hats"
    config = site / "input" / "config"
    config.mkdir(parents=True)
    (config / "site.config.json").write_text(json.dumps(SETTINGS), encoding="utf-8")
    (config / "pages.config.json").write_text(json.dumps(PAGES), encoding="utf-8")
    write_database(site / "input" / "db.sqlite")
    return site


def write_database(path: Path) -> None:
    """Write the database alone."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executescript(SCHEMA)
        connection.executemany(
            "INSERT INTO authors (name, username) VALUES (?, ?)",
            [("Ann Author", "ann"), ("Bob Brother", "bob")],
        )
        connection.executemany(
            "INSERT INTO tags (name, slug) VALUES (?, ?)", [("Hats", "hats"), ("Zażółć", "zazolc")]
        )
        connection.executemany("INSERT INTO posts_tags VALUES (?, ?)", [(2, 1), (1, 1), (1, 2)])
        for number, title, authors, slug, text, day, status, core in _POSTS:
            made_ms = int(datetime.fromisoformat(f"{day}T12:30:00Z").timestamp() * 1000)
            connection.execute(
                "INSERT INTO posts (id, title, authors, slug, text, created_at, modified_at,"
                " status) VALUES (?, ?, ?, ?, ?, ?, 1700000000000, ?)",
                (number, title, authors, slug, text, made_ms, status),
            )
            if core is not None:
                connection.execute(
                    "INSERT INTO posts_additional_data (post_id, key, value) VALUES (?, ?, ?)",
                    (number, "_core", json.dumps(core) if core else ""),
                )
