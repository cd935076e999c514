"""A Bluesky repository: posts, a thread, a reply, a repost, a like and a picture, as a CAR file."""

import hashlib
import struct
from pathlib import Path

from exports import NON_ASCII

PUBLISHED = {
    "post/3kaaaaaaaaa2a": ("", "2023-07-01"),
    "post/3kccccccccc2c": ("", "2023-07-03"),
}

DID = "did:plc:ann"


class Link(bytes):
    """The hash of a block, as a value."""


def encode(value: object) -> bytes:
    """DAG-CBOR."""

    def head(kind: int, size: int) -> bytes:
        if size < 24:
            return bytes([kind << 5 | size])
        width = next(n for n in range(4) if size < 1 << (8 << n))
        return bytes([kind << 5 | 24 + width]) + size.to_bytes(1 << width)

    match value:
        case bool() | None:
            return {False: b"\xf4", True: b"\xf5", None: b"\xf6"}[value]
        case float():
            return b"\xfb" + struct.pack(">d", value)
        case int():
            return head(0, value) if value >= 0 else head(1, -1 - value)
        case Link():
            return head(6, 42) + encode(b"\0" + bytes(value))
        case bytes():
            return head(2, len(value)) + value
        case str():
            return head(3, len(value.encode())) + value.encode()
        case list():
            return head(4, len(value)) + b"".join(map(encode, value))
        case dict():
            pairs = sorted(value.items(), key=lambda pair: (len(pair[0]), pair[0]))
            return head(5, len(value)) + b"".join(encode(k) + encode(v) for k, v in pairs)
    raise TypeError(value)


def cid(block: bytes) -> Link:
    codec = b"\x55" if block.startswith(b"\x89PNG") else b"\x71"
    return Link(b"\x01" + codec + b"\x12\x20" + hashlib.sha256(block).digest())


def varint(number: int) -> bytes:
    return bytes([number]) if number < 128 else bytes([number & 127 | 128]) + varint(number >> 7)


def post(day: str, text: str, parent: str = "") -> dict[str, object]:
    reply = {"reply": {"parent": {"uri": parent}, "root": {"uri": parent}}} if parent else {}
    made = f"{day}T10:00:00.000Z"
    return {
        "$type": "app.bsky.feed.post",
        "text": text,
        "createdAt": made,
        "langs": ["en"],
        **reply,
    }


AT = f"at://{DID}/app.bsky.feed.post/"
RECORDS = {
    "app.bsky.feed.like/3kaaaaaaaaa2z": {"subject": {"uri": "at://INTRUDER"}, "x": -3, "y": 0.5},
    "app.bsky.feed.post/3kaaaaaaaaa2a": post("2023-07-01", f"A hat is a roof. {NON_ASCII}"),
    "app.bsky.feed.post/3kbbbbbbbbb2b": post("2023-07-01", "A coat, too.", AT + "3kaaaaaaaaa2a"),
    "app.bsky.feed.post/3kccccccccc2c": post("2023-07-03", "Rain & wind\nall day."),
    "app.bsky.feed.post/3kddddddddd2d": post("2023-07-04", "INTRUDER", "at://did:plc:bob/x/1"),
    "app.bsky.feed.repost/3kaaaaaaaaa2e": {"subject": {"uri": "at://INTRUDER"}},
}


def write(folder: Path) -> Path:
    """Write the file."""
    blocks = [encode(record) for record in RECORDS.values()]
    entries, before = [], ""
    for key, block in zip(RECORDS, blocks, strict=True):
        same = next((n for n, (a, b) in enumerate(zip(before, key)) if a != b), len(before))  # noqa: B905
        entries.append({"p": same, "k": key[same:].encode(), "v": cid(block), "t": None})
        before = key
    tree = encode({"l": None, "e": entries})
    commit = encode({"did": DID, "rev": "3k", "data": cid(tree), "version": 3, "sig": b"x" * 64})
    header = encode({"roots": [cid(commit)], "version": 1})
    blocks += [tree, commit, b"\x89PNG INTRUDER", encode(post("2020-01-01", "TRASHCANARY"))]
    path = folder / "repo.car"
    path.write_bytes(
        varint(len(header))
        + header
        + b"".join(varint(len(block) + 36) + cid(block) + block for block in blocks)
    )
    return path
