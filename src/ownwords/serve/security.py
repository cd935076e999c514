"""Access to the server: the key, sessions, the login form, and the checks of each request."""

import hashlib
import hmac
import html
import ipaddress
import logging
import math
import re
import secrets
import socket
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from typing import Final
from urllib.parse import parse_qsl

from starlette.datastructures import Headers, MutableHeaders, QueryParams
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ownwords.serve.errors import (
    ApiError,
    TooManyRequestsError,
    error_response,
    forbidden,
    internal_error,
    is_navigation,
)
from ownwords.serve.settings import ALL_ADDRESSES, ServeSettings
from ownwords.serve.static_files import FRONT, StaticFile, with_blog

LOGIN: Final = "/login"
SESSION_S: Final = 30 * 24 * 3600
_MAX_WRONG, _WINDOW_S = 10, 60.0  # wrong keys per minute before TooManyRequestsError
_MAX_FIELDS = 50
_WRONG_KEY = "That is not the key. It is printed where the server was started."
_NO_PROBLEM, _PROBLEM = b" hidden></p>", b">%s</p>"  # placeholder for an error message in the form


class Authenticator:
    """Checks keys and sessions; a server without a key admits all requests.

    A session's cookie is signed with the key, so it stays valid after a restart with the same key.
    """

    def __init__(self, key: str, *, port: int = 0, clock: Callable[[], float] = time.time) -> None:
        self.is_needed = bool(key)
        # Cookies ignore ports: two servers on one machine need cookies of different names.
        self.cookie = f"ownwords-{port}"
        self._key = _digest(key)
        self._clock = clock
        self._wrong: deque[float] = deque(maxlen=_MAX_WRONG)  # their times

    def admits(self, authorization: str, cookies: str) -> bool:
        """Whether the headers hold the key or a valid session. Raises as `is_key` does."""
        if not self.is_needed or self._has_session(cookies):
            return True
        kind, _, key = authorization.partition(" ")
        return kind.lower() == "bearer" and self.is_key(key.strip())

    def is_key(self, key: str) -> bool:
        """Whether the key is right. Raises TooManyRequestsError after too many wrong keys.

        The right key is always accepted, so that wrong keys of others do not lock its owner out.
        """
        if hmac.compare_digest(_digest(key), self._key):
            return True
        now, wrong = self._clock(), self._wrong
        if len(wrong) == _MAX_WRONG and now - wrong[0] <= _WINDOW_S:
            wait_s = math.ceil(_WINDOW_S - (now - wrong[0]))
            raise TooManyRequestsError("too many wrong keys were given", wait_s)
        wrong.append(now)
        return False

    def log_in(self, response: Response, *, is_https: bool) -> Response:
        """Start a session and set its cookie on the response."""
        session = f"{self._clock() + SESSION_S:.0f}.{secrets.token_urlsafe(16)}"
        token = f"{session}.{self._signature(session)}"
        # Lax: links from other sites work; the middleware checks the origin of requests.
        response.set_cookie(
            self.cookie, token, SESSION_S, httponly=True, samesite="lax", secure=is_https
        )
        return response

    def _has_session(self, cookies: str) -> bool:
        try:
            morsel = SimpleCookie(cookies).get(self.cookie)
        except CookieError:
            return False
        session, _, signature = (morsel.value if morsel else "").rpartition(".")
        if not hmac.compare_digest(_digest(signature), _digest(self._signature(session))):
            return False
        return self._clock() <= float(session.partition(".")[0])

    def _signature(self, session: str) -> str:
        message = session.encode("utf-8", "surrogateescape")
        return hmac.new(self._key, message, hashlib.sha256).hexdigest()


def routes(authenticator: Authenticator, form: StaticFile) -> Sequence[BaseRoute]:
    """Return the routes of the login form and its submission."""

    async def show_form(request: Request) -> Response:
        return form.response() if authenticator.is_needed else _to_front(request)

    async def submit(request: Request) -> Response:
        if not authenticator.is_needed:
            return _to_front(request)
        key = form_fields(await request.body()).get("key", "").strip()
        try:
            is_key = authenticator.is_key(key)
        except ApiError as error:
            page = _with_problem(form, f"Too many wrong keys: {error.hint}.")
            return page.response(error.status, {"Retry-After": str(error.retry_after_s)})
        if not is_key:
            return _with_problem(form, _WRONG_KEY).response(HTTPStatus.UNAUTHORIZED)
        return authenticator.log_in(_to_front(request), is_https=request.url.scheme == "https")

    return [
        Route(LOGIN, show_form, methods=["GET"]),
        Route(LOGIN, submit, methods=["POST"]),
    ]


def form_fields(*encoded: bytes) -> dict[str, str]:
    """Return the fields of a form, such as a body and a query; none if they are too many."""
    text = b"&".join(encoded).decode("utf-8", "replace")
    try:
        return dict(parse_qsl(text, keep_blank_values=True, max_num_fields=_MAX_FIELDS))
    except ValueError:
        return {}


