"""The whole server: every route behind the middleware, and its shutdown."""

import asyncio
import random
import socket
import sqlite3
import threading
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.routing import Route
from starlette.testclient import TestClient
from starlette.types import Message

from asgi_scope import http_scope
from ownwords.archive.look import look
from ownwords.base import catalogue
from ownwords.core.workspace import Workspace
from ownwords.serve import http_server
from ownwords.serve.app import create_app
from ownwords.serve.app_state import AppState
from ownwords.serve.settings import ServeSettings
from this_machine import reachable

pytestmark = pytest.mark.skipif(not catalogue.has_shipped(), reason="there is no model in the box")

KEY = "a-key-that-nobody-knows"


def state_of(tmp_path: Path, settings: ServeSettings | None = None) -> AppState:
    return AppState(Workspace(tmp_path / "diary.ownwords"), settings or ServeSettings())


def with_archive(tmp_path: Path, posts: int = 1) -> AppState:
    """The state of a workspace that has read some posts."""
    state, blog = state_of(tmp_path), tmp_path / "blog"
    blog.mkdir()
    for n in range(posts):
        text = f"The rain gauge of day {n} stood on the roof, and I read it every morning. " * 9
        (blog / f"{n}.md").write_text(f"# Day {n}\n\n{text}\n", "utf-8")
    look([blog], workspace=state.workspace.root)
    return state


def client_of(state: AppState) -> TestClient:
    """A browser that follows no redirect by itself."""
    app = create_app(state)
    return TestClient(app, base_url="http://127.0.0.1:8377", follow_redirects=False)


@pytest.fixture(scope="module")
def whole_app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Starlette]:
    """The app over a workspace that does not exist, and still does not afterwards."""
    folder = tmp_path_factory.mktemp("empty")
    state = state_of(folder)
    yield create_app(state)
    asyncio.run(state.close())
    assert list(folder.iterdir()) == []


def status_of(app: Starlette, path: str, method: str = "GET") -> int:
    """The status of a raw path: clients would normalise it."""
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": b"{}", "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    headers = {"host": "localhost", "content-type": "application/json"}
    asyncio.run(app(http_scope(path, method, headers), receive, send))
    return int(sent[0]["status"])


# --- every route -------------------------------------------------------------------------------


def test_the_page_is_there_with_all_its_files(tmp_path: Path) -> None:
    client = client_of(state_of(tmp_path))
    front = client.get("/", follow_redirects=True)
    assert front.url.params["blog"] == str(tmp_path / "diary.ownwords")
    assert front.status_code == 200
    assert front.headers["content-type"] == "text/html; charset=utf-8"
    for name in ("app.js", "components.js", "style.css", "icons.svg"):
        answer = client.get(f"/{name}")
        assert answer.status_code == 200
        assert answer.headers["cache-control"] == "no-cache"
        cached = client.get(f"/{name}", headers={"If-None-Match": answer.headers["etag"]})
        assert (cached.status_code, cached.content) == (304, b"")
        head = client.head(f"/{name}")
        assert (head.status_code, head.content) == (200, b"")


@pytest.mark.parametrize(
    "path",
    [
        "/../settings.py",
        "/..\\settings.py",
        "/./style.css",
        "/pages/index.html",
        "/index.html",
        "/login.html",
        "//etc/passwd",
        "/style.css/",
        "/style.css\0",
        "/STYLE.CSS",
        "/.",
        "/api/corpus/../../archive.sqlite",
    ],
)
def test_no_path_reaches_a_file(whole_app: Starlette, path: str) -> None:
    assert status_of(whole_app, path) == 404


def test_a_typed_address_leads_to_the_page(tmp_path: Path) -> None:
    client = client_of(state_of(tmp_path))
    person = {"Accept": "text/html,*/*;q=0.8"}
    for path in ("/ask", "/posts/report", "/nowhere", "//evil.example/"):
        answer = client.get(f"http://127.0.0.1:8377{path}", headers=person)
        assert answer.headers["location"] == f"/#{path}"
        assert client.get(f"http://127.0.0.1:8377{path}").status_code == 404
    for path, status in (("/api/nothing", 404), ("/api/corpus", 404), ("/api/ask/", 404)):
        answer = client.get(path, headers=person)
        assert answer.status_code == status
        assert answer.headers["content-type"].startswith("text/plain"), path


