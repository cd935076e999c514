"""The `ownwords` command: finds the verb, runs it, and returns an exit status.

A verb's module is imported only when the verb is called, and nothing heavy before.
"""

import errno
import os
import platform
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from ownwords.core.config import toml_beside
from ownwords.core.errors import OwnwordsError
from ownwords.core.version import __version__

if TYPE_CHECKING:
    from cyclopts import App, CycloptsError
    from rich.console import Console

# File system errors with a cause outside the program; any other OSError is a bug.
_DISK_ERRORS = (
    *(errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO),
    *(errno.EACCES, errno.EPERM, errno.ENAMETOOLONG, errno.ELOOP, errno.EMFILE, errno.ENOMEM),
)


def run() -> None:
    """Entry point of the `ownwords` script."""
    status = main(sys.argv[1:])
    try:
        sys.stdout.flush()
    except OSError:
        # Python would try to write the rest at exit, and print an error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(status)


def main(arguments: Sequence[str]) -> int:
    """Run the command line and return the exit status, one of `output.EXIT_STATUSES`."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the parent process
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        # A character that the terminal cannot encode must not end the program.
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    as_json = "--json" in arguments
    try:
        _call(arguments)
        sys.stdout.flush()
    except KeyboardInterrupt as error:
        if sys.stderr.isatty():
            print(file=sys.stderr)  # after ^C
        saved = str(error)  # says what the verb has saved, and how to continue
        return _report(f"interrupted: {saved}" if saved else "interrupted", "", as_json, status=130)
    except BrokenPipeError:
        return 141
    except OwnwordsError as error:
        return _report(error.message, error.hint, as_json)
    except OSError as error:
        if error.errno not in _DISK_ERRORS:
            return _bug(as_json)
        from ownwords.core.workspace import is_disk_full

        reason = "the disk is full" if is_disk_full(error) else os.strerror(error.errno).lower()
        where = f"{error.filename}: " if error.filename else ""
        return _report(where + reason, "", as_json)
    except ModuleNotFoundError as error:
        from ownwords.cli.options import missing_package

        missing = missing_package((error.name or "").partition(".")[0])
        return _report(missing.message, missing.hint, as_json) if missing else _bug(as_json)
    except Exception as error:
        if not isinstance(error, MemoryError) and type(error).__name__ != "OutOfMemoryError":
            return _bug(as_json)
        hint = "close other programs, use a smaller model, or avoid a small GPU: --device cpu"
        return _report("there is not enough memory", hint, as_json)
    return 0


def _call(arguments: Sequence[str]) -> None:
    from cyclopts import CycloptsError

    if not arguments:
        from ownwords.cli.output import has_desktop

        if has_desktop():
            from ownwords.cli.serve import open_page

            open_page()
            return
    app = build()
    try:
        app(
            arguments,
            console=_console_for_help(arguments),
            exit_on_error=False,
            print_error=False,
            result_action="return_value",
        )
    except CycloptsError as error:
        verb = " ".join(["ownwords", *(error.command_chain or ())])
        raise OwnwordsError(_usage_error(error, verb), hint=f"see {verb} --help") from error


def _console_for_help(arguments: Sequence[str]) -> "Console | None":
    """Return the console if help is printed; rich is slow to import."""
    if len(arguments) > 1 and not {"--help", "-h"}.intersection(arguments):
        return None
    from ownwords.cli.output import stdout

    return stdout()


def build() -> "App":
    """Return the command line, its verbs not yet imported."""
    from cyclopts import App, Parameter

    from ownwords.cli.output import examples, shown_default

    app = App(
        name="ownwords",
        help="A language model of your own writing, on your own machine.",
        help_epilogue="ownwords COMMAND --help explains a command, with examples. On a desktop,"
        " ownwords without a command opens the page.",
        help_format="plaintext",
        usage="Usage: ownwords COMMAND [OPTIONS]",
        version=__version__,
        suppress_keyboard_interrupt=False,
        default_parameter=Parameter(negative=(), show_default=shown_default),
    )
    verbs = toml_beside(__file__, "verbs.toml")
    for order, (name, verb) in enumerate(verbs.items()):
        argument = verb.get("argument")
        app.command(
            f"ownwords.cli.{verb.get('module', name)}:{name}",
            name=name,
            sort_key=order,
            help=verb["help"],
            usage=f"Usage: ownwords {name} [OPTIONS] {argument}" if argument else None,
            help_epilogue=examples(name, *verb["examples"]),
        )
    app.command(
        "ownwords.cli.base:app",
        name="base",
        sort_key=len(verbs),
        help="Manage the base models that training can start from.",
    )
    app.register_install_completion_command(
        help="Set up completion of commands and options in your shell."
    )
    return app


def _usage_error(error: "CycloptsError", verb: str) -> str:
    """Return the message for an error of the parser."""
    from difflib import get_close_matches

    from cyclopts import MissingArgumentError, UnusedCliTokensError

    if isinstance(error, MissingArgumentError) and error.argument:
        name = error.argument.name
        if error.argument.index is None:
            return f"{name} needs a value"
        return f"{verb} needs a {name.lstrip('-').upper()}"
    if isinstance(error, UnusedCliTokensError) and error.unused_tokens:
        word = error.unused_tokens[0]
        if close := get_close_matches(word, error.app or (), n=1):
            return f"{verb} has no {word!r}; did you mean {close[0]}?"
        return f"{verb} does not take {word!r}"
    message = str(error).replace("into float", "into a number").replace("into int", "into a number")
    return message[:1].lower() + message[1:].rstrip(".")


def _report(message: str, hint: str, as_json: bool, status: int = 2) -> int:
    from ownwords.cli.output import print_error

    with suppress(OSError):  # such as a closed pipe or a full disk
        print_error(message, hint, as_json=as_json)
        sys.stdout.flush()
    return status


def _bug(as_json: bool) -> int:
    traceback.print_exc()
    place = f"ownwords {__version__}, Python {platform.python_version()}, {platform.system()}"
    return _report(f"this is a bug: report it with the lines above ({place})", "", as_json, 1)
