"""More books, from Project Gutenberg, as it asks programs to fetch them.

Its website is for people. Programs may read the pages of its robot harvest and follow their links,
two seconds after each other, or fetch from a mirror (https://www.gutenberg.org/MIRRORS.ALL), which
books being told by the catalogue that is made for programs. Nothing else is asked for.
https://www.gutenberg.org/policy/robot_access.html
"""

import codecs
import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import parse_qs, urlencode, urljoin, urlsplit

from ownwords.archive.document import RawDocument
from ownwords.archive.files import untrusted_files
from ownwords.archive.sources import gutenberg as source
from ownwords.base.downloads import Downloads, FetchError, RefusedError
from ownwords.base.shelf import Shelf
from ownwords.core.errors import OwnwordsError, SourceError
from ownwords.core.progress import Progress, Stage
from ownwords.core.workspace import write_atomically

SITE = "https://www.gutenberg.org"
BETWEEN_S = 2.0  # as its rules for robots ask

_HARVEST = "/robot/harvest"
_CATALOGUE = "/cache/epub/feeds/pg_catalog.csv"
_LANGUAGE = re.compile(r"[a-z]{2,3}")
# 10000-8.zip: the number of the book, and how its letters are written; UTF-8 is best.
_ZIP = re.compile(r"(?:.*/)?(\d+)(?:-(\d))?\.zip")
_PREFERRED = {"0": 0, "8": 1, None: 2}
_OLD_ZIP = re.compile(r".*/etext\d\d/[78]?([\w-]+)\.zip")  # from before books had numbers in names
# Where a mirror keeps the text of a book: number, and the digits but the last as folders.
_PLACES = ("cache/epub/{n}/pg{n}.txt", "{d}/{n}/{n}-0.txt", "{d}/{n}/{n}-8.txt", "{d}/{n}/{n}.txt")
_BOOK_BYTES = 64 << 20  # the longest, Webster's dictionary, has under 30 MB
_CATALOGUE_BYTES = 1 << 28
_ELSEWHERE = (
    "come again tomorrow, or fetch from a mirror with --mirror:"
    " https://www.gutenberg.org/MIRRORS.ALL lists them"
)
_FAILURES = 3  # in a row: then it is not the book
_ENCODING = re.compile(rb"(?im)^Character set encoding:[ \t]*([\w.:-]+)")
_HEAD_BYTES = 4096
# Said to be one of these, it is often Windows' superset of it: our reader's own guess.
_USUAL = frozenset({"ascii", "iso8859-1", "utf-8", "cp1252"})


@dataclass(frozen=True)
class Fetched:
    """What a folder of books holds, and what this time added to it."""

    folder: Path
    books: int
    new: int
    bytes: int
    left_out: Mapping[str, int]  # how many there were of what cannot be used, by reason


@dataclass(frozen=True)
class _Book:
    """A book to be had: the first of these addresses that has it will do."""

    key: str
    addresses: tuple[str, ...]


class _UselessError(Exception):
    """A book cannot be used; it says why."""


def fetch(
    folder: Path,
    books: int,
    *,
    languages: Sequence[str] = ("en",),
    mirror: str = "",
    progress: Progress | None = None,
    downloads: Downloads | None = None,
    site: str = SITE,
) -> Fetched:
    """See that a folder holds so many books, a UTF-8 text each, as `ownwords look` reads them.

    Those that are there are not fetched again, unless their checksum says that they have changed.
    Ended early, the same call goes on. OwnwordsError says what stands in the way.
    """
    if books < 1:
        raise OwnwordsError(f"{books} books are none", hint="ask for one or more")
    for language in languages:
        if not _LANGUAGE.fullmatch(language):
            raise OwnwordsError(
                f"{language!r:.40} is no language",
                hint="two letters, as Project Gutenberg has them: en, de, fr",
            )
    new = 0
    with Shelf.opened(folder) as shelf:
        if len(shelf.books) < books:
            with (
                downloads or Downloads(between_s=BETWEEN_S) as through,
                (progress or Progress()).stage("Fetching", total=books, unit="books") as stage,
                _told_where_else(),
            ):
                stage.advance(len(shelf.books))
                listing = _Listing(shelf, through, languages, site)
                new = _filled(shelf, listing, mirror.rstrip("/"), books, stage)
        return Fetched(folder, len(shelf.books), new, shelf.bytes(), shelf.reasons())


