"""The workspace switcher: listed, opened in the running server, created and deleted."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from ownwords.archive.blog_name import blog_name
from ownwords.archive.look import look
from ownwords.core.workspace import Workspace, locked, source_name
from ownwords.models.model_library import ModelLibrary
from ownwords.serve.app_state import AppState
from page_client import page_client


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with two workspaces: `one`, with a post, and `two`, empty."""
    monkeypatch.setenv("OWNWORDS_HOME", str(tmp_path / "home"))
    posts = tmp_path / "posts"
    posts.mkdir()
    (posts / "rain.md").write_text("# Rain\n\nIt rained all day.\n")
    look([posts], workspace=tmp_path / "one.ownwords")
    with Workspace(tmp_path / "two.ownwords").opened():
        pass
    return tmp_path


@pytest.fixture
def client(folder: Path) -> Iterator[TestClient]:
    with page_client(AppState(Workspace(folder / "one.ownwords"))) as client:
        yield client


def list_workspaces(client: TestClient) -> dict[str, dict[str, Any]]:
    rows = client.get("/api/workspaces").json()["workspaces"]
    return {Path(row["path"]).stem: row for row in rows}


def open_workspace(client: TestClient, **body: str) -> Any:  # noqa: ANN401 - a response
    return client.post("/api/workspaces/open", json=body)


def test_neighbouring_workspaces_are_listed(client: TestClient) -> None:
    rows = list_workspaces(client)
    assert list(rows) == ["one", "two"]
    assert (rows["one"]["is_current"], rows["one"]["posts"]) == (True, 1)
    assert (rows["two"]["is_current"], rows["two"]["posts"]) == (False, None)
    assert rows["one"]["models"] == 0
    # As its header calls it, once it is read.
    assert [row["name"] for row in rows.values()] == ["posts", "two"]


def test_another_workspace_can_be_opened_without_a_restart(client: TestClient) -> None:
    two = list_workspaces(client)["two"]["path"]
    path = list_workspaces(client)["one"]["path"]
    assert client.get("/api/corpus").status_code == 200
    assert open_workspace(client, path=two).status_code == 204
    assert client.get("/api/corpus").status_code == 404
    assert client.get("/api/home").json()["path"] == two
    assert client.get("/healthz").status_code == 200
    assert list_workspaces(client)["two"]["is_current"]
    assert open_workspace(client, path=path).status_code == 204
    assert client.get("/api/corpus").status_code == 200


def test_each_request_is_about_the_blog_that_it_names(client: TestClient, folder: Path) -> None:
    one, two = (str(folder / f"{name}.ownwords") for name in ("one", "two"))
    open_workspace(client, path=two)
    for blog, path in ((one, one), (two, two), ("", two)):
        assert client.get("/api/home", params={"blog": blog}).json()["path"] == path
    assert client.get("/api/corpus", params={"blog": one}).status_code == 200
    text = {"kind": "text", "text": "It rained."}
    assert client.post("/api/texts", params={"blog": one}, json=text).status_code < 300
    assert [len(list(Path(path).glob("texts/*"))) for path in (one, two)] == [1, 0]
    assert client.get("/").url.params["blog"] == two
    for path in ("/", "/api/workspace"):
        assert client.get(path, params={"blog": str(folder / "gone")}).status_code == 404
    assert client.get("/healthz?blog=gone").status_code == 200


def test_a_blog_that_no_tab_shows_is_closed_when_another_is_opened(
    client: TestClient, folder: Path
) -> None:
    two = str(folder / "two.ownwords")
    open_workspace(client, path=two)
    for name in ("My garden", "My roof"):
        open_workspace(client, name=name)
    app: Any = client.app
    assert [Path(path).stem for path in app.router.default._open] == ["one", "My-garden", "My-roof"]
    assert client.get("/api/home", params={"blog": two}).json()["path"] == two


def test_a_new_workspace_is_created_beside_the_open_one(client: TestClient, folder: Path) -> None:
    open_workspace(client, name="My garden")
    assert client.get("/api/home").json()["path"] == str(folder / "My-garden.ownwords")
    assert open_workspace(client, name="My garden").status_code == 409


@pytest.mark.parametrize("name", ["../../elsewhere", "/", "..", "\u202e", " ", "a\x00b/../c"])
def test_a_name_cannot_lead_to_another_folder(client: TestClient, folder: Path, name: str) -> None:
    before = set(folder.parent.iterdir())
    answer = open_workspace(client, name=name)
    assert answer.status_code in (204, 400)
    if answer.status_code == 200:
        paths = [Path(row["path"]) for row in answer.json()["workspaces"]]
        assert {path.parent for path in paths} == {folder}
    assert set(folder.parent.iterdir()) == before


