"""`ownwords serve` on the command line: its address, its checks, its end."""

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from ownwords.base import catalogue
from ownwords.base.catalogue import find_models
from ownwords.cli.main import main
from ownwords.core.errors import OwnwordsError
from ownwords.core.workspace import DATA_FOLDER_VARIABLE, data_folder, resolve_served
from ownwords.serve import settings
from ownwords.serve.settings import PORT
from this_machine import reachable

POSIX = pytest.mark.skipif(sys.platform == "win32", reason="Ctrl-C is sent as a signal")


def environment() -> dict[str, str]:
    """The environment without ownwords settings; the tests' own data folder stays."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("OWNWORDS_") or name == DATA_FOLDER_VARIABLE
    }


class Server:
    """`ownwords serve` in a process of its own."""

    def __init__(self, *arguments: str, cwd: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "ownwords", "serve", *arguments],
            cwd=cwd,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            env=environment(),
        )
        assert self.process.stdout is not None
        self.said = ""
        for line in self.process.stdout:
            self.said += line
            if line.startswith("Ctrl-C"):
                break
        match = re.search(r"^Page: http://[^/]*:(\d+)/(?:\?key=(\S+))?$", self.said, re.MULTILINE)
        assert match, self.process.communicate()
        self.port, self.key = int(match[1]), match[2]

    def get(self, path: str, **headers: str) -> tuple[int, str]:
        """The answer to a request, which carries the key unless it has other headers."""
        headers = headers or {"Authorization": f"Bearer {self.key}"}
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)) as connection:
            connection.request("GET", path, headers=headers)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()

    def streamed(self) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        """A long text whose stream has begun."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        order = {"model": "shipped", "prompt": "The", "max_tokens": 4000, "stream": True}
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {self.key}"}
        connection.request("POST", "/v1/completions", json.dumps(order), headers)
        return connection, connection.getresponse()

    def end(self, number: int = signal.SIGINT) -> tuple[int, str]:
        self.process.send_signal(number)
        _, errors = self.process.communicate(timeout=30)
        return self.process.returncode, errors


@contextmanager
def serving(*arguments: str, cwd: Path) -> Iterator[Server]:
    server = Server(*arguments, cwd=cwd)
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.process.kill()
            server.process.communicate()


@pytest.fixture(autouse=True)
def _here(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    monkeypatch.setenv(DATA_FOLDER_VARIABLE, str(tmp_path_factory.mktemp("data")))
    with reachable(monkeypatch):
        yield


@POSIX
def test_it_says_where_the_page_is_and_ctrl_c_ends_it_with_a_stream_open(tmp_path: Path) -> None:
    with serving("--port", "0", cwd=tmp_path) as server:
        assert f"API: http://127.0.0.1:{server.port}/v1" in server.said
        assert f"Key: {server.key}\n" in server.said
        workspace = json.loads(server.get("/api/home")[1])["path"]
        status, page = server.get(f"/?blog={workspace}")
        assert (status, "<title>" in page) == (200, True)
        assert server.get("/", Host="evil.example")[0] == 421
        # Other accounts of this machine read nothing; local programs of the same find the key.
        for path in ("/v1/models", "/api/corpus"):
            assert server.get(path, Accept="*/*")[0] == 401
        assert server.get("/", Accept="*/*")[0] == 303
        file = data_folder() / settings.FOLDER / f"{server.port}.json"
        assert file.stat().st_mode & 0o777 == 0o600
        record = json.loads(file.read_text())
        assert (record["api"], record["key"]) == (f"http://127.0.0.1:{server.port}/v1", server.key)
        assert [running.workspace for running in settings.running_servers()] == [workspace]
        connection, answer = server.streamed()
        assert answer.readline().startswith(b"data: ")
        assert server.end() == (0, "stopped\n")
        assert b"the server is shutting down" in answer.read()
        connection.close()
        assert not file.exists()
    assert list(tmp_path.iterdir()) == []


@POSIX
def test_after_a_restart_the_key_and_an_open_page_are_still_good(tmp_path: Path) -> None:
    with serving("--port", "0", cwd=tmp_path) as server:
        status, _ = server.get(f"/?key={server.key}", Accept="*/*")
        assert status == 303
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
        connection.request("GET", f"/?key={server.key}")
        cookie = str(connection.getresponse().getheader("Set-Cookie")).partition(";")[0]
        connection.close()
        assert server.get("/v1/models", Cookie=cookie)[0] == 200
        server.end(signal.SIGKILL)
        # What it left behind is no server.
        assert settings.running_servers() == []
    with serving("--port", str(server.port), cwd=tmp_path) as restarted:
        assert restarted.key == server.key
        assert restarted.get("/v1/models", Cookie=cookie)[0] == 200
        assert restarted.get("/v1/models", Cookie=cookie + "0")[0] == 401
        restarted.end()


@POSIX
def test_other_machines_need_the_key_too_and_a_given_one_is_not_printed(tmp_path: Path) -> None:
    (tmp_path / "key.txt").write_text("a-key-of-my-own\n")
    options = ("--port", "0", "--host", "0.0.0.0", "--key-file", "key.txt")
    with serving(*options, cwd=tmp_path) as server:
        assert "encrypted" in server.said
        assert "a-key-of-my-own" not in server.said
        assert server.get("/v1/models", Accept="*/*")[0] == 401
        assert server.get("/v1/models", Authorization="Bearer a-key-of-my-own")[0] == 200
        # Ended by a service manager it leaves nothing behind either.
        file = data_folder() / settings.FOLDER / f"{server.port}.json"
        assert file.exists()
        assert server.end(signal.SIGTERM) == (0, "stopped\n")
        assert not file.exists()


def test_a_port_that_was_asked_for_and_is_taken_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with closing(socket.socket()) as taken_socket:
        taken_socket.bind(("127.0.0.1", 0))
        taken_socket.listen()
        port = taken_socket.getsockname()[1]
        assert main(["serve", "--port", str(port)]) == 2
    first, hint = capsys.readouterr().err.splitlines()
    assert first == f"ownwords: port {port} is in use by another program"
    assert hint.startswith("hint: ")


@POSIX
def test_the_next_port_and_no_key(tmp_path: Path) -> None:
    """The usual port is taken; without a key only if that is asked for."""
    with closing(socket.socket()) as taken_socket:
        taken_socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            taken_socket.bind(("127.0.0.1", PORT))
            taken_socket.listen()
        except OSError:
            pass  # another program has it already, which is as good
        with serving("--no-key", cwd=tmp_path) as server:
            assert server.port != PORT
            assert f"Port {PORT} is in use; using the next free one." in server.said
            assert server.key is None
            assert "every account on this machine can read your posts" in server.said
            assert server.get("/v1/models", Accept="*/*")[0] == 200
            server.end()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--key", "short"], "at least 12 characters"),
        (["nowhere"], "nowhere does not exist"),
        (["--model", "nothing-like-it"], "there is no base called nothing-like-it"),
        (["--host", "192.0.2.1"], "192.0.2.1 is not an address of this machine"),
        (["--key-file", "missing.txt"], "missing.txt cannot be read"),
        (["--key", "a-long-enough-key", "--no-key"], "cannot be combined"),
        (["--host", "0.0.0.0", "--no-key"], "it needs a key"),
        (["--port", "99999"], "the port must be from 0 to 65535"),
    ],
)
def test_what_cannot_be_is_said_in_a_sentence(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["serve", *arguments]) == 2
    output = capsys.readouterr()
    assert message in output.err
    assert output.out == ""
    assert list(tmp_path.iterdir()) == []


