import zipfile
from pathlib import Path

from exports import substack as export
from exports import write_zip
from items import documents, skipped
from ownwords.archive.document import RawDocument, SkippedItem
from ownwords.archive.sources import substack


def documents_of(path: Path) -> dict[str, RawDocument]:
    return documents(substack.read(path))


def list_skipped(path: Path) -> list[SkippedItem]:
    return skipped(substack.read(path))


def test_platform_markup_is_removed_and_footnotes_quotes_and_code_kept(tmp_path: Path) -> None:
    body = documents_of(export.write(tmp_path))["post/101"].body
    assert "CHROME" not in body
    assert "In a footnote." in body
    assert "<blockquote><p>A quoted line.</p></blockquote>" in body
    assert "hat = 1 &lt; 2" in body


def test_subscriber_lists_are_never_opened(tmp_path: Path, opened_members: list[str]) -> None:
    path = export.write(tmp_path)
    substack.detect(path)
    skipped_items = list_skipped(path)
    assert opened_members
    assert not [name for name in opened_members if name.endswith(".csv") and name != "posts.csv"]
    assert any("never read" in item.reason and item.count == 3 for item in skipped_items)


def test_a_post_without_text_and_a_text_without_row_are_reported(tmp_path: Path) -> None:
    members = {**export.files(), "posts/999.stray.html": "<p>Stray</p>"}
    skipped_items = list_skipped(write_zip(tmp_path / "export.zip", members))
    assert [item.title for item in skipped_items if "missing" in item.reason] == ["Lost"]
    assert any(item.what == "post" and "does not list it" in item.reason for item in skipped_items)


def test_the_address_of_the_newsletter_comes_from_its_internal_links(tmp_path: Path) -> None:
    posts = documents_of(export.write(tmp_path))
    assert posts["post/103"].url == "https://hats.substack.com/p/paid"
    assert posts["post/105"].url == ""


def test_a_damaged_member_is_skipped_and_the_others_read(tmp_path: Path) -> None:
    path = tmp_path / "export.zip"
    with zipfile.ZipFile(path, "w") as packed:
        for name, text in export.files().items():
            packed.writestr(name, text)
    data = path.read_bytes()
    path.write_bytes(data.replace(b"coats.</p>", b"COATS.</p>", 1))
    assert documents_of(path).keys() >= {"post/101", "post/103"}
    assert "cannot be unpacked" in " ".join(item.reason for item in list_skipped(path))


def test_embedded_posts_of_others_and_buttons_are_removed(tmp_path: Path) -> None:
    body = (
        '<p>Mine.</p><div class="embedded-publication-wrap"><span>INTRUDER</span></div>'
        '<div class="comment" data-attrs="{}"><div class="comment-body">INTRUDER</div></div>'
        '<div class="preformatted-block"><label class="hide-text">CHROME</label><pre>A poem</pre>'
        '</div><div class="file-embed-wrapper"><div class="file-embed-details-h1">My file</div>'
        '<div class="file-embed-details-h2">CHROME</div><a class="file-embed-button wide">CHROME'
        '</a></div><div class="footnote"><a class="footnote-number">CHROME</a><p>Noted.</p></div>'
    )
    members = export.files() | {"posts/101.on-hats.html": body}
    post = documents_of(write_zip(tmp_path / "export.zip", members))["post/101"]
    assert "INTRUDER" not in post.body
    assert "CHROME" not in post.body
    for phrase in ("Mine.", "A poem", "My file", "Noted."):
        assert phrase in post.body
