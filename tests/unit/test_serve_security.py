"""The middleware: host names, origins, keys, sizes, timeouts."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from asgi_scope import http_scope
from ownwords.core.errors import ConfigError
from ownwords.serve.errors import ApiError
from ownwords.serve.security import (
    HEADERS,
    AllowedHosts,
    Authenticator,
    SecurityMiddleware,
    is_same_origin,
)
from ownwords.serve.settings import ServeSettings

HERE = "127.0.0.1:8377"
ORIGIN = f"http://{HERE}"
KEY = "a key that nobody knows".replace(" ", "-")
OURS = {"Content-Type": "application/json"}
CLIENT = ("127.0.0.1", 50000)

Asgi = Callable[..., Awaitable[None]]


def app_of(
    settings: ServeSettings | None = None,
    authenticator: Authenticator | None = None,
) -> Asgi:
    settings = settings or ServeSettings()

    async def echoed(request: Request) -> Response:
        return JSONResponse({"path": request.url.path, "body": (await request.body()).decode()})

    async def streamed(_: Request) -> Response:
        async def pieces() -> Any:  # noqa: ANN401
            for number in range(5):
                await asyncio.sleep(0.05)
                yield f"{number} "

        return StreamingResponse(pieces())

    async def broken(_: Request) -> Response:
        raise RuntimeError("the reason that only the log tells")

    async def refused(_: Request) -> Response:
        raise ApiError(418, "no coffee", "ask for tea", retry_after_s=3)

    routes = [
        Route("/", echoed),
        Route("/login", echoed, methods=["GET", "POST"]),
        Route("/style.css", echoed),
        Route("/api/posts/{id}", echoed, methods=["GET", "POST"]),
        Route("/v1/models", echoed),
        Route("/v1/completions", echoed, methods=["POST"]),
        Route("/api/streamed", streamed),
        Route("/api/broken", broken),
        Route("/api/refused", refused),
    ]
    guard = Middleware(
        SecurityMiddleware,
        settings=settings,
        authenticator=authenticator or Authenticator(settings.key),
        public={"/style.css", "/login", "/healthz"},
        pages={"/", "/login"},
    )
    return Starlette(routes=routes, middleware=[guard])


def request(
    app: Asgi,
    path: str,
    method: str = "GET",
    headers: Mapping[str, str] | None = None,
    content: bytes | None = None,
    client: tuple[str, int] = CLIENT,
) -> httpx.Response:
    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(app=app, client=client)
        async with httpx.AsyncClient(transport=transport, base_url=ORIGIN) as browser:
            return await browser.request(method, path, headers=dict(headers or {}), content=content)

    return asyncio.run(ask())


def posted(app: Asgi, path: str, headers: Mapping[str, str]) -> int:
    return request(app, path, "POST", headers, b"{}").status_code


# --- names ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "accepted", "unknown"),
    [
        (
            ServeSettings(),
            ["127.0.0.1", "127.0.0.1:8377", "localhost:9000", "LOCALHOST", "127.0.0.2", "[::1]:80"],
            ["evil.example", "127.0.0.1.evil.example", "192.168.0.2", "localhost.", "", "0.0.0.0"],
        ),
        (
            ServeSettings(host="0.0.0.0", key=KEY),
            ["192.168.0.2:8377", "localhost", "[fe80::1]", "127.0.0.1"],
            ["evil.example", "192.168.0.2.evil.example"],
        ),
        (
            ServeSettings(host="192.168.0.2", key=KEY, names=("My.Proxy",)),
            ["192.168.0.2:8377", "my.proxy", "MY.PROXY:443"],
            ["192.168.0.3", "localhost", "proxy"],
        ),
    ],
)
def test_a_server_answers_only_to_its_own_host_names(
    settings: ServeSettings, accepted: list[str], unknown: list[str]
) -> None:
    hosts = AllowedHosts(settings)
    assert [name for name in accepted if not hosts.allows([name])] == []
    assert [name for name in unknown if hosts.allows([name])] == []
    assert not hosts.allows([])
    assert not hosts.allows([accepted[0], accepted[0]])


@pytest.mark.parametrize(
    "host", ["127.0.0.1@evil.example", "localhost/evil", "evil.example#localhost", "[::1", "a b"]
)
def test_an_invalid_host_is_refused(host: str) -> None:
    assert not AllowedHosts(ServeSettings()).allows([host])


# --- origins -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("origin", "is_ours"),
    [
        (ORIGIN, True),
        (f"https://{HERE}", True),  # by way of a proxy
        ("http://localhost:8377", False),
        ("http://127.0.0.1", False),
        ("http://127.0.0.1:3000", False),
        ("null", False),
        ("", False),
        ("file://", False),
        (f"ftp://{HERE}", False),
    ],
)
def test_only_this_server_is_the_same_origin(origin: str, is_ours: bool) -> None:
    assert is_same_origin(origin, HERE) == is_ours
    assert (posted(app_of(), "/api/posts/1", {**OURS, "Origin": origin}) == 200) == is_ours
    assert (posted(app_of(), "/v1/completions", {**OURS, "Origin": origin}) == 200) == is_ours


@pytest.mark.parametrize("site", ["same-origin", "same-site", "cross-site", "none", ""])
def test_a_hidden_origin_is_taken_for_ours_only_if_the_browser_says_so(site: str) -> None:
    headers = {**OURS, "Origin": "null", "Sec-Fetch-Site": site}
    assert (posted(app_of(), "/api/posts/1", headers) == 200) == (site == "same-origin")


def test_a_person_is_shown_text_and_a_program_json() -> None:
    person = {"Accept": "text/html,*/*;q=0.8", "Sec-Fetch-Mode": "navigate"}
    answer = request(app_of(), "/api/refused", headers={"Accept": "application/json"})
    assert answer.json()["error"]["message"] == "no coffee"
    sent = {**person, "Origin": "http://evil.example"}
    answer = request(app_of(), "/login", "POST", sent, b"key=x")
    assert answer.status_code == 403
    assert answer.headers["content-type"].startswith("text/plain")
    assert "pages of other sites may not use this server" in answer.text
    answer = request(app_of(), "/", headers={**person, "Host": "<b>"})
    assert answer.status_code == 421
    assert answer.headers["content-type"].startswith("text/plain")  # and so "<b>" is harmless
    for path in ("/ask", "/api/posts/1"):
        answer = request(app_of(ServeSettings(key=KEY)), path, headers=person)
        assert (answer.status_code, answer.headers["location"]) == (303, f"/login#{path}")


@pytest.mark.parametrize("site", ["cross-site", "same-site", "anything"])
def test_requests_embedded_by_another_site_are_refused(site: str) -> None:
    headers = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "no-cors"}
    for path in ("/", "/api/posts/1", "/v1/models", "/style.css"):
        assert request(app_of(), path, headers=headers).status_code == 403


def test_a_link_from_another_site_opens_only_the_page() -> None:
    headers = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    assert request(app_of(), "/", headers=headers).status_code == 200
    assert request(app_of(), "/api/posts/1", headers=headers).status_code == 403
    assert request(app_of(), "/", "POST", {**headers, **OURS}).status_code == 403


def test_clients_that_are_not_browsers_are_accepted() -> None:
    assert request(app_of(), "/v1/models").status_code == 200
    assert posted(app_of(), "/v1/completions", {"Content-Type": "application/json"}) == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        (OURS, 200),
        ({**OURS, "Content-Type": "application/json; charset=utf-8"}, 200),
        ({"Content-Type": "text/plain"}, 415),
        ({}, 415),
    ],
)
def test_changes_need_a_media_type_that_no_form_can_send(
    headers: dict[str, str], status: int
) -> None:
    assert posted(app_of(), "/api/posts/1", headers) == status


def test_cors_preflight_requests_are_refused() -> None:
    answer = request(
        app_of(),
        "/api/posts/1",
        "OPTIONS",
        {"Origin": "http://evil.example", "Access-Control-Request-Method": "POST"},
    )
    assert answer.status_code == 403
    assert not [name for name in answer.headers if name.startswith("access-control")]


# --- keys ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"host": "0.0.0.0"},
        {"host": "192.168.1.5"},
        {"host": "my-machine"},
        {"key": "short"},
        {"key": "a key with spaces"},
        {"key": "ключ-ключ-ключ"},
        {"port": 70000},
    ],
)
def test_insecure_settings_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        ServeSettings(**options)


def test_with_a_key_only_its_holders_are_admitted() -> None:
    app = app_of(ServeSettings(key=KEY))
    for path in ("/api/posts/1", "/v1/models", "/nothing"):
        answer = request(app, path)
        assert answer.status_code == 401, path
        assert answer.headers["www-authenticate"] == "Bearer"
        wrong = {"Authorization": "Bearer wrong"}
        assert request(app, path, headers=wrong).status_code == 401
    for kind in ("Bearer", "bearer"):
        answer = request(app, "/v1/models", headers={"Authorization": f"{kind} {KEY}"})
        assert answer.status_code == 200
    assert request(app, "/v1/models", headers={"Authorization": f"Basic {KEY}"}).status_code == 401
    assert request(app, "/style.css").status_code == 200
    response = request(app, "/")
    assert (response.status_code, response.headers["location"]) == (303, "/login")


def session_of(authenticator: Authenticator) -> str:
    """The Cookie header of a browser that has logged in."""
    response = authenticator.log_in(Response(), is_https=False)
    return response.headers["set-cookie"].partition(";")[0]


def test_a_cookie_is_valid_as_long_as_its_session() -> None:
    now = [0.0]
    authenticator = Authenticator(KEY, port=8377, clock=lambda: now[0])
    app = app_of(ServeSettings(key=KEY), authenticator)
    cookies = {"Cookie": f"other=1; {session_of(authenticator)}; more=2"}
    assert "ownwords-8377=" in cookies["Cookie"]
    assert request(app, "/api/posts/1", headers=cookies).status_code == 200
    assert request(app, "/api/posts/1", "POST", {**cookies}, b"{}").status_code == 415
    assert posted(app, "/api/posts/1", {**cookies, **OURS, "Origin": "http://evil.example"}) == 403
    assert request(app, "/api/posts/1", headers={"Cookie": "ownwords-8377=x"}).status_code == 401
    now[0] += 31 * 24 * 3600
    assert request(app, "/api/posts/1", headers=cookies).status_code == 401


def test_the_printed_link_logs_a_browser_in() -> None:
    app = app_of(ServeSettings(key=KEY))
    answer = request(app, f"/?key={KEY}")
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=lax" in cookie  # or a link on another page would ask for the key again
    cookies = {"Cookie": cookie.partition(";")[0]}
    assert request(app, "/", headers=cookies).status_code == 200
    wrong = request(app, "/?key=wrong")
    assert (wrong.status_code, wrong.headers["location"]) == (303, "/")
    assert "set-cookie" not in wrong.headers
    # Only the page takes a key so, and only from a visit.
    assert request(app, f"/api/posts/1?key={KEY}").status_code == 401
    embedded = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}
    assert request(app, f"/?key={KEY}", headers=embedded).status_code == 403


@given(st.text(max_size=60), st.text(max_size=60))
def test_other_credentials_are_refused(authorization: str, cookies: str) -> None:
    assert not Authenticator(KEY).admits(authorization, cookies)


def test_wrong_keys_are_throttled_and_the_right_one_is_not() -> None:
    now = [0.0]
    authenticator = Authenticator(KEY, clock=lambda: now[0])
    for _ in range(10):
        assert not authenticator.is_key("wrong")
        now[0] += 1
    with pytest.raises(ApiError) as error:
        authenticator.is_key("wrong again")
    assert error.value.status == 429
    assert error.value.retry_after_s == 50
    assert authenticator.is_key(KEY)
    now[0] += 51
    assert not authenticator.is_key("wrong")


# --- sizes and times -----------------------------------------------------------------------------


def test_too_large_a_body_is_refused_whatever_its_content_length() -> None:
    app = app_of(ServeSettings(body_bytes=100))
    assert request(app, "/v1/completions", "POST", OURS, b"x" * 100).json()["body"] == "x" * 100
    answer = request(app, "/v1/completions", "POST", OURS, b"x" * 101)
    assert answer.status_code == 413
    assert answer.json()["error"]["code"] == "request_too_large"
    lying = {**OURS, "Content-Length": "5"}
    assert request(app, "/v1/completions", "POST", lying, b"x" * 101).status_code == 413
    for length in ("-5", "1e3", "99999999999999999999"):
        assert (
            request(app, "/v1/completions", "POST", {**OURS, "Content-Length": length}).status_code
            == 413
        )


def test_a_client_that_disconnects_while_sending_gets_no_answer() -> None:
    messages: list[Any] = [
        {"type": "http.request", "body": b"x", "more_body": True},
        {"type": "http.disconnect"},
    ]
    sent: list[Any] = []

    async def receive() -> Any:  # noqa: ANN401
        return messages.pop(0)

    async def send(message: Any) -> None:  # noqa: ANN401
        sent.append(message)

    headers = {"host": HERE, "transfer-encoding": "chunked", **OURS}
    asyncio.run(app_of()(http_scope("/v1/completions", "POST", headers), receive, send))  # type: ignore[arg-type]
    assert sent == []


# --- what goes back ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/api/posts/1", {"Host": "evil.example:8377"}, 421),  # DNS rebinding
        ("/", {}, 200),
        ("/nothing", {}, 404),
        ("/api/broken", {}, 500),
        ("/api/refused", {}, 418),
        ("/api/streamed", {}, 200),
        ("/", {"Host": "evil.example"}, 421),
        ("/", {"Origin": "http://evil.example"}, 403),
    ],
)
def test_every_answer_has_security_headers(path: str, headers: dict[str, str], status: int) -> None:
    answer = request(app_of(), path, headers=headers)
    assert answer.status_code == status
    for name, value in HEADERS.items():
        assert answer.headers[name] == value
    assert answer.headers["cache-control"] == "no-store"


def test_a_bug_is_logged_and_not_disclosed(caplog: pytest.LogCaptureFixture) -> None:
    answer = request(app_of(), "/api/broken")
    assert answer.status_code == 500
    assert "only the log" not in answer.text
    assert set(answer.json()["error"]) == {"message", "hint"}
    assert "only the log" in caplog.text


def test_a_websocket_is_closed() -> None:
    sent: list[Any] = []

    async def send(message: Any) -> None:  # noqa: ANN401
        sent.append(message)

    async def receive() -> Any:  # noqa: ANN401
        raise AssertionError

    asyncio.run(app_of()({"type": "websocket"}, receive, send))  # type: ignore[arg-type]
    assert sent == [{"type": "websocket.close"}]
