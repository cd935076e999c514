"""What goes wrong on the way from a server: nothing is lost, nothing damaged is kept."""

import hashlib
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from itertools import pairwise
from pathlib import Path

import pytest

from gutenberg_pages import harvest
from loopback import Clock, Server, downloads, served
from ownwords.base import gutenberg
from ownwords.base.downloads import Checksum, Downloads, FetchError, RefusedError

DATA = random.Random(1).randbytes(100_000)
SHA256 = Checksum("sha256", hashlib.sha256(DATA).hexdigest())
GIT = Checksum("git", hashlib.sha1(b"blob 100000\0" + DATA).hexdigest())


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    with served(monkeypatch) as found:
        yield found


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def through(clock: Clock) -> Iterator[Downloads]:
    with downloads(clock) as found:
        yield found


def ranges(server: Server) -> list[str]:
    return [one.headers.get("Range", "") for one in server.asked]


@pytest.mark.parametrize("checksum", [None, SHA256, GIT])
def test_a_file_comes_whole(
    server: Server, through: Downloads, tmp_path: Path, checksum: Checksum | None
) -> None:
    server.put("/a.bin", DATA)
    fetched = through.file(f"{server.address}/a.bin", tmp_path / "a.bin", checksum=checksum)
    assert (tmp_path / "a.bin").read_bytes() == DATA
    assert (fetched.bytes, fetched.sha256) == (len(DATA), SHA256.value)
    assert [path.name for path in tmp_path.iterdir()] == ["a.bin"]


def test_what_breaks_off_goes_on_where_it_was(
    server: Server, through: Downloads, clock: Clock, tmp_path: Path
) -> None:
    server.put("/a.bin", DATA, breaks_after=[30_000, 20_000])
    counted: list[int] = []
    through.file(f"{server.address}/a.bin", tmp_path / "a.bin", came=counted.append)
    assert (tmp_path / "a.bin").read_bytes() == DATA
    assert ranges(server) == ["", "bytes=30000-", "bytes=50000-"]
    assert [one.headers.get("If-Range") for one in server.asked] == [None, '"one"', '"one"']
    assert sum(counted) == len(DATA)
    assert clock.slept == [1.0, 1.0]  # it moves on, so nobody loses patience


def test_another_process_goes_on_with_it(server: Server, tmp_path: Path) -> None:
    file = server.put("/a.bin", DATA, breaks_after=[30_000, 0, 0, 0, 0])
    path = tmp_path / "a.bin"
    with downloads(Clock()) as first, pytest.raises(FetchError, match=r"did not come") as told:
        first.file(f"{server.address}/a.bin", path)
    assert "goes on" in told.value.hint
    assert not path.exists()
    server.forget()
    file.breaks_after.clear()
    counted: list[int] = []
    with downloads(Clock()) as second:
        second.file(f"{server.address}/a.bin", path, came=counted.append)
    assert path.read_bytes() == DATA
    assert ranges(server) == ["bytes=30000-"]
    assert sum(counted) == len(DATA)
    assert [each.name for each in tmp_path.iterdir()] == ["a.bin"]


