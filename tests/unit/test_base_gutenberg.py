import hashlib
import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from gutenberg_pages import FIRST, book, harvest, page, zipped
from loopback import Clock, Server, downloads, served
from ownwords.archive.look import look
from ownwords.archive.sources import gutenberg as source
from ownwords.base import gutenberg
from ownwords.base.downloads import FetchError, RefusedError
from ownwords.base.gutenberg import Fetched
from ownwords.core.errors import OwnwordsError


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    with served(monkeypatch) as found:
        yield found


def fetch(
    server: Server, folder: Path, books: int, clock: Clock | None = None, **how: object
) -> Fetched:
    through = downloads(clock or Clock(), between_s=gutenberg.BETWEEN_S)
    return gutenberg.fetch(folder, books, site=server.address, downloads=through, **how)  # type: ignore[arg-type]


def known(folder: Path) -> dict[str, dict[str, object]]:
    said = json.loads((folder / ".fetched" / "manifest.json").read_text(encoding="utf-8"))
    books: dict[str, dict[str, object]] = said["books"]
    return books


def test_books_come_from_the_pages_of_the_harvest(server: Server, tmp_path: Path) -> None:
    harvest(server, 101, 102, 103, 104, 105)
    fetched = fetch(server, tmp_path / "books", 3)
    assert (fetched.books, fetched.new, fetched.left_out) == (3, 3, {})
    names = sorted(path.name for path in (tmp_path / "books").glob("*.txt"))
    assert names == ["pg101.txt", "pg102.txt", "pg103.txt"]
    second = "/robot/harvest?offset=102&filetypes[]=txt&langs[]=en"
    assert server.paths() == [
        FIRST, "/1/101/101.zip", "/1/102/102.zip", second, "/1/103/103.zip",
    ]  # fmt: skip
    # Counted from the files: what the manifest says of them is so.
    for path in (tmp_path / "books").glob("*.txt"):
        said = known(tmp_path / "books")[path.stem.removeprefix("pg")]
        assert said["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
        assert said["title"] == f"Book {path.stem.removeprefix('pg')}"
    assert fetched.bytes == sum(path.stat().st_size for path in (tmp_path / "books").glob("*.txt"))


def test_two_seconds_go_by_between_all_requests(server: Server, tmp_path: Path) -> None:
    harvest(server, 101, 102, 103)
    clock = Clock()
    times: list[float] = []
    with downloads(clock, between_s=gutenberg.BETWEEN_S) as through:
        through._client.event_hooks["request"].append(lambda _: times.append(clock.now))
        gutenberg.fetch(tmp_path / "b", 3, site=server.address, downloads=through)
    assert len(times) == 5
    assert all(later - earlier >= 2.0 for earlier, later in pairwise(times))
    assert gutenberg.BETWEEN_S == 2.0


def test_a_second_time_fetches_nothing(server: Server, tmp_path: Path) -> None:
    harvest(server, 101, 102, 103)
    fetch(server, tmp_path / "b", 2)
    server.forget()
    again = fetch(server, tmp_path / "b", 2)
    assert (again.books, again.new) == (2, 0)
    assert server.asked == []


def test_more_books_go_on_at_the_page_where_it_was(server: Server, tmp_path: Path) -> None:
    harvest(server, 101, 102, 103, 104, 105)
    fetch(server, tmp_path / "b", 3)
    server.forget()
    assert fetch(server, tmp_path / "b", 5).new == 2
    second = "/robot/harvest?offset=102&filetypes[]=txt&langs[]=en"
    third = "/robot/harvest?offset=104&filetypes[]=txt&langs[]=en"
    assert server.paths() == [second, "/1/104/104.zip", third, "/1/105/105.zip"]


def test_what_was_lost_or_changed_is_fetched_again(server: Server, tmp_path: Path) -> None:
    harvest(server, 101, 102, per_page=5)
    fetch(server, tmp_path / "b", 2)
    (tmp_path / "b" / "pg101.txt").write_text("something else")
    server.forget()
    assert fetch(server, tmp_path / "b", 2).new == 1
    assert server.paths() == [FIRST, "/1/101/101.zip"]
    assert "Book 101" in (tmp_path / "b" / "pg101.txt").read_text(encoding="utf-8")


def test_ended_early_it_goes_on(server: Server, tmp_path: Path) -> None:
    harvest(server, 101, 102, 103)
    server.files["/1/102/102.zip"].status = 403  # blocked
    with pytest.raises(RefusedError, match="403") as told:
        fetch(server, tmp_path / "b", 3)
    assert "--mirror" in told.value.hint
    assert (tmp_path / "b" / "pg101.txt").exists()
    server.files["/1/102/102.zip"].status = 200
    server.forget()
    assert fetch(server, tmp_path / "b", 3).books == 3
    assert "/1/101/101.zip" not in server.paths()


def test_a_zip_that_breaks_off_is_gone_on_with(server: Server, tmp_path: Path) -> None:
    harvest(server, 101)
    server.files["/1/101/101.zip"].breaks_after = [100]
    fetch(server, tmp_path / "b", 1)
    assert server.asked[-1].headers["Range"] == "bytes=100-"


def test_of_several_files_of_a_book_the_utf8_one_is_taken(server: Server, tmp_path: Path) -> None:
    names = ("55.zip", "55-8.zip", "55-0.zip", "55-h.zip", "56-8.zip", "56.zip")
    server.put(FIRST, page(*(f"{server.address}/5/{name}" for name in names)))
    for name in names:
        server.put(f"/5/{name}", zipped((f"{name[:-4]}.txt", book(f"From {name}"))))
    assert fetch(server, tmp_path / "b", 2).books == 2
    assert [one["title"] for one in known(tmp_path / "b").values()] == [
        "From 55-0.zip",
        "From 56-8.zip",
    ]


def test_only_links_of_the_harvest_are_followed(server: Server, tmp_path: Path) -> None:
    server.put(
        FIRST,
        page(
            "/ebooks/101",
            "/browse/scores/top",
            "harvest?offset=0&filetypes[]=txt&langs[]=en",  # back to the beginning
            "http://elsewhere.example/robot/harvest?offset=9",
            "/robot/other?offset=9",
            f"{server.address}/1/101/101.zip",
        ),
    )
    server.put("/1/101/101.zip", zipped(("101.txt", book("One"))))
    assert fetch(server, tmp_path / "b", 9).books == 1
    assert server.paths() == [FIRST, "/1/101/101.zip"]


def test_the_languages_are_asked_for(server: Server, tmp_path: Path) -> None:
    asked = "/robot/harvest?filetypes[]=txt&langs[]=de&langs[]=fr"
    server.put(asked, page())
    assert fetch(server, tmp_path / "b", 1, languages=("fr", "de")).books == 0
    assert server.paths() == [asked]
    with pytest.raises(OwnwordsError, match="no language"):
        fetch(server, tmp_path / "b", 1, languages=("English",))


LETTERS = "Příliš žluťoučký kůň. "


@pytest.mark.parametrize(
    ("encoding", "named", "letters"),
    [
        ("utf-8", "UTF-8", LETTERS),
        ("utf-8-sig", "UTF-8", LETTERS),
        ("iso-8859-2", "ISO-8859-2", LETTERS),
        ("iso-8859-7", "ISO-8859-7", "Ο λόγος. "),
        ("cp1252", "ISO-8859-1", "“Ça va – naïve.” "),
        ("latin-1", "nonsense-9", "Ça va. "),
    ],
)
def test_letters_are_read_as_they_were_written(
    server: Server, tmp_path: Path, encoding: str, named: str, letters: str
) -> None:
    text = book("Letters", encoding=named).replace("This is", letters + "This is")
    server.put(FIRST, page(f"{server.address}/7/77-8.zip"))
    server.put("/7/77-8.zip", zipped(("77-8.txt", text.encode(encoding))))
    fetch(server, tmp_path / "b", 1)
    assert letters in (tmp_path / "b" / "pg77.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (zipped(("../../evil.txt", book("Evil"))), "zip is damaged, or no good"),
        (zipped(("/evil.txt", book("Evil"))), "zip is damaged, or no good"),
        (zipped(("bomb.txt", b"\0" * (20 << 20))), "zip is damaged, or no good"),
        (b"PK\x03\x04 and then nothing", "zip is damaged, or no good"),
        (zipped(("cover.jpg", b"x")), "no text in its zip"),
        (zipped(("a.txt", "<html>Please log in</html>")), "without the header"),
        (
            zipped(
                (
                    "a.txt",
                    book(
                        "Kept", more="This is a COPYRIGHTED Project Gutenberg eBook, see below\r\n"
                    ),
                )
            ),
            "keeps the rights",
        ),
    ],
)
def test_what_is_no_book_is_left_out_and_not_asked_for_again(
    server: Server, tmp_path: Path, data: bytes, reason: str
) -> None:
    harvest(server, 102)
    links = (f"{server.address}/1/101/101.zip", f"{server.address}/1/102/102.zip")
    server.put(FIRST, page(*links))
    server.put("/1/101/101.zip", data)
    fetched = fetch(server, tmp_path / "b", 2)
    assert fetched.books == 1
    ((said, count),) = fetched.left_out.items()
    assert (reason in said, count) == (True, 1)
    assert [path.name for path in tmp_path.rglob("*.txt")] == ["pg102.txt"]
    server.forget()
    fetch(server, tmp_path / "b", 2)
    assert server.paths() == [FIRST]


