"""The `ownwords` command: finds the verb, and turns whatever happens into an exit status.

A verb's module is imported only when it is called, and nothing heavy before that.
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

from ownwords.core.errors import OwnwordsError
from ownwords.core.version import __version__

if TYPE_CHECKING:
    from cyclopts import App
    from rich.console import Console

# What the file system refuses for reasons outside the program; anything else is a bug.
_REFUSED = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EACCES: "permission denied",
    errno.EPERM: "permission denied",
    errno.EROFS: "the disk is read-only",
    errno.EIO: "the disk cannot be read or written",
    errno.ENAMETOOLONG: "the name is too long",
    errno.EFBIG: "the file is larger than this disk, or a limit of this account, allows",
    errno.EMFILE: "too many files are open",
    errno.ENOMEM: "there is not enough memory",
    errno.ELOOP: "it is a link that leads to itself",
}


def run() -> None:
    """Entry point of the `ownwords` script."""
    sys.exit(main(sys.argv[1:]))


def main(arguments: Sequence[str]) -> int:
    """Do what the arguments say; the exit status, one of `output.EXIT_STATUSES`."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by whoever started this
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        # A title with a letter that the terminal lacks must not end the program.
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    as_json = "--json" in arguments
    try:
        _call(arguments)
        sys.stdout.flush()
    except KeyboardInterrupt as error:
        if sys.stderr.isatty():
            print(file=sys.stderr)  # the line with ^C is not ours to write on
        # Training says what it has saved, and how to go on.
        said = str(error)
        return _told(f"interrupted: {said}" if said else "interrupted", "", as_json, status=130)
    except BrokenPipeError:
        # Python would try to write what is left, and complain, when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except OwnwordsError as error:
        return _told(error.message, error.hint, as_json)
    except OSError as error:
        if error.errno not in _REFUSED:
            return _bug(as_json)
        where = f"{error.filename}: " if error.filename else ""
        return _told(where + _REFUSED[error.errno], "", as_json)
    except Exception:
        return _bug(as_json)
    return 0


def _call(arguments: Sequence[str]) -> None:
    from cyclopts import CycloptsError

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
        from ownwords.cli import usage_errors

        verb = " ".join(["ownwords", *(error.command_chain or ())])
        raise OwnwordsError(usage_errors.sentence(error, verb), hint=f"{verb} --help") from error


def _console_for_help(arguments: Sequence[str]) -> "Console | None":
    """Where help is printed, asked for or instead of a verb; nothing else waits for rich."""
    if len(arguments) > 1 and not {"--help", "-h"}.intersection(arguments):
        return None
    from ownwords.cli.output import stdout

    return stdout()


