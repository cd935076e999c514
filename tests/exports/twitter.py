"""An X archive as its zip: a long post, a thread, a repost, replies, and what was deleted."""

import json
from pathlib import Path

from exports import NON_ASCII, write_zip

PUBLISHED = {
    "post/1000": ("", "2018-10-10"),
    "post/1004": ("", "2018-10-11"),
    "post/1005": ("", "2018-10-12"),
}

LONG = "A hat is a roof one wears, and a very long sentence about it has no end. " * 8


def tweet(number: int, day: int, text: str, **more: object) -> object:
    """A post as the archive has it."""
    return {
        "tweet": {
            "id_str": str(number),
            "id": str(number),
            "full_text": text,
            "created_at": f"Wed Oct {day} 20:19:24 +0000 2018",
            "entities": {"hashtags": [{"text": "hats"}], "urls": [], "user_mentions": []},
            **more,
        }
    }


LINK = {
    "url": "https://t.co/abc",
    "expanded_url": "https://twitter.com/ann/status/1001",
    "display_url": "twitter.com/ann/status/1001",
}
ENTITIES = {"urls": [LINK], "media": [{"url": "https://t.co/INTRUDER"}]}
TWEETS = [
    tweet(1001, 10, "And so on.", in_reply_to_status_id_str="1000", in_reply_to_user_id_str="7"),
    tweet(1000, 10, f"A hat &amp; a coat. {NON_ASCII}"),
    tweet(1002, 10, "RT @bob: INTRUDER", retweeted=False),
    tweet(1003, 10, "@bob INTRUDER", in_reply_to_status_id_str="5", in_reply_to_user_id_str="8"),
    tweet(1004, 11, "As I said: https://t.co/abc https://t.co/INTRUDER", entities=ENTITIES),
    tweet(1005, 12, f"{LONG[:270].rstrip()}… https://t.co/xyz"),
    tweet(1006, 13, "@bob INTRUDER", in_reply_to_user_id_str="8"),
]
FILES = {
    "data/tweets.js": ("tweets", TWEETS),
    "data/note-tweet.js": ("note_tweet", [{"noteTweet": {"core": {"text": f"{LONG}The end."}}}]),
    "data/account.js": ("account", [{"account": {"username": "ann", "accountId": "7"}}]),
    "data/deleted-tweets.js": ("deleted_tweets", [tweet(9, 9, "TRASHCANARY")]),
    "data/direct-messages.js": ("direct_messages", [{"text": "INTRUDER"}]),
}


def write(folder: Path) -> Path:
    """Write the archive."""
    members = {
        name: f"window.YTD.{kind}.part0 = {json.dumps(rows, indent=2)}"
        for name, (kind, rows) in FILES.items()
    }
    return write_zip(folder / "twitter-2018-11-01-0a1b2c.zip", members)
