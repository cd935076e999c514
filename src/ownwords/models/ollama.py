"""Exports a folder for Ollama: the model as GGUF and the Modelfile for `ollama create`.

The Modelfile's format: https://github.com/ollama/ollama/blob/main/docs/modelfile.md
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from ownwords.core.errors import OwnwordsError
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

# Renders a conversation, messages with role and content, by the chat template; the text ends where
# the model's answer begins.
Render: TypeAlias = Callable[[Sequence[Mapping[str, str]]], str]


def save(
    folder: str | Path,
    model: CausalLM,
    tokenizer_files: Mapping[str, bytes],
    *,
    type: str = "q8_0",
    name: str = "model",
    generation: Mapping[str, object] | None = None,
    license: BaseLicense | None = None,
    render: Render | None = None,
    start: str = "",
    adds_start: bool = True,
    stops: Sequence[str] = (),
) -> gguf.GGUFFile:
    """Write a folder with `NAME.gguf` and its Modelfile atomically.

    `render` is the chat template if the model has one, `start` the text of the start token, which
    Ollama adds itself if the file says `adds_start`, and `stops` the texts that end an answer.
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
        notes = list(written.notes)
        template = "{{ .Prompt }}"
        if render is not None:
            chat = chat_template(render, start, "" if adds_start else start)
            template = chat or template
            if chat is None:
                notes.append("its chat template cannot be said in Ollama's language: plain prompts")
        text = modelfile(file, template, generation, model.config.context, stops)
        atomic_dir.write_file(beside / MODELFILE, text.encode("utf-8"))
    return gguf.GGUFFile(folder / file, written.bytes, written.tensors, tuple(notes))


def modelfile(
    file: str,
    template: str,
    generation: Mapping[str, object],
    context: int,
    stops: Sequence[str],
) -> str:
    """The text of a Modelfile for a GGUF file in the same folder."""
    lines = [f"FROM ./{file}", f'TEMPLATE """{template}"""']
    lines += [f"PARAMETER stop {_quoted(stop)}" for stop in stops]
    for theirs, name in _PARAMETERS.items():
        value = generation.get(theirs)
        if isinstance(value, int | float) and not isinstance(value, bool):
            lines.append(f"PARAMETER {name} {value:g}")
    lines.append(f"PARAMETER num_ctx {min(context, _LARGEST_CONTEXT)}")
    return "\n".join(lines) + "\n"


def chat_template(render: Render, start: str, opening: str) -> str | None:
    """A chat template in Ollama's language (Go's text/template), None if it cannot be said there.

    It is derived by rendering messages of unique markers: what stands around them must be the same
    texts everywhere. If they begin with `start`, the template begins with `opening` instead.
    """
    system, first, answer, second = (f"\ue000aB{number}\ue001" for number in range(4))
    talk = [_message("user", first), _message("assistant", answer), _message("user", second)]
    try:
        plain = render(talk)
        before_user, rest = plain.removeprefix(start).split(first)
        middle, after_user = rest.split(second)
        to_answer, after_answer = middle.split(answer)
    except (OwnwordsError, ValueError):  # refused, or a marker does not appear exactly once
        return None
    if to_answer != after_user or not after_answer.endswith(before_user):
        return None
    after_answer = after_answer.removesuffix(before_user)
    fixed = [before_user, after_user, after_answer]
    system_turn = inside = ""
    try:
        head, other_rest = render([_message("system", system), *talk]).split(first)
        before_system, after_system = head.removeprefix(start).split(system)
    except (OwnwordsError, ValueError):  # many templates do not accept a system message
        pass
    else:
        if other_rest != rest:
            return None
        if before_system == before_user:  # the system message is part of the first user turn
            # It has index 0, so the first user message has index 0 or 1.
            inside = "{{ if and $.System (le $i 1) }}{{ $.System }}" + after_system + "{{ end }}"
        elif after_system.endswith(before_user):
            after_system = after_system.removesuffix(before_user)
            system_turn = before_system + "{{ .Content }}" + after_system
        else:
            return None
        fixed += [before_system, after_system]
    if any("{{" in text or '"""' in text for text in fixed):  # Ollama would misread it
        return None
    return (
        (opening if plain.startswith(start) else "")
        + '{{ range $i, $_ := .Messages }}{{ if eq .Role "system" }}'
        + system_turn
        + '{{ else if eq .Role "user" }}'
        + (before_user + inside + "{{ .Content }}" + after_user)
        + '{{ else if eq .Role "assistant" }}'
        # Leave the last message open if it is an answer: the model continues it.
        + "{{ .Content }}{{ if gt (len (slice $.Messages $i)) 1 }}"
        + after_answer
        + "{{ end }}{{ end }}{{ end }}"
    )


def _message(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


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
