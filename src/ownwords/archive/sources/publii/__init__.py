"""Source: a Publii site, given as its folder, its database alone, or a backup."""

import re
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path, PurePosixPath

from ownwords.archive.document import (
    ExpectedCount,
    Kind,
    Markup,
    RawDocument,
    SiteInfo,
    SkippedItem,
    SourceItem,
    SourceNote,
    Status,
    site_identity,
)
from ownwords.archive.files import untrusted_files
from ownwords.archive.files.timestamps import parse_epoch_ms, parse_iso_date
from ownwords.archive.sources.publii.database import MAGIC, check_header, copy_database, open_copy
from ownwords.archive.sources.publii.urls import (
    PubliiUrls,
    page_parents_of,
    parse_json,
    url_settings,
)
from ownwords.core.errors import SourceError

LABEL = "a Publii site"

_DATABASE_SUFFIXES = {".sqlite", ".sqlite3", ".db"}
_PACKED_SUFFIXES = {".tar", ".tgz", ".gz", ".zip"}
_SETTINGS = ("config/site.config.json", "config/pages.config.json")
_POSTS = """
SELECT id, title, authors, slug, text, created_at, status,
       (SELECT value FROM posts_additional_data
        WHERE post_id = posts.id AND key = '_core' ORDER BY id DESC LIMIT 1)
FROM posts ORDER BY id
"""
_TAGS_OF_POST = """
SELECT name FROM tags JOIN posts_tags ON tags.id = tag_id WHERE post_id = ? ORDER BY tags.id
"""


def detect(path: Path) -> str | None:
    """Recognise a site folder or its `input`, a SQLite file, or a backup that holds a database."""
    suffix = path.suffix.lower()
    try:
        if path.is_dir():
            return "a Publii site" if _database_in(path) else None
        if not path.is_file():
            return None
        with path.open("rb") as opened:
            if opened.read(len(MAGIC)) == MAGIC:
                return "a Publii database"
        if suffix in _PACKED_SUFFIXES:
            with untrusted_files.open_packed(path) as members:
                return "a backup of a Publii site" if _databases_among(members) else None
    except OSError:
        pass  # `read` reports what is wrong with the file
    except SourceError:
        return "a tar file, as Publii's backups are" if suffix == ".tar" else None
    return "a file named as a database" if suffix in _DATABASE_SUFFIXES else None


def read(path: Path) -> Iterator[SourceItem]:
    """Yield the site, then its posts and pages ordered by id; bodies keep the editor's markup."""
    try:
        with tempfile.TemporaryDirectory(prefix="ownwords-") as folder:
            private = Path(folder)
            site_copy = _unpacked(path, private) if _is_packed(path) else _copied(path, private)
            with open_copy(site_copy.database, site_copy.shown) as connection:
                yield from _items(connection, site_copy)
    except OSError as error:
        raise SourceError(
            f"{path} cannot be read: {error.strerror or error}",
            hint="check that it is yours to read, and that the disk of temporary files has room",
        ) from error


@dataclass(frozen=True)
class _SiteCopy:
    """A private copy of a site's database, with the settings files found beside the original."""

    database: Path
    shown: Path
    name: str
    settings: Mapping[str, str]
    note: str = ""
    is_packed: bool = False  # a backup: its file name changes from one backup to the next


def _database_in(folder: Path) -> Path | None:
    for candidate in (folder / "input" / "db.sqlite", folder / "db.sqlite"):
        if candidate.is_file():
            return candidate
    return None


def _databases_among(members: untrusted_files.ExportFiles) -> list[str]:
    """The databases of Publii sites in a backup, sorted by folder depth."""
    names = [
        name
        for name in members.names
        if name == "db.sqlite" or PurePosixPath(name).parts[-2:] == ("input", "db.sqlite")
    ]
    return sorted(names, key=lambda name: (len(PurePosixPath(name).parts), name))


