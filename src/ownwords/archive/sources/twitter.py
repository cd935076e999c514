"""Source: an X (Twitter) archive, its tweets.js, as a zip or unpacked."""

import re
from collections.abc import Iterator
from html import escape, unescape
from pathlib import Path
from typing import Any

from ownwords.archive import untrusted_files
from ownwords.archive.dates import parse_date
from ownwords.archive.document import SiteInfo, SkippedItem, SourceItem
from ownwords.archive.text_repair import as_object, objects_in, text_value
from ownwords.archive.threads import SocialPost, join_threads
from ownwords.core.errors import SourceError

NAME = "X (Twitter)"

_KIND = re.compile(rb"\s*window\.YTD\.(tweets?|note_tweet|account)\.part\d+\s*=\s*")
_FILES = ("tweet.js", "tweets.js", "tweets-part*.js", "tweet-part*.js", "note-tweet.js")
_EXPORTS = untrusted_files.ExportFormat(
    re.compile(rb"\A" + _KIND.pattern),
    tuple(f"{folder}{name}" for folder in ("", "data/") for name in (*_FILES, "account.js")),
    (".js",),
)
# A longer post is stored whole in another file, which does not link to its beginning.
_SHARED_CHARACTERS = 200


def detect(path: Path) -> str | None:
    """Recognise the files of an archive by their first line."""
    return "an X (Twitter) archive" if _EXPORTS.count(path) else None


def read(path: Path) -> Iterator[SourceItem]:
    """Yield own posts and threads."""
    rows: dict[str, list[dict[str, Any]]] = {"tweet": [], "note_tweet": [], "account": []}
    for name, data in _EXPORTS.read(path):
        start = _KIND.match(data)
        value = untrusted_files.parse_json(name, data[start.end() :]) if start else None
        kind = start[1].decode().removesuffix("s") if start else ""
        for row in value if isinstance(value, list) else ():
            # Each row is an object with one member; in old archives it is the post itself.
            inner = next(iter(row.values()), None) if isinstance(row, dict) else None
            if isinstance(row, dict):
                rows[kind].append(inner if isinstance(inner, dict) else row)
    if not rows["tweet"]:
        raise SourceError(
            f"{path} holds no posts", hint="give the whole archive, or its data/tweets.js"
        )
    author = next((text_value(row, "username") for row in rows["account"]), "")
    yield SiteInfo(author, identity=f"x-{author}" if author else "x")
    whole = {}
    for row in rows["note_tweet"]:
        text = unescape(text_value(as_object(row.get("core")), "text"))
        whole[text[:_SHARED_CHARACTERS]] = text
    own = [row for row in rows["tweet"] if not text_value(row, "full_text").startswith("RT @")]
    yield from join_threads(
        [_post(row, whole, author) for row in own if text_value(row, "id_str")], author
    )
    if reposts := len(rows["tweet"]) - len(own):
        yield SkippedItem("post", "a repost of somebody else's post", reposts)


def _post(row: dict[str, Any], whole: dict[str, str], author: str) -> SocialPost:
    text = unescape(text_value(row, "full_text"))
    if len(text) >= _SHARED_CHARACTERS:
        text = whole.get(text[:_SHARED_CHARACTERS], text)
    html = escape(text, quote=False).replace("\n", "<br>")
    entities = as_object(row.get("entities"))
    for link in objects_in(entities.get("urls")):
        href, shown = text_value(link, "expanded_url"), text_value(link, "display_url")
        short = text_value(link, "url")
        html = html.replace(short or "\0", f'<a href="{escape(href)}">{escape(shown)}</a>')
    for picture in objects_in(entities.get("media")):
        html = html.replace(text_value(picture, "url") or "\0", "")
    id_ = text_value(row, "id_str")
    # A reply names the post that it answers or, if that was deleted, the person.
    parent = text_value(row, "in_reply_to_status_id_str") or text_value(
        row, "in_reply_to_user_id_str"
    )
    hosts = ("x.com", "twitter.com") if author else ()
    return SocialPost(
        id=id_,
        html=f"<p>{html}</p>",
        date=parse_date(_tidy(text_value(row, "created_at"))),
        parent=parent,
        urls=tuple(f"https://{host}/{author}/status/{id_}" for host in hosts),
        tags=tuple(text_value(tag, "text") for tag in objects_in(entities.get("hashtags"))),
    )


def _tidy(date: str) -> str:
    """Reorder "Wed Oct 10 20:19:24 +0000 2018" like the Date header of an email."""
    parts = date.split()
    if len(parts) != 6:
        return date
    weekday, month, day, time, zone, year = parts
    return f"{weekday}, {day} {month} {year} {time} {zone}"