@contextmanager
def _told_where_else() -> Iterator[None]:
    """What a server refuses, with the way that is left."""
    try:
        yield
    except RefusedError as error:
        raise RefusedError(error.message, error.status, hint=error.hint or _ELSEWHERE) from error


def _filled(shelf: Shelf, listing: "_Listing", mirror: str, books: int, stage: Stage) -> int:
    """Fetch until there are so many, or all that are to be had; how many are new."""
    new = failures = 0
    absent = f"not at {mirror or listing.site}"
    for book in listing.of_a_mirror(mirror) if mirror else listing.of_the_harvest():
        why = shelf.left_out.get(book.key, "")
        # What one place does not have, another may.
        if book.key in shelf.books or (why and (why == absent or not why.startswith("not at "))):
            continue
        try:
            _put(book, shelf, listing.downloads)
        except _UselessError as useless:
            shelf.leave_out(book.key, str(useless) or absent)
        except RefusedError:
            raise
        except FetchError as error:
            failures += 1
            if failures == _FAILURES:
                raise
            stage.note(f"Left for another time: {error.message}")
            continue
        else:
            new += 1
            stage.advance()
        failures = 0
        if len(shelf.books) >= books:
            break
    return new


def _put(book: _Book, shelf: Shelf, downloads: Downloads) -> None:
    """Fetch one book onto the shelf; _UselessError where it is none, or not there at all."""
    path, address = _first_of(book, shelf, downloads)
    draft = shelf.kept / f"pg{book.key}.txt"
    try:
        write_atomically(draft, _text_of(path))
        shelf.put(book.key, draft, _title_of(draft), address)
    finally:
        path.unlink(missing_ok=True)
        draft.unlink(missing_ok=True)


def _first_of(book: _Book, shelf: Shelf, downloads: Downloads) -> tuple[Path, str]:
    """The first of a book's files that is there, fetched, and where it came from."""
    for address in book.addresses:
        path = shelf.kept / f"{book.key}{Path(urlsplit(address).path).suffix}"
        try:
            downloads.file(address, path, limit=_BOOK_BYTES)
        except RefusedError as error:
            if error.status not in (404, 410):
                raise
        else:
            return path, address
    raise _UselessError


def _text_of(path: Path) -> str:
    """The text of a book, out of its zip."""
    if path.suffix != ".zip":
        return _decoded(path.read_bytes())
    try:
        with untrusted_files.open_packed(path) as members:
            texts = [name for name in members.names if name.lower().endswith(".txt")]
            read = [members.read(name, first=_BOOK_BYTES + 1) for name in texts]
    except SourceError as error:
        raise _UselessError("its zip is damaged, or no good") from error
    data = max(read, key=len, default=b"")  # a readme may lie beside it
    if not data or len(data) > _BOOK_BYTES:
        raise _UselessError("its text is too long" if data else "no text in its zip")
    return _decoded(data)


def _decoded(data: bytes) -> str:
    """The text; where it is no UTF-8, in the letters that its own header names."""
    named = _ENCODING.search(data[:_HEAD_BYTES])
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        with suppress(LookupError, UnicodeDecodeError):
            if named and codecs.lookup(named[1].decode("ascii")).name not in _USUAL:
                return data.decode(named[1].decode("ascii"))
    return untrusted_files.decode_text(data)


def _title_of(path: Path) -> str:
    """The title of a book as our own reader sees it, who must take it to be one."""
    if source.detect(path) is None:
        raise _UselessError("without the header of Project Gutenberg")
    try:
        for item in source.read(path):
            if isinstance(item, RawDocument):
                return item.title.partition(", part ")[0]
    except SourceError as error:
        raise _UselessError("its author keeps the rights") from error
    raise _UselessError("no text but the licence")


