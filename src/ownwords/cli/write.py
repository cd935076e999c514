"""`ownwords write`."""

import re
import secrets
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from ownwords.cli.sampling_options import (
    Device,
    ModelFolder,
    Quote,
    RoundedTo,
    Temperature,
    Threads,
)
from ownwords.core.errors import ConfigError, OwnwordsError
from ownwords.inference.model import Model
from ownwords.inference.text_generation import DEFAULT_SAMPLING
from ownwords.inference.whereabouts import model_folder

_STDIN = "-"
_SEEDS = 1 << 31
_LIKE_AN_OPTION = re.compile(r"--?[A-Za-z][\w-]*(=.*)?", re.DOTALL)
# What a terminal would obey rather than show; not the tab and the end of a line.
_OBEYED = dict.fromkeys([*range(9), *range(11, 32), *range(127, 160)], "?")


def write(
    *prompt: Annotated[
        str,
        Parameter(
            name="PROMPT",
            allow_leading_hyphen=True,  # a text may begin with a dash, and - is one
            help="How the text begins; - reads it from standard input. [default: a new text]",
        ),
    ],
    model: ModelFolder = None,
    tokens: Annotated[int, Parameter(help="Write at most so many.")] = 400,
    temperature: Temperature = DEFAULT_SAMPLING.temperature,
    top_p: Annotated[
        float, Parameter(help="Choose among the likeliest that are together so probable; 1: all.")
    ] = DEFAULT_SAMPLING.top_p,
    min_p: Annotated[
        float, Parameter(help="Leave out what has less than this share of the likeliest's chance.")
    ] = DEFAULT_SAMPLING.min_p,
    top_k: Annotated[int, Parameter(help="Choose among so many of the likeliest; 0: all.")] = (
        DEFAULT_SAMPLING.top_k
    ),
    repetition_penalty: Annotated[
        float, Parameter(help="Make tokens that are there already less likely; 1: do not.")
    ] = DEFAULT_SAMPLING.repetition_penalty,
    seed: Annotated[
        int | None,
        Parameter(help="The same seed writes the same text. [default: another each time]"),
    ] = None,
    stop: Annotated[
        tuple[str, ...],
        Parameter(
            negative=(),
            show_default=False,
            help="End before this text; may be given again. [default: none]",
        ),
    ] = (),
    samples: Annotated[
        int, Parameter(help="Write so many texts, all together: each is shown when all are done.")
    ] = 1,
    weights: RoundedTo = "stored",
    device: Device = "auto",
    threads: Threads = None,
    quote: Quote = False,
    json: Annotated[
        bool,
        Parameter(
            negative=(),
            show_default=False,
            help="The texts as one JSON object on stdout. [default: no]",
        ),
    ] = False,
    quiet: Annotated[
        bool,
        Parameter(
            negative=(),
            show_default=False,
            help="Do not tell the seed and the engine in the end. [default: no]",
        ),
    ] = False,
) -> None:
    """Write on from the prompt; the text is shown as it comes."""
    for name, value in (("--tokens", tokens), ("--samples", samples), ("--threads", threads)):
        if value is not None and value < 1:
            raise ConfigError(f"{name} should be 1 or more, and is {value}")
    chosen = replace(
        DEFAULT_SAMPLING,
        temperature=temperature,
        top_p=top_p,
        min_p=min_p,
        top_k=top_k,
        repetition_penalty=repetition_penalty,
    )
    beginning = _given(prompt)
    folder = model_folder(model, Path.cwd())
    loaded = Model.load(folder, device=device, weights=weights, threads=threads)
    is_guarded = loaded.guard is not None and not quote
    first = secrets.randbelow(_SEEDS) if seed is None else seed
    seeds = range(first, first + samples)
    texts: Iterable[Iterable[str]]  # of each the pieces
    how: Any = {"tokens": tokens, "stops": stop, "quote": quote, **vars(chosen)}
    if samples > 1:
        texts = [[text] for text in loaded.write_several(beginning, seeds=seeds, **how)]
    else:
        texts = [loaded.write(beginning, seed=first, **how)]
    if json:
        from ownwords.cli.output import print_json

        figures = {
            "model": str(folder),
            "engine": loaded.engine.name,
            "copy_guard": is_guarded,
            "prompt": beginning,
            "texts": [
                {"seed": its, "text": "".join(parts)}
                for its, parts in zip(seeds, texts, strict=True)
            ],
        }
        print_json(figures)
        return
    for its, parts in zip(seeds, texts, strict=True):
        if samples > 1:
            _show([f"--- seed {its}"])
        _show(chain([beginning], parts))
    if sys.stderr.isatty() and not quiet:
        said = f"seed {first}, {loaded.engine.name}" + (", copy guard" if is_guarded else "")
        print(said, file=sys.stderr)


def _show(pieces: Iterable[str]) -> None:
    """A text as it comes, and the end of a line after it, also where it is broken off."""
    on_terminal, last = sys.stdout.isatty(), ""
    try:
        for piece in pieces:
            sys.stdout.write(piece.translate(_OBEYED) if on_terminal else piece)
            sys.stdout.flush()
            last = piece or last
    finally:
        if not last.endswith("\n"):
            print(flush=True)


def _given(prompt: Sequence[str]) -> str:
    if misspelt := next(filter(_LIKE_AN_OPTION.fullmatch, prompt), None):
        raise ConfigError(f"unknown option: {misspelt}", hint="ownwords write --help")
    if list(prompt) != [_STDIN]:
        return " ".join(prompt)
    if sys.stdin is None:  # as where whoever started this closed it
        raise OwnwordsError("there is no standard input to read", hint="give the text itself")
    try:
        return sys.stdin.buffer.read().decode("utf-8").rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise OwnwordsError(
            f"what came on standard input is not UTF-8: {error.reason} at byte {error.start}",
            hint="convert it: iconv -f WINDOWS-1252 -t UTF-8 FILE",
        ) from error
