from pathlib import Path

import pytest

from exports import feed as export
from items import skipped
from ownwords.archive.document import RawDocument, SiteInfo, SkippedItem, SourceNote
from ownwords.archive.sources import feed
from ownwords.core.errors import SourceError

ATOM = """<?xml version="1.0" encoding="utf-8"?><feed xmlns="http://www.w3.org/2005/Atom">
<title>Hats</title><link href="https://hats.example.org/"/>{}</feed>"""
XHTML = """<entry><id>tag:1</id><title type="html">Fish &amp;amp; &lt;b>hats&lt;/b></title>
<link href="https://hats.example.org/a"/><updated>2020-01-31T23:30:00-02:00</updated>
<summary>Short</summary><content type="xhtml"><div xmlns="http://www.w3.org/1999/xhtml"><p>Whole
<code>a &lt; b</code></p></div></content></entry>"""
PLAIN = (
    """<entry><id>tag:2</id><title>Plain</title><content type="text">a &lt;b> c</content></entry>"""
)


def save_feed(folder: Path, text: str, name: str = "feed") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def documents(path: Path) -> list[RawDocument]:
    return [item for item in feed.read(path) if isinstance(item, RawDocument)]


def notes(path: Path) -> str:
    return " ".join(item.text for item in feed.read(path) if isinstance(item, SourceNote))


def test_content_is_preferred_to_the_summary_and_markup_kept(tmp_path: Path) -> None:
    first = documents(export.write(tmp_path))[0]
    assert '<pre><code>hat  = 1 &lt; 2\n<!ENTITY shows="nothing">' in first.body
    assert '<a href="/2021/06/coats/">' in first.body
    assert first.author == "Ann Author"
    assert first.tags == ("Hats", "Fish")
    assert "appeared first on" not in first.body


def test_atom_with_xhtml_and_plain_text(tmp_path: Path) -> None:
    path = save_feed(tmp_path, ATOM.format(XHTML + PLAIN))
    assert feed.detect(path) == "an RSS or Atom feed"
    full_text, plain = documents(path)
    assert full_text.title == "Fish & hats"
    assert "<code>a &lt; b</code>" in full_text.body
    assert full_text.date is not None
    assert full_text.date.isoformat() == "2020-02-01T01:30:00+00:00"
    assert (plain.body, plain.markup) == ("a <b> c", "text")


def test_excerpts_and_a_short_feed_are_reported(tmp_path: Path) -> None:
    messages = notes(export.write(tmp_path))
    assert "1 of 4 entries look like excerpts" in messages
    assert "The feed holds 4 entries" in messages


def test_a_comments_feed_is_counted_as_other_peoples_words(tmp_path: Path) -> None:
    path = save_feed(tmp_path, export.RSS.replace("Hats &amp; Heads", "Comments on: Hats"))
    assert documents(path) == []
    assert SkippedItem("comment", "other people's words", 5) in skipped(feed.read(path))


def test_duplicate_entries_and_entries_without_text_are_reported(tmp_path: Path) -> None:
    empty = "<entry><id>tag:3</id><title>Empty</title></entry>"
    items = list(feed.read(save_feed(tmp_path, ATOM.format(PLAIN + PLAIN + empty))))
    reasons = [item.reason for item in skipped(items)]
    assert reasons == ["its entry appears twice in the feed", "the feed holds only its title"]


def test_a_truncated_feed_gives_its_complete_entries(tmp_path: Path) -> None:
    path = save_feed(tmp_path, export.RSS[: export.RSS.index("<title>Only a")])
    assert [post.title for post in documents(path)][:2] == ["Fish & hats", "Coats"]
    assert "is damaged" in notes(path)


def test_file_contents_are_never_opened_as_a_path_or_address(tmp_path: Path) -> None:
    secret = save_feed(tmp_path, export.RSS, "secret.xml")
    for text in (str(secret), "https://hats.example.org/feed"):
        with pytest.raises(SourceError, match="is not a feed"):
            list(feed.read(save_feed(tmp_path, text)))


@pytest.mark.parametrize("text", ["", "<html><body><feed>x", "# <rss>", "<?xml?><note/>"])
def test_other_files_are_not_detected_as_a_feed(tmp_path: Path, text: str) -> None:
    assert feed.detect(save_feed(tmp_path, text)) is None


def test_footers_of_feed_generators_are_removed_and_names_unescaped(
    tmp_path: Path,
) -> None:
    path = save_feed(
        tmp_path,
        '<rss version="2.0" xmlns:content="http://purl.org/rss/1.0/modules/content/"><channel>'
        "<title>Hats &amp;amp; Heads</title><item><title>A</title><link>https://a.org/a</link>"
        "<category><![CDATA[Fish &amp; hats]]></category><content:encoded><![CDATA[<p>Mine.</p>"
        '<div class="sharedaddy"><h3>CHROME</h3></div><div class="jp-relatedposts">CHROME</div>'
        '<p>The post <a href="x">A</a> appeared first on <a href="y">Hats</a>.</p>'
        "]]></content:encoded></item></channel></rss>",
    )
    (entry,) = documents(path)
    assert entry.body.strip() == "<p>Mine.</p>"
    assert entry.tags == ("Fish & hats",)
    assert next(iter(feed.read(path))) == SiteInfo("Hats & Heads")
    assert "holds 1 entry;" in notes(path)
