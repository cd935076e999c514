"""The Host headers that the server accepts, as a protection against DNS rebinding.

In that attack another site's name resolves to this machine; only the Host header reveals it.
"""

import ipaddress
import re
import socket
from collections.abc import Sequence

from ownwords.serve.settings import ServeSettings

_HOST = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^\[\]:/?#@\s]+)(?::\d{1,5})?")
_ALL_ADDRESSES = ("0.0.0.0", "::", "")  # noqa: S104 - compared with, not bound to


class AllowedHosts:
    """The names and addresses that a Host header may have."""

    def __init__(self, settings: ServeSettings) -> None:
        self._names = {name.lower() for name in (*settings.names, settings.host)}
        self._takes_addresses = settings.host in _ALL_ADDRESSES
        self._is_loopback = settings.is_loopback
        if self._is_loopback or self._takes_addresses:
            self._names.add("localhost")
        if not self._is_loopback:
            own = socket.gethostname().lower()
            self._names |= {own, own.partition(".")[0], f"{own.partition('.')[0]}.local"}

    def allows(self, headers: Sequence[str]) -> bool:
        """Whether a request with these Host headers was meant for this server."""
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
    """Whether an Origin header names this server itself."""
    scheme, separator, origin_host = origin.partition("://")
    is_web = bool(separator) and scheme in ("http", "https")
    return is_web and origin_host.lower() == host.lower()