def _is_packed(path: Path) -> bool:
    if path.suffix.lower() not in _PACKED_SUFFIXES or not path.is_file():
        return False
    try:
        with path.open("rb") as opened:
            return opened.read(len(MAGIC)) != MAGIC
    except OSError:
        return True


def _copied(path: Path, folder: Path) -> _SiteCopy:
    database = _database_in(path) if path.is_dir() else path
    if database is None:
        raise SourceError(
            f"{path} holds no input/db.sqlite", hint="give the folder of a Publii site"
        )
    beside = {name: database.parent / name for name in _SETTINGS}
    settings = {
        name: untrusted_files.decode_text(file.read_bytes())
        for name, file in beside.items()
        if file.is_file()
    }
    copy, note = copy_database(database, folder)
    site = database.resolve().parent
    name = site.parent.name if site.name == "input" else site.name
    return _SiteCopy(copy, database, name, settings, note)


def _unpacked(path: Path, folder: Path) -> _SiteCopy:
    with untrusted_files.open_packed(path) as members:
        databases = _databases_among(members)
        if not databases:
            raise SourceError(
                f"{path} holds no input/db.sqlite",
                hint="give a backup that Publii made, or the folder of a Publii site",
            )
        depths = {len(PurePosixPath(name).parts) for name in databases[:2]}
        if len(databases) > 1 and len(depths) == 1:
            raise SourceError(
                f"{path} holds several Publii sites ({', '.join(databases[:4])})",
                hint="unpack it, and give the folder of one",
            )
        inside = PurePosixPath(databases[0])
        copy = folder / "db.sqlite"
        # SQLite needs a journal packed with the database to roll back an unfinished write.
        for suffix in ("", "-journal", "-wal"):
            if f"{inside}{suffix}" in members.names:
                with (
                    members.open(f"{inside}{suffix}") as packed,
                    copy.with_name(copy.name + suffix).open("wb") as unpacked,
                ):
                    shutil.copyfileobj(packed, unpacked)
        beside = {name: str(inside.parent / name) for name in _SETTINGS}
        settings = {
            name: untrusted_files.decode_text(members.read(member))
            for name, member in beside.items()
            if member in members.names
        }
    shown = path / inside
    check_header(copy, shown)
    name = inside.parts[-3] if len(inside.parts) > 2 else path.stem
    return _SiteCopy(copy, shown, name, settings, is_packed=True)


def _items(connection: sqlite3.Connection, site_copy: _SiteCopy) -> Iterator[SourceItem]:
    settings = parse_json(site_copy.settings.get(_SETTINGS[0], ""))
    site = settings if isinstance(settings, dict) else {}
    addresses = _addresses(connection, site, parse_json(site_copy.settings.get(_SETTINGS[1], "")))
    named = (site.get("displayName"), site.get("name"), site_copy.name)
    name = next((name for name in named if name and isinstance(name, str)), "")
    slug = site.get("name")
    identity = site_identity("", slug if isinstance(slug, str) and slug else site_copy.name)
    yield SiteInfo(
        untrusted_files.replace_surrogates(name),
        addresses.domain,
        identity=identity if site_copy.is_packed else "",
    )
    yield ExpectedCount(connection.execute("SELECT count(*) FROM posts").fetchone()[0])
    if not addresses.domain:
        yield SourceNote(
            "The site's settings (input/config/site.config.json) are missing or name no address,"
            " so the addresses of its posts are unknown."
        )
    if site_copy.note:
        yield SourceNote(site_copy.note)
    authors = dict(_names(connection, "SELECT id, name, username FROM authors"))
    for row in connection.execute(_POSTS):
        tags = tuple(_text(name) for (name,) in connection.execute(_TAGS_OF_POST, (row[0],)))
        yield _document(row, tags, authors, addresses)


