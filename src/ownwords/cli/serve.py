"""`ownwords serve`, and the page that `ownwords` without a verb opens."""

import logging
import os
import signal
import sys
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from ownwords.cli.options import OUTPUT, Device, OutputOptions, with_help
from ownwords.cli.output import open_browser, print_json
from ownwords.cli.write import Threads, Weights
from ownwords.core.errors import ConfigError, OwnwordsError
from ownwords.core.workspace import SUFFIX, Workspace
from ownwords.serve.settings import (
    HOST,
    MIN_KEY_LENGTH,
    PORT,
    RunningServer,
    ServeSettings,
    announced,
    running_servers,
    user_key,
)
from ownwords.serve.workspace_list import WorkspaceList

_NEW = f"my-blog{SUFFIX}"


@with_help
def serve(
    *path: Annotated[Path, Parameter(name="PATH")],
    workspace: Path | None = None,
    host: str = HOST,
    port: Annotated[
        int | None, Parameter(help=f"Listen at this port. [default: {PORT}, or the next free one]")
    ] = None,
    key: Annotated[
        str,
        Parameter(
            help=f"The key that the page and the API require, of {MIN_KEY_LENGTH} characters or"
            " more. [default: the key of this account, which is printed]"
        ),
    ] = "",
    key_file: Path | None = None,
    no_key: Annotated[
        bool,
        Parameter(
            help="Require no key: every account on this machine can then read your posts."
            " [default: a key is required]",
            name="--no-key",
            show_default=False,
        ),
    ] = False,
    name: tuple[str, ...] = (),
    model: tuple[str, ...] = (),
    embed: str = "",
    weights: Weights = "stored",
    device: Device = "auto",
    threads: Threads = None,
    open: bool = False,
    output: OutputOptions = OUTPUT,
) -> None:
    """Serve the page, and an API like OpenAI's, until Ctrl-C.

    Args:
        path: A workspace, or a blog to make one from. [default: the only NAME.ownwords here]
        workspace: The workspace, if PATH is a blog. [default: named after PATH]
        host: Listen at this address; 0.0.0.0 also serves other machines.
        key_file: Read the key from a file: other users can see a command's arguments.
        name: Another host name of this server, such as a proxy's; may be repeated. [default: none]
        model: Also serve this model: its folder, or the name of a base; may be repeated. [default:
            the workspace's model and its base]
        embed: The model that searches by meaning: minilm or multilingual (downloaded once), or
            none. [default: minilm if it is installed]
        open: Open the page in a browser.
    """
    from ownwords.archive.ingest import workspace_for
    from ownwords.base import catalogue
    from ownwords.core.workspace import resolve_served
    from ownwords.serve import http_server

    place, sources = resolve_served(path, workspace, Path.cwd(), workspace_for)
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

        wanted_port, notes = settings.port, sys.stderr if output.json else sys.stdout
        settings = replace(settings, port=listener.getsockname()[1])
        address = settings.address
        if wanted_port not in (0, settings.port):
            print(f"Port {wanted_port} is in use; using the next free one.", file=notes)
        link = address if no_key or given_key else f"{address}?key={settings.key}"
        _print_summary(place, settings, link, output, shows_key=not (no_key or given_key))
        logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
        logging.getLogger("uvicorn").setLevel(logging.CRITICAL)  # errors are reported here
        if open and not open_browser(link):
            print("no browser was opened, because there is no desktop here", file=sys.stderr)
        state = AppState(place, settings, sources=sources, models=models)
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends it as Ctrl-C does
        try:
            with announced(place, settings.port, address, settings.key):
                http_server.HttpServer(create_app(state), state).run([listener])
        except KeyboardInterrupt:
            print("stopped", file=sys.stderr)


def _read_key(key: str, file: Path | None, no_key: bool) -> str:
    if sum([bool(key), file is not None, no_key]) > 1:
        raise ConfigError(
            "--key, --key-file and --no-key cannot be combined", hint="give one of them"
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


def _print_summary(
    place: Workspace, settings: ServeSettings, link: str, output: OutputOptions, *, shows_key: bool
) -> None:
    figures = {"page": link, "api": f"{settings.address}v1"}
    figures |= {"key": settings.key} if shows_key else {}
    figures |= {"workspace": str(place.root)}
    if output.json:
        print_json(figures)
        sys.stdout.flush()
    if output.json or output.quiet:
        return
    for name, value in figures.items():
        print(f"{'API' if name == 'api' else name.capitalize()}: {value}")
    if not settings.key:
        print("No key: every account on this machine can read your posts.")
    if not settings.is_loopback:
        print(
            "Other machines can reach the page, and nothing is encrypted: outside your own"
            " network, put a proxy with HTTPS in front of it."
        )
    print("Ctrl-C stops the server.", flush=True)


# --- `ownwords` without a verb, on a desktop ------------------------------------------------------


def open_page() -> None:
    """Open the page of a running server, or serve until Ctrl-C and open that page."""
    here = Path.cwd()
    workspace = workspace_to_open(here)
    if server := server_to_open(here, workspace):
        print(f"ownwords is running already. Page: {server.link}")
        open_browser(server.link)
        return
    try:
        serve(workspace=workspace, open=True)
    finally:
        if workspace.is_dir():  # the page may have created it
            with suppress(OwnwordsError):  # such as no home folder
                WorkspaceList(Workspace(workspace)).remember(Workspace(workspace))


def server_to_open(here: Path, workspace: Path) -> RunningServer | None:
    """Return the server of this workspace, or any server if the workspace is not in this folder."""
    running = running_servers()
    same = [server for server in running if server.workspace == str(workspace.absolute())]
    is_here = workspace.is_dir() and here.absolute() in (workspace, workspace.parent)
    return next(iter(same or ([] if is_here else running)), None)


def workspace_to_open(here: Path) -> Path:
    """Return the workspace that is this folder or in it, the last opened one, or a new one."""
    if here.name.endswith(SUFFIX):
        return here
    inside = sorted(path for path in here.glob(f"*{SUFFIX}") if path.is_dir())
    if len(inside) == 1:
        return inside[0]
    last = WorkspaceList(Workspace(here / _NEW)).last_opened()
    if last is not None:
        return last
    if inside:
        return max(inside, key=lambda path: path.stat().st_mtime)
    return (here if os.access(here, os.W_OK) else Path.home()) / _NEW
