import os
import stat
from contextlib import ExitStack
from pathlib import Path

import pytest

from ownwords.core.errors import InUseError, WorkspaceError
from ownwords.core.workspace import (
    Workspace,
    path_text,
    source_name,
    write_atomically,
)


def test_a_second_opening_is_told_that_the_workspace_is_locked(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path / "w.ownwords")
    with (
        workspace.opened(),
        pytest.raises(InUseError, match="another ownwords process is working in"),
        workspace.opened(),
    ):
        pass
    with workspace.opened():
        pass


def test_a_folder_of_other_files_is_not_used_as_a_workspace(tmp_path: Path) -> None:
    (tmp_path / "thesis.docx").write_bytes(b"mine")
    with pytest.raises(WorkspaceError, match="is not empty"), Workspace(tmp_path).opened():
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.docx"]


def test_a_file_is_not_a_workspace(tmp_path: Path) -> None:
    path = tmp_path / "notes"
    path.write_text("x", encoding="utf-8")
    with pytest.raises(WorkspaceError, match="is a file"), Workspace(path).opened():
        pass


def test_the_folder_of_a_failed_job_is_removed(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), Workspace(tmp_path / "new").opened():
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []


def test_a_failed_write_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "report.html"
    write_atomically(path, "old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(WorkspaceError, match="the disk is full"):
        write_atomically(path, "new")
    assert path.read_text(encoding="utf-8") == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such permission bits")
def test_a_written_file_has_default_permissions(tmp_path: Path) -> None:
    write_atomically(tmp_path / "a", "x")
    (tmp_path / "b").write_text("x", encoding="utf-8")
    modes = {stat.S_IMODE((tmp_path / name).stat().st_mode) for name in "ab"}
    assert len(modes) == 1


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("sites/hats/input/db.sqlite", "hats"),
        ("sites/hats/input", "hats"),
        ("sites/hats", "hats"),
        ("export of 2020.xml", "export-of-2020"),
    ],
)
def test_a_workspace_is_named_after_its_source(path: str, name: str, tmp_path: Path) -> None:
    (tmp_path / "sites/hats/input").mkdir(parents=True)
    (tmp_path / "sites/hats/input/db.sqlite").touch()
    (tmp_path / "export of 2020.xml").touch()
    assert source_name(tmp_path / path) == name


@pytest.mark.parametrize("is_working", [True, False])
def test_the_loser_of_a_race_for_a_new_folder_removes_nothing(
    is_working: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, winner = tmp_path / "w.ownwords", ExitStack()
    make = Path.mkdir

    def make_then_lose(self: Path, mode: int = 0o777, **more: bool) -> None:
        make(self, mode, **more)
        monkeypatch.undo()
        winner.enter_context(Workspace(self).opened())
        (self / "archive.sqlite").write_bytes(b"theirs")
        if not is_working:  # it has ended before we take the lock
            winner.close()

    monkeypatch.setattr(Path, "mkdir", make_then_lose)
    error = InUseError if is_working else ZeroDivisionError
    with winner:
        with pytest.raises(error), Workspace(root).opened():
            raise ZeroDivisionError
        assert (root / "archive.sqlite").read_bytes() == b"theirs"


def test_errors_of_the_work_are_not_attributed_to_the_lock(tmp_path: Path) -> None:
    with pytest.raises(PermissionError), Workspace(tmp_path / "w").opened():
        raise PermissionError(13, "Permission denied", "post.md")


@pytest.mark.parametrize("name", ["file/w.ownwords", "w" * 300])
def test_an_impossible_path_is_reported(name: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with (
        pytest.raises(WorkspaceError, match="cannot be written"),
        Workspace(tmp_path / name).opened(),
    ):
        pass


def test_a_name_that_is_not_utf8_can_be_written() -> None:
    assert path_text(Path(os.fsdecode("caf\u00e9".encode()))) == "caf\u00e9"
    path_text(Path("w\udcff")).encode()