def _with_problem(form: StaticFile, sentence: str) -> StaticFile:
    problem = _PROBLEM % html.escape(sentence).encode()
    return replace(form, data=form.data.replace(_NO_PROBLEM, problem, 1))


def _to_front(request: Request) -> Response:
    return RedirectResponse(with_blog(FRONT, request.query_params), HTTPStatus.SEE_OTHER)


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).digest()


_log = logging.getLogger("ownwords.serve")

_READS = ("GET", "HEAD")
_JSON, _FILE = "application/json", "application/octet-stream"
_FORM = "application/x-www-form-urlencoded"
_FORM_BYTES = 400_000  # about 100 kB of text
# The origins of add-ons and editors. No page on the web has one of these schemes.
_EDITOR = re.compile(
    r"(?:chrome-extension|moz-extension|safari-web-extension|vscode-webview)://[\w.-]+"
    r"|app://obsidian\.md"
)
_PREFLIGHT: Mapping[str, str] = {
    "Access-Control-Allow-Methods": "GET,POST",
    "Access-Control-Allow-Headers": "Accept,Content-Type",
    "Access-Control-Allow-Private-Network": "true",
}

# Scripts and styles from our own files only, nothing from other sites, and no framing.
HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self';"
    " img-src 'self' data:; connect-src 'self'; form-action 'self'; base-uri 'none';"
    " frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types drawn",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",  # "no-referrer" hides the origin of our own login form, too
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
    "Cache-Control": "no-store",  # unless the response says otherwise
}


class SecurityMiddleware:
    """ASGI middleware that checks each request before the app.

    `public` paths need no key and show no private data; links on other sites may open `pages`. The
    bodies of `uploads` are files, which the app reads as they arrive. Add-ons of browsers and
    editors may use `editors`: they send forms with the key in a field, and need none if only this
    machine can reach the server.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        settings: ServeSettings,
        authenticator: Authenticator,
        public: Collection[str],
        pages: Collection[str],
        uploads: Collection[str] = (),
        editors: Collection[str] = (),
    ) -> None:
        self._app = app
        self._settings, self._authenticator = settings, authenticator
        self._public, self._pages = frozenset(public), frozenset(pages)
        self._uploads, self._editors = frozenset(uploads), frozenset(editors)
        self._hosts = AllowedHosts(settings)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check the request, then pass it on to the app or send an error."""
        if scope["type"] == "lifespan":
            return await self._app(scope, receive, send)
        if scope["type"] != "http":
            return await send({"type": "websocket.close"})
        has_started = False
        origin = self._editor_origin(scope)

        async def send_with_headers(message: Message) -> None:
            nonlocal has_started
            if message["type"] == "http.response.start":
                has_started = True
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                if origin:
                    headers["Access-Control-Allow-Origin"] = origin
                    headers["Vary"] = "Origin"
            await send(message)

        try:
            answer, receive = self._check(scope) or self._app, self._bounded(scope, receive)
            if scope["path"] in self._editors and answer is self._app:
                receive = await self._with_key(scope, receive)
            return await answer(scope, receive, send_with_headers)
        except ClientDisconnect:
            return None
        except ApiError as refused:
            error = refused
        except Exception:
            _log.exception("%s %s failed", scope["method"], scope["path"])
            error = internal_error()
        if not has_started:  # otherwise the client sees that the response is incomplete
            response = error_response(scope["path"], error, Headers(scope=scope))
            await response(scope, receive, send_with_headers)
        return None

    def _check(self, scope: Scope) -> Response | None:
        """Raise ApiError if the request is not allowed; return a redirect if it needs one."""
        headers, path = Headers(scope=scope), scope["path"]
        query = QueryParams(scope["query_string"])
        reads = scope["method"] in _READS
        is_visit = reads and path in self._pages
        if not self._hosts.allows(headers.getlist("host")):
            raise ApiError(
                HTTPStatus.MISDIRECTED_REQUEST,
                f"this server is not called {headers.get('host', '')[:80]!r}",
                hint="to allow that name, start the server with --name",
            )
        if self._editor_origin(scope):
            if scope["method"] == "OPTIONS":
                return Response(status_code=HTTPStatus.NO_CONTENT, headers=_PREFLIGHT)
        else:
            _check_origin(headers, is_visit=is_visit)
        if is_visit and "key" in query:
            return self._log_in_by_link(scope, query)
        if path not in self._public | self._editors and not self._admits(headers):
            if is_visit or (reads and is_navigation(headers)):
                login = with_blog(LOGIN, query)
                return RedirectResponse(
                    login if is_visit else f"{login}#{path}", HTTPStatus.SEE_OTHER
                )
            raise _no_key("send it as: Authorization: Bearer KEY")
        if not reads and path != LOGIN:
            media_type = _FILE if path in self._uploads else _JSON
            media_type = _FORM if path in self._editors else media_type
            if media_type == _FORM and "content-type" not in headers:  # as LTeX sends it
                return None
            _check_media_type(headers, media_type)
        return None

    def _admits(self, headers: Headers) -> bool:
        return self._authenticator.admits(
            headers.get("authorization", ""), headers.get("cookie", "")
        )

    def _editor_origin(self, scope: Scope) -> str:
        """Return the origin of an add-on or editor that may use this path; "" for any other."""
        origins = Headers(scope=scope).getlist("origin")
        is_editor = scope["path"] in self._editors and len(origins) == 1
        return origins[0] if is_editor and _EDITOR.fullmatch(origins[0]) else ""

    async def _with_key(self, scope: Scope, receive: Receive) -> Receive:
        """Return the body again, after a look for the key in it. Raises ApiError without one."""
        is_private = self._settings.is_private or scope["path"] in self._public
        if is_private or self._admits(Headers(scope=scope)):
            return receive
        body = await Request(scope, receive).body()
        key = form_fields(body, scope["query_string"]).get("apiKey", "")
        if not key or not self._authenticator.is_key(key):
            raise _no_key("send it as: apiKey=KEY")

        async def receive_again() -> Message:
            return {"type": "http.request", "body": body}

        return receive_again

    def _log_in_by_link(self, scope: Scope, query: QueryParams) -> Response:
        """Redirect to the address without the key, and set a cookie if the key is right."""
        redirect = RedirectResponse(with_blog(FRONT, query), HTTPStatus.SEE_OTHER)
        is_key = self._authenticator.is_key
        if self._authenticator.is_needed and is_key(query["key"]):
            return self._authenticator.log_in(redirect, is_https=scope["scheme"] == "https")
        return redirect

    def _bounded(self, scope: Scope, receive: Receive) -> Receive:
        """Pass the body on as it arrives. Raises ApiError if it is too large."""
        path, settings = scope["path"], self._settings
        limit = settings.upload_bytes if path in self._uploads else settings.body_bytes
        limit = _FORM_BYTES if path in self._editors else limit
        length = Headers(scope=scope).get("content-length", "")
        if length and (not length.isdecimal() or int(length) > limit):
            raise _too_large(limit)
        received = 0

        async def receive_part() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > limit:
                raise _too_large(limit)
            return message

        return receive_part


