"""Source: a Publii site, given as its folder, its database alone, or a backup."""

import json
import re
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from io import FileIO
from pathlib import Path, PurePosixPath
from typing import IO
from urllib.parse import quote

from ownwords.archive import untrusted_files
from ownwords.archive.dates import parse_epoch_ms, parse_iso_date
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
from ownwords.archive.text_repair import repair_surrogates
from ownwords.core.errors import SourceError

LABEL = "a Publii site"

MAGIC = b"SQLite format 3\0"
_DATABASE_SUFFIXES = {".sqlite", ".sqlite3", ".db"}
_PACKED_SUFFIXES = {".tar", ".tgz", ".gz", ".zip"}
# With its journal or log copied along, SQLite completes or undoes an unfinished write in the copy.
_DATABASE_FILES = ("db.sqlite", "db.sqlite-journal", "db.sqlite-wal")
_SETTINGS, _PAGES = "config/site.config.json", "config/pages.config.json"
_POSTS = """
SELECT id, title, authors, slug, text, created_at, status,
       (SELECT value FROM posts_additional_data
        WHERE post_id = posts.id AND key = '_core' ORDER BY id DESC LIMIT 1)
FROM posts ORDER BY id
"""
_TAGS_OF_POST = """
SELECT coalesce(name, '') FROM tags JOIN posts_tags ON tags.id = tag_id
WHERE post_id = ? ORDER BY tags.id
"""
# Posts, pages and tags have a number, authors a name; of files only the beginning is replaced.
_INTERNAL_LINK = re.compile(
    r"#INTERNAL_LINK#/(?:(?P<kind>post|page|tag)/(?P<id>[0-9]{1,18})"
    r"|author/(?P<author>[^\s\"'<>()\\#?&]+)|(?:tags|frontpage|blogpage)/1|file/)"
)


def detect(path: Path) -> str | None:
    """Recognise a site folder or its `input`, a SQLite file, or a backup that holds a database."""
    suffix = path.suffix.lower()
    try:
        if path.is_dir():
            return LABEL if _database_in(path) else None
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
            with ExitStack() as stack:
                original = _find(path, stack)
                settings = {name: original.json(name) for name in (_SETTINGS, _PAGES)}
                # A private copy, so that nothing beside the author's file is written or locked.
                original.copy_database(Path(folder))
            with _open_copy(Path(folder, "db.sqlite"), original.shown) as connection:
                yield from _items(connection, original, settings)
    except OSError as error:
        raise SourceError(
            f"{path} cannot be read: {error.strerror or error}",
            hint="check that it is yours to read, and that the disk of temporary files has room",
        ) from error


# ---- the database, with the settings beside it


@dataclass(frozen=True)
class _Original:
    """The files of a site, by their names within its folder `input`."""

    shown: Path
    name: str
    files: Mapping[str, Callable[[], AbstractContextManager[IO[bytes]]]]
    # The times of change and sizes of the database and its journal; of a backup none.
    states: Callable[[], list[tuple[int, int]]] = list
    is_packed: bool = False  # a backup: its file name changes from one backup to the next

    def json(self, name: str) -> Mapping[str, object] | list[object]:
        if name not in self.files:
            return {}
        with self.files[name]() as file:
            value = parse_json(untrusted_files.decode_text(file.read()))
        return value if isinstance(value, dict | list) else {}

    def copy_database(self, folder: Path) -> None:
        before = self.states()
        for name in _DATABASE_FILES:
            if name in self.files:
                with self.files[name]() as file, (folder / name).open("wb") as copy:
                    shutil.copyfileobj(file, copy)
        if self.states() != before:
            raise SourceError(
                f"{self.shown} changed while it was read: another program is writing it",
                hint="close Publii, then try again",
            )


def _find(path: Path, stack: ExitStack) -> _Original:
    if path.suffix.lower() in _PACKED_SUFFIXES and path.is_file():
        with path.open("rb") as opened:
            is_packed = opened.read(len(MAGIC)) != MAGIC
        if is_packed:
            return _in_backup(path, stack.enter_context(untrusted_files.open_packed(path)))
    database = _database_in(path) if path.is_dir() else path
    if database is None:
        raise SourceError(
            f"{path} holds no input/db.sqlite", hint="give the folder of a Publii site"
        )
    real = database.resolve()
    beside = {name: real.with_name(real.name + name[9:]) for name in _DATABASE_FILES}
    beside |= {name: database.parent / name for name in (_SETTINGS, _PAGES)}

    def states() -> list[tuple[int, int]]:
        stats = (beside[name].stat() for name in _DATABASE_FILES if beside[name].exists())
        return [(stat.st_mtime_ns, stat.st_size) for stat in stats]

    name = (real.parents[1] if real.parent.name == "input" else real.parent).name
    files = {name: partial(FileIO, file) for name, file in beside.items() if file.is_file()}
    return _Original(database, name, files, states)


