"""A folder that is followed: what changes in it is noticed, read and found at once."""

import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ownwords.archive import follow
from ownwords.archive.ingest import ingest_changed
from ownwords.archive.look import look
from ownwords.archive.report import Report
from ownwords.archive.settings import ArchiveConfig
from ownwords.archive.store import Archive
from ownwords.ask.index import SearchIndex
from ownwords.core.workspace import Workspace
from ownwords.serve import following
from ownwords.serve.app_state import AppState
from page_client import page_client

_WAIT_S = 60.0


@pytest.fixture
def blog(tmp_path: Path) -> Path:
    folder = tmp_path / "blog"
    for n in range(4):
        (folder / f"{2020 + n}").mkdir(parents=True)
        (folder / f"{2020 + n}" / f"{n}.md").write_text(f"# Post {n}\n\nRain fell on {n} again.\n")
    return folder


def waited(check: Callable[[], object]) -> bool:
    end = time.monotonic() + _WAIT_S
    while not check() and time.monotonic() < end:
        time.sleep(0.05)
    return bool(check())


@pytest.mark.parametrize("how", ["polling", "notices"])
def test_changed_new_and_deleted_files_are_noticed(
    how: str, blog: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if how == "polling":
        monkeypatch.setitem(sys.modules, "watchfiles", None)
    else:
        pytest.importorskip("watchfiles")
    monkeypatch.setattr(follow, "_MIN_POLL_S", 0.05)
    monkeypatch.setattr(follow, "_QUIET_S", 0.1)
    changed, stopped = blog / "2021" / "1.md", threading.Event()
    changes = follow.FolderWatch([blog], stopped).changes()

    def following_set() -> set[Path]:
        return next(filter(None, changes))

    changed.write_text("# Post 1\n\nSnow fell.\n")
    assert following_set() == {changed}
    (blog / ".hidden").mkdir()
    (blog / ".hidden" / "a.md").write_text("unseen")
    (blog / "mine.ownwords").mkdir()
    (blog / "mine.ownwords" / "archive.sqlite").write_text("unseen")
    (blog / "2022" / "2.md").replace(blog / "2022" / "two.md")
    assert following_set() == {blog / "2022" / "2.md", blog / "2022" / "two.md"}
    stopped.set()
    assert list(changes) in ([], [set()])


def test_changed_files_are_stored_and_found_without_a_look(blog: Path, tmp_path: Path) -> None:
    workspace = Workspace(tmp_path / "mine.ownwords")
    report = look([blog], workspace=workspace.root)
    with SearchIndex(workspace.archive) as index, Archive(workspace.archive) as archive:
        index.refresh()
        selection = archive.selection()

        def read(*files: Path) -> list[str] | None:
            with archive.transaction():
                return ingest_changed(archive, report, set(files), ArchiveConfig())

        old, new = blog / "2020" / "0.md", blog / "new.md"
        old.write_text("# Post 0\n\nHail fell on zinnias.\n")
        new.write_text("# A new one\n\nHail fell on marigolds.\n")
        (blog / "picture.png").write_bytes(b"\x89PNG")
        assert read(old, new, blog / "picture.png") == ["Post 0", "A new one"]
        index.refresh()
        assert index.chunks_with("zinnias") and index.chunks_with("marigolds")
        assert archive.selection() == selection  # until the next look
        assert read(old) == []  # as it is stored
        old.unlink()
        assert read(old, new) is None
        assert "blog:new.md" not in Report.from_json(archive.get_meta("report")).to_json()
    later = look([blog], workspace=workspace.root)
    assert {post.title for post in later.posts} == {"A new one", "Post 1", "Post 2", "Post 3"}


def test_a_served_folder_is_read_when_it_changes_and_looked_at_later(
    blog: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "_MIN_PAUSE_S", 0.2)
    monkeypatch.setattr(following, "_PAUSES", 0)
    monkeypatch.setattr(follow, "_MIN_POLL_S", 0.05)
    monkeypatch.setattr(follow, "_QUIET_S", 0.1)
    workspace = Workspace(tmp_path / "mine.ownwords")
    look([blog], workspace=workspace.root)
    state = AppState(workspace, sources=[blog])
    with page_client(state) as api:

        def found(word: str) -> list[str]:
            passages = state.searcher().find(word, limit=5).passages
            return [each.document for each in passages if word in each.text]

        assert waited(lambda: state.follower.is_following)
        monkeypatch.setattr(state.jobs, "find_worker", lambda: "Making a model is still running")
        (blog / "new.md").write_text("# A new one\n\nHail fell on marigolds.\n")
        assert waited(lambda: state.follower._changed)
        assert not found("marigolds")  # a training needs the posts as they were
        monkeypatch.undo()
        monkeypatch.setattr(following, "_MIN_PAUSE_S", 0.2)
        assert waited(lambda: found("marigolds"))
        assert waited(lambda: api.get("/api/workspace").json()["read"])
        assert "“A new one”" in api.get("/api/workspace").json()["read"]
        post = api.get("/api/corpus/post", params={"id": "blog:new.md"}).json()
        assert "marigolds" in str(post["segments"])

        def titles() -> set[str]:
            return {each["title"] for each in api.get("/api/corpus/posts").json()["rows"]}

        os.replace(blog / "2021" / "1.md", blog / "2021" / "one.md")  # noqa: PTH105
        (blog / "2020" / "0.md").unlink()
        assert waited(lambda: titles() == {"A new one", "Post 1", "Post 2", "Post 3"})
        assert not api.get("/api/blog").json()["is_stale"]
    assert waited(lambda: not state.jobs.running())
