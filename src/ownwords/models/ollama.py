"""Exports a folder for Ollama: the model as GGUF and the Modelfile for `ollama create`.

The Modelfile's format: https://github.com/ollama/ollama/blob/main/docs/modelfile.md
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from ownwords.models import atomic_dir, gguf
from ownwords.models.decoder import CausalLM
from ownwords.models.directory import BaseLicense
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
    folder: str | Path,
    model: CausalLM,
    tokenizer_files: Mapping[str, bytes],
    *,
    type: str = "q8_0",
    name: str = "model",
    generation: Mapping[str, object] | None = None,
    license: BaseLicense | None = None,
    chats: bool = False,
    stops: Sequence[str] = (),
) -> gguf.GGUFFile:
    """Write a folder with `NAME.gguf` and its Modelfile atomically.

    `chats`: the model has a chat template, which Ollama takes from the GGUF file where it knows it.
    `stops` are the texts that end an answer.
    """
    folder, generation = Path(folder), generation or {}
    _check_replaceable(folder)
    file = f"{_plain(name)}.gguf"
    with atomic_dir.replace_dir(folder) as beside:
        written = gguf.save(
            beside / file,
            model,
            tokenizer_files,
            type=type,
            name=name,
            generation=generation,
            license=license,
        )
        text = modelfile(file, generation, model.config.context, chats, stops)
        atomic_dir.write_file(beside / MODELFILE, text.encode("utf-8"))
    return gguf.GGUFFile(folder / file, written.bytes, written.tensors, written.notes)


def modelfile(
    file: str,
    generation: Mapping[str, object],
    context: int,
    chats: bool,
    stops: Sequence[str],
) -> str:
    """The text of a Modelfile for a GGUF file in the same folder."""
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
    """A file name that needs no quoting in a Modelfile."""
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
