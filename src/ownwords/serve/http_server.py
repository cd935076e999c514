"""The HTTP server: its socket, its connections, and its shutdown."""

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
_GRACE_S = 0.2  # for streams to send their final event
_UNREAD_S = 1  # wait at shutdown for responses that nobody reads
_BACKLOG = 256
_CONNECTIONS_PER_REQUEST = 2  # browsers keep idle connections open


def bind(settings: ServeSettings, tries: int = 1) -> socket.socket:
    """Create a listening socket at the configured port, or the next free one of `tries` ports.

    Raises OwnwordsError if none is free, or if the host is not an address of this machine.
    """
    family, address = _address(settings.host)
    last = min(65535, settings.port + tries - 1)
    for port in range(settings.port, last + 1):
        listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            if sys.platform == "win32":  # here SO_REUSEADDR would share a port that is in use
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_EXCLUSIVEADDRUSE, 1)
            else:
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((address, port))
            listener.listen(_BACKLOG)
        except OSError as error:
            listener.close()
            if port == last or error.errno not in (errno.EADDRINUSE, errno.EACCES):
                raise _bind_error(error, settings, port) from error
        else:
            listener.setblocking(False)
            return listener
    raise AssertionError("the last port is either free or refused")


def serve(app: "Starlette", state: "AppState", sockets: Sequence[socket.socket]) -> None:
    """Serve until stopped, then close all streams; if by Ctrl-C, raise KeyboardInterrupt."""
    http_server(app, state).run(list(sockets))


def http_server(app: "Starlette", state: "AppState") -> "HttpServer":
    """Create a server for the app with the limits of the settings."""
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
        limit_concurrency=settings.requests * _CONNECTIONS_PER_REQUEST,
        timeout_keep_alive=settings.idle_s,
        timeout_graceful_shutdown=_UNREAD_S,
        h11_max_incomplete_event_size=settings.header_bytes,
    )
    return HttpServer(config, state)


class HttpServer(uvicorn.Server):
    """A uvicorn server that shuts down at once: streams get a moment to end, then are cancelled."""

    def __init__(self, config: uvicorn.Config, state: "AppState") -> None:
        super().__init__(config)
        self._state = state
        state.stop_server = self._stop

    def _stop(self) -> None:
        self.should_exit = True

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
    """A connection that aborts if a request's head arrives too slowly or a response is not read."""

    header_s = 10.0
    stalled_s = 60.0
    _head_timer: asyncio.TimerHandle | None = None
    _stall_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._await_head()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._head_timer = _cancel(self._head_timer)
        elif not self.transport.is_closing():
            self._await_head()

    def pause_writing(self) -> None:
        super().pause_writing()
        _cancel(self._stall_timer)
        self._stall_timer = self.loop.call_later(self.stalled_s, self.transport.abort)

    def resume_writing(self) -> None:
        self._stall_timer = _cancel(self._stall_timer)
        super().resume_writing()

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        if self._stall_timer is None:  # close() would wait for unsent data that may never be read
            self._stall_timer = self.loop.call_later(self.stalled_s, self.transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_timer = _cancel(self._head_timer)
        self._stall_timer = _cancel(self._stall_timer)
        super().connection_lost(exc)

    def _await_head(self) -> None:
        """Start one timer per head at its first byte, so later bytes do not extend the time."""
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(self.header_s, self.transport.abort)


def _cancel(timer: asyncio.TimerHandle | None) -> asyncio.TimerHandle | None:
    if timer is not None:
        timer.cancel()
    return None


def _address(host: str) -> tuple[socket.AddressFamily, str]:
    if host == "localhost":  # IPv4: every program tries this address of localhost
        return socket.AF_INET, "127.0.0.1"
    with suppress(ValueError):
        is_ipv6 = ipaddress.ip_address(host).version == 6
        return (socket.AF_INET6 if is_ipv6 else socket.AF_INET), host
    try:
        found = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise OwnwordsError(
            f"there is no host called {host}", hint="give an address of this machine to --host"
        ) from error
    family, _, _, _, address = found[0]
    return family, str(address[0])


def _bind_error(error: OSError, settings: ServeSettings, port: int) -> Exception:
    """Convert a socket error into an OwnwordsError with a sentence, where there is one."""
    if error.errno == errno.EADDRINUSE:
        ports = f"port {port} is" if port == settings.port else f"ports {settings.port}-{port} are"
        return OwnwordsError(
            f"{ports} in use by another program",
            hint="give another port to --port, or 0 for any free one",
        )
    if error.errno == errno.EACCES:
        return OwnwordsError(
            f"you may not listen at port {port}", hint="give a port above 1023 to --port"
        )
    if error.errno == errno.EADDRNOTAVAIL:
        return OwnwordsError(
            f"{settings.host} is not an address of this machine", hint="give another to --host"
        )
    return error
