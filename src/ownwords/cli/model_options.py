"""The options shared by the verbs that load a model and let it write."""

import sys
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from ownwords.cli.parameters import Device, flag
from ownwords.core.errors import ConfigError
from ownwords.core.progress import Progress
from ownwords.core.workspace import resolve_model
from ownwords.inference.engine import WeightFormat
from ownwords.inference.text_generation import DEFAULT_SAMPLING
from ownwords.models.gguf_cache import is_gguf, model_directory

Weights = Annotated[
    WeightFormat,
    Parameter(help="Convert the weights while loading; int8 and int4 are smaller and faster."),
]
MaxTokens = Annotated[int, Parameter(help="Stop each text after this many tokens.")]
Threads = Annotated[int | None, Parameter(help="Use this many threads. [default: one per core]")]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class WritingOptions:
    """The model and how it writes."""

    model: Annotated[
        Path | None,
        Parameter(
            help="A model directory, or a workspace with a model. [default: the only NAME.ownwords"
            " here]"
        ),
    ] = None
    temperature: Annotated[
        float, Parameter(help="Lower is safer, higher is bolder; 0 takes the likeliest token.")
    ] = DEFAULT_SAMPLING.temperature
    seed: Annotated[
        int | None,
        Parameter(help="The same seed writes the same text. [default: random]"),
    ] = None
    device: Device = "auto"
    quote: Annotated[
        bool, flag("Allow long passages copied word for word from the training texts.")
    ] = False


NO_OPTIONS = WritingOptions()


def check_positive(option: str, value: int | None) -> None:
    """Raise ConfigError for a count below 1; None passes."""
    if value is not None and value < 1:
        raise ConfigError(f"{option} should be 1 or more, and is {value}")


def resolve_model_directory(given: Path | None) -> Path:
    """The model directory of a path, of a GGUF file, or of the only workspace here."""
    path = resolve_model(given, Path.cwd())
    if not is_gguf(path) or not sys.stderr.isatty():
        return model_directory(path)
    from ownwords.cli.progress_bars import ProgressBars

    with closing(ProgressBars()) as bars:
        return model_directory(path, Progress(bars))
