"""The blog's contents in three lines whose sums agree, and what is new."""

import os
import time
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from exports import publii
from ownwords.archive.look import look
from ownwords.cli.main import main
from ownwords.core.workspace import Workspace
from ownwords.make.learned import count_new, write_learned
from ownwords.serve.app_state import AppState
from ownwords.serve.source_list import find_publii_sites
from page_client import page_client


def api_of(workspace: Path, *folder: Path) -> TestClient:
    return page_client(AppState(Workspace(workspace), sources=folder))


@pytest.fixture
def blog(tmp_path: Path) -> Path:
    folder = tmp_path / "blog"
    folder.mkdir()
    for n in range(40):
        words = " ".join(f"word{n}x{i}" for i in range(60 + n))
        (folder / f"{n}.md").write_text(f"# Post {n}\n\n{words}.\n")
    return folder


def test_before_the_first_look_the_report_is_empty(tmp_path: Path, blog: Path) -> None:
    result = api_of(tmp_path / "mine.ownwords", blog).get("/api/blog").json()
    assert (result["is_read"], result["lines"]) == (False, [])
    assert result["name"] == "mine"
    assert not (tmp_path / "mine.ownwords").exists()


def test_all_sums_agree(tmp_path: Path, blog: Path) -> None:
    workspace = tmp_path / "mine.ownwords"
    look([blog], workspace=workspace)
    api = api_of(workspace, blog)
    result = api.get("/api/blog").json()
    parts = ("learned_words", "held_out_words", "left_out_words")
    assert result["is_read"]
    posts = api.get("/api/corpus/posts", params={"most": "200"}).json()
    assert posts["held_out_words"] > 0
    assert sum(posts[part] for part in parts) == result["words"]
    for part in parts:
        assert posts[part] == sum(row[part] for row in posts["rows"])
    assert posts["own_words"] == result["words"]
    for row in posts["rows"]:
        assert sum(row[part] for part in parts) == row["own_words"]
        is_held_out = row["split"] in ("validation", "test")
        segments = api.get("/api/corpus/post", params={"id": row["id"]}).json()["segments"]
        assert not (is_held_out and any(segment["learned"] for segment in segments))
    first, second, third = result["lines"]
    assert f"{result['words']:,} words of your own" in first
    assert f"learns from {posts['learned_words']:,} words" in second
    assert f"{posts['held_out_words']:,} are held out" in second
    assert third


def test_new_posts_are_counted_until_they_are_learned(
    tmp_path: Path, blog: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    workspace = Workspace(tmp_path / "mine.ownwords")
    report = look([blog], workspace=workspace.root)
    (workspace.root / "model").mkdir()
    (workspace.root / "model" / "config.json").write_text("{}")
    (workspace.runs / "make").mkdir(parents=True)
    api = api_of(workspace.root, blog)
    assert api.get("/api/blog").json()["new_sentence"] == ""  # made in another way: not known
    write_learned(workspace.root, report)
    assert api.get("/api/blog").json()["new_sentence"] == ""
    for n in range(3):
        (blog / f"new{n}.md").write_text(f"# New {n}\n\n" + f"new{n} words of mine. " * 30)
    os.utime(blog, (time.time() + 60, time.time() + 60))
    assert api.get("/api/blog").json()["is_stale"]
    look([blog], workspace=workspace.root)
    result = api.get("/api/blog").json()
    assert result["new_sentence"] == "3 new posts, not yet learned"
    assert main(["look", str(blog), "--workspace", str(workspace.root)]) == 0
    assert result["new_sentence"] in capsys.readouterr().out


def test_posts_of_a_source_in_another_format_are_not_new(tmp_path: Path, blog: Path) -> None:
    workspace = Workspace(tmp_path / "mine.ownwords")
    learned = look([blog], workspace=workspace.root)
    (workspace.root / "model").mkdir()
    (workspace.runs / "make").mkdir(parents=True)
    write_learned(workspace.root, learned)
    for again in ("html", "moved"):
        other = tmp_path / again
        other.mkdir()
        for path in blog.iterdir():
            title, text = path.read_text().removeprefix("# ").split("\n\n")
            html = f"<html><title>{title}</title><body><h1>{title}</h1><p>{text}</p></body></html>"
            (other / f"{again}-{path.stem}.html").write_text(html)
        report = look([other], workspace=workspace.root)
        assert not {post.id for post in report.posts} & {post.id for post in learned.posts}
        assert count_new(workspace.root, report) == 0


def later(path: Path, seconds: float = 60) -> None:
    os.utime(path, (time.time() + seconds, time.time() + seconds))


@pytest.mark.parametrize("what", ["2020/spring/a.md", "2020/spring", "b.md"])
def test_a_change_deep_in_the_blog_is_seen_until_it_is_read(what: str, tmp_path: Path) -> None:
    blog = tmp_path / "blog"
    for name in ("2020/spring/a.md", "2021/c.md", "b.md", ".git/index", "node_modules/x.js"):
        (blog / name).parent.mkdir(parents=True, exist_ok=True)
        (blog / name).write_text("# Rain\n\n" + f"Rain fell on {name} again. " * 30)
    workspace = blog / "mine.ownwords"

    def is_stale() -> bool:
        return bool(api_of(workspace, blog).get("/api/blog").json()["is_stale"])

    look([blog], workspace=workspace)
    assert not is_stale()
    for other in (".git/index", "node_modules/x.js", "mine.ownwords/archive.sqlite"):
        later(blog / other)
    assert not is_stale()
    later(blog / what, 0)
    later(workspace / "report.html", -60)
    assert is_stale()
    look([blog], workspace=workspace)  # finds nothing new
    assert not is_stale()


def test_of_a_publii_site_only_its_database_matters(tmp_path: Path) -> None:
    site, workspace = publii.write(tmp_path), tmp_path / "mine.ownwords"
    look([site], workspace=workspace)
    (site / "output").mkdir()
    later(site / "output")
    later(site)
    api = api_of(workspace, site)
    assert not api.get("/api/blog").json()["is_stale"]
    later(site / "input" / "db.sqlite")
    assert api.get("/api/blog").json()["is_stale"]


def test_the_post_filter_is_saved(tmp_path: Path, blog: Path) -> None:
    workspace = tmp_path / "mine.ownwords"
    api = api_of(workspace, blog)
    assert api.patch("/api/blog", json={"drafts": True}).status_code == 204
    assert api.get("/api/blog").json()["flags"] == {
        "drafts": True,
        "hidden": False,
        "private": False,
        "pages": True,
    }
    assert api_of(workspace, blog).get("/api/blog").json()["flags"]["drafts"]
    assert api_of(workspace).patch("/api/blog", json={"drafts": 1}).status_code == 400


def test_publii_sites_are_found_in_their_default_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    (tmp_path / ".config").mkdir()
    (tmp_path / ".config" / "user-dirs.dirs").write_text('XDG_DOCUMENTS_DIR="$HOME/Dokumente"\n')
    for age, name in enumerate(("Dokumente/Publii/sites/neu", "Documents/Publii/sites/old")):
        database = tmp_path / name / "input" / "db.sqlite"
        database.parent.mkdir(parents=True)
        database.touch()
        os.utime(database, (1000 - age, 1000 - age))
    (tmp_path / "Documents/Publii/sites/empty").mkdir()
    assert [site.name for site in find_publii_sites(tmp_path)] == ["neu", "old"]
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    api = api_of(tmp_path / "w.ownwords", tmp_path / "Dokumente/Publii/sites/neu")
    result = api.get("/api/sources").json()
    assert [site["name"] for site in result["found"]] == ["old"]
