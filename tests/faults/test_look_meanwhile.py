"""While `look` reads or asks: edits of choices.toml are kept, nothing is locked."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from ownwords.archive.analysis import ArchiveAnalysis, PostQuestion
from ownwords.archive.look import look
from ownwords.archive.report import Report
from ownwords.archive.selection import Choices
from ownwords.core.workspace import Workspace

TEXT = "The {0} stood in the rain, and nobody came to see what had become of {0} {1}.\n\n"
MINE = '[[post]]\nid = "notes:{0}.md"\ndecision = "leave out"\n'


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    folder = tmp_path / "notes"
    folder.mkdir()
    for name, times in (("lathe", 4), ("stove", 5), ("barn", 60), ("mill", 6), ("well", 7)):
        text = "".join(TEXT.format(name, n) for n in range(times))
        (folder / f"{name}.md").write_text(f"# {name}\n\n{text}", encoding="utf-8")
    return folder


def decisions(report: Report) -> dict[str, str]:
    return {
        post.id.removeprefix("notes:").removesuffix(".md"): post.decision for post in report.posts
    }


def test_an_edit_made_during_a_look_is_kept(
    notes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = Workspace(tmp_path / "w")
    fill = ArchiveAnalysis.fill
    edits = [MINE.format("lathe"), MINE.format("lathe") + MINE.format("stove")]

    def edited(analysis: ArchiveAnalysis, report: Report, choices: Choices) -> None:
        fill(analysis, report, choices)
        if edits:
            workspace.choices.write_text(edits.pop(0), encoding="utf-8")

    monkeypatch.setattr(ArchiveAnalysis, "fill", edited)
    report = look([notes], workspace=workspace.root)
    assert decisions(report)["lathe"] == decisions(report)["stove"] == "leave out"
    monkeypatch.undo()
    assert decisions(look([notes], workspace=workspace.root)) == decisions(report)


def test_the_author_is_asked_while_the_archive_is_unlocked(notes: Path, tmp_path: Path) -> None:
    workspace = Workspace(tmp_path / "w")
    questions: list[str] = []

    def ask(question: PostQuestion) -> str:
        questions.append(question.id)
        with closing(sqlite3.connect(workspace.archive, timeout=0)) as database:
            database.execute("BEGIN IMMEDIATE")  # as the server does to note a decision
            (count,) = database.execute("SELECT count(*) FROM selection").fetchone()
            assert count == 5  # the archive is complete meanwhile
        assert workspace.report_page.exists()
        workspace.choices.write_text(MINE.format("lathe"), encoding="utf-8")
        return "keep"

    report = look([notes], workspace=workspace.root, ask=ask)
    assert questions == ["notes:barn.md"]
    assert (decisions(report)["barn"], decisions(report)["lathe"]) == ("keep", "leave out")
    choices = workspace.choices.read_text(encoding="utf-8")
    assert "notes:lathe.md" in choices and "notes:barn.md" in choices
    assert look([notes], workspace=workspace.root, ask=refuse).posts == report.posts


def refuse(_: PostQuestion) -> str:
    raise AssertionError


def test_stopping_at_the_question_leaves_a_complete_archive(notes: Path, tmp_path: Path) -> None:
    look([notes], workspace=tmp_path / "w")
    (notes / "well.md").write_text("# well\n\nIt is dry now.\n", encoding="utf-8")

    def stop(_: PostQuestion) -> str:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        look([notes], workspace=tmp_path / "w", ask=stop)
    answers: list[str] = []
    look([notes], workspace=tmp_path / "w", ask=answering(answers))
    assert answers == ["notes:barn.md"]  # asked again


def answering(questions: list[str]) -> Callable[[PostQuestion], str]:
    def ask(question: PostQuestion) -> str:
        questions.append(question.id)
        return question.default

    return ask