def test_an_archive_without_a_readable_report_is_one_to_be_read(tmp_path: Path) -> None:
    state = with_archive(tmp_path)
    with closing(sqlite3.connect(state.workspace.archive)) as database:
        database.execute("UPDATE meta SET value = '{' WHERE key = 'report'")
        database.commit()

    client = client_of(state)
    assert client.get("/api/corpus").status_code == 404
    assert client.get("/api/workspace").status_code == 200


def test_a_damaged_archive_is_reported_and_not_a_bug(tmp_path: Path) -> None:
    state = with_archive(tmp_path, posts=6)
    data = state.workspace.archive.read_bytes()
    rng = random.Random(5)
    paths = ["", "/facets", "/posts", "/post?id=blog:0", "/decisions"]

    client = client_of(state)
    for _ in range(25):
        damaged = bytearray(data)
        for offset in rng.choices(range(100, len(data)), k=40):
            damaged[offset] ^= 1 << rng.randrange(8)
        state.workspace.archive.unlink()
        state.workspace.archive.write_bytes(damaged)
        for path in paths:
            answer = client.get(f"/api/corpus{path}")
            if answer.status_code != 200:
                message = answer.json()["error"]["message"]
                assert message
                assert "bug" not in message, (path, message)


# --- the key -----------------------------------------------------------------------------------


def test_the_key_logs_the_browser_in(tmp_path: Path) -> None:
    client = client_of(state_of(tmp_path, ServeSettings(key=KEY)))
    front = client.get("/")
    assert (front.status_code, front.headers["location"]) == (303, "/login")
    form = client.get("/login")
    assert 'name="key"' in form.text
    assert client.get("/api/corpus").status_code == 401

    wrong = client.post("/login", data={"key": "wrong-wrong-wrong"})
    assert wrong.status_code == 401
    assert "not the key" in wrong.text
    assert "set-cookie" not in wrong.headers

    foreign = {"Origin": "http://evil.example"}
    assert client.post("/login", data={"key": KEY}, headers=foreign).status_code == 403

    fields = {f"field {n}": "x" for n in range(100)} | {"key": KEY}
    assert client.post("/login", data=fields).status_code == 401

    assert client.get("/?blog=a b").headers["location"] == "/login?blog=a%20b"
    right = client.post("/login?blog=a%20b", data={"key": KEY})
    assert (right.status_code, right.headers["location"]) == (303, "/?blog=a%20b")
    cookie = right.headers["set-cookie"].lower()
    for word in ("httponly", "samesite=lax", "path=/"):
        assert word in cookie
    assert KEY not in cookie

    assert client.get("/", follow_redirects=True).status_code == 200
    assert client.get("/api/corpus").status_code == 404


def test_without_a_key_there_is_no_login(tmp_path: Path) -> None:
    client = client_of(state_of(tmp_path))
    for answer in (client.get("/login"), client.post("/login", data={"key": "x"})):
        assert (answer.status_code, answer.headers["location"]) == (303, "/")
        assert "set-cookie" not in answer.headers


# --- as it runs ----------------------------------------------------------------------------------


def test_a_hanging_request_does_not_delay_the_shutdown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_asked = threading.Event()

    async def never(_: object) -> None:
        is_asked.set()
        await asyncio.sleep(3600)

    state = state_of(tmp_path)
    listening = http_server.bind(replace(state.settings, port=0))
    app = Starlette(routes=[Route("/", never)], lifespan=_nothing)
    server = http_server.HttpServer(app, state)
    thread = threading.Thread(target=server.run, args=([listening],))
    thread.start()
    with (
        reachable(monkeypatch),
        closing(socket.create_connection(listening.getsockname())) as client,
    ):
        client.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert is_asked.wait(10)
        server.should_exit = True
        thread.join(10)
        assert not thread.is_alive()


@asynccontextmanager
async def _nothing(_: object) -> AsyncGenerator[None, None]:
    yield