def test_the_text_of_a_zip_is_its_longest_one(server: Server, tmp_path: Path) -> None:
    server.put(FIRST, page(f"{server.address}/1/101.zip"))
    members = (
        ("readme.txt", "Read me."),
        ("sub/101.txt", book("Longest")),
        ("101.htm", "x" * 9999),
    )
    server.put("/1/101.zip", zipped(*members))
    fetch(server, tmp_path / "b", 1)
    assert known(tmp_path / "b")["101"]["title"] == "Longest"


def test_a_book_that_fails_is_left_for_another_time(server: Server, tmp_path: Path) -> None:
    harvest(server, 101, 102, per_page=5)
    server.files["/1/101/101.zip"].answers = [(500, {})] * 5
    fetched = fetch(server, tmp_path / "b", 2)
    assert (fetched.books, fetched.left_out) == (1, {})
    assert fetch(server, tmp_path / "b", 2).books == 2


def test_a_server_that_fails_is_told(server: Server, tmp_path: Path) -> None:
    harvest(server, 101, 102, 103, 104, per_page=9)
    for n in (101, 102, 103, 104):
        server.files[f"/1/{n}/{n}.zip"].answers = [(500, {})] * 5
    with pytest.raises(FetchError, match="500"):
        fetch(server, tmp_path / "b", 4)
    assert "/1/104/104.zip" not in server.paths()


