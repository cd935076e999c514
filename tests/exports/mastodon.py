"""A Mastodon archive as its zip: posts, a thread, a boost, replies, and what few may see."""

import json
from pathlib import Path

from exports import NON_ASCII, write_zip

HOME = "https://example.social/users/ann"
PUBLISHED = {
    f"post/{HOME}/statuses/11": ("", "2022-11-05"),
    f"post/{HOME}/statuses/14": ("On weather", "2023-01-02"),
}
LEFT_OUT = {"private": 1}

PUBLIC = "https://www.w3.org/ns/activitystreams#Public"


def note(number: int, day: str, content: str, parent: str | None = None, **more: object) -> object:
    """An activity as the server writes it."""
    fields = {
        "id": f"{HOME}/statuses/{number}",
        "type": "Note",
        "summary": None,
        "inReplyTo": parent,
        "published": f"{day}T10:00:00Z",
        "url": f"https://example.social/@ann/{number}",
        "to": [PUBLIC],
        "cc": [f"{HOME}/followers"],
        "content": f"<p>{content}</p>",
        "tag": [{"type": "Hashtag", "name": "#hats"}, {"type": "Mention", "name": "@bob@b.social"}],
    }
    return {
        "id": f"{fields['id']}/activity",
        "type": "Create",
        "actor": HOME,
        "object": fields | more,
    }


OUTBOX = {
    "@context": "https://www.w3.org/ns/activitystreams",
    "id": "outbox.json",
    "type": "OrderedCollection",
    "totalItems": 7,
    "orderedItems": [
        note(11, "2022-11-05", f"A hat is a roof. {NON_ASCII}"),
        {"type": "Announce", "actor": HOME, "object": "https://other.social/INTRUDER"},
        note(12, "2022-11-06", "And a coat is a wall.", f"{HOME}/statuses/11"),
        note(13, "2022-12-01", "No, INTRUDER.", "https://other.social/users/bob/statuses/1"),
        note(15, "2022-12-02", "As I said, INTRUDER.", f"{HOME}/statuses/13"),
        note(
            14,
            "2023-01-02",
            'As <a href="https://example.social/@ann/12">here</a>.',
            summary="On weather",
            to=[f"{HOME}/followers"],
            cc=[PUBLIC],
        ),
        note(16, "2023-01-03", "TRASHCANARY for followers", to=[f"{HOME}/followers"], cc=[]),
    ],
}


def write(folder: Path) -> Path:
    """Write the archive."""
    members = {
        "outbox.json": json.dumps(OUTBOX),
        "actor.json": json.dumps({"id": HOME, "name": "INTRUDER"}),
        "likes.json": '{"type": "OrderedCollection", "orderedItems": ["INTRUDER"]}',
    }
    return write_zip(folder / "archive-20230201-0a1b2c.zip", members)
