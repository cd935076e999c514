"""Every file of a blog, what became of it, why, and what to do: in a terminal and on the page."""

import json
from pathlib import Path

import pytest

from exports import wordpress
from ownwords.archive.file_list import list_files
from ownwords.archive.look import look
from ownwords.cli.main import main
from ownwords.core.workspace import Workspace
from ownwords.serve.app_state import AppState
from page_client import page_client

EXPECTED = {
    "a.md": ("read", ""),
    "draft.md": ("left out", "--drafts"),
    "empty.md": ("left out", ""),
    "letter.rtf": ("left out", "save it as plain text"),
    "notes/b.md": ("read", ""),
    "page.html": ("left out", ""),
    "picture.jpg": ("left out", ""),
}


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    folder = tmp_path / "blog"
    (folder / "notes").mkdir(parents=True)
    (folder / ".git").mkdir()
    (folder / ".git" / "index").write_text("unseen")
    for name in EXPECTED:
        (folder / name).write_text("# Rain\n\nIt fell on the shed.\n")
    (folder / "draft.md").write_text("---\ndraft: true\n---\nNot yet.\n")
    (folder / "empty.md").write_text("")
    return folder


def test_every_file_has_a_status_and_a_reason(
    notes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = Workspace(tmp_path / "mine.ownwords")
    look([notes], workspace=place.root)
    api = page_client(AppState(place, sources=[notes]))
    answer = api.get("/api/corpus/files").json()
    command = ["look", str(notes), "--workspace", str(place.root), "--files"]
    assert main([*command, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)["files"]
    for rows in (answer["rows"], printed):
        files = {row["name"]: row for row in rows if row["name"] != ".git"}
        assert {name: row["status"] for name, row in files.items()} == {
            name: status for name, (status, _) in EXPECTED.items()
        }
        for name, (status, advice) in EXPECTED.items():
            assert advice in files[name]["advice"]
            assert bool(files[name]["reasons"]) == (status != "read")
    assert api.get("/api/corpus/files?words=draft").json()["total"] == 1
    assert api.get("/api/corpus/files?status=read").json()["total"] == 2
    assert dict(answer["counts"])["read"] == 2
    assert main(command) == 0
    assert "not Markdown (.html); to read it, give its path as well" in capsys.readouterr().out


def test_an_export_is_one_file(tmp_path: Path) -> None:
    path = wordpress.write(tmp_path)
    report = look([path], workspace=tmp_path / "mine.ownwords")
    (file,) = list_files(report, tmp_path / "mine.ownwords")
    assert (file.name, file.status, file.texts) == (path.name, "read in part", len(report.posts))
    assert "still a draft" in file.reasons