def test_torch_is_not_loaded_to_serve(tmp_path: Path) -> None:
    code = """
import asyncio, pathlib, sys
from ownwords.core.workspace import Workspace
from ownwords.serve import http_server
from ownwords.serve.app import create_app
from ownwords.serve.app_state import AppState

async def main():
    state = AppState(Workspace(pathlib.Path("diary.ownwords")))
    create_app(state)
    await state.run(state.models)
    await state.close()

asyncio.run(main())
print("torch" in sys.modules)
"""
    process = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        capture_output=True,
        encoding="utf-8",
        check=True,
        env=environment(),
    )
    assert process.stdout == "False\n"


# --- what is served ----------------------------------------------------------------------------


def workspace(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "archive.sqlite").touch()
    return folder


def test_what_is_meant_is_found(tmp_path: Path) -> None:
    blog = tmp_path / "My Blog"
    blog.mkdir()
    served, sources = resolve_served([], None, tmp_path)
    assert (served.root, sources) == (tmp_path / f"{tmp_path.name}.ownwords", ())

    served, sources = resolve_served([blog], None, tmp_path)
    assert (served.root, sources) == (tmp_path / "My-Blog.ownwords", (blog,))

    diary = workspace(tmp_path / "diary.ownwords")
    for paths, workspace_given in (([], None), ([diary], None), ([], diary)):
        served, sources = resolve_served(paths, workspace_given, tmp_path)
        assert (served.root, sources) == (diary, ())
    assert resolve_served([blog], diary, tmp_path)[0].root == diary
    assert resolve_served([], None, diary)[0].root == diary

    second = workspace(tmp_path / "other")  # by its contents, whatever its name
    assert resolve_served([second], None, tmp_path)[0].root == second
    assert (
        resolve_served([], tmp_path / "new.ownwords", tmp_path)[0].root == tmp_path / "new.ownwords"
    )


def test_what_is_not_clear_is_asked(tmp_path: Path) -> None:
    diary, second = (workspace(tmp_path / f"{name}.ownwords") for name in ("diary", "other"))
    with pytest.raises(OwnwordsError, match=r"2 workspaces here: diary.ownwords, other.ownwords"):
        resolve_served([], None, tmp_path)
    with pytest.raises(OwnwordsError, match="one server serves one workspace"):
        resolve_served([diary, second], None, tmp_path)
    with pytest.raises(OwnwordsError, match="does not exist"):
        resolve_served([tmp_path / "blog"], None, tmp_path)


@pytest.mark.skipif(not catalogue.has_shipped(), reason="there is no model in the box")
def test_further_models_have_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OWNWORDS_HOME", str(tmp_path))
    for folder in ("one/model", "two.ownwords/model", "three"):
        (tmp_path / folder).mkdir(parents=True)
        for name in ("config.json", "model.safetensors"):
            (tmp_path / folder / name).touch()
    monkeypatch.chdir(tmp_path)
    models = find_models(["shipped", "one", "two.ownwords", "three"])
    assert models == {
        "shipped": catalogue.shipped(),
        "one": tmp_path / "one" / "model",
        "two": tmp_path / "two.ownwords" / "model",
        "three": tmp_path / "three",
    }
    (tmp_path / "again" / "three").mkdir(parents=True)
    for name in ("config.json", "model.safetensors"):
        (tmp_path / "again" / "three" / name).touch()
    with pytest.raises(OwnwordsError, match="two models have the name three"):
        find_models(["three", "again/three"])
