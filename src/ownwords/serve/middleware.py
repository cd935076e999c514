"""Security middleware: checks each request's host, origin, key, size and duration.

It rejects requests for another host (DNS rebinding), requests sent by another site's page, requests
without a required key, and requests that are too large or too slow.
"""

import asyncio
import logging
from collections.abc import Collection, Mapping
from http import HTTPStatus

from starlette.datastructures import Headers, MutableHeaders, QueryParams
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ownwords.serve.allowed_hosts import AllowedHosts, is_same_origin
from ownwords.serve.auth import LOGIN, Authenticator
from ownwords.serve.errors import (
    ApiError,
    TooManyRequestsError,
    error_response,
    internal_error,
    is_navigation,
)
from ownwords.serve.metrics import Metrics
from ownwords.serve.settings import ServeSettings
from ownwords.serve.static_files import FRONT, with_blog

_log = logging.getLogger("ownwords.serve")

_READS = ("GET", "HEAD")
_METHODS = (*_READS, "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
_CSRF_HEADER = "x-ownwords"  # an HTML form of another site cannot send it
_JSON, _FILE = "application/json", "application/octet-stream"
_RETRY_AFTER_S = 1
_CLIENT_CLOSED_REQUEST = 499  # nginx's status for a client that closed the connection

# Scripts and styles from our own files only, nothing from other sites, and no framing.
HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self';"
    " img-src 'self' data:; connect-src 'self'; form-action 'self'; base-uri 'none';"
    " frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",  # "no-referrer" hides the origin of our own login form, too
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
}


