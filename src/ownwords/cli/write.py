"""`ownwords write` and `chat`."""

import secrets
import shutil
import sys
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from ownwords.cli.options import (
    OUTPUT,
    Device,
    OutputOptions,
    WorkspaceOption,
    check_positive,
    text_of,
    with_help,
)
from ownwords.cli.output import StreamingWordWrap, are_terminals, input_line, print_json
from ownwords.cli.progress_view import ProgressView
from ownwords.core.errors import OwnwordsError
from ownwords.core.progress import Progress
from ownwords.core.workspace import resolve_model
from ownwords.inference.engine import WeightFormat
from ownwords.inference.model import Model
from ownwords.inference.text_generation import DEFAULT_SAMPLING
from ownwords.models.gguf.reading import model_directory

_MAX_TEMPERATURE = 5
_MAX_WIDTH = 92  # columns that are easy to read
HELP = """\
Type the beginning of a text; the model continues it. An empty line starts a new text.
/again            continue the same beginning once more, with another seed
/temperature 0.5  safer; 1.2 is bolder
/quit             end, as Ctrl-D does; Ctrl-C ends the current text"""

Weights = Annotated[
    WeightFormat,
    Parameter(help="Convert the weights while loading; int8 is smaller and faster."),
]
MaxTokens = Annotated[int, Parameter(help="Stop each text after this many tokens.")]
Threads = Annotated[int | None, Parameter(help="Use this many threads. [default: one per core]")]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
@with_help
class ModelOptions:
    """The model, where it runs, and the seed of what it writes.

    Args:
        model: A model directory, or a workspace with a model. [default: the only NAME.ownwords
            here]
        seed: The same seed gives the same text. [default: random]
    """

    model: Path | None = None
    workspace: WorkspaceOption = None
    seed: int | None = None
    device: Device = "auto"

    @property
    def first_seed(self) -> int:
        return secrets.randbelow(1 << 31) if self.seed is None else self.seed

    @property
    def directory(self) -> Path:
        """The model directory: the one given, that of the workspace, or the only one here."""
        return resolve_model_directory(self.model or self.workspace)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
@with_help
class WritingOptions(ModelOptions):
    """The model and how it writes.

    Args:
        temperature: Lower is safer, higher is bolder; 0 always takes the most likely token.
        quote: Allow long passages copied word for word from the training texts.
    """

    temperature: float = DEFAULT_SAMPLING.temperature
    quote: bool = False


MODEL, WRITING = ModelOptions(), WritingOptions()


def resolve_model_directory(given: Path | None) -> Path:
    """Return the model directory of a path, of a GGUF file, or of the only workspace here."""
    path = resolve_model(given, Path.cwd())
    with closing(ProgressView()) as view:
        return model_directory(path, Progress(view))


@with_help
def write(
    *prompt: Annotated[str, Parameter(name="PROMPT", allow_leading_hyphen=True)],
    max_tokens: MaxTokens = 400,
    options: WritingOptions = WRITING,
    stop: tuple[str, ...] = (),
    samples: int = 1,
    weights: Weights = "stored",
    threads: Threads = None,
    output: OutputOptions = OUTPUT,
) -> None:
    """Continue the prompt, and show the text as it is written.

    Args:
        prompt: The beginning of the text; - reads it from standard input. [default: none]
        stop: Stop before this text; may be repeated. [default: none]
        samples: Write this many texts at once; they are shown when all are done.
    """
    check_positive("--max-tokens", max_tokens)
    check_positive("--samples", samples)
    check_positive("--threads", threads)
    beginning = text_of(prompt, "ownwords write")
    folder = options.directory
    model = Model.load(folder, device=options.device, weights=weights, threads=threads)
    is_guarded = model.guard is not None and not options.quote
    first = options.first_seed
    seeds = range(first, first + samples)
    how: Any = {
        "max_tokens": max_tokens,
        "stops": stop,
        "quote": options.quote,
        "temperature": options.temperature,
    }
    texts: Iterable[Iterable[str]]  # each as its pieces
    if samples > 1:
        texts = [[text] for text in model.write_several(beginning, seeds=seeds, **how)]
    else:
        texts = [model.write(beginning, seed=first, **how)]
    if output.json:
        figures = {
            "model": str(folder),
            "engine": model.engine.name,
            "copy_guard": is_guarded,
            "prompt": beginning,
            "texts": [
                {"seed": seed, "text": "".join(pieces)}
                for seed, pieces in zip(seeds, texts, strict=True)
            ],
        }
        print_json(figures)
        return
    for seed, pieces in zip(seeds, texts, strict=True):
        if samples > 1:
            show_pieces([f"--- seed {seed}"])
        show_pieces(chain([beginning], pieces))
    if sys.stderr.isatty() and not output.quiet:
        guard = ", copy guard" if is_guarded else ""
        print(f"seed {first}, {model.engine.name}{guard}", file=sys.stderr)


