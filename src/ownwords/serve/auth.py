"""Who may come in: whoever brings the key, or the cookie that the key was once exchanged for."""

import hashlib
import hmac
import ipaddress
import math
import secrets
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from typing import Final

from ownwords.serve.errors import ApiError

SESSION_S: Final = 30 * 24 * 3600
_MOST_SESSIONS = 256
# From one place so many wrong keys in a minute; then it waits, however right the next one is.
_WRONG, _WITHIN_S = 10, 60.0
_MOST_PLACES = 4096


class Authenticator:
    """The key, the sessions it opened, and who tried in vain. Without a key everybody may."""

    def __init__(
        self, key: str, *, port: int = 0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.is_needed = bool(key)
        # Cookies know no ports: two servers on one machine would take each other's away.
        self.cookie = f"ownwords-{port}"
        self._key = _digest(key)
        self._clock = clock
        self._sessions: OrderedDict[bytes, float] = OrderedDict()
        self._wrong: OrderedDict[str, deque[float]] = OrderedDict()

    def admits(self, authorization: str, cookies: str, client: str) -> bool:
        """Whether these headers let their sender in. Refused for who tried too often."""
        if not self.is_needed:
            return True
        if (token := self._token(cookies)) and self._knows(token):
            return True
        kind, _, key = authorization.partition(" ")
        return kind.lower() == "bearer" and self.fits(key.strip(), client)

    def fits(self, key: str, client: str) -> bool:
        """Whether it is the key. Refused for who tried too often."""
        place, now = _place(client), self._clock()
        tries = self._wrong.get(place, deque())
        while tries and now - tries[0] > _WITHIN_S:
            tries.popleft()
        if len(tries) >= _WRONG:
            wait = math.ceil(_WITHIN_S - (now - tries[0]))
            raise ApiError(
                HTTPStatus.TOO_MANY_REQUESTS,
                "too many wrong keys came from there",
                hint=f"wait {wait} s",
                retry_after_s=wait,
            )
        if hmac.compare_digest(_digest(key), self._key):
            return True
        tries.append(now)
        self._wrong[place] = tries
        self._wrong.move_to_end(place)
        if len(self._wrong) > _MOST_PLACES:
            self._wrong.popitem(last=False)
        return False

    def begin(self) -> str:
        """A new session; what its cookie holds."""
        token = secrets.token_urlsafe(32)
        self._sessions[_digest(token)] = self._clock() + SESSION_S
        if len(self._sessions) > _MOST_SESSIONS:
            self._sessions.popitem(last=False)
        return token

    def end(self, cookies: str) -> None:
        """Forget the session of these cookies."""
        self._sessions.pop(_digest(self._token(cookies)), None)

    def _knows(self, token: str) -> bool:
        # Looked up by its digest, so that the time it takes says nothing about the token.
        digest = _digest(token)
        until = self._sessions.get(digest)
        if until is not None and self._clock() > until:
            del self._sessions[digest]
            return False
        return until is not None

    def _token(self, cookies: str) -> str:
        try:
            found = SimpleCookie(cookies).get(self.cookie)
        except CookieError:
            return ""
        return found.value if found else ""


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).digest()


def _place(client: str) -> str:
    """Where somebody comes from: of IPv6 the network, as anybody has many addresses there."""
    try:
        address = ipaddress.ip_address(client)
    except ValueError:
        return client
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is None:
        return str(ipaddress.IPv6Network((int(address) >> 64 << 64, 64)))
    return str(address)