def _in_backup(path: Path, members: untrusted_files.ExportFiles) -> _Original:
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
    names = {name: str(inside.parent / name) for name in (*_DATABASE_FILES, _SETTINGS, _PAGES)}
    return _Original(
        path / inside,
        inside.parts[-3] if len(inside.parts) > 2 else path.stem,
        {name: partial(members.open, m) for name, m in names.items() if m in members.names},
        is_packed=True,
    )


def _database_in(folder: Path) -> Path | None:
    candidates = (folder / "input" / "db.sqlite", folder / "db.sqlite")
    return next((candidate for candidate in candidates if candidate.is_file()), None)


def _databases_among(members: untrusted_files.ExportFiles) -> list[str]:
    """The databases of Publii sites in a backup, sorted by folder depth."""
    names = [
        name
        for name in members.names
        if name == "db.sqlite" or PurePosixPath(name).parts[-2:] == ("input", "db.sqlite")
    ]
    return sorted(names, key=lambda name: (len(PurePosixPath(name).parts), name))


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
            # SQLite takes the missing end of a page as zeros.
            if copy.stat().st_size % connection.execute("PRAGMA page_size").fetchone()[0]:
                raise _damaged(shown, "it is cut off")
            connection.execute("CREATE INDEX of_post ON posts_additional_data (post_id, key)")
            connection.execute("CREATE INDEX tags_of_post ON posts_tags (post_id, tag_id)")
            yield connection
    except sqlite3.OperationalError as error:
        raise SourceError(
            f"{shown} is a SQLite database, but not one of a current Publii: {error}",
            hint="give the folder of a Publii site; if it is one, open it in Publii once",
        ) from error
    # SQLite's message about a damaged schema quotes its bytes, which Python may fail to decode.
    except (sqlite3.Error, UnicodeDecodeError) as error:
        raise _damaged(shown, str(error)) from error


def _damaged(shown: Path, what: str) -> SourceError:
    return SourceError(
        f"{shown} is a damaged database ({what}); none of it is used, since posts may be missing",
        hint="restore it from a Publii backup",
    )


# ---- its posts and pages


def _items(
    connection: sqlite3.Connection,
    original: _Original,
    settings: Mapping[str, Mapping[str, object] | list[object]],
) -> Iterator[SourceItem]:
    site = settings[_SETTINGS]
    site = site if isinstance(site, dict) else {}
    addresses = _addresses(connection, site, settings[_PAGES])
    named = (site.get("displayName"), site.get("name"), original.name)
    name = next((name for name in named if name and isinstance(name, str)), "")
    identity = site_identity("", _word(site, "name") or original.name)
    yield SiteInfo(
        repair_surrogates(name)[0],
        addresses.domain,
        identity=identity if original.is_packed else "",
    )
    yield ExpectedCount(connection.execute("SELECT count(*) FROM posts").fetchone()[0])
    if not addresses.domain:
        yield SourceNote(
            "The site's settings (input/config/site.config.json) are missing or name no address,"
            " so the addresses of its posts are unknown."
        )
    authors = {
        str(number): _text(name) or _text(user)
        for number, name, user in connection.execute("SELECT id, name, username FROM authors")
    }
    for row in connection.execute(_POSTS):
        tags = tuple(_text(name) for (name,) in connection.execute(_TAGS_OF_POST, (row[0],)))
        yield _document(row, tags, authors, addresses)


@dataclass(frozen=True)
class _SiteAddresses:
    """The addresses of one site; they begin with "/" if its domain is unknown."""

    domain: str
    is_clean: bool
    posts_prefix: str
    listed: frozenset[str]  # the tags and authors: "tag/3", "author/ida", "author/1"
    page_slugs: Mapping[int, str]
    page_parents: Mapping[int, int]

    def of(self, kind: Kind, number: int, slug: str) -> str:
        """The address of a post or page; "" if the site's address is unknown."""
        if not self.domain or not slug:
            return ""
        above = self._ancestors(number) if kind == "page" else [self.posts_prefix]
        path = "/".join(part.strip("/") for part in (*above, slug) if part.strip("/"))
        # Escape only what would end an attribute, a Markdown link or a JSON string.
        safe = re.sub(r"[\s\"'<>()\\]", lambda match: quote(match[0]), path)
        return f"{self.domain}/{safe}{'/' if self.is_clean else '.html'}"

    def _ancestors(self, page: int) -> list[str]:
        pages = [page]
        while self.is_clean and (above := self.page_parents.get(pages[-1])) is not None:
            if above in pages:
                break
            pages.append(above)
        return [self.page_slugs.get(above, "") for above in reversed(pages[1:])]

    def resolve(self, body: str, number: int) -> str:
        """The body with Publii's placeholders as addresses: "ref:post/12" for posts and pages.

        Works on HTML, Markdown and block JSON: the replacements need no escaping in any of them.
        """
        body = body.replace("#DOMAIN_NAME#", f"{self.domain}/media/posts/{number}/")
        return _INTERNAL_LINK.sub(self._target, body)

    def _target(self, link: re.Match[str]) -> str:
        kind, author = link["kind"], link["author"]
        name = f"author/{author}" if author else f"{kind}/{int(link['id'])}" if kind else ""
        if kind in ("post", "page") or (name and name not in self.listed):
            return f"ref:{name}"
        return f"{self.domain}/"  # somewhere on the site: only whether it is there matters