def catalogue(*rows: tuple[int, str, str]) -> str:
    head = "Text#,Type,Issued,Title,Language,Authors,Subjects,LoCC,Bookshelves\n"
    lines = (f'{n},{kind},2000-01-01,"A title,\nin two lines",{lang},,,,' for n, kind, lang in rows)
    return "\ufeff" + head + "\n".join(lines) + "\n"


def test_a_mirror_gives_what_the_catalogue_lists(server: Server, tmp_path: Path) -> None:
    rows = [(1234, "Text", "en"), (7, "Text", "fr; en"), (8, "Sound", "en"), (9, "Text", "de")]
    server.put("/m/cache/epub/feeds/pg_catalog.csv", catalogue(*rows))
    server.put("/m/cache/epub/7/pg7.txt", book("Seven"))
    server.put("/m/1/2/3/1234/1234-0.txt", book("Many"))
    fetched = fetch(server, tmp_path / "b", 5, mirror=server.address + "/m/")
    assert fetched.books == 2
    assert [one["title"] for one in known(tmp_path / "b").values()] == ["Seven", "Many"]
    assert server.paths() == [
        "/m/cache/epub/feeds/pg_catalog.csv",
        "/m/cache/epub/7/pg7.txt",
        "/m/cache/epub/1234/pg1234.txt",
        "/m/1/2/3/1234/1234-0.txt",
    ]


def test_where_a_mirror_had_the_last_book_it_is_asked_first(server: Server, tmp_path: Path) -> None:
    server.put("/cache/epub/feeds/pg_catalog.csv", catalogue(*((n, "Text", "en") for n in (5, 67))))
    server.put("/0/5/5-8.txt", book("Five").encode())
    server.put("/6/67/67-8.txt", book("Sixty-seven"))
    assert fetch(server, tmp_path / "b", 2, mirror=server.address).books == 2
    assert server.paths()[1:] == [
        "/cache/epub/5/pg5.txt",
        "/0/5/5-0.txt",
        "/0/5/5-8.txt",
        "/6/67/67-8.txt",
    ]


def test_a_mirror_without_the_catalogue_and_without_a_book(server: Server, tmp_path: Path) -> None:
    server.put("/cache/epub/feeds/pg_catalog.csv", catalogue((5, "Text", "en")))
    first, second = server.address + "/one", server.address + "/two"
    assert fetch(server, tmp_path / "b", 1, mirror=first).left_out == {f"not at {first}": 1}
    # Remembered of this mirror, and of no other.
    server.forget()
    fetch(server, tmp_path / "b", 1, mirror=first)
    assert server.asked == []
    server.put("/two/0/5/5.txt", book("Five"))
    fetched = fetch(server, tmp_path / "b", 1, mirror=second)
    assert (fetched.books, fetched.left_out) == (1, {})


def test_what_is_no_catalogue_is_told(server: Server, tmp_path: Path) -> None:
    server.put("/cache/epub/feeds/pg_catalog.csv", "<html>Welcome</html>")
    with pytest.raises(FetchError, match="catalogue"):
        fetch(server, tmp_path / "b", 1, mirror=server.address)


def test_look_reads_what_was_fetched(server: Server, tmp_path: Path) -> None:
    harvest(server, 101, 102, per_page=9)
    folder = tmp_path / "books"
    fetch(server, folder, 2)
    assert source.detect(folder) == "a folder of Project Gutenberg texts"
    report = look([folder], workspace=tmp_path / "b.ownwords")
    assert report.totals.posts == 2
    assert "Gutenberg" in report.sources[0].seen_as


def test_a_damaged_manifest_is_told(server: Server, tmp_path: Path) -> None:
    harvest(server, 101)
    fetch(server, tmp_path / "b", 1)
    (tmp_path / "b" / ".fetched" / "manifest.json").write_text('{"format": 1, "books": 3}')
    with pytest.raises(OwnwordsError, match="damaged"):
        fetch(server, tmp_path / "b", 1)


def test_no_books_are_no_job(server: Server, tmp_path: Path) -> None:
    with pytest.raises(OwnwordsError, match="0 books"):
        fetch(server, tmp_path / "b", 0)
    assert not (tmp_path / "b").exists()
