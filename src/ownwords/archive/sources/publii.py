"""Source: a Publii site, given as its folder, its database alone, or a backup."""

import os
import re
import shutil
import sqlite3
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Any, NamedTuple
from urllib.parse import quote

from ownwords.archive import untrusted_files
from ownwords.archive.dates import parse_moment
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
from ownwords.archive.text_repair import as_object, parse_json, text_value
from ownwords.core.errors import SourceError

NAME = "Publii"

MAGIC = b"SQLite format 3\0"
_DATABASE_SUFFIXES = {".sqlite", ".sqlite3", ".db"}
_PACKED_SUFFIXES = {".tar", ".tgz", ".gz", ".zip"}
# With its journal or log copied along, SQLite completes or undoes an unfinished write in the copy.
_DATABASE_FILES = ("db.sqlite", "db.sqlite-journal", "db.sqlite-wal")
_BLOCKS = re.compile(r'\s*\[\s*\{\s*"')
_SETTINGS = ("config/site.config.json", "config/pages.config.json")
_POSTS = "SELECT id, title, authors, slug, text, created_at, status FROM posts ORDER BY id"
_TAGS = """
SELECT post_id, coalesce(name, '') FROM tags JOIN posts_tags ON tags.id = tag_id
ORDER BY tags.id
"""
_SETTINGS_OF_POSTS = """
SELECT post_id, value FROM posts_additional_data WHERE key = '_core' ORDER BY id
"""


def detect(path: Path) -> str | None:
    """Recognise a site folder or its `input`, a SQLite file, or a backup that holds a database."""
    suffix = path.suffix.lower()
    if path.is_dir():
        return "a Publii site" if _database_in(path) else None
    head = untrusted_files.read_head(path, len(MAGIC))
    if head == MAGIC:
        return "a Publii database"
    try:
        if suffix in _PACKED_SUFFIXES and path.is_file():
            with untrusted_files.open_packed(path) as members:
                return "a backup of a Publii site" if _databases_among(members) else None
    except SourceError:
        return "a tar file, as Publii's backups are" if suffix == ".tar" else None
    is_named = suffix in _DATABASE_SUFFIXES and path.is_file()
    return "a file named as a database" if is_named else None  # `read` says what is wrong with it


def read(path: Path) -> Iterator[SourceItem]:
    """Yield the site, then its posts and pages ordered by id; bodies keep the editor's markup."""
    try:
        with tempfile.TemporaryDirectory(prefix="ownwords-") as folder:
            site = _copy(path, Path(folder))
            with _open_copy(Path(folder, "db.sqlite"), site.shown) as connection:
                settings, pages = (_json(Path(folder, Path(name).name)) for name in _SETTINGS)
                yield from _items(connection, site, as_object(settings), pages)
    except OSError as error:
        raise SourceError(
            f"{path} cannot be read: {error.strerror or error}",
            hint="check that you may read it, and that the disk for temporary files has free space",
        ) from error


# ---- the database, with the settings beside it


class _Site(NamedTuple):
    """A site's name, and the path of its database to show."""

    shown: Path
    name: str
    identity: str = ""  # of a backup, whose file name changes from one to the next


def _copy(path: Path, folder: Path) -> _Site:
    """Copy a site's database and settings, so that nothing of the author's is written or locked."""
    head = untrusted_files.read_head(path, len(MAGIC))
    if path.suffix.lower() in _PACKED_SUFFIXES and path.is_file() and head != MAGIC:
        return _copy_from_backup(path, folder)
    database = _database_in(path) if path.is_dir() else path
    if database is None:
        hint = "give the folder of a Publii site"
        raise SourceError(f"{path} holds no input/db.sqlite", hint=hint)
    real = database.resolve()
    before = real.stat()
    files = {name: real.with_name(real.name + name[9:]) for name in _DATABASE_FILES}
    files |= {name: database.parent / name for name in _SETTINGS}
    for name, file in files.items():
        if file.is_file():
            with file.open("rb") as opened:
                _write(folder, name, opened)
    # A copy that mixes old and new pages may lack posts, though SQLite finds no damage.
    after = real.stat()
    if (after.st_mtime_ns, after.st_size) != (before.st_mtime_ns, before.st_size):
        raise SourceError(
            f"{database} changed while it was read: another program is writing to it",
            hint="close Publii, then try again",
        )
    return _Site(database, (real.parents[1] if real.parent.name == "input" else real.parent).name)


