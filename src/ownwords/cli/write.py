"""`ownwords write`."""

import secrets
import sys
from collections.abc import Iterable
from dataclasses import replace
from itertools import chain
from typing import Annotated, Any

from cyclopts import Parameter

from ownwords.cli.model_options import (
    NO_OPTIONS,
    MaxTokens,
    Threads,
    Weights,
    WritingOptions,
    check_positive,
    resolve_model_directory,
)
from ownwords.cli.parameters import Json, described, flag, text_of
from ownwords.inference.model import Model
from ownwords.inference.text_generation import DEFAULT_SAMPLING

_SEEDS = 1 << 31
# Control characters that a terminal would obey; tab and newline are kept.
_CONTROL = dict.fromkeys([*range(9), *range(11, 32), *range(127, 160)], "?")


def write(
    *prompt: Annotated[
        str,
        Parameter(
            name="PROMPT",
            allow_leading_hyphen=True,  # a text may begin with a dash, and - is standard input
            help="The beginning of the text; - reads it from standard input. [default: none]",
        ),
    ],
    max_tokens: MaxTokens = 400,
    options: WritingOptions = NO_OPTIONS,
    top_p: Annotated[
        float, Parameter(help="Sample from the likeliest tokens that together reach this; 1: all.")
    ] = DEFAULT_SAMPLING.top_p,
    min_p: Annotated[
        float,
        Parameter(help="Drop tokens less likely than this share of the likeliest token."),
    ] = DEFAULT_SAMPLING.min_p,
    top_k: Annotated[int, Parameter(help="Sample from this many likeliest tokens; 0: all.")] = (
        DEFAULT_SAMPLING.top_k
    ),
    repetition_penalty: Annotated[
        float, Parameter(help="Make tokens already in the text less likely; 1: off.")
    ] = DEFAULT_SAMPLING.repetition_penalty,
    stop: Annotated[
        tuple[str, ...],
        described("End before this text; may be repeated. [default: none]"),
    ] = (),
    samples: Annotated[
        int, Parameter(help="Write this many texts at once; each is shown when all are done.")
    ] = 1,
    weights: Weights = "stored",
    threads: Threads = None,
    json: Json = False,
    quiet: Annotated[bool, flag("Do not report seed and engine at the end.")] = False,
) -> None:
    """Continue the prompt, and show the text as it is written."""
    check_positive("--max-tokens", max_tokens)
    check_positive("--samples", samples)
    check_positive("--threads", threads)
    sampling = replace(
        DEFAULT_SAMPLING,
        temperature=options.temperature,
        top_p=top_p,
        min_p=min_p,
        top_k=top_k,
        repetition_penalty=repetition_penalty,
    )
    beginning = text_of(prompt, "ownwords write")
    folder = resolve_model_directory(options.model)
    model = Model.load(folder, device=options.device, weights=weights, threads=threads)
    is_guarded = model.guard is not None and not options.quote
    first = secrets.randbelow(_SEEDS) if options.seed is None else options.seed
    seeds = range(first, first + samples)
    texts: Iterable[Iterable[str]]  # each as its pieces
    how: Any = {
        "max_tokens": max_tokens,
        "stops": stop,
        "quote": options.quote,
        **vars(sampling),
    }
    if samples > 1:
        texts = [[text] for text in model.write_several(beginning, seeds=seeds, **how)]
    else:
        texts = [model.write(beginning, seed=first, **how)]
    if json:
        from ownwords.cli.output import print_json

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
            _show([f"--- seed {seed}"])
        _show(chain([beginning], pieces))
    if sys.stderr.isatty() and not quiet:
        guard = ", copy guard" if is_guarded else ""
        print(f"seed {first}, {model.engine.name}{guard}", file=sys.stderr)


def _show(pieces: Iterable[str]) -> None:
    """Print the text as it comes, then a newline, also when it is interrupted."""
    on_terminal, last = sys.stdout.isatty(), ""
    try:
        for piece in pieces:
            sys.stdout.write(piece.translate(_CONTROL) if on_terminal else piece)
            sys.stdout.flush()
            last = piece or last
    finally:
        if not last.endswith("\n"):
            print(flush=True)
