"""The sources of a workspace: how they are stored, and what a copied workspace keeps."""

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from ownwords.archive.look import look
from ownwords.archive.report import Report, SourceSummary
from ownwords.core.workspace import Workspace
from ownwords.serve.app_state import AppState
from ownwords.serve.errors import ApiError
from ownwords.serve.source_list import (
    PostFilter,
    SourceList,
    filter_of,
)
from page_client import page_client


def source_list(
    workspace: Path, *folder: Path, command: str = "", read: Path | None = None
) -> SourceList:
    sources = [SourceSummary(str(read), "a folder")] if read else []
    report = Report("", "", "", "", command=command, sources=sources)
    return SourceList(Workspace(workspace), folder, last_report=lambda: report)


def test_without_a_source_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ApiError, match="no blog chosen yet"):
        source_list(tmp_path / "w").paths()


def test_the_server_s_own_paths_precede_those_of_the_last_look(tmp_path: Path) -> None:
    for name in ("a", "b c"):
        (tmp_path / name).mkdir()
    command, read = "ownwords look 'b c' --drafts --no-pages --workspace w", tmp_path / "b c"
    last = source_list(tmp_path / "w", command=command, read=read)
    assert (last.paths(), last.filter) == ([read], PostFilter(drafts=True, pages=False))
    assert source_list(tmp_path / "w", tmp_path / "a", read=read).paths() == [tmp_path / "a"]


def test_flags_are_the_differences_from_the_defaults() -> None:
    assert PostFilter().flags() == []
    flags = ["--set", "archive.drafts=true", "--set", "archive.pages=false"]
    assert PostFilter(drafts=True, pages=False).flags() == flags
    for command in ("", "ownwords look 'no end"):
        assert filter_of(command) == PostFilter()


def test_added_sources_persist_and_removal_deletes_only_uploads(
    tmp_path: Path,
) -> None:
    workspace, own = tmp_path / "w", tmp_path / "mine.xml"
    own.write_text("<rss/>")
    first = source_list(workspace)
    upload = first.uploads / "u1" / "db.sqlite"
    source = first.add(own, "path", "a feed")
    assert first.add(own, "path", "a feed") == source
    upload.parent.mkdir(parents=True)
    upload.write_bytes(b"x")
    dropped = first.add(upload, "upload", "a Publii site", "my blog")
    reloaded = source_list(workspace)  # as after a restart
    assert [source.id for source in reloaded.sources()] == [source.id, dropped.id]
    assert (dropped.name, dropped.bytes) == ("my blog", 1)
    reloaded.remove(dropped.id)
    reloaded.remove(source.id)
    assert not upload.parent.exists()
    assert own.exists()
    with pytest.raises(ApiError):
        reloaded.remove(source.id)


def markdown(folder: Path, numbers: range, extra: str = "") -> Path:
    folder.mkdir(parents=True)
    for n in numbers:
        words = " ".join(f"word{n}x{i}" for i in range(60))
        text = (
            f"---\ntitle: Day {n}\ndate: 2024-02-{n + 1:02}\n---\n\n{words}. {extra * (n == 3)}\n"
        )
        (folder / f"{n}.md").write_text(text)
    return folder


@pytest.mark.parametrize(
    ("decision", "kept", "posts"),
    [("replace", ["b"], 11), ("both", ["a", "b"], 21), ("cancel", ["a"], 10)],
)
def test_a_new_version_waits_until_the_user_has_decided(
    decision: str, kept: list[str], posts: int, tmp_path: Path
) -> None:
    old, new = markdown(tmp_path / "a", range(10)), markdown(tmp_path / "b", range(11), "More.")
    workspace = Workspace(tmp_path / "w.ownwords")
    api = page_client(AppState(workspace))
    state_sources = source_list(workspace.root)

    def add(path: Path) -> dict[str, Any]:
        answer = api.post("/api/sources", json={"path": str(path)})
        assert answer.status_code == 201, answer.text
        return dict(answer.json())

    def home() -> dict[str, Any]:
        return dict(api.get("/api/home").json())

    assert add(old)["version"] is None
    look(state_sources.paths(), workspace=workspace.root)
    assert not home()["blog"]["is_stale"]
    added = add(new)
    names = ("of", "new", "changed", "same", "gone")
    assert [added["version"][name] for name in names] == [str(old), 1, 1, 9, 0]
    assert state_sources.paths() == [old] and not home()["blog"]["is_stale"]
    assert add(markdown(tmp_path / "other", range(20, 25)))["version"] is None  # another blog
    other = next(each for each in home()["sources"] if each["name"] == "other")
    api.delete(f"/api/sources/{other['id']}")
    if decision == "cancel":
        assert api.delete(f"/api/sources/{added['id']}").status_code == 204
    else:
        body = {"replaces": decision == "replace"}
        assert api.post(f"/api/sources/{added['id']}/decide", json=body).status_code == 204
        assert home()["blog"]["is_stale"]
    assert [source.name for source in state_sources.sources()] == kept
    assert len(look(state_sources.paths(), workspace=workspace.root).posts) == posts
    assert not home()["blog"]["is_stale"]
    dates = {source["name"]: source["newest_day"] for source in home()["sources"]}
    assert dates == {name: {"a": "2024-02-10", "b": "2024-02-11"}[name] for name in kept}
    assert all(source["read_at"] for source in home()["sources"])
    for source in home()["sources"]:
        api.delete(f"/api/sources/{source['id']}")
    assert not home()["blog"]["is_read"]  # nothing is offered that was read from sources that went