def _copy_from_backup(path: Path, folder: Path) -> _Site:
    with untrusted_files.open_packed(path) as members:
        databases = _databases_among(members)
        if not databases:
            hint = "give a backup that Publii made, or the folder of a Publii site"
            raise SourceError(f"{path} holds no input/db.sqlite", hint=hint)
        if len({len(inside.parts) for inside in databases[:2]}) < len(databases[:2]):
            several = ", ".join(map(str, databases[:4]))
            hint = "unpack it, and give the folder of one site"
            raise SourceError(f"{path} holds several Publii sites ({several})", hint=hint)
        inside = databases[0]
        for name in (*_DATABASE_FILES, *_SETTINGS):
            if (member := str(inside.parent / name)) in members.names:
                with members.open(member) as opened:
                    _write(folder, name, opened)
    name = inside.parts[-3] if len(inside.parts) > 2 else path.stem
    return _Site(path / inside, name, identity=name)


def _write(folder: Path, name: str, opened: IO[bytes]) -> None:
    with (folder / Path(name).name).open("wb") as copy:
        shutil.copyfileobj(opened, copy)


def _json(file: Path) -> object:
    """Read a settings file; None if it is missing or damaged."""
    return parse_json(untrusted_files.decode_text(file.read_bytes())) if file.exists() else None


def _database_in(folder: Path) -> Path | None:
    candidates = (folder / "input" / "db.sqlite", folder / "db.sqlite")
    return next(filter(os.path.isfile, candidates), None)  # unlike Path's, raises nothing


def _databases_among(members: untrusted_files.ExportFiles) -> list[PurePosixPath]:
    """Return the databases of Publii sites in a backup, sorted by folder depth."""
    paths = map(PurePosixPath, members.names)
    found = [path for path in paths if path.parts[-2:] in (("input", "db.sqlite"), ("db.sqlite",))]
    return sorted(found, key=lambda path: (len(path.parts), path))


