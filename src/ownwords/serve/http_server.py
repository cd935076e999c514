"""The HTTP server: its socket, and its shutdown."""

import errno
import socket
from typing import TYPE_CHECKING, Final

import uvicorn

from ownwords.core.errors import OwnwordsError
from ownwords.serve.settings import ServeSettings

if TYPE_CHECKING:
    from starlette.applications import Starlette

    from ownwords.serve.app_state import AppState

PORTS_TRIED: Final = 20
_GRACE_S = 1  # for requests to end at shutdown, before uvicorn cancels them
_IDLE_S = 30  # during which a connection stays open between requests
_MAX_HEADER_BYTES = 32 << 10
_BACKLOG = 256
_MAX_CONNECTIONS = 512  # including streams and idle ones; further ones get status 503


def bind(settings: ServeSettings, tries: int = 1) -> socket.socket:
    """Create a listening socket at the configured port, or the next free one of `tries` ports.

    Raises OwnwordsError if none is free, or if the host is not an address of this machine.
    """
    is_ipv6 = ":" in settings.host
    # An IPv4 address for a name: every program tries this address of localhost.
    family = socket.AF_INET6 if is_ipv6 else socket.AF_INET
    takes_both = settings.host == "::" and socket.has_dualstack_ipv6()
    last = min(65535, settings.port + tries - 1)
    for port in range(settings.port, last + 1):
        try:
            listener = socket.create_server(
                (settings.host, port),
                family=family,
                backlog=_BACKLOG,
                dualstack_ipv6=takes_both,
            )
        except OSError as error:
            if port == last or error.errno not in (errno.EADDRINUSE, errno.EACCES):
                raise _bind_error(error, settings, port) from error
        else:
            listener.setblocking(False)
            return listener
    raise AssertionError("the last port is either free or refused")


class HttpServer(uvicorn.Server):
    """A uvicorn server that ends all streams before it waits for them.

    After Ctrl-C, `run` raises KeyboardInterrupt.
    """

    def __init__(self, app: "Starlette", state: "AppState") -> None:
        config = uvicorn.Config(
            app,
            http="h11",
            ws="none",
            loop="asyncio",
            lifespan="on",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            backlog=_BACKLOG,
            limit_concurrency=_MAX_CONNECTIONS,
            timeout_keep_alive=_IDLE_S,
            timeout_graceful_shutdown=_GRACE_S,
            h11_max_incomplete_event_size=_MAX_HEADER_BYTES,
        )
        super().__init__(config)
        self._state = state
        state.stop_server = self._stop

    def _stop(self) -> None:
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await self._state.close()
        await super().shutdown(sockets)


def _bind_error(error: OSError, settings: ServeSettings, port: int) -> OwnwordsError:
    ports = f"port {port} is" if port == settings.port else f"ports {settings.port}-{port} are"
    message, hint = {
        errno.EADDRINUSE: (
            f"{ports} in use by another program",
            "give another port to --port, or 0 for any free one",
        ),
        errno.EACCES: (f"you may not listen on port {port}", "give a port above 1023 to --port"),
    }.get(
        error.errno or 0,
        (f"{settings.host} is not an address of this machine", "give another to --host"),
    )
    return OwnwordsError(message, hint)
