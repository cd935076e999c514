"""A folder of fetched books, and what is known of them: their checksums, and what was no use."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ownwords.base.downloads import sha256_of
from ownwords.core.errors import OwnwordsError
from ownwords.core.workspace import telling_of_the_disk, try_lock, write_atomically
from ownwords.models.untrusted_files import read_json

_KEPT = ".fetched"  # beside the books, where `ownwords look` does not look
_FILE = "manifest.json"
_FORMAT = 1
_MOST_BYTES = 1 << 28  # a line for each of all the books there are takes a tenth of it


class Shelf:
    """The books of a folder by what they are known as; all changes are on the disk at once."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.kept = folder, folder / _KEPT
        self.books: dict[str, dict[str, object]] = {}
        self.left_out: dict[str, str] = {}  # and why
        self.pages: dict[str, str] = {}  # by what was asked for: the page of the list we are at

    @classmethod
    @contextmanager
    def opened(cls, folder: Path) -> Iterator["Shelf"]:
        """The shelf as it was left, held against others; books gone or changed are none of it."""
        shelf = cls(folder)
        with telling_of_the_disk(folder):
            shelf.kept.mkdir(parents=True, exist_ok=True)
            lock = (shelf.kept / "lock").open("a+", encoding="utf-8")
        with lock:
            if not try_lock(lock.fileno()):
                raise OwnwordsError(
                    f"another ownwords is fetching books to {folder}", hint="wait for it to end"
                )
            shelf._read()
            yield shelf

    def put(self, key: str, draft: Path, title: str, address: str) -> None:
        """A book that is written already takes its place."""
        known: dict[str, object] = {
            "file": draft.name,
            "title": title,
            "bytes": draft.stat().st_size,
            "sha256": sha256_of(draft),
            "from": address,
        }
        with telling_of_the_disk(self.folder):
            draft.replace(self.folder / draft.name)
        self.books[key] = known
        self.left_out.pop(key, None)
        self._write()

    def leave_out(self, key: str, reason: str) -> None:
        """A book that is no use is not asked for again."""
        self.left_out[key] = reason
        self._write()

    def come_to(self, question: str, page: str) -> None:
        """The next time goes on at this page."""
        self.pages[question] = page
        self._write()

    def bytes(self) -> int:
        """Of all the books."""
        return sum((self.folder / str(one["file"])).stat().st_size for one in self.books.values())

    def reasons(self) -> dict[str, int]:
        """How many books were left out for each reason."""
        said = list(self.left_out.values())
        return {reason: said.count(reason) for reason in sorted(set(said))}

    def _read(self) -> None:
        path = self.kept / _FILE
        if not path.exists():
            return
        said = read_json(path, limit=_MOST_BYTES)
        books, left_out, pages = (said.get(name) for name in ("books", "left_out", "pages"))
        if said.get("format") != _FORMAT or not (
            isinstance(books, dict) and isinstance(left_out, dict) and isinstance(pages, dict)
        ):
            raise OwnwordsError(
                f"{path} is damaged, or of another version of ownwords",
                hint="give another folder to --out",
            )
        self.left_out, self.pages = left_out, pages
        for key, one in books.items():
            book = self.folder / str(one.get("file"))
            if book.parent == self.folder and book.is_file() and sha256_of(book) == one["sha256"]:
                self.books[key] = one

    def _write(self) -> None:
        said = {
            "format": _FORMAT,
            "books": self.books,
            "left_out": self.left_out,
            "pages": self.pages,
        }
        text = json.dumps(said, ensure_ascii=False, indent=1) + "\n"
        write_atomically(self.kept / _FILE, text)
