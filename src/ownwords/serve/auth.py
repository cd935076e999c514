"""Authentication: the key, the session cookie that a browser gets for it, and the login form."""

import hashlib
import hmac
import html
import ipaddress
import math
import secrets
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from typing import Final
from urllib.parse import parse_qs

from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from ownwords.serve.errors import ApiError, TooManyRequestsError
from ownwords.serve.static_files import FRONT, StaticFile, with_blog

LOGIN: Final = "/login"
SESSION_S: Final = 30 * 24 * 3600
# Wrong keys per minute and address before TooManyRequestsError.
_MAX_WRONG, _WINDOW_S = 10, 60.0
_MAX_CLIENTS = 4096
_MAX_FIELDS = 8
_WRONG_KEY = "That is not the key. It is printed where the server was started."
_NO_PROBLEM, _PROBLEM = b" hidden></p>", b">%s</p>"  # placeholder for an error message in the form


class Authenticator:
    """Checks keys and sessions; if the server has no key, all requests are admitted.

    A session's cookie is signed with the key, so that a server which is started again with the same
    key knows it.
    """

    def __init__(self, key: str, *, port: int = 0, clock: Callable[[], float] = time.time) -> None:
        self.is_needed = bool(key)
        # Cookies ignore ports: two servers on one machine need cookies of different names.
        self.cookie = f"ownwords-{port}"
        self._key = _digest(key)
        self._clock = clock
        self._ended: set[str] = set()
        self._wrong: OrderedDict[str, deque[float]] = OrderedDict()

    def admits(self, authorization: str, cookies: str, client: str) -> bool:
        """Whether the headers hold the key or a valid session. Raises as `is_key` does."""
        if not self.is_needed or self._has_session(cookies):
            return True
        kind, _, key = authorization.partition(" ")
        return kind.lower() == "bearer" and self.is_key(key.strip(), client)

    def is_key(self, key: str, client: str) -> bool:
        """Whether the key is right. Raises TooManyRequestsError after too many wrong keys.

        The right key is always accepted: on a shared machine, all accounts have the same address,
        so others' wrong keys must not lock its owner out.
        """
        if hmac.compare_digest(_digest(key), self._key):
            return True
        network, now = _network(client), self._clock()
        tries = self._wrong.setdefault(network, deque(maxlen=_MAX_WRONG))
        self._wrong.move_to_end(network)
        if len(self._wrong) > _MAX_CLIENTS:
            self._wrong.popitem(last=False)
        if len(tries) == _MAX_WRONG and now - tries[0] <= _WINDOW_S:
            wait_s = math.ceil(_WINDOW_S - (now - tries[0]))
            raise TooManyRequestsError("too many wrong keys came from your address", wait_s)
        tries.append(now)
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

    def log_out(self, cookies: str) -> None:
        """End the session of these cookies."""
        if self._has_session(cookies):
            self._ended.add(self._token(cookies))

    def _has_session(self, cookies: str) -> bool:
        token = self._token(cookies)
        session, _, signature = token.rpartition(".")
        if not hmac.compare_digest(_digest(signature), _digest(self._signature(session))):
            return False
        return token not in self._ended and self._clock() <= float(session.partition(".")[0])

    def _signature(self, session: str) -> str:
        message = session.encode("utf-8", "surrogateescape")
        return hmac.new(self._key, message, hashlib.sha256).hexdigest()

    def _token(self, cookies: str) -> str:
        try:
            morsel = SimpleCookie(cookies).get(self.cookie)
        except CookieError:
            return ""
        return morsel.value if morsel else ""


def routes(authenticator: Authenticator, form: StaticFile) -> Sequence[BaseRoute]:
    """The routes of the login form, its submission, and logging out."""

    async def show_form(request: Request) -> Response:
        return form.response(request) if authenticator.is_needed else _to_front(request)

    async def submit(request: Request) -> Response:
        if not authenticator.is_needed:
            return _to_front(request)
        key = _key_of(await request.body())
        try:
            is_key = authenticator.is_key(key, request.client.host if request.client else "")
        except ApiError as error:
            page = _with_problem(form, f"Too many wrong keys: {error.hint}.")
            return page.response(request, error.status, {"Retry-After": str(error.retry_after_s)})
        if not is_key:
            return _with_problem(form, _WRONG_KEY).response(request, HTTPStatus.UNAUTHORIZED)
        return authenticator.log_in(_to_front(request), is_https=request.url.scheme == "https")

    async def log_out(request: Request) -> Response:
        authenticator.log_out(request.headers.get("cookie", ""))
        response = JSONResponse({})
        response.delete_cookie(authenticator.cookie, httponly=True, samesite="lax")
        return response

    return [
        Route(LOGIN, show_form, methods=["GET"]),
        Route(LOGIN, submit, methods=["POST"]),
        Route("/logout", log_out, methods=["POST"]),
    ]


def _key_of(body: bytes) -> str:
    """Read the key from the submitted form; "" if there is none."""
    try:
        fields = parse_qs(body.decode("utf-8", "replace"), max_num_fields=_MAX_FIELDS)
    except ValueError:  # too many fields
        return ""
    return fields.get("key", [""])[0].strip()


def _with_problem(form: StaticFile, sentence: str) -> StaticFile:
    problem = _PROBLEM % html.escape(sentence).encode()
    return replace(form, data=form.data.replace(_NO_PROBLEM, problem, 1))


def _to_front(request: Request) -> Response:
    return RedirectResponse(with_blog(FRONT, request.query_params), HTTPStatus.SEE_OTHER)


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).digest()


def _network(client: str) -> str:
    """The client's address, for IPv6 its /64 network, since one machine may use all of it."""
    try:
        address = ipaddress.ip_address(client)
    except ValueError:
        return client
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is None:
        return str(ipaddress.IPv6Network((int(address) >> 64 << 64, 64)))
    return str(address)
