"""By which names the server may be called, so that no foreign page speaks with it.

A page whose name was made to lead to this machine (DNS rebinding) would pass for one of ours, if
it were not for the name that the browser sends.
"""

import ipaddress
import re
import socket
from collections.abc import Iterable

from ownwords.serve.settings import ServeSettings

_LOOPBACK = "localhost"
_HOST = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^\[\]:/?#@\s]+)(?::\d{1,5})?")
# Hosts that stand for all addresses of the machine.
_ALL = ("0.0.0.0", "::", "")  # noqa: S104 - compared with, not bound to


class AllowedHosts:
    """The names and addresses a server listens by."""

    def __init__(self, settings: ServeSettings) -> None:
        self._names = {name.lower() for name in (*settings.names, settings.host)}
        self._takes_addresses = settings.host in _ALL
        if settings.is_loopback or self._takes_addresses:
            self._names.add(_LOOPBACK)
        if not settings.is_loopback:
            own = socket.gethostname().lower()
            self._names |= {own, own.partition(".")[0], f"{own.partition('.')[0]}.local"}
        self._is_loopback = settings.is_loopback

    def knows(self, given: Iterable[str]) -> bool:
        """Whether a request with these Host headers was meant for this server."""
        found = [_HOST.fullmatch(one) for one in given]
        if len(found) != 1 or found[0] is None:
            return False
        name = found[0][1].strip("[]").lower()
        if name in self._names:
            return True
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            return False
        # No name leads to an address that stands there itself, so there is nothing to rebind.
        return self._takes_addresses or (self._is_loopback and address.is_loopback)


def is_own(origin: str, host: str) -> bool:
    """Whether a page from that origin came from the server that is called by this host."""
    scheme, separator, place = origin.partition("://")
    return bool(separator) and scheme in ("http", "https") and place.lower() == host.lower()
