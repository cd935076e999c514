"""A folder for Ollama: the model as GGUF, and the Modelfile that `ollama create` reads.

https://github.com/ollama/ollama/blob/main/docs/modelfile.md describes the file.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from ownwords.models import gguf, staging
from ownwords.models.family import CausalLM
from ownwords.models.safely import ModelError

MODELFILE = "Modelfile"
# Ollama takes 4,096 if nothing is said, and memory for all of it at once.
_LARGEST_CONTEXT = 8192
# generation_config.json's names, and Ollama's.
_PARAMETERS = {
    "temperature": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "repetition_penalty": "repeat_penalty",
}

# A conversation, as a chat template's messages with role and content, to the text for the model;
# the text ends where the model is to answer.
Render: TypeAlias = Callable[[Sequence[Mapping[str, str]]], str]


@dataclass(frozen=True)
class Turns:
    """What a chat template puts around the parts of a conversation."""

    before_system: str
    after_system: str
    before_user: str
    after_user: str  # up to where the model answers
    after_answer: str
    system_inside: bool  # the system's words stand within the first turn of the user

    def template(self) -> str:
        """The same in Ollama's language, Go's templates; Ollama repeats it for each turn."""
        head = "" if self.system_inside else self.before_system
        system = "{{ if .System }}" + head + "{{ .System }}" + self.after_system + "{{ end }}"
        parts = [self.before_user, system] if self.system_inside else [system, self.before_user]
        answer = "{{ .Response }}" + self.after_answer
        return "".join(parts) + "{{ .Prompt }}" + self.after_user + answer


def save(
    folder: str | Path,
    model: CausalLM,
    tokenizer_files: Mapping[str, bytes],
    *,
    type: str = "q8_0",
    name: str = "model",
    generation: Mapping[str, object] | None = None,
    render: Render | None = None,
    start: str = "",
    stops: Sequence[str] = (),
) -> gguf.Written:
    """Write a folder with `NAME.gguf` and its Modelfile, whole or not at all.

    `render` is the chat template, for a model that has one; `start` the text of the token that
    begins a document, which Ollama puts first by itself where the GGUF file says so. `stops` are
    the texts at which an answer ends.
    """
    folder, generation = Path(folder), generation or {}
    _check_replaceable(folder)
    file = f"{_plain(name)}.gguf"
    with staging.replacing(folder) as beside:
        written = gguf.save(
            beside / file, model, tokenizer_files, type=type, name=name, generation=generation
        )
        notes = list(written.notes)
        template = "{{ .Prompt }}"
        if render is not None:
            turns = turns_of(render, start)
            if turns is None:
                notes.append("its chat template cannot be said in Ollama's language: plain prompts")
            else:
                template = turns.template()
        text = modelfile(file, template, generation, model.config.context, stops)
        staging.write_file(beside / MODELFILE, text.encode("utf-8"))
    return gguf.Written(folder / file, written.bytes, written.tensors, tuple(notes))


def modelfile(
    file: str,
    template: str,
    generation: Mapping[str, object],
    context: int,
    stops: Sequence[str],
) -> str:
    """The text of a Modelfile for the GGUF file beside it."""
    lines = [f"FROM ./{file}", f'TEMPLATE """{template}"""']
    lines += [f"PARAMETER stop {_quoted(stop)}" for stop in stops]
    for theirs, name in _PARAMETERS.items():
        value = generation.get(theirs)
        if isinstance(value, int | float) and not isinstance(value, bool):
            lines.append(f"PARAMETER {name} {value:g}")
    lines.append(f"PARAMETER num_ctx {min(context, _LARGEST_CONTEXT)}")
    return "\n".join(lines) + "\n"


def turns_of(render: Render, start: str) -> Turns | None:
    """A chat template taken apart by what it makes of marked messages.

    None if it does more than to put fixed texts around them, or such as Ollama would misread.
    """
    system, first, answer, second = (
        "\ue000sys\ue000",
        "\ue000one\ue000",
        "\ue000two\ue000",
        "\ue000three\ue000",
    )
    talk = [_said("user", first), _said("assistant", answer), _said("user", second)]
    try:
        plain = render(talk).removeprefix(start)
        whole = render([_said("system", system), *talk]).removeprefix(start)
        before_user, rest = plain.split(first)
        middle, after_user = rest.split(second)
        to_answer, from_answer = middle.split(answer)
        before_system, after_system = whole.split(first)[0].split(system)
    except ValueError:  # something said once stands there twice, or not at all
        return None
    inside = before_system == before_user
    if not inside:
        if not after_system.endswith(before_user):
            return None
        after_system = after_system.removesuffix(before_user)
    if not from_answer.endswith(before_user) or to_answer != after_user:
        return None
    found = Turns(
        before_system,
        after_system,
        before_user,
        after_user,
        from_answer.removesuffix(before_user),
        inside,
    )
    fixed = (found.before_system, found.after_system, before_user, after_user, found.after_answer)
    if any("{{" in text or '"""' in text for text in fixed):
        return None
    return found


def _said(role: str, content: str) -> dict[str, str]:
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