def show_pieces(pieces: Iterable[str], *, has_whole_words: bool = False) -> None:
    """Print the text as it comes: in lines of words on a terminal, unchanged elsewhere."""
    if sys.stdout.isatty():
        width = min(shutil.get_terminal_size().columns, _MAX_WIDTH)
        wrap = StreamingWordWrap(sys.stdout, width=width, has_whole_words=has_whole_words)
        wrap.write(pieces)
        return
    last = ""
    try:
        for piece in pieces:
            sys.stdout.write(piece)
            sys.stdout.flush()
            last = piece or last
    finally:
        if not last.endswith("\n"):
            print(flush=True)


# --- line by line ---------------------------------------------------------------------------------


def chat(
    *,
    max_tokens: MaxTokens = 200,
    options: WritingOptions = WRITING,
    output: OutputOptions = OUTPUT,
) -> None:
    """Continue each line you type; as JSON, an object per text."""
    check_positive("--max-tokens", max_tokens)
    model = Model.load(options.directory, device=options.device)
    next_line = _piped_line
    if are_terminals(sys.stdin, sys.stdout):
        next_line = partial(input_line, "> ")
        if not output.quiet:
            _say(HELP)
    talk(model, next_line, max_tokens, options, output)


def talk(
    model: Model,
    next_line: Callable[[], str],
    max_tokens: int,
    options: WritingOptions,
    output: OutputOptions = OUTPUT,
) -> None:
    """Continue lines until they end, or until /quit."""
    beginning, temperature, seed = "", options.temperature, options.first_seed
    while True:
        try:
            line = next_line()
        except (EOFError, KeyboardInterrupt):
            print(file=sys.stderr)
            return
        name, _, value = line.strip().partition(" ")
        if name == "/quit":
            return
        if name == "/temperature":
            with suppress(ValueError):
                if 0 <= float(value) <= _MAX_TEMPERATURE:
                    temperature = float(value)
            _say(f"the temperature is {temperature:g}; it may be from 0 to {_MAX_TEMPERATURE}")
            continue
        if line.startswith("/") and name != "/again":
            _say(HELP)
            continue
        beginning = beginning if name == "/again" else line
        how: Any = {"max_tokens": max_tokens, "seed": seed, "temperature": temperature}
        try:
            pieces = model.write(beginning, quote=options.quote, **how)
            if output.json:
                print_json({"prompt": beginning, "seed": seed, "text": "".join(pieces)})
            else:
                show_pieces(chain([beginning], pieces))
        except KeyboardInterrupt:  # ends this text, not the session
            _say("(ended)")
        except OwnwordsError as error:  # such as a damaged model
            _say(str(error))
        if sys.stderr.isatty() and not output.quiet:
            _say(f"seed {seed}, temperature {temperature:g}")
        seed += 1


def _say(text: str) -> None:
    print(text, file=sys.stderr)


def _piped_line() -> str:
    line = sys.stdin.readline() if sys.stdin is not None else ""  # closed by the parent process
    if not line:
        raise EOFError
    return line.rstrip("\r\n")
