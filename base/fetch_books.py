"""Fetch books from Project Gutenberg to train a base on, by its rules for programs.

    python base/fetch_books.py --books 500 --out books

Its website is for people. Programs may read the pages of its robot harvest and follow their links,
two seconds apart (https://www.gutenberg.org/policy/robot_access.html). The same command resumes
where it stopped: `state.json` in the folder `.fetched` holds the page that was reached and the
books that cannot be used.
"""

import argparse
import codecs
import io
import json
import re
import sys
import time
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import parse_qs, urljoin, urlsplit

import httpx
from selectolax.lexbor import LexborHTMLParser

from ownwords.archive.untrusted_files import decode_text
from ownwords.core.errors import OwnwordsError
from ownwords.core.version import __version__
from ownwords.core.workspace import write_atomically

SITE = "https://www.gutenberg.org"
PAUSE_S = 2.0  # between two requests, as its rules for robots ask

_TRIES = 5
_BOOK_BYTES = 64 << 20  # the longest, Webster's dictionary, is under 30 MB
# 10000-8.zip: the number of the book and its encoding; UTF-8 (-0) is best.
_ZIP = re.compile(r"(?:.*/)?(\d+)(?:-(\d))?\.zip")
_PREFERRED = {"0": 0, "8": 1, None: 2}
_START = re.compile(
    r"\* ?START\s+OF\s+TH(?:E|IS)\s+PROJECT\s+GUTENBERG.*\n"
    r"|END\s?\*\s?THE SMALL PRINT.*\n",  # before 2000, when the licence came first
    re.I,
)
_END = re.compile(r"END\s+OF\s+(?:TH(?:E|IS)\s+)?PROJECT\s+GUTENBERG", re.I)
_COPYRIGHTED = re.compile(r"COPYRIGHTED\s+Project\s+Gutenberg\s+e(?:Book|text)", re.I)
_TITLE = re.compile(r"^Title:(.*)", re.M)
_ENCODING = re.compile(rb"(?im)^Character set encoding:[ \t]*([\w.:-]+)")


class UnusableBookError(Exception):
    """The book cannot be used; the message says why."""


class PoliteClient:
    """Sends requests at least `pause_s` seconds apart, and again if the server is busy."""

    def __init__(self, pause_s: float = PAUSE_S) -> None:
        self._pause_s, self._next = pause_s, 0.0
        self._client = httpx.Client(
            follow_redirects=True,
            timeout=60.0,
            headers={"User-Agent": f"ownwords/{__version__}"},
            event_hooks={"request": [self._wait]},  # redirections included
        )

    def get(self, url: str) -> bytes:
        """Return the content at an address. Raises httpx.HTTPError if it does not arrive."""
        for left in reversed(range(_TRIES)):
            try:
                with self._client.stream("GET", url) as response:
                    response.raise_for_status()
                    data = bytearray()
                    for chunk in response.iter_bytes():
                        data += chunk
                        if len(data) > _BOOK_BYTES:
                            raise UnusableBookError("it is too long")
                    return bytes(data)
            except httpx.HTTPStatusError as error:
                if not left or error.response.status_code < 429:
                    raise
            except httpx.TransportError:
                if not left:
                    raise
            time.sleep(self._pause_s * 2 ** (_TRIES - left))
        raise AssertionError

    def _wait(self, _: httpx.Request) -> None:
        time.sleep(max(0.0, self._next - time.monotonic()))
        self._next = time.monotonic() + self._pause_s