def test_only_listed_workspaces_are_opened(client: TestClient, folder: Path) -> None:
    assert open_workspace(client, path=str(folder / "posts")).status_code == 404
    assert open_workspace(client, path=str(folder / "one.ownwords" / "..")).status_code == 404
    assert open_workspace(client).status_code == 400
    assert open_workspace(client, path="x", name="y").status_code == 400


def test_a_workspace_elsewhere_is_listed_once_it_was_opened(
    client: TestClient, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere" / "far.ownwords"
    with Workspace(elsewhere).opened():
        pass
    assert "far" not in list_workspaces(client)
    with page_client(AppState(Workspace(elsewhere))) as other_client:
        open_workspace(other_client, path=str(elsewhere))
    assert list_workspaces(client)["far"]["path"] == str(elsewhere)


def test_a_workspace_is_deleted_with_what_it_holds_but_not_while_it_is_used(
    client: TestClient, folder: Path
) -> None:
    def delete(path: Path) -> int:
        body = {"path": str(path), "deletes": True}
        return client.request("DELETE", "/api/workspaces", json=body).status_code

    one, two, plain = (folder / name for name in ("one.ownwords", "two.ownwords", "plain"))
    with locked(two / "runs" / "make" / ".lock", "busy", ""):
        assert delete(two) == 409
    hide = client.request("DELETE", "/api/workspaces", json={"path": str(two)})  # of earlier pages
    assert hide.status_code == 400 and two.exists()
    assert delete(two) == 204
    assert not two.exists() and "two" not in list_workspaces(client)
    with Workspace(plain).opened():  # a folder of the user's own
        (plain / "diary.txt").write_text("Mine.")
    with page_client(AppState(Workspace(plain))) as other_client:
        open_workspace(other_client, path=str(plain))
    assert delete(plain) == 409 and (plain / "diary.txt").exists()
    assert delete(folder / "posts") == 404
    assert delete(one) == 204  # the open one, after which the page begins anew
    assert not one.exists()
    home = client.get("/api/home").json()
    assert (home["path"], home["name"], home["blog"]["is_read"]) == (str(one), "one", False)
    assert client.get("/api/jobs/x/stop").status_code < 500


def test_a_blog_has_one_name_everywhere(client: TestClient, folder: Path) -> None:
    open_workspace(client, name="My  garden")
    root = folder / "My-garden.ownwords"

    def names() -> set[str]:
        row = list_workspaces(client)["My-garden"]["name"]
        home = client.get("/api/home").json()
        return {
            row,
            home["name"],
            home["blog"]["name"],
            client.get("/api/workspace").json()["name"],
            blog_name(root),
        }

    def rename(name: str) -> int:
        body = {"path": str(root), "name": name}
        return client.request("PATCH", "/api/workspaces", json=body).status_code

    assert names() == {"My garden"}  # as it was typed, with or without posts
    assert look([folder / "posts"], workspace=root).name == "My garden"
    assert names() == {"My garden"}
    site = folder / "site"  # whose own title comes first
    shutil.copytree(folder / "posts", site / "content")
    (site / "hugo.toml").write_text('title = "The Idle Hour"\n')
    assert look([site], workspace=root).name == "The Idle Hour"
    assert names() == {"The Idle Hour"}
    assert rename(" Weeds\n& more ") == 204
    assert names() == {"Weeds & more"}
    assert "Weeds &amp; more" in client.get("/api/corpus").json()["html"]
    assert look([site], workspace=root).name == "Weeds & more"
    assert names() == {"Weeds & more"}
    assert ModelLibrary(root)._free_name("") == "Weeds - more 1"
    assert rename(" ") == 400
    (root / "name.json").write_text("{")
    assert names() == {"Weeds & more"}  # the report's


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("blog.tar.gz", "blog"),
        ("blog (2).zip", "blog"),
        ("blog-2026-05-01.zip", "blog"),
        ("blog_20260501-101500.tgz", "blog"),
        ("2026-05-01.zip", "2026-05-01"),
        ("notes-2026-05-01.md", "notes-2026-05-01"),
        ("my blog.zip", "my-blog"),
    ],
)
def test_the_next_export_of_a_blog_belongs_to_the_same_workspace(
    file: str, name: str, tmp_path: Path
) -> None:
    (tmp_path / file).touch()
    assert source_name(tmp_path / file) == name


def test_a_damaged_list_is_an_empty_one(client: TestClient, folder: Path) -> None:
    open_workspace(client, path=list_workspaces(client)["two"]["path"])
    (folder / "home" / "workspaces.json").write_text("{")
    assert list(list_workspaces(client)) == ["two", "one"]