def _addresses(
    connection: sqlite3.Connection, site: Mapping[str, object], pages: object
) -> PubliiUrls:
    users = connection.execute("SELECT id, username FROM authors").fetchall()
    by_number = {str(number): _text(name) for number, name in users}
    return replace(
        url_settings(site),
        tag_slugs=dict(_names(connection, "SELECT id, slug, name FROM tags")),
        author_slugs=by_number | {name: name for name in by_number.values()},
        page_slugs=dict(
            _names(connection, "SELECT id, slug, '' FROM posts WHERE status LIKE '%is-page%'")
        ),
        page_parents=page_parents_of(pages),
    )


def _names(connection: sqlite3.Connection, query: str) -> Iterator[tuple[int, str]]:
    for number, name, otherwise in connection.execute(query):
        if isinstance(number, int):
            yield number, _text(name) or _text(otherwise)


def _document(
    row: tuple[object, ...],
    tags: tuple[str, ...],
    authors: Mapping[int, str],
    addresses: PubliiUrls,
) -> RawDocument | SkippedItem:
    number, title, by, slug, text, created, flags, core = row
    title = _text(title)
    if not isinstance(number, int):
        return SkippedItem("post", "it has no number in the database", title=title)
    settings = parse_json(_text(core))
    settings = settings if isinstance(settings, dict) else {}
    kind, status = _standing(_text(flags))
    ref = f"{kind}/{number}"
    body = addresses.resolve(_text(text), number)
    markup = _markup(body, str(settings.get("editor", "")))
    if markup is None:
        return SkippedItem("post", "the blocks it is made of are damaged", title=title, ref=ref)
    canonical = str(settings.get("canonicalUrl", "")).strip()
    summary = settings.get("metaDesc")
    url = addresses.of(kind, number, _text(slug))
    names = (f"post/{number}", f"page/{number}") if kind == "page" else (f"post/{number}",)
    return RawDocument(
        ref=ref,
        title=title,
        body=body,
        markup=markup,
        status=status,
        kind=kind,
        date=_moment(created),
        url=canonical if canonical.startswith("http") else url,
        author=", ".join(
            authors[int(id_)]
            for id_ in _text(by).split(",")
            if re.fullmatch(r"\s*[0-9]{1,18}\s*", id_) and int(id_) in authors
        ),
        tags=tags,
        summary=untrusted_files.replace_surrogates(summary) if isinstance(summary, str) else "",
        base=url,
        # The post's own address too: the canonical one may be elsewhere.
        aliases=(*names, url) if url else names,
    )


def _standing(flags: str) -> tuple[Kind, Status]:
    """Kind and status from the list of flags; the strictest wins ("published,trashed": trashed)."""
    given = {flag.strip() for flag in flags.split(",")}
    kind: Kind = "page" if "is-page" in given else "post"
    if "trashed" in given:
        return kind, "trashed"
    if "draft" in given or "published" not in given:
        return kind, "draft"
    return kind, "hidden" if "hidden" in given else "published"


def _markup(body: str, editor: str) -> Markup | None:
    """The markup of a body; None for blocks that cannot be parsed."""
    # Some imports lose the editor's name, but blocks are recognisable by their types.
    if editor == "blockeditor" or '"publii-' in body:
        blocks = parse_json(body)
        if isinstance(blocks, list) and (editor == "blockeditor" or any(map(_is_block, blocks))):
            return "blocks"
        if editor == "blockeditor" and body.strip() and not body.lstrip().startswith("<"):
            return None
    return "markdown" if editor == "markdown" else "html"


def _is_block(value: object) -> bool:
    return isinstance(value, dict) and str(value.get("type")).startswith("publii-")


def _moment(created: object) -> datetime | None:
    if isinstance(created, bytes):
        text = untrusted_files.decode_text(created)
        return parse_epoch_ms(text) or parse_iso_date(text)
    return parse_epoch_ms(created)


def _text(value: object) -> str:
    """A database value as text: SQLite allows any type in any column."""
    if isinstance(value, bytes):
        return untrusted_files.decode_text(value)
    return "" if value is None else str(value)
