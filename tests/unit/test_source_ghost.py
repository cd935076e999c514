import json
from pathlib import Path
from typing import Any

import pytest

from exports import NON_ASCII
from exports import ghost as export
from items import documents, skipped
from ownwords.archive.document import SiteInfo, SkippedItem, SourceItem, SourceNote
from ownwords.archive.sources import ghost
from ownwords.core.errors import SourceError


def of(folder: Path, content: object) -> list[SourceItem]:
    path = folder / "export.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    assert ghost.detect(path)
    return list(ghost.read(path))


def data(content: dict[str, Any]) -> dict[str, Any]:
    tables: dict[str, Any] = content["db"][0]["data"]
    return tables


def test_the_site_and_skipped_items_are_reported(tmp_path: Path) -> None:
    items = list(ghost.read(export.write(tmp_path)))
    assert items[0] == SiteInfo("Hats & Heads", identity="Hats-Heads")
    assert skipped(items) == [SkippedItem("comment", "other people's words", export.OTHERS)]
    assert "INTRUDER" not in repr(items)
    assert "ann@example.com" not in repr(items)


def test_a_post_comes_with_its_metadata(tmp_path: Path) -> None:
    posts = documents(ghost.read(export.write(tmp_path)))
    post = posts["post/a1"]
    assert (post.author, post.tags) == ("Ann Author", ("Hats", "Zażółć"))
    assert post.url == ""
    assert 'href="/letter/"' in post.body
    assert NON_ASCII in post.body


def test_the_address_of_the_site_is_taken_from_the_settings(tmp_path: Path) -> None:
    content = export.export()
    data(content)["settings"].append({"key": "url", "value": "https://ghost.example.org/"})
    items = of(tmp_path, content)
    assert items[0] == SiteInfo("Hats & Heads", identity="ghost.example.org")
    post = documents(items)["post/a1"]
    assert post.url == "https://ghost.example.org/hats/"
    assert 'href="https://ghost.example.org/letter/"' in post.body
    assert not [note for note in items if isinstance(note, SourceNote)]


def test_a_post_that_cannot_be_read_is_skipped(tmp_path: Path) -> None:
    content = export.export()
    data(content)["posts"] += [None, 7]
    items = of(tmp_path, content)
    left_out = [(e.what, e.title, e.count) for e in skipped(items)]
    assert ("post", "", 2) in left_out
    assert len(documents(items)) == 6


def test_older_exports(tmp_path: Path) -> None:
    post = export.post("7", "Old", "old", "2015-01-01", markdown="*Old* words.", author_id=1)
    post |= {"page": 1, "published_at": 1420106400000, "author_id": 1}
    tables = {"posts": [post], "users": [{"id": 1, "name": "Ann"}]}
    (post_found,) = documents(of(tmp_path, {"meta": {}, "data": tables})).values()
    assert (post_found.ref, post_found.author, post_found.markup) == ("page/7", "Ann", "markdown")
    assert post_found.date and post_found.date.isoformat() == "2015-01-01T10:00:00+00:00"


def test_a_file_cut_off_is_refused(tmp_path: Path) -> None:
    path = export.write(tmp_path)
    content = path.read_bytes()
    for length in range(content.index(b'"posts"') + 8, len(content), 501):
        path.write_bytes(content[:length])
        with pytest.raises(SourceError, match="not complete JSON"):
            list(ghost.read(path))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("[]", "holds no Ghost export"),
        ('{"db": [{"data": {"posts": 3}}]}', "has no posts"),
        ('{"data": "posts"}', "has no posts"),
    ],
)
def test_json_of_other_programs_has_no_posts(tmp_path: Path, content: str, says: str) -> None:
    path = tmp_path / "package.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(SourceError, match=says):
        list(ghost.read(path))


def test_of_rendered_cards_only_the_author_s_part_is_kept(tmp_path: Path) -> None:
    content = export.export()
    data(content)["posts"][0]["html"] = (
        '<p>Mine.</p><figure class="kg-card kg-bookmark-card"><a class="kg-bookmark-container"'
        ' href="https://o.org"><div class="kg-bookmark-title">INTRUDER</div></a><figcaption>My'
        ' remark</figcaption></figure><div class="kg-card kg-button-card"><a class="kg-btn">CHROME'
        '</a></div><div class="kg-card kg-callout-card"><div class="kg-callout-emoji">CHROME</div>'
        '<div class="kg-callout-text">Mind it.</div></div><div class="kg-card kg-signup-card"><h2>'
        'CHROME</h2></div><figure class="kg-card kg-video-card"><div'
        ' class="kg-video-player-container">0:00/CHROME</div><figcaption>Film</figcaption></figure>'
    )
    post = next(iter(documents(of(tmp_path, content)).values()))
    assert "INTRUDER" not in post.body
    assert "CHROME" not in post.body
    for phrase in ("Mine.", "My remark", "Mind it.", "Film"):
        assert phrase in post.body
