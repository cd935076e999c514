"""The server itself: its sockets, its connections, and how it ends."""

import asyncio
import errno
import ipaddress
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from ownwords.core.errors import OwnwordsError
from ownwords.serve.settings import ServeSettings

if TYPE_CHECKING:
    from starlette.applications import Starlette

    from ownwords.serve.app_state import AppState

PORTS_TRIED: Final = 20
_GRACE_S = 0.2  # in which streams say that they end
_UNREAD_S = 1  # that the end waits for answers nobody reads
_BACKLOG = 256  # connections that wait to be accepted
_CONNECTIONS_A_REQUEST = 2  # browsers keep some open in between


def bound(settings: ServeSettings, tries: int = 1) -> socket.socket:
    """A socket at the port of the settings, or the next that is free, of so many.

    OwnwordsError where there is none, or the host is not one of this machine.
    """
    family, address = _address(settings.host)
    last = min(65535, settings.port + tries - 1)
    for port in range(settings.port, last + 1):
        made = socket.socket(family, socket.SOCK_STREAM)
        try:
            if sys.platform == "win32":  # there, "reuse" would share a port that is in use
                made.setsockopt(socket.SOL_SOCKET, socket.SO_EXCLUSIVEADDRUSE, 1)
            else:
                made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.bind((address, port))
            made.listen(_BACKLOG)
        except OSError as error:
            made.close()
            _tell(error, settings, port, last)
        else:
            made.setblocking(False)
            return made
    raise AssertionError("the last port either was free or was told of")


def serve(app: "Starlette", state: "AppState", listening: Sequence[socket.socket]) -> None:
    """Answer until the process is interrupted or asked to end; all streams are then closed.

    KeyboardInterrupt where it was interrupted.
    """
    server_of(app, state).run(list(listening))


def server_of(app: "Starlette", state: "AppState") -> "HttpServer":
    """A server for the app, bounded as the house's settings say."""
    settings = state.settings
    connection = type(
        "_ServerConnection",
        (BoundedConnection,),
        {"header_s": settings.header_s, "stalled_s": settings.stalled_s},
    )
    config = uvicorn.Config(
        app,
        http=connection,
        ws="none",
        loop="asyncio",
        lifespan="on",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        backlog=_BACKLOG,
        limit_concurrency=settings.requests * _CONNECTIONS_A_REQUEST,
        timeout_keep_alive=settings.idle_s,
        timeout_graceful_shutdown=_UNREAD_S,
        h11_max_incomplete_event_size=settings.header_bytes,
    )
    return HttpServer(config, state)


class HttpServer(uvicorn.Server):
    """Ends at once: streams are told to, and what does not is broken off."""

    def __init__(self, config: uvicorn.Config, state: "AppState") -> None:
        super().__init__(config)
        self._state = state

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        await self._state.close()
        if self.server_state.tasks:
            await asyncio.wait(self.server_state.tasks, timeout=_GRACE_S)
        for task in self.server_state.tasks:
            task.cancel()
        await super().shutdown(sockets)


class BoundedConnection(H11Protocol):
    """One that does not stay open for who sends its request too slowly, or reads nothing."""

    header_s = 10.0
    stalled_s = 60.0
    _head: asyncio.TimerHandle | None = None
    _stall: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._await_head()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._head = _none_of(self._head)
        elif not self.transport.is_closing():
            self._await_head()

    def pause_writing(self) -> None:
        super().pause_writing()
        _none_of(self._stall)
        self._stall = self.loop.call_later(self.stalled_s, self.transport.abort)

    def resume_writing(self) -> None:
        self._stall = _none_of(self._stall)
        super().resume_writing()

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._abort_later()

    def connection_lost(self, exc: Exception | None) -> None:
        self._head, self._stall = _none_of(self._head), _none_of(self._stall)
        super().connection_lost(exc)

    def _await_head(self) -> None:
        """Counted from its first byte: who sends one byte at a time gains nothing."""
        if self._head is None:
            self._head = self.loop.call_later(self.header_s, self.transport.abort)

    def _abort_later(self) -> None:
        """Closing waits for what is unsent to be read, which may be for ever."""
        if self._stall is None:
            self._stall = self.loop.call_later(self.stalled_s, self.transport.abort)


def _none_of(timer: asyncio.TimerHandle | None) -> asyncio.TimerHandle | None:
    if timer is not None:
        timer.cancel()
    return None


def _address(host: str) -> tuple[socket.AddressFamily, str]:
    if host == "localhost":  # of its addresses the one that all programs try
        return socket.AF_INET, "127.0.0.1"
    with suppress(ValueError):
        is_new = ipaddress.ip_address(host).version == 6
        return (socket.AF_INET6 if is_new else socket.AF_INET), host
    try:
        found = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise OwnwordsError(
            f"there is no host called {host}", hint="give an address of this machine to --host"
        ) from error
    family, _, _, _, address = found[0]
    return family, str(address[0])


def _tell(error: OSError, settings: ServeSettings, port: int, last: int) -> None:
    """Say why a port cannot be had, unless there is another to try."""
    if error.errno in (errno.EADDRINUSE, errno.EACCES) and port < last:
        return
    if error.errno == errno.EADDRINUSE:
        ports = f"port {port} is" if last == settings.port else f"ports {settings.port}-{last} are"
        raise OwnwordsError(
            f"{ports} taken: another program listens there",
            hint="give another to --port, or 0 for any that is free",
        ) from error
    if error.errno == errno.EACCES:
        raise OwnwordsError(
            f"port {port} is not for programs of yours", hint="give one above 1023 to --port"
        ) from error
    if error.errno == errno.EADDRNOTAVAIL:
        raise OwnwordsError(
            f"{settings.host} is no address of this machine", hint="give another to --host"
        ) from error
    raise error
