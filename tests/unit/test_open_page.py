"""`ownwords` without a verb: the page on a desktop, the help elsewhere."""

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from ownwords.cli import serve as serve_verb
from ownwords.cli.main import main
from ownwords.core.workspace import Workspace
from ownwords.serve import settings
from ownwords.serve.workspace_list import WorkspaceList


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OWNWORDS_HOME", str(tmp_path / "data"))
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "CI", "SSH_CONNECTION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("sys.platform", "linux")


def folder(path: Path) -> Path:
    path.mkdir(parents=True)
    return path


def test_without_a_desktop_it_is_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert "Usage: ownwords COMMAND" in capsys.readouterr().out


def test_on_a_desktop_it_serves_and_remembers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = folder(tmp_path / "here")
    monkeypatch.chdir(here)
    served: list[tuple[Path, bool]] = []

    def serve(*, workspace: Path, open: bool) -> None:
        served.append((workspace, open))
        workspace.mkdir(exist_ok=True)

    monkeypatch.setattr(serve_verb, "serve", serve)
    monkeypatch.setattr("ownwords.cli.output.has_desktop", lambda: True)
    assert main([]) == 0
    assert served == [(here / "my-blog.ownwords", True)]
    monkeypatch.chdir(folder(tmp_path / "elsewhere"))
    assert main([]) == 0
    assert served[1] == served[0]


def test_which_workspace_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = folder(tmp_path / "here")
    assert serve_verb.workspace_to_open(here) == here / "my-blog.ownwords"
    single = folder(here / "one.ownwords")
    assert serve_verb.workspace_to_open(here) == single
    assert serve_verb.workspace_to_open(single) == single
    two = folder(here / "two.ownwords")
    os.utime(single, (time.time() + 9, time.time() + 9))
    assert serve_verb.workspace_to_open(here) == single
    WorkspaceList(Workspace(two)).remember(Workspace(two))
    assert serve_verb.workspace_to_open(here) == two
    two.rmdir()
    assert serve_verb.workspace_to_open(here) == single
    monkeypatch.setattr(os, "access", lambda *_: False)
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    empty = folder(tmp_path / "empty")
    assert serve_verb.workspace_to_open(empty) == tmp_path / "my-blog.ownwords"


def test_a_server_that_runs_is_opened_rather_than_a_second_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    here, elsewhere = folder(tmp_path / "here"), folder(tmp_path / "elsewhere")
    monkeypatch.chdir(here)
    monkeypatch.setattr("ownwords.cli.output.has_desktop", lambda: True)
    links: list[str] = []
    monkeypatch.setattr(serve_verb, "open_browser", links.append)
    first = Workspace(here / "my-blog.ownwords")
    key = settings.user_key()
    link = f"http://127.0.0.1:8377/?key={key}"
    with settings.announced(first, 8377, "http://127.0.0.1:8377/", key):
        assert main([]) == 0
        assert link in capsys.readouterr().out
        monkeypatch.chdir(elsewhere)
        assert main([]) == 0
        assert links == [link, link]
        # Another blog that is here gets a server of its own.
        other_workspace = folder(elsewhere / "other.ownwords")
        assert serve_verb.server_to_open(elsewhere, other_workspace) is None
        # One at the same port of another address leaves what is known of the first.
        with settings.announced(Workspace(other_workspace), 8377, "http://10.0.0.1:8377/", key):
            pass
        assert [server.workspace for server in settings.running_servers()] == [str(first.root)]
    assert serve_verb.server_to_open(here, first.root) is None
    assert settings.user_key() == key


def test_servers_that_begin_at_once_have_one_key() -> None:
    all_here = Barrier(4)

    def begin(_: int) -> str:
        all_here.wait()
        return settings.user_key()

    with ThreadPoolExecutor(4) as threads:
        assert set(threads.map(begin, range(4))) == {settings.user_key()}
