"""Unusual workspaces: moved, used by another program, inside the blog, half written."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from ownwords.archive.look import look
from ownwords.archive.report import Report
from ownwords.core.errors import OwnwordsError

COPY = "The kettle boiled before anybody in the house had thought of tea. " * 6


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    folder = tmp_path / "notes"
    folder.mkdir()
    for i in range(6):
        (folder / f"{i}.md").write_text(
            f"---\ntitle: Note {i}\n---\n\n" + f"Rain fell on hill number {i} all day. " * 20,
            encoding="utf-8",
        )
    return folder


def run_look(notes: Path, workspace: Path, export: Path | None = None) -> Report:
    return look([notes], workspace=workspace, export=export)


def test_a_moved_workspace_knows_its_path(notes: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path / "a")
        look([notes])
        (tmp_path / "a" / "notes.ownwords").rename(tmp_path / "b" / "notes.ownwords")
        patch.chdir(tmp_path / "b")
        assert look([notes]).workspace == str(tmp_path / "b" / "notes.ownwords")


def test_the_database_of_another_program_is_left_untouched(notes: Path, tmp_path: Path) -> None:
    workspace = tmp_path / "w"
    workspace.mkdir()
    for version in (0, 1):
        with closing(sqlite3.connect(workspace / "archive.sqlite")) as database:
            database.execute("CREATE TABLE IF NOT EXISTS mail (text)")
            database.execute(f"PRAGMA user_version = {version}")
            database.commit()
        with pytest.raises(OwnwordsError, match="the database of another program"):
            run_look(notes, workspace)
        with closing(sqlite3.connect(workspace / "archive.sqlite")) as database:
            assert database.execute("SELECT count(*) FROM mail").fetchone() == (0,)


def test_a_workspace_inside_the_blog_is_not_read(notes: Path) -> None:
    for inside in (notes, notes / "w", notes / "a" / "b"):
        with pytest.raises(OwnwordsError, match="would be read with it"):
            run_look(notes, inside)
    assert run_look(notes, notes / "w.ownwords").totals.posts == 6
    assert run_look(notes, notes / "w.ownwords").totals.posts == 6


def test_missing_files_are_rewritten_by_the_next_look(
    notes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = tmp_path / "w"
    run_look(notes, workspace)
    (notes / "0.md").write_text("# Another title\n\nAnd other words.\n", encoding="utf-8")

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("ownwords.archive.look.write_atomically", killed)
        with pytest.raises(KeyboardInterrupt):
            run_look(notes, workspace)
    assert "Another title" not in (workspace / "report.html").read_text(encoding="utf-8")
    run_look(notes, workspace)
    assert "Another title" in (workspace / "report.html").read_text(encoding="utf-8")


def test_an_unwritable_export_path_is_reported_first(notes: Path, tmp_path: Path) -> None:
    for export in (tmp_path, tmp_path / "nowhere" / "x.jsonl"):
        with pytest.raises(OwnwordsError, match=r"is a folder|there is no folder"):
            run_look(notes, tmp_path / "w", export)
    assert not (tmp_path / "w").exists()


def test_six_copies_of_a_text_count_once(tmp_path: Path) -> None:
    folder = tmp_path / "same"
    folder.mkdir()
    for i in range(6):
        (folder / f"{i}.md").write_text(f"---\ntitle: {i}\n---\n\n{COPY}", encoding="utf-8")
    report = run_look(folder, tmp_path / "w")
    assert (report.totals.own_words, report.totals.training_words) == (432, 72)
    assert not any("A few long posts" in sentence for sentence in report.advice.sentences)
    assert any("1 post to train on" in note for note in report.notes)


def test_a_decision_about_a_missing_text_is_reported(notes: Path, tmp_path: Path) -> None:
    run_look(notes, tmp_path / "w")
    choices_text = '[[post]]\nid = "notes:nine.md"\ndecision = "leave out"\n'
    (tmp_path / "w" / "choices.toml").write_text(choices_text, encoding="utf-8")
    (message, *_) = run_look(notes, tmp_path / "w").notes
    assert "1 text that is not in the archive: notes:nine.md" in message
    (notes / "nine.md").write_text("Nine is here now, as it happens.\n", encoding="utf-8")
    report = run_look(notes, tmp_path / "w")
    assert [p.decision for p in report.posts if p.id == "notes:nine.md"] == ["leave out"]
    assert "nine.md" not in " ".join(report.notes)


def test_posts_without_own_words_raise_no_question(tmp_path: Path) -> None:
    folder = tmp_path / "quotes"
    folder.mkdir()
    for i in range(6):
        (folder / f"{i}.md").write_text(f"> Quoted line number {i}, and more.\n", encoding="utf-8")

    def never(_: object) -> str:
        raise AssertionError

    report = look([folder], workspace=tmp_path / "w", ask=never)
    assert report.totals.own_words == 0


@pytest.mark.parametrize("version", [0, 2])
def test_an_archive_of_another_version_is_rebuilt(
    version: int, notes: Path, tmp_path: Path
) -> None:
    run_look(notes, tmp_path / "w")
    with closing(sqlite3.connect(tmp_path / "w" / "archive.sqlite")) as database:
        database.execute(f"PRAGMA user_version = {version}")
        database.commit()
    assert run_look(notes, tmp_path / "w").totals.posts == 6
