import zipfile
from pathlib import Path

import pytest

from exports import NON_ASCII
from exports import wordpress as export
from items import documents, notes, skipped
from ownwords.archive.document import RawDocument, SiteInfo, SkippedItem, SourceItem
from ownwords.archive.segments import parse_body
from ownwords.archive.sources import wordpress
from ownwords.core.errors import SourceError

SITE = SiteInfo("Hats & Heads", identity="blog.example.com")


def of(
    folder: Path, *items: str, tail: str = export.TAIL, head: str = export.HEAD
) -> list[SourceItem]:
    path = folder / "export.xml"
    path.write_text(head + "".join(items) + tail, encoding="utf-8")
    assert wordpress.detect(path)
    return list(wordpress.read(path))


def test_comments_and_items_without_text_are_counted(tmp_path: Path) -> None:
    items = list(wordpress.read(export.write(tmp_path)))
    assert items[1] == SITE
    assert not notes(items)
    counts = {(e.what, e.reason): e.count for e in skipped(items)}
    assert counts == {
        ("comment", "other people's words"): 2,
        ("comment", "pingbacks from other sites"): 2,
        ("attachment", "attached files, not texts"): 1,
        ("revision", "older versions of posts"): 1,
        ("nav menu item", "entries of the site's menu"): 1,
        ("entry", 'of the type "product", neither a post nor a page'): 1,
    }
    assert sum(n for (kind, _), n in counts.items() if kind == "comment") == export.OTHERS
    assert "INTRUDER" not in repr(items)


def test_a_post_comes_with_its_metadata(tmp_path: Path) -> None:
    post = documents(wordpress.read(export.write(tmp_path)))["post/11"]
    assert (post.author, post.tags) == ("Ann Author", ("Hats", "Zażółć"))
    assert post.url == "https://blog.example.com/2012/03/hats/"
    assert NON_ASCII in post.body
    assert post.body.startswith("<!-- wp:paragraph -->")
    assert post.markup == "html"


def test_split_files_overlap(tmp_path: Path) -> None:
    folder = export.write_split(tmp_path / "split")
    complete = documents(wordpress.read(export.write(tmp_path)))
    items = list(wordpress.read(folder))
    assert wordpress.detect(folder) == "a WordPress export in 3 files"
    assert documents(items) == complete
    assert sum(isinstance(item, RawDocument) for item in items) == len(complete)
    assert sum(isinstance(item, SiteInfo) for item in items) == 1
    comments = [e.count for e in skipped(items) if e.what == "comment"]
    assert sum(comments) == export.OTHERS
    packed = tmp_path / "hats.zip"
    with zipfile.ZipFile(packed, "w") as archive:
        for file in folder.iterdir():
            archive.write(file, f"hats.2024/{file.name}")
    assert wordpress.detect(packed)
    assert list(wordpress.read(packed)) == items


@pytest.mark.parametrize(
    ("before", "after"), [("export/1.2", "export/1.0"), ("xmlns:wp=", "xmlns:other=")]
)
def test_older_versions_and_undeclared_namespaces(tmp_path: Path, before: str, after: str) -> None:
    posts = documents(of(tmp_path, *export.ITEMS, head=export.HEAD.replace(before, after)))
    assert posts["post/11"].author == "Ann Author"
    assert len(posts) == 10


def test_dates(tmp_path: Path) -> None:
    zeros = "0000-00-00 00:00:00"
    rss = "<pubDate>{}</pubDate>"
    posts = documents(
        of(
            tmp_path,
            export.item(1, "a", "", gmt=zeros, more=rss.format("Sun, 04 Mar 2012 01:02:03 +0200")),
            export.item(2, "b", "", gmt=zeros, more=rss.format("Wed, 30 Nov -0001 00:00:00 +0000")),
            export.item(3, "c", "", gmt="", day="0000-00-00"),
        )
    )
    dates = [posts[f"post/{n}"].date for n in (1, 2, 3)]
    assert [date and date.isoformat() for date in dates] == [
        "2012-03-03T23:02:03+00:00",
        "2012-03-04T10:11:12+00:00",
        None,
    ]


