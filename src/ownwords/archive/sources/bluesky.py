"""Source: a Bluesky repository (repo.car), as Settings > Account > Export my data saves it.

The file is a CAR: blocks of DAG-CBOR, each under the hash of its bytes. Specifications:
https://ipld.io/specs/transport/car/carv1/ and https://atproto.com/specs/repository.
"""

import re
import struct
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any

from ownwords.archive import untrusted_files
from ownwords.archive.dates import parse_iso_date
from ownwords.archive.document import SiteInfo, SkippedItem, SourceItem
from ownwords.archive.text_repair import as_object, objects_in, text_value
from ownwords.archive.threads import SocialPost, join_threads
from ownwords.core.errors import SourceError

NAME = "Bluesky"

# A length, then the header: a map whose first key is "roots".
_EXPORTS = untrusted_files.ExportFormat(re.compile(rb"\A.\xa2eroots", re.S), ("*.car",), (".car",))
_POSTS = "app.bsky.feed.post/"
_CID_BYTES = 36  # version, codec, and a SHA-256 with its two bytes of type and length
_DEEPEST = 64
_LINK_TAG = 42


def detect(path: Path) -> str | None:
    """Recognise a CAR file by its header."""
    return "a Bluesky repository" if _EXPORTS.count(path) else None


def read(path: Path) -> Iterator[SourceItem]:
    """Yield own posts and threads; likes, follows and reposts are not read."""
    name, data = next(_EXPORTS.read(path), ("", b""))
    try:
        blocks = dict(_blocks(data))
    except (IndexError, ValueError, RecursionError, struct.error) as error:
        hint = "export it again: Settings > Account > Export my data"
        raise SourceError(f"{name} is damaged: {error}", hint=hint) from error
    values = [value for value in blocks.values() if isinstance(value, dict)]
    author = next((text_value(value, "did") for value in values if "did" in value), "")
    keys = {key: cid for value in values for key, cid in _entries(value)}
    records = {
        key.removeprefix(_POSTS): record
        for key, cid in keys.items()
        if key.startswith(_POSTS) and isinstance(record := blocks.get(cid), dict)
    }
    if not records:
        raise SourceError(f"{path} holds no Bluesky posts")
    yield SiteInfo(author, identity=author)
    yield from join_threads([_post(key, row, author) for key, row in records.items()], author)
    reposts = sum(key.startswith("app.bsky.feed.repost/") for key in keys)
    if reposts:
        yield SkippedItem("post", "a repost of somebody else's post", reposts)


def _post(key: str, record: dict[str, Any], author: str) -> SocialPost:
    uri = text_value(as_object(as_object(record.get("reply")).get("parent")), "uri")
    html = escape(text_value(record, "text"), quote=False).replace("\n", "<br>")
    return SocialPost(
        id=key,
        html=f"<p>{html}</p>",
        date=parse_iso_date(text_value(record, "createdAt")),
        parent=uri.removeprefix(f"at://{author}/{_POSTS}"),
        urls=(f"https://bsky.app/profile/{author}/post/{key}",),
    )


def _entries(node: dict[str, Any]) -> Iterator[tuple[str, bytes]]:
    """Yield the keys in a node of the repository's search tree, with their hashes.

    A key is stored without the beginning that it shares with the key before.
    """
    key = b""
    for entry in objects_in(node.get("e")):
        shared, rest, cid = entry.get("p"), entry.get("k"), entry.get("v")
        if isinstance(shared, int) and isinstance(rest, bytes) and isinstance(cid, bytes):
            key = key[:shared] + rest
            yield key.decode(errors="replace"), cid


def _blocks(data: bytes) -> Iterator[tuple[bytes, Any]]:
    """Yield the values of a CAR file with their hashes."""
    length, at = _varint(data, 0)
    at += length  # of the header
    while at < len(data):
        length, at = _varint(data, at)
        if length < _CID_BYTES or at + length > len(data):
            raise ValueError("it is cut off")
        cid = data[at : at + _CID_BYTES]
        if cid[1] == 0x71:  # DAG-CBOR; others are pictures
            yield cid, _decode(data, at + _CID_BYTES, 0)[0]
        at += length


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value, shift, at = value | (byte & 0x7F) << shift, shift + 7, at + 1
        if byte < 0x80:
            return value, at


def _decode(data: bytes, at: int, depth: int) -> tuple[Any, int]:
    """Return a value of DAG-CBOR (RFC 8949 without its options), and the index after it."""
    if depth > _DEEPEST:
        raise ValueError("its values are nested too deeply")
    kind, size = data[at] >> 5, data[at] & 31
    at += 1
    if kind == 7:
        if size == 27:
            return struct.unpack_from(">d", data, at)[0], at + 8
        return {20: False, 21: True}.get(size), at
    if size >= 24:
        bytes_ = 1 << (size - 24)
        size = int.from_bytes(data[at : at + bytes_])
        at += bytes_
    if kind < 2:
        return -1 - size if kind else size, at
    if size > len(data) - at and kind != 6:
        raise ValueError("a length in it is larger than the file")
    if kind in (2, 3):
        raw = data[at : at + size]
        return raw if kind == 2 else raw.decode(errors="replace"), at + size
    if kind == 6:  # a tag; the only one is a link, whose hash follows a zero byte
        value, at = _decode(data, at, depth + 1)
        return value[1:] if size == _LINK_TAG and isinstance(value, bytes) else value, at
    values = []
    for _ in range(size * (kind - 3)):
        value, at = _decode(data, at, depth + 1)
        values.append(value)
    if kind == 4:
        return values, at
    return {k: v for k, v in zip(values[::2], values[1::2], strict=True) if isinstance(k, str)}, at
