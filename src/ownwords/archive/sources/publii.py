"""Source: a Publii site, given as its folder, its database alone, or a backup."""

import json
import re
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path, PurePosixPath
from urllib.parse import quote

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
from ownwords.archive.files.dates import parse_epoch_ms, parse_iso_date
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


# ---- the web addresses of posts, pages, tags and files

# Posts, pages and tags have a number, authors a name; for files only the prefix is replaced.
_INTERNAL_LINK = re.compile(
    r"#INTERNAL_LINK#/(?:(?P<kind>post|page|tag)/(?P<id>[0-9]{1,18})"
    r"|author/(?P<author>[^\s\"'<>()\\#?&]+)|(?P<list>tags|frontpage|blogpage)/1|(?P<file>file)/)"
)


@dataclass(frozen=True)
class PubliiUrls:
    """The addresses of one site; they begin with "/" if its domain is unknown."""

    domain: str = ""
    clean: bool = False
    posts_prefix: str = ""
    tags_prefix: str = ""
    authors_prefix: str = "authors"
    tag_slugs: Mapping[int, str] = field(default_factory=dict)
    author_slugs: Mapping[str, str] = field(default_factory=dict)  # by user name and by number
    page_slugs: Mapping[int, str] = field(default_factory=dict)
    page_parents: Mapping[int, int] = field(default_factory=dict)

    def of(self, kind: Kind, number: int, slug: str) -> str:
        """The address of a post or page; "" if the site's address is unknown."""
        if not self.domain or not slug:
            return ""
        above = self._ancestors(number) if kind == "page" else (self.posts_prefix,)
        return self._address(*above, slug) + ("/" if self.clean else ".html")

    def resolve(self, body: str, number: int) -> str:
        """The body with Publii's placeholders replaced by addresses, or by "ref:post/12".

        Works on HTML, Markdown and block JSON: the replacements need no escaping in any of them.
        """
        body = body.replace("#DOMAIN_NAME#", self._address("media", "posts", str(number)) + "/")
        return _INTERNAL_LINK.sub(self._target, body)

    def _target(self, link: re.Match[str]) -> str:
        kind, number, author = link["kind"], link["id"], link["author"]
        if kind == "tag" and int(number) in self.tag_slugs:
            return self._address(self.tags_prefix, self.tag_slugs[int(number)]) + "/"
        if kind:
            return f"ref:{kind}/{int(number)}"
        if author:
            slug = self.author_slugs.get(author)
            return (
                f"{self._address(self.authors_prefix, slug)}/" if slug else f"ref:author/{author}"
            )
        if link["list"]:
            prefixes = {"tags": self.tags_prefix, "blogpage": self.posts_prefix}
            return self._address(prefixes.get(link["list"], "")) + "/"
        return self._address() + "/"

    def _ancestors(self, page: int) -> tuple[str, ...]:
        slugs: list[str] = []
        visited = {page}
        while self.clean and (above := self.page_parents.get(page)) is not None:
            if above in visited:
                break
            visited.add(above)
            slugs.insert(0, self.page_slugs.get(above, ""))
            page = above
        return tuple(slugs)

    def _address(self, *parts: str) -> str:
        path = "/".join(part.strip("/") for part in parts if part.strip("/"))
        # Escape only what would end an attribute, a Markdown link or a JSON string.
        safe = re.sub(r"[\s\"'<>()\\]", lambda match: quote(match[0]), path)
        return f"{self.domain}/{safe}" if safe else self.domain


def url_settings(site: Mapping[str, object]) -> PubliiUrls:
    """The address settings of a site.config.json."""
    urls = _part(_part(site, "advanced"), "urls")
    domain = _word(site, "domain").strip().rstrip("/")
    if domain and not re.match(r"(?:https?:)?//", domain):
        domain = f"https://{domain}"
    posts, tags = _word(urls, "postsPrefix"), _word(urls, "tagsPrefix")
    authors = _word(urls, "authorsPrefix") or "authors"
    return PubliiUrls(
        domain=re.sub(r"[\s\"'<>\\]", "", domain),
        clean=urls.get("cleanUrls") is True,
        posts_prefix=posts,
        tags_prefix=f"{posts}/{tags}" if tags and urls.get("tagsPrefixAfterPostsPrefix") else tags,
        authors_prefix=(
            f"{posts}/{authors}" if urls.get("authorsPrefixAfterPostsPrefix") else authors
        ),
    )


def page_parents_of(pages: object) -> dict[int, int]:
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


def parse_json(text: str) -> object:
    """Parse JSON; None if it is invalid."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _part(settings: Mapping[str, object], name: str) -> Mapping[str, object]:
    part = settings.get(name)
    return part if isinstance(part, dict) else {}


def _word(settings: Mapping[str, object], name: str) -> str:
    value = settings.get(name)
    return value if isinstance(value, str) else ""


# ---- the database: a private copy, so that nothing beside the author's file is written or locked

MAGIC = b"SQLite format 3\0"
# With its journal or log copied along, SQLite completes or undoes an unfinished write in the copy.
_DATABASE_FILES = ("", "-journal", "-wal")
_ATTEMPTS = 3


def _copy_database(path: Path, folder: Path) -> Path:
    """Copy the database into `folder`; raises SourceError if another program is writing it."""
    path, copy = path.resolve(), folder / "db.sqlite"
    for _ in range(_ATTEMPTS):
        before = _states(path)
        for suffix in _DATABASE_FILES:
            target = copy.with_name(copy.name + suffix)
            target.unlink(missing_ok=True)
            with suppress(FileNotFoundError):
                shutil.copyfile(path.with_name(path.name + suffix), target)
        if _states(path) == before:
            return copy
    raise SourceError(
        f"{path} changed each time it was read: another program is writing it",
        hint="close Publii, then try again",
    )


def _states(path: Path) -> list[tuple[int, int]]:
    """The time of change and the size of the database and its journal or log."""
    files = (path.with_name(path.name + suffix) for suffix in _DATABASE_FILES)
    states = (file.stat() for file in files if file.exists())
    return [(state.st_mtime_ns, state.st_size) for state in states]


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


# ---- the source


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
            with _open_copy(site_copy.database, site_copy.shown) as connection:
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
    copy = _copy_database(database, folder)
    site = database.resolve().parent
    name = site.parent.name if site.name == "input" else site.name
    return _SiteCopy(copy, database, name, settings)


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
        for suffix in _DATABASE_FILES:
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