def test_control_characters_lose_no_text(tmp_path: Path) -> None:
    items = of(tmp_path, export.item(1, "Old\x0b hats", "before \x08\x00 after \uffff end"))
    post = documents(items)["post/1"]
    assert (post.title, post.body) == ("Old  hats", "before    after � end")
    assert "3 control characters" in notes(items)


@pytest.mark.parametrize("shift", range(4))
def test_invalid_xml_is_repaired_where_the_parser_allows(tmp_path: Path, shift: int) -> None:
    before = (
        32768
        - 4
        - shift
        - len((export.HEAD + export.item(1, "T", "").partition("]]>")[0]).encode())
    )
    post = documents(of(tmp_path, export.item(1, "T", "x" * before + "żż\uffff!")))["post/1"]
    assert post.body.lstrip("x") == "żż�!"


def test_a_truncated_file_is_reported_and_gives_complete_posts_only(tmp_path: Path) -> None:
    path = export.write(tmp_path)
    content = path.read_bytes()
    complete = documents(wordpress.read(path))
    beginning = content.index(b"<channel>")
    for length in range(beginning, len(content) - 20, 499):
        path.write_bytes(content[:length])
        try:
            items = list(wordpress.read(path))
        except SourceError as error:
            assert content[:length].count(b"</item>") == 0
            assert "cut off" in str(error)
            continue
        assert "cut off" in notes(items)
        posts = documents(items)
        assert posts.items() <= complete.items()
        complete_entries = content[:length].count(b"</item>")
        handed = len(posts) + sum(
            item.count
            for item in items
            if isinstance(item, SkippedItem) and item.what not in ("comment",)
        )
        assert handed == complete_entries


def test_damage_in_the_middle_is_reported(tmp_path: Path) -> None:
    items = of(
        tmp_path,
        export.item(1, "One", "first"),
        export.item(2, "Two", "before ]]> & <b> after"),
        export.item(3, "Three", "third"),
    )
    assert "not well-formed" in notes(items)
    assert documents(items)["post/1"].body == "first"
    assert documents(items)["post/3"].body == "third"


def test_titles_and_tags_lose_the_entities_and_emphasis_they_are_stored_with(
    tmp_path: Path,
) -> None:
    tag = '<category domain="post_tag" nicename="s"><![CDATA[Soup &amp; stew]]></category>'
    title = "Salt &amp; <em>pepper</em> &lt;3"
    (post,) = documents(of(tmp_path, export.item(1, title, "<p>a</p>", more=tag))).values()
    assert post.title == "Salt & pepper <3"
    assert post.tags == ("Soup & stew",)


def test_bare_embed_addresses_are_not_prose_and_code_is_kept(tmp_path: Path) -> None:
    body = """<p>Mine.</p>

<figure class="wp-block-embed"><div class="wp-block-embed__wrapper">
https://video.example/1
</div><figcaption>Watch it</figcaption></figure>

https://video.example/2

[youtube https://video.example/3&amp;w=640]

<p>As at https://video.example/4 I said [sic], the [gist of it].</p>

<pre>
https://video.example/5
</pre>"""
    (post,) = documents(of(tmp_path, export.item(1, "Films", body))).values()
    reading = parse_body(post.body, "html")
    assert [(segment.kind, segment.text) for segment in reading.segments] == [
        ("prose", "Mine."),
        ("caption", "Watch it"),
        ("prose", "As at https://video.example/4 I said [sic], the [gist of it]."),
        ("code", "https://video.example/5"),
    ]
    assert reading.dropped["plugin shortcode"] == 3


def test_entities_are_never_expanded(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("never read", encoding="utf-8")
    path = tmp_path / "export.xml"
    declared = f'<!DOCTYPE rss [<!ENTITY a SYSTEM "file://{tmp_path}/secret">]>\n<rss'
    head = export.HEAD.replace("<rss", declared, 1)
    path.write_text(head + export.item(1, "&a;", "x") + export.TAIL, encoding="utf-8")
    (post,) = documents(list(wordpress.read(path))).values()
    assert "never read" not in post.title
