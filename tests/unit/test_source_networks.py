"""Mastodon, X and Bluesky: own posts, threads joined; and the two kinds of notebooks."""

from importlib import import_module
from pathlib import Path

import pytest

from exports import NON_ASCII, write_zip
from items import documents
from ownwords.archive.document import RawDocument, SkippedItem
from ownwords.archive.segments import parse_body
from ownwords.archive.sources import load_source, notion


def texts_of(name: str, folder: Path) -> dict[str, str]:
    read = documents(load_source(name).read(import_module(f"exports.{name}").write(folder)))
    return {
        ref: "\n\n".join(s.text for s in parse_body(d.body, d.markup).segments)
        for ref, d in read.items()
    }


@pytest.mark.parametrize("name", ["mastodon", "twitter", "bluesky"])
def test_threads_are_joined_and_others_left_out(name: str, tmp_path: Path) -> None:
    export = import_module(f"exports.{name}")
    first, *_ = texts_of(name, tmp_path).values()
    opening, _, more = first.partition("\n\n")
    assert NON_ASCII in opening
    assert more in ("And a coat is a wall.", "And so on.", "A coat, too.")
    skipped = [
        i for i in load_source(name).read(export.write(tmp_path)) if isinstance(i, SkippedItem)
    ]
    assert {i.reason for i in skipped} == {
        "a reply to somebody else's post",
        "a boost of somebody else's post"
        if name == "mastodon"
        else "a repost of somebody else's post",
    }


def test_what_x_shortened_is_whole(tmp_path: Path) -> None:
    texts = texts_of("twitter", tmp_path)
    assert texts["post/1000"].startswith("A hat & a coat.")
    assert texts["post/1004"] == "As I said: twitter.com/ann/status/1001"
    assert texts["post/1005"].endswith("no end. The end.")


def test_an_entry_of_day_one_has_plain_punctuation(tmp_path: Path) -> None:
    texts = texts_of("dayone", tmp_path)
    assert texts["entry/0A1B"].startswith("A hat (a roof). ")
    assert texts["entry/0A1C"] == "After hats, coats.\n\nNot a title"


def test_a_notion_export_as_html_in_a_zip_of_zips_says_the_same(tmp_path: Path) -> None:
    page = (
        '<style>INTRUDER</style><article><header><h1 class="page-title">On hats</h1>'
        '<table class="properties"><tbody><tr><th>Date</th><td><time>@January 31, 2020</time></td>'
        "</tr><tr><th>Tags</th><td>clothes, weather</td></tr></tbody></table></header>"
        '<div class="page-body"><p>A hat is a roof one wears.</p></div></article>'
    )
    inner = write_zip(tmp_path / "1.zip", {f"Export-1/On hats {'a' * 32}.html": page})
    parts = {"Export-1-Part-1.zip": inner.read_bytes()}
    damaged = write_zip(tmp_path / "damaged.zip", {**parts, "Export-1-Part-2.zip": b"PK damaged"})
    assert notion.detect(damaged) is None
    path = write_zip(tmp_path / "export.zip", parts)
    assert notion.detect(path) == "a Notion export"
    _, document = notion.read(path)
    assert isinstance(document, RawDocument)
    assert (document.title, document.tags) == ("On hats", ("clothes", "weather"))
    assert document.date is not None
    assert document.date.date().isoformat() == "2020-01-31"
    assert "A hat is a roof" in document.body
    assert "INTRUDER" not in document.body


def test_properties_of_a_notion_page_are_no_text(tmp_path: Path) -> None:
    _, coats, hats = texts_of("notion", tmp_path).values()
    assert coats == "A coat: a wall. And more."
    assert hats.startswith("A hat is a roof")
