"""What every request goes through first: who asks, from where, how much, how long.

Nothing reaches a route that was not meant for this server, came from a foreign page, lacks the key
where one is needed, or is too large or too slow.
"""

import asyncio
import logging
from collections.abc import Collection, Mapping
from http import HTTPStatus

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ownwords.serve.allowed_hosts import AllowedHosts, is_own
from ownwords.serve.auth import Authenticator
from ownwords.serve.errors import ApiError, TooManyRequestsError, refusal
from ownwords.serve.metrics import Metrics
from ownwords.serve.settings import ServeSettings

_log = logging.getLogger("ownwords.serve")

LOGIN = "/login"
_READS = ("GET", "HEAD")
_METHODS = (*_READS, "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
_MARK = "x-ownwords"  # no form of another page can send it
_RETRY_AFTER_S = 1
_GONE = 499  # what nginx calls a client that did not wait for its answer

# No script or style but our own files; nothing of other places; no page may frame ours.
HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self';"
    " img-src 'self' data:; connect-src 'self'; form-action 'self'; base-uri 'none';"
    " frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
}


class SecurityMiddleware:
    """Stands around the app. `public` are the paths that need no key; they hold nothing of yours.

    `pages` are those that a browser may be led to from elsewhere.
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
    ) -> None:
        self._app = app
        self._settings, self._authenticator, self._metrics = settings, authenticator, metrics
        self._public, self._pages = frozenset(public), frozenset(pages)
        self._hosts = AllowedHosts(settings)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or hand the request on."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            await self._answer(scope, receive, send)
        else:
            await send({"type": "websocket.close"})

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = _Answer(send)
        self._metrics.under_way += 1
        try:
            try:
                turned_away = self._turned_away(scope)
                if turned_away is None:
                    await self._hand_on(scope, receive, answer)
                else:
                    await turned_away(scope, receive, answer.send)
            except ApiError as error:
                await self._refuse(scope, receive, answer, error)
            except TimeoutError:
                await self._refuse(
                    scope,
                    receive,
                    answer,
                    ApiError(HTTPStatus.GATEWAY_TIMEOUT, "this took too long, and was given up"),
                )
            except Exception:
                _log.exception("%s %s failed", scope["method"], scope["path"])
                await self._refuse(scope, receive, answer, _bug())
        finally:
            self._metrics.under_way -= 1
            route = getattr(scope.get("route"), "path", "other")
            method = scope["method"] if scope["method"] in _METHODS else "other"
            self._metrics.answered(method, route, answer.status)

    async def _refuse(
        self, scope: Scope, receive: Receive, answer: "_Answer", error: ApiError
    ) -> None:
        if answer.has_begun:  # too late to say it: what is not ended properly is known as broken
            _log.debug("%s broke off: %s", scope["path"], error)
            return
        await refusal(scope["path"], error)(scope, receive, answer.send)

    # --- who, and from where ---------------------------------------------------------------------

    def _turned_away(self, scope: Scope) -> Response | None:
        """An answer in place of the app's. Refused, or none where the app is to answer."""
        headers, path = Headers(scope=scope), scope["path"]
        reads = scope["method"] in _READS
        if self._metrics.under_way > self._settings.requests:
            raise TooManyRequestsError("too many requests are under way", _RETRY_AFTER_S)
        if not self._hosts.knows(headers.getlist("host")):
            raise ApiError(
                HTTPStatus.MISDIRECTED_REQUEST,
                f"this server is not called {headers.get('host', '')[:80]!r}",
                hint="if it should be, start it with --name",
            )
        self._check_origin(headers, is_visit=reads and path in self._pages)
        if path not in self._public and not self._admits(scope, headers):
            if reads and path in self._pages:
                return RedirectResponse(LOGIN, HTTPStatus.SEE_OTHER)
            raise ApiError(
                HTTPStatus.UNAUTHORIZED,
                "this server answers only to who has its key",
                hint="send it as: Authorization: Bearer KEY",
            )
        if not reads and path != LOGIN:
            _check_form(headers, needs_mark=not path.startswith("/v1/"))
        return None

    def _admits(self, scope: Scope, headers: Headers) -> bool:
        client = scope.get("client")
        return self._authenticator.admits(
            headers.get("authorization", ""), headers.get("cookie", ""), client[0] if client else ""
        )

    @staticmethod
    def _check_origin(headers: Headers, *, is_visit: bool) -> None:
        """Refused for what the page of another site has sent."""
        origin = headers.get("origin")
        if origin is not None:
            if is_own(origin, headers.get("host", "")):
                return
        elif headers.get("sec-fetch-site", "none") in ("same-origin", "none") or (
            is_visit and headers.get("sec-fetch-mode") == "navigate"
        ):
            return
        raise ApiError(HTTPStatus.FORBIDDEN, "another site's page asked for this, and may not")

    # --- how much, and how long ------------------------------------------------------------------

    async def _hand_on(self, scope: Scope, receive: Receive, answer: "_Answer") -> None:
        body = await self._body(Headers(scope=scope), receive)
        if body is None:
            answer.status = _GONE
            return
        given = [body]

        async def once_more() -> Message:
            if given:
                return {"type": "http.request", "body": given.pop(), "more_body": False}
            return await receive()

        async with asyncio.timeout(self._settings.answer_s) as limit:
            answer.limit = limit
            try:
                await self._app(scope, once_more, answer.send)
            finally:
                answer.limit = None

    async def _body(self, headers: Headers, receive: Receive) -> bytes | None:
        """The whole body; None where the client went away. Refused if it is too large or slow."""
        said = headers.get("content-length", "")
        if said == "" and "transfer-encoding" not in headers:
            return b""
        if said and (not said.isdecimal() or int(said) > self._settings.body_bytes):
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

    def _too_large(self) -> ApiError:
        return ApiError(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            f"a request may have {self._settings.body_bytes:,} bytes, and this one has more",
            hint="send less at once",
        )


class _Answer:
    """What goes back, with the headers that all answers have."""

    def __init__(self, send: Send) -> None:
        self.status = _GONE
        self.has_begun = False
        self.limit: asyncio.Timeout | None = None  # until it begins
        self._send = send

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.has_begun = True
            self.status = message["status"]
            if self.limit is not None and not self.limit.expired():
                self.limit.reschedule(None)
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
            headers.setdefault("Cache-Control", "no-store")
        await self._send(message)


def _check_form(headers: Headers, *, needs_mark: bool) -> None:
    """Refused for what a form or an image of another page could send."""
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise ApiError(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            f"a request that asks for work should be JSON, and this is {kind[:80] or 'nothing'}",
            hint="send it with the header Content-Type: application/json",
        )
    if needs_mark and headers.get(_MARK) != "1":
        raise ApiError(
            HTTPStatus.FORBIDDEN,
            "this request lacks the mark of our own page",
            hint="send it with the header X-Ownwords: 1",
        )


def _bug() -> ApiError:
    return ApiError(
        HTTPStatus.INTERNAL_SERVER_ERROR,
        "something went wrong in the server, which is a bug of ours",
        hint="please report it with the lines that the server has printed",
    )