def build() -> "App":
    """The command line, its verbs not yet imported."""
    from cyclopts import App

    app = App(
        name="ownwords",
        help="A language model of your own writing, on your own machine.",
        help_epilogue="ownwords VERB --help explains a verb and shows an example.",
        help_format="plaintext",
        usage="Usage: ownwords VERB [OPTIONS]",
        version=__version__,
        suppress_keyboard_interrupt=False,
    )
    app.command(
        "ownwords.cli.make:make",
        name="make",
        sort_key=0,
        help="The main job: read a blog, train a model of it, let it write, and score it.",
        usage="Usage: ownwords make PATH [PATH ...] [OPTIONS]",
        help_epilogue="Example: ownwords make ~/Documents/Publii/sites/my-blog --minutes 10",
    )
    app.command(
        "ownwords.cli.look:look",
        name="look",
        sort_key=1,
        help="Read a blog, and report honestly what is in it and what can be trained with it.",
        usage="Usage: ownwords look PATH [PATH ...] [OPTIONS]",
        help_epilogue="Example: ownwords look ~/Documents/Publii/sites/my-blog --drafts",
    )
    app.command(
        "ownwords.cli.pretrain:pretrain",
        name="pretrain",
        sort_key=2,
        help="Train a model from nothing on a blog, in the minutes you give it.",
        usage="Usage: ownwords pretrain PATH [PATH ...] [OPTIONS]",
        help_epilogue="Example: ownwords pretrain ~/Documents/Publii/sites/my-blog --minutes 10",
    )
    app.command(
        "ownwords.cli.finetune:finetune",
        name="finetune",
        sort_key=3,
        help="Bend a model that can write already towards the manner of a blog.",
        usage="Usage: ownwords finetune PATH [PATH ...] [--base MODEL] [OPTIONS]",
        help_epilogue="Example: ownwords finetune my-blog --base path/to/model --minutes 10",
    )
    app.command(
        "ownwords.cli.tune:tune",
        name="tune",
        sort_key=3,
        help="Search for better settings than the plan's, and say whether there are any.",
        usage="Usage: ownwords tune PATH [PATH ...] [OPTIONS]",
        help_epilogue="Example: ownwords tune ~/Documents/Publii/sites/my-blog --minutes 30",
    )
    app.command(
        "ownwords.cli.write:write",
        name="write",
        sort_key=4,
        help="Write in your voice, on from the first words you give it.",
        usage="Usage: ownwords write [PROMPT] [OPTIONS]",
        help_epilogue='Example: ownwords write "The trouble with backups" --tokens 200',
    )
    app.command(
        "ownwords.cli.chat:chat",
        name="chat",
        sort_key=4,
        help="Write with it line by line: you begin, it goes on.",
        usage="Usage: ownwords chat [OPTIONS]",
        help_epilogue="Example: ownwords chat --model my-blog.ownwords --temperature 0.7",
    )
    app.command(
        "ownwords.cli.ask:ask",
        name="ask",
        sort_key=4,
        help="Ask your posts: an answer that says where it stands, or the passages themselves.",
        usage="Usage: ownwords ask [QUESTION] [OPTIONS]",
        help_epilogue='Example: ownwords ask "What did I say about backups?"',
    )
    app.command(
        "ownwords.cli.serve:serve",
        name="serve",
        sort_key=4,
        help="One page for all of it, on this machine; and an API as OpenAI's.",
        usage="Usage: ownwords serve [PATH] [OPTIONS]",
        help_epilogue="Example: ownwords serve my-blog.ownwords --open",
    )
    app.command(
        "ownwords.cli.score:score",
        name="score",
        sort_key=4,
        help="Say honestly how good a model is, on posts it has never seen.",
        usage="Usage: ownwords score [MODEL] [OPTIONS]",
        help_epilogue="Example: ownwords score my-blog.ownwords",
    )
    app.command(
        "ownwords.cli.export:export",
        name="export",
        sort_key=5,
        help="Write a model for other tools: as a directory, as GGUF, or for Ollama.",
        usage="Usage: ownwords export MODEL --to hf|gguf|ollama [OPTIONS]",
        help_epilogue="Example: ownwords export my-blog.ownwords/model --to gguf --type q8_0",
    )
    bench = App(
        name="bench",
        sort_key=6,
        help="Measure what takes the time.",
        help_format="plaintext",
        help_epilogue="ownwords bench step --help explains it and shows an example.",
        usage="Usage: ownwords bench step [OPTIONS]",
        version_flags=(),
    )
    bench.command(
        "ownwords.cli.bench:step",
        name="step",
        help="Where the time of a training step goes, as a picture.",
        usage="Usage: ownwords bench step [MODEL] [OPTIONS]",
        help_epilogue="Example: ownwords bench step --parameters 5000000 --precision autocast",
    )
    app.command(bench)
    app.command(
        "ownwords.cli.doctor:doctor",
        name="doctor",
        sort_key=7,
        help="Say what this machine has, how fast it is, and which optional parts are missing.",
        usage="Usage: ownwords doctor [OPTIONS]",
        help_epilogue="Example: ownwords doctor --json",
    )
    app.command(
        "ownwords.cli.base:app",
        name="base",
        sort_key=8,
        help="The models that tuning may begin with: list, verify, add, remove, fetch books,"
        " pretrain.",
    )
    return app


def _told(message: str, hint: str, as_json: bool, status: int = 2) -> int:
    from ownwords.cli.output import print_error

    with suppress(OSError):  # nobody reads, or the disk that stdout goes to is full
        print_error(message, hint, as_json=as_json)
        sys.stdout.flush()
    return status


def _bug(as_json: bool) -> int:
    traceback.print_exc()
    place = f"ownwords {__version__}, Python {platform.python_version()}, {platform.system()}"
    return _told(f"this is a bug; please report it with the lines above ({place})", "", as_json, 1)
