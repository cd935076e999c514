"""Finds the model that a verb was given, converting a GGUF file with progress on the screen."""

import sys
from contextlib import closing
from pathlib import Path

from ownwords.core.progress import Progress
from ownwords.core.resolve import resolve_model
from ownwords.models.gguf_cache import is_gguf, model_directory


def resolve_model_directory(given: Path | None) -> Path:
    """The model directory of a path, of a GGUF file, or of the only workspace here."""
    path = resolve_model(given, Path.cwd())
    if not is_gguf(path) or not sys.stderr.isatty():
        return model_directory(path)
    from ownwords.cli.progress_bars import ProgressBars

    with closing(ProgressBars()) as bars:
        return model_directory(path, Progress(bars))
