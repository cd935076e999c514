from pathlib import Path

import pytest

from exports import NON_ASCII, write_zip
from exports import blogger as export
from items import documents, notes, skipped
from ownwords.archive.document import SiteInfo, SkippedItem, SourceItem
from ownwords.archive.sources import blogger, detect_source


def of(
    folder: Path, *entries: str, head: str = export.HEAD, tail: str = export.TAIL
) -> list[SourceItem]:
    path = folder / "feed.atom"
    path.write_text(head + "".join(entries) + tail, encoding="utf-8")
    assert blogger.detect(path)
    return list(blogger.read(path))


def test_a_post_comes_with_its_metadata(tmp_path: Path) -> None:
    post = documents(blogger.read(export.write(tmp_path)))["post/101"]
    assert post.url == "https://hats.blogspot.com/2019/12/hats.html"
    assert (post.author, post.tags) == ("Ann Author", ("Hats", "Zażółć"))
    assert NON_ASCII in post.body
    assert "<pre>a &lt; b</pre>" in post.body


def test_without_links_the_address_stays_unknown(tmp_path: Path) -> None:
    items = of(tmp_path, export.entry("post-1", "Alone", "<p>a</p>", file="/2020/01/alone.html"))
    assert items[0] == SiteInfo("Hats & Heads", identity="blogger")
    assert "address" in notes(items)
    assert documents(items)["post/1"].url == ""


def test_the_older_export(tmp_path: Path) -> None:
    items = list(blogger.read(export.write_old(tmp_path)))
    assert items[0] == SiteInfo("Old hats", identity="blogger")
    posts = documents(items)
    assert {ref: post.status for ref, post in posts.items()} == {
        "post/1": "published",
        "post/2": "draft",
        "page/3": "published",
    }
    assert posts["post/1"].url == "https://hats.blogspot.com/2009/05/old.html"
    assert posts["post/1"].tags == ("Old",)
    date = posts["post/1"].date
    assert date and date.isoformat() == "2009-05-07T06:30:00+00:00"
    assert skipped(items) == [
        SkippedItem("entry", "part of the blog's settings, not a text", 2),
        SkippedItem("comment", "other people's words", 1),
    ]
    assert "INTRUDER" not in repr(items)


@pytest.mark.parametrize(
    ("status", "more", "expected"),
    [
        ("LIVE", "<blogger:trashed>2020-01-01T00:00:00Z</blogger:trashed>", "trashed"),
        ("HARD_TRASHED", "", "trashed"),
        ("SOMETHING_NEW", "", "draft"),
        ("live", "<blogger:trashed/>", "published"),
    ],
)
def test_status(tmp_path: Path, status: str, more: str, expected: str) -> None:
    items = of(tmp_path, export.entry("post-1", "a", "b", status=status, more=more))
    assert documents(items)["post/1"].status == expected


def test_folders_and_files(tmp_path: Path) -> None:
    takeout = export.write(tmp_path)
    expected = documents(blogger.read(takeout))
    feed = next(takeout.rglob("feed.atom"))
    for path in (takeout, takeout / "Blogger", feed.parent, feed, tmp_path):
        assert detect_source(path).name == "blogger"
        assert documents(blogger.read(path)) == expected


def test_several_blogs(tmp_path: Path) -> None:
    takeout = export.write(tmp_path)
    second = takeout / "Blogger" / "Blogs" / "Second"
    second.mkdir()
    text = export.HEAD + export.entry("post-900", "Second", "<p>b</p>") + export.TAIL
    (second / "feed.atom").write_text(text, encoding="utf-8")
    assert blogger.detect(takeout) == "2 Blogger blogs"
    items = list(blogger.read(takeout))
    assert sum(isinstance(item, SiteInfo) for item in items) == 2
    assert "post/900" in documents(items)


def test_comments_in_a_takeout_are_not_a_second_blog(tmp_path: Path) -> None:
    feed = export.HEAD + export.entry("post-1", "One", "<p>a</p>") + export.TAIL
    files = {f"Takeout/Blogger/{folder}/Hats/feed.atom": feed for folder in ("Blogs", "Comments")}
    path = write_zip(tmp_path / "takeout.zip", files)
    assert blogger.detect(path) == "a Blogger blog"
    assert len(documents(blogger.read(path))) == 1
