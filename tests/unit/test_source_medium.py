from pathlib import Path

import pytest

from exports import medium as export
from exports import write_folder
from items import documents, skipped
from ownwords.archive.document import RawDocument, SourceNote
from ownwords.archive.sources import medium


def documents_of(path: Path) -> dict[str, RawDocument]:
    return documents(medium.read(path))


def test_a_story_comes_with_its_metadata(tmp_path: Path) -> None:
    story = documents_of(export.write(tmp_path))["post/0a1b2c3d4e5f"]
    assert story.author == "Ann Author"
    assert story.url == "https://medium.com/@ann/on-hats-0a1b2c3d4e5f"
    assert "graf--title" not in story.body
    assert "hat = 1 &lt; 2" in story.body
    assert "Canonical link" not in story.body


def test_short_responses_are_skipped_and_long_ones_counted(tmp_path: Path) -> None:
    items = list(medium.read(export.write(tmp_path)))
    responses = [i for i in skipped(items) if "response" in i.reason]
    assert [item.ref for item in responses] == ["post/3a1b2c3d4e5f"]
    notes = [item.text for item in items if isinstance(item, SourceNote)]
    assert len(notes) == 1
    assert notes[0].startswith("1 of Medium's stories look like responses")


@pytest.mark.parametrize(
    ("subtitle", "inner"),
    [
        ("A subtitle of its own", "<p>Short, and mine.</p>"),
        ("", "<h3>A heading</h3><p>Short, and mine.</p>"),
        ("", "<p>It begins with other words than its title.</p>"),
    ],
)
def test_a_short_story_with_a_title_is_not_a_response(
    tmp_path: Path, subtitle: str, inner: str
) -> None:
    page = export.story("Short, and mine", subtitle, inner, "aaaaaaaaaaaa", "2020-01-01")
    write_folder(tmp_path, {"posts/2020-01-01_Short-aaaaaaaaaaaa.html": page})
    assert list(documents_of(tmp_path)) == ["post/aaaaaaaaaaaa"]


def test_other_folders_are_never_opened(tmp_path: Path, opened_members: list[str]) -> None:
    path = export.write(tmp_path)
    medium.detect(path)
    assert any(i.count == 4 for i in skipped(medium.read(path)))
    assert opened_members
    assert all(name.startswith("posts/") for name in opened_members)


def test_a_story_cut_short_is_skipped(tmp_path: Path) -> None:
    cut = {"posts/2020-01-31_On-hats-0a1b2c3d4e5f.html": "<html><head><title>On"}
    write_folder(tmp_path, export.files() | cut)
    reasons = [item.reason for item in skipped(medium.read(tmp_path))]
    assert "it has no body: the page may be cut off" in reasons


def test_link_previews_are_removed(tmp_path: Path) -> None:
    inner = (
        '<h3 class="graf--title">Hats</h3><p>Mine.</p><div class="graf graf--mixtapeEmbed"><a'
        ' href="https://o.org"><strong>INTRUDER</strong><br><em>of another</em>o.org</a></div>'
    )
    page = export.story("Hats", "", inner, "0a1b2c3d4e5f", "2020-01-31")
    write_folder(tmp_path, {"posts/2020-01-31_Hats-0a1b2c3d4e5f.html": page})
    body = documents_of(tmp_path)["post/0a1b2c3d4e5f"].body
    assert "INTRUDER" not in body
    assert "Mine." in body