@contextmanager
def _open_copy(copy: Path, shown: Path) -> Iterator[sqlite3.Connection]:
    """Open the private copy after checking its integrity; texts come back as bytes."""
    try:
        with closing(sqlite3.connect(copy, isolation_level=None)) as connection:
            # Otherwise the cursor raises on texts that are not valid UTF-8.
            connection.text_factory = bytes
            (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
            if verdict != b"ok":
                raise _damaged(shown, verdict.decode("utf-8", errors="replace").split("\n")[-1])
            # SQLite reads the missing end of a page as zeros.
            if copy.stat().st_size % connection.execute("PRAGMA page_size").fetchone()[0]:
                raise _damaged(shown, "it is cut off")
            yield connection
    except sqlite3.OperationalError as error:
        raise SourceError(
            f"{shown} is a SQLite database, but not one of a current Publii: {error}",
            hint="give the folder of a Publii site; if it is one, open it in Publii once",
        ) from error
    # SQLite's message about a damaged schema quotes its lines, which Python may fail to decode.
    except (sqlite3.Error, UnicodeDecodeError) as error:
        raise _damaged(shown, str(error).partition("\n")[0]) from error


def _damaged(shown: Path, what: str) -> SourceError:
    return SourceError(
        f"{shown} is a damaged database ({what}); none of it is used, because posts may be missing",
        hint="restore it from a Publii backup",
    )


# ---- its posts and pages


def _items(
    connection: sqlite3.Connection, site: _Site, settings: dict[str, Any], pages: object
) -> Iterator[SourceItem]:
    authors = {
        str(number): _text(name) or _text(user)
        for number, name, user in connection.execute("SELECT id, name, username FROM authors")
    }
    address = _addresses(connection, settings, pages)
    name = text_value(settings, "name")
    yield SiteInfo(
        text_value(settings, "displayName") or name or site.name,
        identity=site_identity("", name or site.identity) if site.identity else "",
    )
    yield ExpectedCount(connection.execute("SELECT count(*) FROM posts").fetchone()[0])
    if address is None:
        yield SourceNote(
            "The site's settings (input/config/site.config.json) are missing or contain no address,"
            " so the addresses of its posts are unknown."
        )
    tags: defaultdict[object, list[str]] = defaultdict(list)
    for number, tag in connection.execute(_TAGS):
        tags[number].append(_text(tag))
    cores = {number: _text(core) for number, core in connection.execute(_SETTINGS_OF_POSTS)}
    for row in connection.execute(_POSTS):
        yield _document(row, tags[row[0]], cores.get(row[0], ""), authors, address)


def _addresses(
    connection: sqlite3.Connection, settings: dict[str, Any], pages: object
) -> Callable[[Kind, int, str], str] | None:
    """Return a function from the kind, number and slug of a post to its address.

    None if the site's address is unknown.
    """
    urls = as_object(as_object(settings.get("advanced")).get("urls"))
    domain = text_value(settings, "domain").strip().rstrip("/")
    if not domain:
        return None
    if not re.match(r"(?:https?:)?//", domain):
        domain = f"https://{domain}"
    domain = re.sub(r"[\s\"'<>\\]", "", domain)
    end = "/" if urls.get("cleanUrls") is True else ".html"
    above_pages = _above_pages(connection, pages) if end == "/" else {}

    def address(kind: Kind, number: int, slug: str) -> str:
        above = above_pages.get(number, "") if kind == "page" else text_value(urls, "postsPrefix")
        path = "/".join(part.strip("/") for part in (above, slug) if part.strip("/"))
        # Escape only what would end an attribute, a Markdown link or a JSON string.
        safe = re.sub(r"[\s\"'<>()\\]", lambda match: quote(match[0]), path)
        return f"{domain}/{safe}{end}" if slug else ""

    return address


def _above_pages(connection: sqlite3.Connection, pages: object) -> dict[int, str]:
    """Return the slugs of each page's parent pages, from pages.config.json."""
    rows = connection.execute("SELECT id, slug FROM posts WHERE status LIKE '%is-page%'")
    slugs = {number: _text(slug) for number, slug in rows}
    above_pages: dict[int, str] = {}
    waiting: list[tuple[object, str]] = [(pages, "")]
    while waiting:
        level, above = waiting.pop()
        for page in level if isinstance(level, list) else ():
            number = page.get("id") if isinstance(page, dict) else None
            if isinstance(number, int):
                above_pages.setdefault(number, above)
                waiting.append((page.get("subpages"), f"{above}/{slugs.get(number, '')}"))
    return above_pages


def _document(
    row: tuple[object, ...],
    tags: list[str],
    core: str,
    authors: Mapping[str, str],
    address: Callable[[Kind, int, str], str] | None,
) -> RawDocument | SkippedItem:
    number, title, by, slug, text, created, flags = row
    title = _text(title)
    if not isinstance(number, int):
        return SkippedItem("post", "it has no number in the database", title=title)
    settings = as_object(parse_json(core))
    kind, status = _kind_and_status(_text(flags))
    body = _text(text)
    canonical = str(settings.get("canonicalUrl", "")).strip()
    url = address(kind, number, _text(slug)) if address else ""
    by_ids = _text(by).split(",")
    return RawDocument(
        ref=f"{kind}/{number}",
        title=title,
        body=body,
        markup=_markup(body, str(settings.get("editor", ""))),
        status=status,
        kind=kind,
        date=parse_moment(_text(created) if isinstance(created, bytes) else created),
        url=canonical if canonical.startswith("http") else url,
        author=", ".join(authors[id_] for id_ in map(str.strip, by_ids) if id_ in authors),
        tags=tuple(tags),
    )


def _kind_and_status(flags: str) -> tuple[Kind, Status]:
    """Return kind and status from the flags; the strictest wins ("published,trashed": trashed)."""
    given = {flag.strip() for flag in flags.split(",")}
    kind: Kind = "page" if "is-page" in given else "post"
    if "trashed" in given:
        return kind, "trashed"
    if "draft" in given or "published" not in given:
        return kind, "draft"
    return kind, "hidden" if "hidden" in given else "published"


def _markup(body: str, editor: str) -> Markup:
    # Some imports lose the editor's name, but blocks are recognisable by their types.
    is_blocks = _BLOCKS.match(body) and '"publii-' in body
    if is_blocks or (editor == "blockeditor" and not body.lstrip().startswith("<")):
        return "blocks"
    return "markdown" if editor == "markdown" else "html"


def _text(value: object) -> str:
    """Return a database value as text: SQLite allows any type in any column."""
    if isinstance(value, bytes):
        return untrusted_files.decode_text(value)
    return "" if value is None else str(value)