def test_sources_read_by_relative_paths_are_recognised_from_another_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = markdown(tmp_path / "a", range(10)), markdown(tmp_path / "b", range(11), "More.")
    monkeypatch.chdir(tmp_path)
    workspace = tmp_path / "elsewhere" / "w.ownwords"
    look([Path("a")], workspace=workspace)
    monkeypatch.chdir("/")
    api = page_client(AppState(Workspace(workspace)))
    home = api.get("/api/home").json()
    assert [source["path"] for source in home["sources"]] == [str(old)]
    assert home["sources"][0]["newest_day"] == "2024-02-10" and not home["blog"]["is_stale"]
    assert api.post("/api/sources", json={"path": str(new)}).json()["version"]["of"] == str(old)
    assert len(look([new], workspace=workspace).versions) == 1


def test_a_source_read_by_a_relative_path_moves_with_its_workspace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    markdown(tmp_path / "a" / "blog", range(10))
    monkeypatch.chdir(tmp_path / "a")
    look([Path("blog")])
    (tmp_path / "a").rename(moved := tmp_path / "b")
    monkeypatch.chdir("/")
    home = page_client(AppState(Workspace(moved / "blog.ownwords"))).get("/api/home").json()
    [source] = home["sources"]
    assert (source["path"], source["problem"]) == (str(moved / "blog"), "")
    assert source["newest_day"] == "2024-02-10" and not home["blog"]["is_stale"]


def test_an_upload_is_read_when_it_was_read_and_not_when_it_came(tmp_path: Path) -> None:
    api = page_client(AppState(workspace := Workspace(tmp_path / "w.ownwords")))
    post = "---\ntitle: Rain\n---\n\n" + "It rained again. " * 20
    upload = {"content-type": "application/octet-stream"}
    assert api.post("/api/uploads?name=a.md", content=post, headers=upload).status_code == 201
    [source] = api.get("/api/home").json()["sources"]
    assert source["read_at"] is None
    os.utime(Path(source["path"]).parent, (1e9, 1e9))
    look([Path(source["path"])], workspace=workspace.root)
    [source] = api.get("/api/home").json()["sources"]
    assert source["read_at"] > 1e9


def test_a_copied_workspace_uses_its_own_copy_of_an_upload(tmp_path: Path) -> None:
    workspace = tmp_path / "w"
    upload = source_list(workspace).uploads / "u1" / "posts.zip"
    source_list(workspace).add(tmp_path / "none", "path", "")
    upload.parent.mkdir(parents=True)
    upload.write_bytes(b"x")
    source_list(workspace).add(upload, "upload", "")
    shutil.copytree(workspace, tmp_path / "copy")
    shutil.rmtree(workspace)
    copied = source_list(tmp_path / "copy").sources()
    assert copied[1].path == str(tmp_path / "copy" / "uploads" / "u1" / "posts.zip")
    assert copied[1].problem == ""
    assert copied[0].problem.endswith("No such file or directory")
    with pytest.raises(ApiError, match="does not exist"):
        source_list(tmp_path / "copy").paths()


def test_a_damaged_source_list_is_ignored(tmp_path: Path) -> None:
    workspace = tmp_path / "w"
    sources = source_list(workspace, tmp_path)
    sources.set_filter({"drafts": True})
    assert source_list(workspace, tmp_path).filter.drafts
    for content in (b"", b"[", b"[]", b'{"sources": 3}', b"\xff"):
        (workspace / "sources.json").write_bytes(content)
        assert source_list(workspace, tmp_path).paths() == [tmp_path]
