"""Exports a folder for Ollama: the model as GGUF and the Modelfile for `ollama create`.

The Modelfile's format: https://github.com/ollama/ollama/blob/main/docs/modelfile.md
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ownwords.models import atomic_dir
from ownwords.models.gguf.saving import GGUFFile
from ownwords.models.untrusted_files import ModelError

MODELFILE = "Modelfile"
# Upper bound for num_ctx: Ollama's default is 4,096, and it allocates the whole context at once.
_LARGEST_CONTEXT = 8192
# generation_config.json's names to Ollama's.
_PARAMETERS = {
    "temperature": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "repetition_penalty": "repeat_penalty",
}


def save(
    folder: Path,
    write: Callable[[Path], GGUFFile],
    name: str,
    generation: Mapping[str, object],
    context: int,
    *,
    chats: bool,
    stops: Sequence[str],
) -> GGUFFile:
    """Write a folder with `NAME.gguf`, which `write` makes, and its Modelfile atomically.

    `chats`: the model has a chat template; Ollama uses the one in the GGUF file if it knows it.
    `stops` are the texts that end an answer.
    """
    _check_replaceable(folder)
    file = f"{_plain(name)}.gguf"
    with atomic_dir.replace_dir(folder) as beside:
        written = write(beside / file)
        text = _modelfile(file, generation, context, chats, stops)
        atomic_dir.write_file(beside / MODELFILE, text.encode("utf-8"))
    return replace(written, path=folder / file)


def _modelfile(
    file: str, generation: Mapping[str, object], context: int, chats: bool, stops: Sequence[str]
) -> str:
    lines = [f"FROM ./{file}"]
    if not chats:
        lines.append('TEMPLATE """{{ .Prompt }}"""')
    lines += [f"PARAMETER stop {_quoted(stop)}" for stop in stops]
    for theirs, name in _PARAMETERS.items():
        value = generation.get(theirs)
        if isinstance(value, int | float) and not isinstance(value, bool):
            lines.append(f"PARAMETER {name} {value:g}")
    lines.append(f"PARAMETER num_ctx {min(context, _LARGEST_CONTEXT)}")
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    return f'"{text}"' if '"' not in text else f'"""{text}"""'


def _plain(name: str) -> str:
    """Return a file name that needs no quoting in a Modelfile."""
    kept = "".join(letter if letter.isalnum() or letter in "._-" else "-" for letter in name)
    return kept.strip(".-") or "model"


def _check_replaceable(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise ModelError(f"{folder} is a file", hint="give the name of a folder")
    others = folder.is_dir() and any(
        path.name != MODELFILE and path.suffix != ".gguf" for path in folder.iterdir()
    )
    if others:
        raise ModelError(
            f"{folder} holds other files, and is not replaced", hint="give an empty or new folder"
        )
