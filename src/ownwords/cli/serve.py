"""`ownwords serve`."""

import logging
import socket
import sys
import webbrowser
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from ownwords.cli.desktop import has_desktop
from ownwords.cli.parameters import Device
from ownwords.cli.sampling_options import Threads, Weights
from ownwords.core.errors import ConfigError, OwnwordsError
from ownwords.serve.settings import HOST, MIN_KEY_LENGTH, PORT, ServeSettings

if TYPE_CHECKING:
    from ownwords.core.workspace import Workspace

_ALL_ADDRESSES = ("0.0.0.0", "::")  # noqa: S104 - compared with, not bound to


def serve(
    *path: Annotated[
        Path,
        Parameter(
            name="PATH",
            help="A workspace, or the blog that one is made from. [default: the only NAME.ownwords"
            " here]",
        ),
    ],
    workspace: Annotated[
        Path | None,
        Parameter(help="The workspace, if PATH is a blog. [default: named after PATH]"),
    ] = None,
    host: Annotated[
        str, Parameter(help="Listen at this address; 0.0.0.0 also serves other machines.")
    ] = HOST,
    port: Annotated[
        int | None, Parameter(help=f"Listen at this port. [default: {PORT}, or the next free one]")
    ] = None,
    key: Annotated[
        str,
        Parameter(
            show_default=False,
            help=f"The key that the page and the API ask for, of {MIN_KEY_LENGTH} characters or"
            " more. [default: one of this account, which is printed]",
        ),
    ] = "",
    key_file: Annotated[
        Path | None,
        Parameter(help="Read the key from a file: other users can see a command's arguments."),
    ] = None,
    no_key: Annotated[
        bool,
        Parameter(
            name="--no-key",
            negative=(),
            show_default=False,
            help="Ask for no key: every account on this machine can then read your posts."
            " [default: ask]",
        ),
    ] = False,
    name: Annotated[
        tuple[str, ...],
        Parameter(
            negative=(),
            show_default=False,
            help="Another host name that leads here, such as a proxy's; may be repeated."
            " [default: none]",
        ),
    ] = (),
    model: Annotated[
        tuple[str, ...],
        Parameter(
            negative=(),
            show_default=False,
            help="Also serve this model: its folder, or the name of a base; may be repeated."
            " [default: the workspace's model and its base]",
        ),
    ] = (),
    embed: Annotated[
        str,
        Parameter(
            show_default=False,
            help="The model that searches by meaning: minilm, multilingual or hf:ORG/NAME"
            " (downloaded once), a folder of sentence-transformers, an endpoint's address, or none."
            " [default: minilm if it is installed]",
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
    """Serve the page, and an API like OpenAI's, until Ctrl-C."""
    from ownwords.base import catalogue
    from ownwords.core.resolve import resolve_served
    from ownwords.serve import http_server
    from ownwords.serve.running_servers import announced, user_key

    place, sources = resolve_served(path, workspace, Path.cwd())
    models = catalogue.find_models(model)
    given_key = _read_key(key, key_file, no_key)
    settings = ServeSettings(
        host=host,
        port=PORT if port is None else port,
        key="" if no_key else given_key or user_key(),
        names=name,
        embed=embed,
        weights=weights,
        device=device,
        threads=threads,
    )
    tries = 1 if port is not None else http_server.PORTS_TRIED
    with closing(http_server.bind(settings, tries)) as listener:
        from ownwords.serve.app import create_app
        from ownwords.serve.app_state import AppState

        wanted_port = settings.port
        settings = replace(settings, port=listener.getsockname()[1])
        address = _address(settings)
        if wanted_port not in (0, settings.port):
            print(f"Port {wanted_port} is in use; using the next free one.")
        link = address if no_key or given_key else f"{address}?key={settings.key}"
        _print_summary(place, settings, address, link, shows_key=not (no_key or given_key))
        logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
        logging.getLogger("uvicorn").setLevel(logging.CRITICAL)  # we report errors ourselves
        if open and not open_browser(link):
            print("there is no desktop here to open a browser on", file=sys.stderr)
        state = AppState(place, settings, sources=sources, models=models)
        try:
            with announced(place, settings.port, address, settings.key):
                http_server.serve(create_app(state), state, [listener])
        except KeyboardInterrupt:  # the way to end it
            print("stopped", file=sys.stderr)


def _read_key(key: str, file: Path | None, no_key: bool) -> str:
    if sum([bool(key), file is not None, no_key]) > 1:
        raise ConfigError(
            "--key, --key-file and --no-key exclude each other", hint="give one of them"
        )
    if file is None:
        return key
    try:
        text = file.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise OwnwordsError(f"{file} cannot be read: {error}") from error
    if not text:
        raise ConfigError(f"{file} is empty", hint="put the key into it")
    return text


def _address(settings: ServeSettings) -> str:
    """The page's address for a browser."""
    host = socket.gethostname() if settings.host in _ALL_ADDRESSES else settings.host
    return f"http://{f'[{host}]' if ':' in host else host}:{settings.port}/"


def _print_summary(
    place: "Workspace", settings: ServeSettings, address: str, link: str, *, shows_key: bool
) -> None:
    print(f"Page: {link}")
    print(f"API: {address}v1 (as OpenAI's)")
    if shows_key:
        print(f"Key: {settings.key}")
    print(f"Workspace: {place.root}")
    if not settings.key:
        print("No key: every account on this machine can read your posts.")
    if not settings.is_loopback:
        print(
            "Other machines can reach it, and nothing is encrypted: beyond your own network, put"
            " a proxy with HTTPS in front of it."
        )
    print("Ctrl-C stops it.", flush=True)


def open_browser(link: str) -> bool:
    """Open a link in the browser; False where that is not possible."""
    try:
        return has_desktop() and webbrowser.open(link)
    except (OSError, webbrowser.Error):
        return False