def test_a_file_that_changed_meanwhile_begins_anew(server: Server, tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    server.put("/a.bin", DATA, breaks_after=[30_000, 0, 0, 0, 0])
    with downloads(Clock()) as first, pytest.raises(FetchError):
        first.file(f"{server.address}/a.bin", path)
    changed = DATA[::-1]
    server.put("/a.bin", changed, etag='"two"')
    with downloads(Clock()) as second:
        second.file(f"{server.address}/a.bin", path)
    assert path.read_bytes() == changed


def test_a_server_that_ignores_what_version_is_meant_is_found_out(
    server: Server, tmp_path: Path
) -> None:
    path = tmp_path / "a.bin"
    path.with_name("a.bin.part").write_bytes(b"of another version")
    path.with_name("a.bin.etag").write_text('"zero"')
    server.put("/a.bin", DATA, minds_versions=False)
    with downloads(Clock()) as through:
        through.file(f"{server.address}/a.bin", path)
    assert path.read_bytes() == DATA
    assert ranges(server) == ["bytes=18-", ""]


@pytest.mark.parametrize("how", [{"takes_ranges": False}, {"etag": 'W/"weak"'}, {"etag": ""}])
def test_where_nothing_can_be_gone_on_with_it_begins_anew(
    server: Server, through: Downloads, tmp_path: Path, how: dict[str, object]
) -> None:
    server.put("/a.bin", DATA, breaks_after=[30_000], **how)
    through.file(f"{server.address}/a.bin", tmp_path / "a.bin")
    assert (tmp_path / "a.bin").read_bytes() == DATA


def test_a_known_checksum_is_enough_to_go_on(
    server: Server, through: Downloads, tmp_path: Path
) -> None:
    server.put("/a.bin", DATA, etag="", breaks_after=[30_000])
    through.file(f"{server.address}/a.bin", tmp_path / "a.bin", checksum=SHA256)
    assert (tmp_path / "a.bin").read_bytes() == DATA
    assert ranges(server) == ["", "bytes=30000-"]


@pytest.mark.parametrize("checksum", [SHA256, GIT])
def test_what_is_not_what_it_should_be_is_not_kept(
    server: Server, through: Downloads, tmp_path: Path, checksum: Checksum
) -> None:
    server.put("/a.bin", b"x" + DATA[1:])
    with pytest.raises(FetchError, match="checksum"):
        through.file(f"{server.address}/a.bin", tmp_path / "a.bin", checksum=checksum)
    assert list(tmp_path.iterdir()) == []
    assert len(server.asked) == 2  # once more, and no oftener


def test_damage_on_the_way_is_mended_by_asking_again(
    server: Server, through: Downloads, tmp_path: Path
) -> None:
    part = tmp_path / "a.bin.part"
    part.write_bytes(b"damage" + DATA[6:500])
    server.put("/a.bin", DATA)
    through.file(f"{server.address}/a.bin", tmp_path / "a.bin", checksum=SHA256)
    assert (tmp_path / "a.bin").read_bytes() == DATA
    assert ranges(server) == ["bytes=500-", ""]


@pytest.mark.parametrize("size", [99_999, 50])
def test_more_than_was_promised_is_not_taken(
    server: Server, through: Downloads, tmp_path: Path, size: int
) -> None:
    server.put("/a.bin", DATA)
    with pytest.raises(FetchError, match="longer than it should be"):
        through.file(f"{server.address}/a.bin", tmp_path / "a.bin", size=size)
    with pytest.raises(FetchError, match="longer than it should be"):
        through.file(f"{server.address}/a.bin", tmp_path / "a.bin", limit=size)
    assert list(tmp_path.iterdir()) == []


def test_less_than_was_promised_is_not_taken(
    server: Server, through: Downloads, tmp_path: Path
) -> None:
    server.put("/a.bin", DATA)
    with pytest.raises(FetchError, match="did not come"):
        through.file(f"{server.address}/a.bin", tmp_path / "a.bin", size=len(DATA) + 1)
    assert not (tmp_path / "a.bin").exists()


def test_what_came_whole_before_the_end_is_only_put_in_its_place(
    server: Server, through: Downloads, tmp_path: Path
) -> None:
    (tmp_path / "a.bin.part").write_bytes(DATA)
    through.file(f"{server.address}/a.bin", tmp_path / "a.bin", size=len(DATA), checksum=SHA256)
    assert (tmp_path / "a.bin").read_bytes() == DATA
    assert server.asked == []


def test_a_busy_server_is_asked_again_and_told_apart_from_a_broken_one(
    server: Server, through: Downloads, clock: Clock, tmp_path: Path
) -> None:
    server.put("/a.bin", DATA, answers=[(503, {}), (500, {}), (429, {"Retry-After": "7"})])
    through.file(f"{server.address}/a.bin", tmp_path / "a.bin")
    assert clock.slept == [1.0, 2.0, 7.0]
    server.put("/b.bin", DATA, answers=[(502, {})] * 5)
    with pytest.raises(FetchError, match="502 Bad Gateway"):
        through.file(f"{server.address}/b.bin", tmp_path / "b.bin")
    assert clock.slept[3:] == [1.0, 2.0, 4.0, 8.0]


def test_a_date_to_come_again_is_kept_and_a_late_one_told(
    server: Server, through: Downloads, clock: Clock
) -> None:
    soon = format_datetime(datetime.now(UTC) + timedelta(seconds=40), usegmt=True)
    server.put("/a", "x", answers=[(503, {"Retry-After": soon})])
    assert through.page(f"{server.address}/a") == b"x"
    assert 30 < clock.slept[0] <= 41
    server.put("/b", "x", answers=[(429, {"Retry-After": "7200"})])
    with pytest.raises(RefusedError, match="asks to come again in 2 h"):
        through.page(f"{server.address}/b")


def test_what_is_refused_is_not_asked_for_again(
    server: Server, through: Downloads, clock: Clock, tmp_path: Path
) -> None:
    server.put("/a", status=403)
    with pytest.raises(RefusedError, match="403 Forbidden") as told:
        through.page(f"{server.address}/a")
    assert told.value.status == 403
    with pytest.raises(RefusedError, match="404"):
        through.file(f"{server.address}/nothing", tmp_path / "a")
    assert clock.slept == []
    assert list(tmp_path.iterdir()) == []


def test_nobody_there_is_told_in_one_sentence(through: Downloads, server: Server) -> None:
    nobody = server.address.rpartition(":")[0] + ":1"
    with pytest.raises(FetchError, match="did not come") as told:
        through.page(f"{nobody}/a")
    assert "goes on where it was" in told.value.hint


@pytest.mark.parametrize("address", ["ftp://127.0.0.1/a", "file:///etc/passwd", "a"])
def test_what_is_no_address_of_the_web_is_not_asked(through: Downloads, address: str) -> None:
    with pytest.raises(FetchError, match="address"):
        through.page(address)


def test_a_packed_answer_is_refused(server: Server, through: Downloads, tmp_path: Path) -> None:
    server.put("/a", DATA, headers={"Content-Encoding": "gzip"})
    with pytest.raises(FetchError, match="packed"):
        through.file(f"{server.address}/a", tmp_path / "a")


def test_a_page_without_end_is_not_read_to_it(server: Server, through: Downloads) -> None:
    server.put("/a", DATA)
    with pytest.raises(FetchError, match="longer than"):
        through.page(f"{server.address}/a", limit=10)


def test_the_pause_between_requests_is_kept_for_redirections_and_second_tries(
    server: Server, tmp_path: Path
) -> None:
    clock = Clock()
    times: list[float] = []

    server.put("/to", status=302, headers={"Location": "/a"})
    server.put("/a", DATA, answers=[(503, {})])
    with downloads(clock, between_s=2.0) as through:
        through._client.event_hooks["request"].append(lambda _: times.append(clock.now))
        through.page(f"{server.address}/to")
        through.file(f"{server.address}/a", tmp_path / "a")
    assert server.paths() == ["/to", "/a", "/to", "/a", "/a"]
    assert all(later - earlier >= 2.0 for earlier, later in pairwise(times))


def test_who_asks_is_told_to_the_one_that_was_named_only(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    with served(monkeypatch) as other:
        server.put("/to", status=302, headers={"Location": f"{other.address}/a"})
        other.put("/a", "x")
        with downloads(Clock(), headers={"Authorization": "Bearer secret"}) as through:
            through.page(f"{server.address}/to")
    assert server.asked[0].headers["Authorization"] == "Bearer secret"
    assert "Authorization" not in other.asked[0].headers
    assert other.asked[0].headers["User-Agent"].startswith("ownwords/")


@pytest.mark.skipif(sys.platform == "win32", reason="kills as POSIX does")
def test_killed_between_two_books_no_book_is_lost_or_fetched_twice(
    server: Server, tmp_path: Path
) -> None:
    harvest(server, 101, 102, 103)
    code = (
        "import sys; from pathlib import Path; from ownwords.base import gutenberg;"
        "gutenberg.fetch(Path(sys.argv[1]), 3, site=sys.argv[2])"
    )
    folder = tmp_path / "books"
    with subprocess.Popen([sys.executable, "-c", code, str(folder), server.address]) as child:
        ends = time.monotonic() + 50
        while not (folder / "pg101.txt").exists() and time.monotonic() < ends:
            time.sleep(0.02)
        child.kill()  # while it waits out its two seconds
    assert [path.name for path in folder.glob("*.txt")] == ["pg101.txt"]
    server.forget()
    with downloads(Clock()) as through:
        fetched = gutenberg.fetch(folder, 3, site=server.address, downloads=through)
    assert fetched.books == 3
    # Killed before it was written down, the book that came is fetched once more, and no other.
    assert server.paths().count("/1/101/101.zip") <= 1
    assert len(list(folder.glob("*.txt"))) == 3