class SecurityMiddleware:
    """ASGI middleware that checks each request before the app.

    `public` paths need no key and show no private data; links on other sites may open `pages`. The
    bodies of `uploads` are files, which the app reads as they arrive.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        settings: ServeSettings,
        authenticator: Authenticator,
        metrics: Metrics,
        public: Collection[str],
        pages: Collection[str],
        uploads: Collection[str] = (),
    ) -> None:
        self._app = app
        self._settings, self._authenticator, self._metrics = settings, authenticator, metrics
        self._public, self._pages = frozenset(public), frozenset(pages)
        self._uploads = frozenset(uploads)
        self._hosts = AllowedHosts(settings)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check the request, then pass it on to the app or send an error."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            await self._answer(scope, receive, send)
        else:
            await send({"type": "websocket.close"})

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        response = _ResponseSender(send)
        self._metrics.requests_in_flight += 1
        try:
            try:
                redirect = self._check(scope)
                if redirect is None:
                    await self._pass_on(scope, receive, response)
                else:
                    await redirect(scope, receive, response.send)
            except ApiError as error:
                await self._send_error(scope, receive, response, error)
            except TimeoutError:
                timeout = ApiError(HTTPStatus.GATEWAY_TIMEOUT, "the answer took too long")
                await self._send_error(scope, receive, response, timeout)
            except Exception:
                _log.exception("%s %s failed", scope["method"], scope["path"])
                await self._send_error(scope, receive, response, internal_error())
        finally:
            self._metrics.requests_in_flight -= 1
            route = getattr(scope.get("route"), "path", "other")
            method = scope["method"] if scope["method"] in _METHODS else "other"
            self._metrics.response(method, route, response.status)

    async def _send_error(
        self, scope: Scope, receive: Receive, response: "_ResponseSender", error: ApiError
    ) -> None:
        if response.has_started:  # the response has started: the client sees that it is incomplete
            _log.debug("%s broke off: %s", scope["path"], error)
            return
        answer = error_response(scope["path"], error, Headers(scope=scope))
        await answer(scope, receive, response.send)

    # --- who, and from where ---------------------------------------------------------------------

    def _check(self, scope: Scope) -> Response | None:
        """Raise ApiError if the request is not allowed; return a redirect if it needs one."""
        headers, path = Headers(scope=scope), scope["path"]
        query = QueryParams(scope["query_string"])
        reads = scope["method"] in _READS
        is_visit = reads and path in self._pages
        if self._metrics.requests_in_flight > self._settings.requests:
            raise TooManyRequestsError("the server is busy", _RETRY_AFTER_S)
        if not self._hosts.allows(headers.getlist("host")):
            raise ApiError(
                HTTPStatus.MISDIRECTED_REQUEST,
                f"this server is not called {headers.get('host', '')[:80]!r}",
                hint="to allow that name, start the server with --name",
            )
        _check_origin(headers, is_visit=is_visit)
        if is_visit and "key" in query:
            return self._log_in_by_link(scope, query)
        if path not in self._public and not self._authenticator.admits(
            headers.get("authorization", ""), headers.get("cookie", ""), _client_of(scope)
        ):
            if is_visit or (reads and is_navigation(headers)):
                login = with_blog(LOGIN, query)
                return RedirectResponse(
                    login if is_visit else f"{login}#{path}", HTTPStatus.SEE_OTHER
                )
            raise ApiError(
                HTTPStatus.UNAUTHORIZED,
                "this server needs its key",
                hint="send it as: Authorization: Bearer KEY",
            )
        if not reads and path != LOGIN:
            media_type = _FILE if path in self._uploads else _JSON
            _check_media_type(headers, media_type, needs_header=not path.startswith("/v1/"))
        return None

    def _log_in_by_link(self, scope: Scope, query: QueryParams) -> Response:
        """Redirect to the address without the key, and set a cookie if the key is right."""
        redirect = RedirectResponse(with_blog(FRONT, query), HTTPStatus.SEE_OTHER)
        is_key = self._authenticator.is_key
        if self._authenticator.is_needed and is_key(query["key"], _client_of(scope)):
            return self._authenticator.log_in(redirect, is_https=scope["scheme"] == "https")
        return redirect

    # --- how much, and how long ------------------------------------------------------------------

    async def _pass_on(self, scope: Scope, receive: Receive, response: "_ResponseSender") -> None:
        receive_body: Receive
        if scope["path"] in self._uploads:
            receive_body = self._bounded(Headers(scope=scope), receive)
        else:
            body = await self._read_body(Headers(scope=scope), receive)
            if body is None:
                response.status = _CLIENT_CLOSED_REQUEST
                return
            receive_body = _replayed(body, receive)
        async with asyncio.timeout(self._settings.answer_s) as timeout:
            response.timeout = timeout
            try:
                await self._app(scope, receive_body, response.send)
            finally:
                response.timeout = None

    async def _read_body(self, headers: Headers, receive: Receive) -> bytes | None:
        """Read the whole body; None if the client left. Raises ApiError if too large or slow."""
        length = headers.get("content-length", "")
        if length == "" and "transfer-encoding" not in headers:
            return b""
        if length and (not length.isdecimal() or int(length) > self._settings.body_bytes):
            raise self._too_large()
        body = bytearray()
        try:
            async with asyncio.timeout(self._settings.body_s):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        return None
                    body += message.get("body", b"")
                    if len(body) > self._settings.body_bytes:
                        raise self._too_large()
                    if not message.get("more_body", False):
                        return bytes(body)
        except TimeoutError:
            raise ApiError(
                HTTPStatus.REQUEST_TIMEOUT,
                f"the request did not arrive within {self._settings.body_s:g} s",
            ) from None

    def _bounded(self, headers: Headers, receive: Receive) -> Receive:
        """Pass on an upload as it arrives; ApiError if it is too large or stands still."""
        limit, length = self._settings.upload_bytes, headers.get("content-length", "")
        if length and (not length.isdecimal() or int(length) > limit):
            raise self._too_large(limit)
        received = 0

        async def receive_part() -> Message:
            nonlocal received
            try:
                async with asyncio.timeout(self._settings.body_s):
                    message = await receive()
            except TimeoutError:
                raise ApiError(
                    HTTPStatus.REQUEST_TIMEOUT,
                    f"nothing of the upload arrived for {self._settings.body_s:g} s",
                ) from None
            received += len(message.get("body", b""))
            if received > limit:
                raise self._too_large(limit)
            return message

        return receive_part

    def _too_large(self, limit: int | None = None) -> ApiError:
        most = limit or self._settings.body_bytes
        return ApiError(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            f"the request is too large: at most {most:,} bytes are allowed",
            hint="send less at once",
        )


def _replayed(body: bytes, receive: Receive) -> Receive:
    """Pass on a body that has been read, then what follows it."""
    unread = [body]

    async def receive_body() -> Message:
        if unread:
            return {"type": "http.request", "body": unread.pop(), "more_body": False}
        return await receive()

    return receive_body


class _ResponseSender:
    """Sends a response with the common headers."""

    def __init__(self, send: Send) -> None:
        self.status = _CLIENT_CLOSED_REQUEST
        self.has_started = False
        self.timeout: asyncio.Timeout | None = None  # limits the time until the response starts
        self._send = send

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.has_started = True
            self.status = message["status"]
            if self.timeout is not None and not self.timeout.expired():
                self.timeout.reschedule(None)
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
            headers.setdefault("Cache-Control", "no-store")
        await self._send(message)


def _client_of(scope: Scope) -> str:
    client = scope.get("client")
    return client[0] if client else ""


def _check_origin(headers: Headers, *, is_visit: bool) -> None:
    """Raise ApiError if another site's page sent the request."""
    origin, site = headers.get("origin"), headers.get("sec-fetch-site", "none")
    if origin is not None:
        # A browser that was told to send no referrer hides the origin of our own forms, too.
        if origin == "null" and site == "same-origin":
            return
        if is_same_origin(origin, headers.get("host", "")):
            return
    elif site in ("same-origin", "none") or (
        is_visit and headers.get("sec-fetch-mode") == "navigate"
    ):
        return
    raise ApiError(HTTPStatus.FORBIDDEN, "pages of other sites may not use this server")


def _check_media_type(headers: Headers, expected: str, *, needs_header: bool) -> None:
    """Raise ApiError unless the request is of that type, with our own header where `needs_header`.

    Forms and images of other sites' pages can send neither.
    """
    media_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != expected:
        what = "JSON" if expected == _JSON else "the bytes of a file"
        raise ApiError(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            f"the request must be {what}, not {media_type[:80] or 'without a Content-Type'}",
            hint=f"send it with the header Content-Type: {expected}",
        )
    if needs_header and headers.get(_CSRF_HEADER) != "1":
        raise ApiError(
            HTTPStatus.FORBIDDEN,
            "the request lacks the header X-Ownwords, which shows that our own page has sent it",
            hint="send it with the header X-Ownwords: 1",
        )
