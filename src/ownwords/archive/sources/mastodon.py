"""Source: a Mastodon archive, or another ActivityPub server's: its outbox.json."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ownwords.archive import readability, untrusted_files
from ownwords.archive.dates import parse_iso_date
from ownwords.archive.document import SiteInfo, SkippedItem, SourceItem
from ownwords.archive.text_repair import as_object, objects_in, text_value
from ownwords.archive.threads import SocialPost, join_threads
from ownwords.core.errors import SourceError

NAME = "Mastodon"

_EXPORTS = untrusted_files.ExportFormat(
    re.compile(rb'"OrderedCollection"'), ("outbox.json",), ("outbox.json",)
)
_PUBLIC = frozenset({"https://www.w3.org/ns/activitystreams#Public", "as:Public", "Public"})


def detect(path: Path) -> str | None:
    """Recognise an outbox, or a zip or folder that holds it."""
    return "a Mastodon archive" if _EXPORTS.count(path) else None


def read(path: Path) -> Iterator[SourceItem]:
    """Yield own posts and threads; posts for followers or single people are private."""
    name, data = next(_EXPORTS.read(path), ("", b""))
    outbox = untrusted_files.parse_json(name, data) if name else None
    activities = objects_in(as_object(outbox).get("orderedItems"))
    if not activities:
        raise SourceError(
            f"{path} holds no outbox with posts",
            hint="give the archive that Preferences > Import and export > Data export makes",
        )
    actor = next((text_value(item, "actor") for item in activities), "")
    author = actor.rstrip("/").rpartition("/")[2]
    yield SiteInfo(author, identity=f"mastodon-{author}")
    posts = [post for item in activities if (post := _post(item)) is not None]
    yield from join_threads(posts, author)
    boosts = sum(item.get("type") == "Announce" for item in activities)
    if boosts:
        yield SkippedItem("post", "a boost of somebody else's post", boosts)


def _post(activity: dict[str, Any]) -> SocialPost | None:
    note = as_object(activity.get("object"))
    if activity.get("type") != "Create" or not text_value(note, "id"):
        return None
    tags = [tag for tag in objects_in(note.get("tag")) if tag.get("type") == "Hashtag"]
    names = (text_value(tag, "name").removeprefix("#") for tag in tags)
    audience = [text for key in ("to", "cc") for text in _texts(note.get(key))]
    urls = (readability.web_url(text_value(note, key)) for key in ("url", "id"))
    return SocialPost(
        id=text_value(note, "id"),
        html=text_value(note, "content"),
        date=parse_iso_date(text_value(note, "published")),
        parent=text_value(note, "inReplyTo"),
        urls=tuple(filter(None, urls)),
        status="private" if _PUBLIC.isdisjoint(audience) else "published",
        title=text_value(note, "summary"),  # its content warning
        tags=tuple(filter(None, names)),
    )


def _texts(value: object) -> list[str]:
    values = value if isinstance(value, list) else [value]
    return [text for text in values if isinstance(text, str)]
