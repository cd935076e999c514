"""`ownwords serve`."""

import logging
import secrets
import socket
import sys
import webbrowser
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from ownwords.cli.desktop import has_desktop
from ownwords.cli.sampling_options import Device, Threads, Weights
from ownwords.core.errors import ConfigError, OwnwordsError
from ownwords.serve.settings import HOST, PORT, SHORTEST_KEY, ServeSettings

if TYPE_CHECKING:
    from ownwords.core.workspace import Workspace

_EVERYWHERE = ("0.0.0.0", "::")  # noqa: S104 - said to be risky, where it is asked for


def serve(
    *path: Annotated[
        Path,
        Parameter(
            name="PATH",
            help="A workspace, or the blog it is made of. [default: the only NAME.ownwords here]",
        ),
    ],
    workspace: Annotated[
        Path | None, Parameter(help="The workspace, where PATH is a blog. [default: as PATH says]")
    ] = None,
    host: Annotated[
        str, Parameter(help="Listen at this address; 0.0.0.0 lets others in, who have the key.")
    ] = HOST,
    port: Annotated[
        int | None, Parameter(help=f"Listen at this port. [default: {PORT}, or the next free one]")
    ] = None,
    key: Annotated[
        str,
        Parameter(
            show_default=False,
            help=f"Ask for this key, of {SHORTEST_KEY} characters or more. [default: none on this"
            " machine; elsewhere one is made and shown]",
        ),
    ] = "",
    key_file: Annotated[
        Path | None, Parameter(help="The same, from a file: a command can be read by others.")
    ] = None,
    name: Annotated[
        tuple[str, ...],
        Parameter(
            negative=(),
            show_default=False,
            help="A further name it is called by, such as a proxy's; may be given again."
            " [default: none]",
        ),
    ] = (),
    model: Annotated[
        tuple[str, ...],
        Parameter(
            negative=(),
            show_default=False,
            help="Serve this model, too: its folder, or the name of a base; may be given again."
            " [default: the workspace's, and its base]",
        ),
    ] = (),
    embed: Annotated[
        str,
        Parameter(
            show_default=False,
            help="Search by meaning, too: minilm, a folder of sentence-transformers, or an"
            " endpoint's address. [default: by words alone]",
        ),
    ] = "",
    weights: Weights = "stored",
    device: Device = "auto",
    threads: Threads = None,
    open: Annotated[
        bool,
        Parameter(
            negative=(), show_default=False, help="Open the page in a browser. [default: no]"
        ),
    ] = False,
) -> None:
    """Serve the page, and an API as OpenAI's, until Ctrl-C."""
    from ownwords.base import catalogue
    from ownwords.core.resolve import resolve_served
    from ownwords.serve import http_server

    place, sources = resolve_served(path, workspace, Path.cwd())
    models = catalogue.find_models(model)
    key = _key(key, key_file)
    is_new_key = not key and not ServeSettings(host=host, key="-" * SHORTEST_KEY).is_loopback
    settings = ServeSettings(
        host=host,
        port=PORT if port is None else port,
        key=secrets.token_urlsafe(24) if is_new_key else key,
        names=name,
        embed=embed,
        weights=weights,
        device=device,
        threads=threads,
    )
    with closing(
        http_server.bound(settings, 1 if port is not None else http_server.PORTS_TRIED)
    ) as there:
        from ownwords.serve.app import create_app
        from ownwords.serve.app_state import AppState

        settings = replace(settings, port=there.getsockname()[1])
        address = _address(settings)
        _say(place, settings, address, is_new_key=is_new_key, wanted=PORT if port is None else port)
        logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
        logging.getLogger("uvicorn").setLevel(logging.CRITICAL)  # it tells what we tell ourselves
        if open and not _opened(address):
            print("there is no desktop here to open a browser on", file=sys.stderr)
        state = AppState(place, settings, sources=sources, models=models)
        try:
            http_server.serve(create_app(state), state, [there])
        except KeyboardInterrupt:  # the way to end it, and no mishap
            print("ended", file=sys.stderr)


def _key(given: str, file: Path | None) -> str:
    if file is None:
        return given
    if given:
        raise ConfigError("--key and --key-file cannot both be", hint="leave out one of them")
    try:
        return file.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise OwnwordsError(f"{file} cannot be read: {error}") from error


def _address(settings: ServeSettings) -> str:
    """Where the page is, as a browser takes it."""
    host = socket.gethostname() if settings.host in _EVERYWHERE else settings.host
    return f"http://{f'[{host}]' if ':' in host else host}:{settings.port}/"


def _say(
    place: "Workspace", settings: ServeSettings, address: str, *, is_new_key: bool, wanted: int
) -> None:
    if wanted not in (0, settings.port):
        print(f"Port {wanted} is taken, so it is the next free one.")
    print(f"The page is at {address}")
    print(f"The API is at {address}v1, as OpenAI's")
    if is_new_key:
        print(f"key {settings.key}")
    print(f"workspace {place.root}")
    if not settings.is_loopback:
        print(
            "Others can reach it, and nothing on the way is encrypted: beyond your own network, put"
            " a proxy with HTTPS before it."
        )
    print("Ctrl-C ends it.", flush=True)


def _opened(address: str) -> bool:
    try:
        return has_desktop() and webbrowser.open(address)
    except (OSError, webbrowser.Error):
        return False