@dataclass(frozen=True)
class _Listing:
    """Which books there are to be had."""

    shelf: Shelf
    downloads: Downloads
    languages: Sequence[str]
    site: str

    def of_the_harvest(self) -> Iterator[_Book]:
        """Those its pages link to, from the page where the last time ended."""
        asked = [("filetypes[]", "txt"), *(("langs[]", each) for each in sorted(self.languages))]
        question = urlencode(asked, safe="[]")
        page = self.shelf.pages.get(question, f"{self.site}{_HARVEST}?{question}")
        while page:
            links = [urljoin(page, link) for link in _links(self.downloads.page(page))]
            yield from _on_page(links)
            page = _next(page, links)
            if page:
                self.shelf.come_to(question, page)

    def of_a_mirror(self, root: str) -> Iterator[_Book]:
        """The texts of the catalogue, by their numbers, in the places where mirrors keep them."""
        places = list(_PLACES)
        for number, languages in sorted(_catalogued(self._catalogue(root))):
            if languages & set(self.languages):
                digits = "/".join(str(number)[:-1]) or "0"
                at = {f"{root}/{each.format(n=number, d=digits)}": each for each in places}
                yield _Book(str(number), tuple(at))
                # Where this one was is where the next one will be.
                came = at.get(str(self.shelf.books.get(str(number), {}).get("from")))
                places.sort(key=lambda each: each != came)

    def _catalogue(self, root: str) -> str:
        """The mirror's copy, or else the one that Project Gutenberg itself offers to programs."""
        path = self.shelf.kept / "catalogue.csv"
        if not path.exists():
            try:
                self.downloads.file(root + _CATALOGUE, path, limit=_CATALOGUE_BYTES)
            except RefusedError as error:
                if error.status not in (403, 404, 410):
                    raise
                self.downloads.file(self.site + _CATALOGUE, path, limit=_CATALOGUE_BYTES)
        return path.read_text(encoding="utf-8-sig", errors="replace")


def _catalogued(text: str) -> Iterator[tuple[int, set[str]]]:
    """The number and the languages of every text of the catalogue."""
    rows = csv.DictReader(io.StringIO(text, newline=""))
    if not {"Text#", "Type", "Language"} <= set(rows.fieldnames or ()):
        raise FetchError(
            "what the mirror has for a catalogue is none",
            hint="--mirror takes the address of the folder that holds the books",
        )
    for row in rows:
        number = row["Text#"] or ""
        if row["Type"] == "Text" and number.isascii() and number.isdecimal() and int(number):
            yield int(number), {each.strip() for each in (row["Language"] or "").split(";")}


def _on_page(addresses: Sequence[str]) -> Iterator[_Book]:
    """The books that a page links to, each once, the best of its files first."""
    found: dict[str, list[tuple[int, str]]] = {}
    for address in addresses:
        path = urlsplit(address).path
        if numbered := _ZIP.fullmatch(path):
            rank = _PREFERRED.get(numbered[2], 3)
            found.setdefault(str(int(numbered[1])), []).append((rank, address))
        elif old := _OLD_ZIP.fullmatch(path):
            found.setdefault(old[1], []).append((0, address))
    for key, files in found.items():
        yield _Book(key, tuple(dict.fromkeys(address for _, address in sorted(files))))


def _next(page: str, links: Sequence[str]) -> str:
    """The page that follows, if one does: of the same harvest, and further on."""
    here = urlsplit(page)
    for link in links:
        there = urlsplit(link)
        is_harvest = (there.netloc, there.path) == (here.netloc, here.path)
        if is_harvest and _offset(there.query) > _offset(here.query):
            return link
    return ""


def _offset(query: str) -> int:
    value = parse_qs(query).get("offset", ["0"])[0]
    return int(value) if value.isascii() and value.isdecimal() else 0


class _Anchors(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "a":
            self.links += [value for name, value in attrs if name == "href" and value]


def _links(page: bytes) -> list[str]:
    """The addresses of a page's links, in order."""
    anchors = _Anchors()
    anchors.feed(page.decode("utf-8", "replace"))
    return anchors.links