def _addresses(
    connection: sqlite3.Connection, site: Mapping[str, object], pages: object
) -> _SiteAddresses:
    advanced = site.get("advanced")
    urls = advanced.get("urls") if isinstance(advanced, dict) else None
    urls = urls if isinstance(urls, dict) else {}
    domain = _word(site, "domain").strip().rstrip("/")
    if domain and not re.match(r"(?:https?:)?//", domain):
        domain = f"https://{domain}"
    users = connection.execute("SELECT id, username FROM authors").fetchall()
    tags = connection.execute("SELECT id FROM tags").fetchall()
    page_slugs = connection.execute("SELECT id, slug FROM posts WHERE status LIKE '%is-page%'")
    return _SiteAddresses(
        domain=re.sub(r"[\s\"'<>\\]", "", domain),
        is_clean=urls.get("cleanUrls") is True,
        posts_prefix=_word(urls, "postsPrefix"),
        listed=frozenset(
            (
                *(f"tag/{number}" for (number,) in tags),
                *(f"author/{_text(name)}" for user in users for name in user),
            )
        ),
        page_slugs={number: _text(slug) for number, slug in page_slugs},
        page_parents=_page_parents(pages),
    )


def _page_parents(pages: object) -> dict[int, int]:
    """The page tree of pages.config.json as a map from each page's id to its parent's."""
    parents: dict[int, int] = {}
    waiting: list[tuple[object, int | None]] = [(pages, None)]
    while waiting:
        level, above = waiting.pop()
        for page in level if isinstance(level, list) else ():
            number = page.get("id") if isinstance(page, dict) else None
            if not isinstance(number, int):
                continue
            if above is not None:
                parents[number] = above
            waiting.append((page.get("subpages"), number))
    return parents


def _document(
    row: tuple[object, ...],
    tags: tuple[str, ...],
    authors: Mapping[str, str],
    addresses: _SiteAddresses,
) -> RawDocument | SkippedItem:
    number, title, by, slug, text, created, flags, core = row
    title = _text(title)
    if not isinstance(number, int):
        return SkippedItem("post", "it has no number in the database", title=title)
    settings = parse_json(_text(core))
    settings = settings if isinstance(settings, dict) else {}
    kind, status = _kind_and_status(_text(flags))
    ref = f"{kind}/{number}"
    body = addresses.resolve(_text(text), number)
    markup = _markup(body, str(settings.get("editor", "")))
    if markup is None:
        return SkippedItem("post", "the blocks it is made of are damaged", title=title, ref=ref)
    canonical = str(settings.get("canonicalUrl", "")).strip()
    url = addresses.of(kind, number, _text(slug))
    names = (f"post/{number}", f"page/{number}") if kind == "page" else (f"post/{number}",)
    by_ids = _text(by).split(",")
    return RawDocument(
        ref=ref,
        title=title,
        body=body,
        markup=markup,
        status=status,
        kind=kind,
        date=_moment(created),
        url=canonical if canonical.startswith("http") else url,
        author=", ".join(authors[id_] for id_ in map(str.strip, by_ids) if id_ in authors),
        tags=tags,
        base=url,
        # The post's own address too: the canonical one may be elsewhere.
        aliases=(*names, url) if url else names,
    )


def _kind_and_status(flags: str) -> tuple[Kind, Status]:
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


def parse_json(text: str) -> object:
    """Parse JSON; None if it is invalid."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _word(settings: Mapping[str, object], name: str) -> str:
    value = settings.get(name)
    return value if isinstance(value, str) else ""


def _text(value: object) -> str:
    """A database value as text: SQLite allows any type in any column."""
    if isinstance(value, bytes):
        return untrusted_files.decode_text(value)
    return "" if value is None else str(value)