def _no_key(hint: str) -> ApiError:
    return ApiError(HTTPStatus.UNAUTHORIZED, "this server needs its key", hint=hint)


def _too_large(limit: int) -> ApiError:
    return ApiError(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        f"the request is too large: at most {limit:,} bytes are allowed",
        hint="send less at once",
    )


def _check_origin(headers: Headers, *, is_visit: bool) -> None:
    """Raise ApiError if a page of another site sent the request."""
    origin, site = headers.get("origin"), headers.get("sec-fetch-site", "none")
    if origin is not None:
        # A browser that is set to send no referrer also hides the origin of our own forms.
        if origin == "null" and site == "same-origin":
            return
        if is_same_origin(origin, headers.get("host", "")):
            return
    elif site in ("same-origin", "none") or (
        is_visit and headers.get("sec-fetch-mode") == "navigate"
    ):
        return
    raise forbidden("pages of other sites may not use this server")


def _check_media_type(headers: Headers, expected: str) -> None:
    """Raise ApiError unless the request has that media type.

    Forms of other sites' pages cannot send JSON, and their scripts need a preflight request.
    """
    media_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != expected:
        what = {_JSON: "JSON", _FORM: "a form"}.get(expected, "the bytes of a file")
        raise ApiError(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            f"the request must be {what}, not {media_type[:80] or 'without a Content-Type'}",
            hint=f"send it with the header Content-Type: {expected}",
        )


_HOST = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^\[\]:/?#@\s]+)(?::\d{1,5})?")


class AllowedHosts:
    """The names and addresses that a Host header may have."""

    def __init__(self, settings: ServeSettings) -> None:
        self._names = {name.lower() for name in (*settings.names, settings.host)}
        self._takes_addresses = settings.host in ALL_ADDRESSES
        self._is_loopback = settings.is_loopback
        if self._is_loopback or self._takes_addresses:
            self._names.add("localhost")
        if not self._is_loopback:
            own = socket.gethostname().lower()
            self._names |= {own, own.partition(".")[0], f"{own.partition('.')[0]}.local"}

    def allows(self, headers: Sequence[str]) -> bool:
        """Whether a request with these Host headers is addressed to this server."""
        match = _HOST.fullmatch(headers[0]) if len(headers) == 1 else None
        if match is None:
            return False
        name = match[1].strip("[]").lower()
        if name in self._names:
            return True
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            return False
        # An IP address needs no DNS lookup, so it cannot be rebound.
        return self._takes_addresses or (self._is_loopback and address.is_loopback)


def is_same_origin(origin: str, host: str) -> bool:
    """Whether an Origin header names this server."""
    scheme, separator, origin_host = origin.partition("://")
    is_web = bool(separator) and scheme in ("http", "https")
    return is_web and origin_host.lower() == host.lower()
