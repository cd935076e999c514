"""base/fetch_books.py: books from Project Gutenberg, by its rules for robots."""

import io
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import scripts
from fake_hub import FakeServer, serving

if not (scripts.ROOT / "base" / "fetch_books.py").exists():
    pytest.skip("base/ is not part of this copy", allow_module_level=True)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeServer]:
    with serving(monkeypatch) as server:
        yield server


@pytest.fixture
def books() -> ModuleType:
    return scripts.load("base/fetch_books.py")


def book(title: str, encoding: str = "UTF-8", header: str = "") -> bytes:
    sentences = " ".join(f"This is sentence {n} of {title}, viel Gemüse." for n in range(60))
    text = (
        f"The Project Gutenberg EBook of {title}, by Nobody\r\n\r\nTitle: {title}\r\n\r\n"
        f"Author: Nobody\r\n\r\nCharacter set encoding: {encoding}\r\n\r\n{header}"
        f"*** START OF THIS PROJECT GUTENBERG EBOOK {title.upper()} ***\r\n\r\n"
        f"CHAPTER I\r\n\r\n{sentences}\r\n\r\n"
        f"*** END OF THIS PROJECT GUTENBERG EBOOK {title.upper()} ***\r\n\r\nThe licence.\r\n"
    )
    return text.encode(encoding)


def zipped(name: str, data: bytes) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, data)
    return packed.getvalue()


def harvest(server: FakeServer, pages: list[list[str]]) -> None:
    """The robot harvest: its pages with their links."""
    address = "/robot/harvest?filetypes[]=txt&langs[]=en"
    for number, links in enumerate(pages, 1):
        following = f"harvest?offset={number}&filetypes[]=txt&langs[]=en"
        hrefs = [server.address + link for link in links]
        hrefs += [following] if number < len(pages) else []
        anchors = "".join(f'<a href="{href.replace("&", "&amp;")}">x</a>' for href in hrefs)
        server.put(address, f"<html><body>{anchors}</body></html>")
        address = f"/robot/{following}"


def test_an_interrupted_download_of_books_resumes(
    server: FakeServer, books: ModuleType, tmp_path: Path
) -> None:
    harvest(
        server, [["/1/101/101-8.zip", "/1/101/101-0.zip", "/1/102/102.zip"], ["/1/103/103.zip"]]
    )
    server.put("/1/101/101-0.zip", zipped("101.txt", book("One")))
    server.put("/1/102/102.zip", zipped("102.txt", book("Two", "cp1250")))
    server.put("/1/103/103.zip", zipped("103.txt", book("Three")))
    client = books.PoliteClient(pause_s=0)
    assert books.fetch(tmp_path, 2, "en", client, server.address) == 2
    text = (tmp_path / "pg101.txt").read_text("utf-8")
    assert text.startswith("One\n\nCHAPTER I\n\nThis is")
    assert "licence" not in text and "GUTENBERG" not in text
    assert "viel Gemüse" in (tmp_path / "pg102.txt").read_text("utf-8")
    server.requests.clear()
    assert books.fetch(tmp_path, 9, "en", client, server.address) == 3
    fetched = [path for _, path, _ in server.requests if path.endswith(".zip")]
    assert fetched == ["/1/103/103.zip"]
    assert server.requests[0][2]["User-Agent"].startswith("ownwords/")


def test_unusable_books_are_skipped_and_not_requested_again(
    server: FakeServer, books: ModuleType, tmp_path: Path
) -> None:
    harvest(server, [[f"/1/{n}/{n}.zip" for n in (201, 202, 203, 204, 205)]])
    server.put("/1/201/201.zip", b"no zip")
    server.put("/1/202/202.zip", zipped("202.txt", b"A text without a header."))
    server.put("/1/203/203.zip", zipped("203.jpg", b"x"))
    owned = book("Four", header="**This is a COPYRIGHTED Project Gutenberg eBook**\r\n\r\n")
    server.put("/1/204/204.zip", zipped("204.txt", owned))
    client = books.PoliteClient(pause_s=0)
    assert books.fetch(tmp_path, 1, "en", client, server.address) == 0
    server.requests.clear()
    assert books.fetch(tmp_path, 1, "en", client, server.address) == 0
    assert not [path for _, path, _ in server.requests if path.endswith(".zip")]