def main(arguments: list[str] | None = None) -> int:
    """Fetch until the folder holds the number of books given."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--books", type=int, required=True)
    parser.add_argument("--out", type=Path, default=Path("books"))
    parser.add_argument("--language", default="en")
    args = parser.parse_args(arguments)
    books = fetch(args.out, args.books, args.language, PoliteClient())
    print(f"{books:,} books in {args.out}")
    return 0


def fetch(folder: Path, books: int, language: str, client: PoliteClient, site: str = SITE) -> int:
    """Fetch books, in UTF-8 without the licence, until `folder` holds `books`; return how many."""
    start = f"{site}/robot/harvest?filetypes[]=txt&langs[]={language}"
    path = folder / ".fetched" / "state.json"
    state = {"page": start, "unusable": {}}
    if path.exists():
        state = json.loads(path.read_text(encoding="utf-8"))
    path.parent.mkdir(parents=True, exist_ok=True)
    page = state["page"]
    while page and len(list(folder.glob("pg*.txt"))) < books:
        links = [urljoin(page, link) for link in _links(client.get(page))]
        for number, address in _books(links):
            book = folder / f"pg{number}.txt"
            if book.exists() or number in state["unusable"]:
                continue
            try:
                text = _without_licence(_text(client.get(address)))
            except (UnusableBookError, httpx.HTTPStatusError) as error:
                state["unusable"][number] = str(error)
            else:
                write_atomically(book, text)
            write_atomically(path, json.dumps(state, indent=1))
            if len(list(folder.glob("pg*.txt"))) >= books:
                break
        else:
            page = state["page"] = _next_page(page, links)
            write_atomically(path, json.dumps(state, indent=1))
    return len(list(folder.glob("pg*.txt")))


def _links(page: bytes) -> list[str]:
    anchors = LexborHTMLParser(page).css("a[href]")
    return [anchor.attributes["href"] or "" for anchor in anchors]


def _books(addresses: list[str]) -> Iterator[tuple[str, str]]:
    """Yield number and address of each book that a page links to, in its best encoding."""
    best: dict[str, tuple[int, str]] = {}
    for address in addresses:
        if match := _ZIP.fullmatch(urlsplit(address).path):
            candidate = (_PREFERRED.get(match[2], 3), address)
            number = str(int(match[1]))
            best[number] = min(best.get(number, candidate), candidate)
    for number, (_, address) in best.items():
        yield number, address


def _next_page(page: str, links: list[str]) -> str:
    """Return the link to a later page of the same harvest; "" on the last page."""
    here = urlsplit(page)
    for link in links:
        there = urlsplit(link)
        if there[:3] == here[:3] and _offset(there.query) > _offset(here.query):
            return link
    return ""


def _offset(query: str) -> int:
    value = parse_qs(query).get("offset", ["0"])[0]
    return int(value) if value.isascii() and value.isdecimal() else 0


def _text(packed: bytes) -> str:
    """Return the text of a book in its zip file, decoded as its own header says."""
    try:
        with zipfile.ZipFile(io.BytesIO(packed)) as archive:
            texts = [file for file in archive.infolist() if file.filename.endswith(".txt")]
            if not texts or max(file.file_size for file in texts) > _BOOK_BYTES:
                raise UnusableBookError("no text in its zip, or one that is too long")
            data = archive.read(max(texts, key=lambda file: file.file_size))
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, OSError) as error:
        raise UnusableBookError(f"its zip is damaged: {error}") from error
    with suppress(UnicodeDecodeError):
        return data.decode("utf-8")
    encoding = _ENCODING.search(data[:4096])
    with suppress(LookupError, UnicodeDecodeError):
        name = codecs.lookup(encoding[1].decode("ascii")).name if encoding else ""
        if name and name not in ("ascii", "iso8859-1", "utf-8", "cp1252"):
            return data.decode(name)
    return decode_text(data)


def _without_licence(text: str) -> str:
    """Return the text of a book below its title. Raises UnusableBookError if it is not free."""
    text = text.replace("\r\n", "\n")
    if _COPYRIGHTED.search(text[:16_000]):
        raise UnusableBookError("its author keeps the rights")
    start = _START.search(text)
    end = _END.search(text, start.end()) if start else None
    if not start or not end:
        raise UnusableBookError("no lines where the licence ends and begins again")
    body = text[start.end() : text.rfind("\n", 0, end.start()) + 1].strip()
    if not body:
        raise UnusableBookError("no text but the licence")
    title = _TITLE.search(text[: start.start()])
    return f"{title[1].strip()}\n\n{body}\n" if title else f"{body}\n"


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (OwnwordsError, httpx.HTTPError) as error:
        sys.exit(f"{error}; the same command goes on where it stopped")
