"""A model for other tools: a directory, a GGUF file, or a folder for Ollama."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import torch

from ownwords.core.errors import OwnwordsError
from ownwords.models import bundle, gguf, ollama
from ownwords.models.bundle import Bundle
from ownwords.tokenizers import chat, tokenizer
from ownwords.tokenizers.tokenizer import Tokenizer

Form = Literal["hf", "gguf", "ollama"]

_DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
# Ollama's users expect small files; a GGUF file may be quantised further by whoever gets it.
_USUAL = {"gguf": "f16", "ollama": "q8_0"}


@dataclass(frozen=True)
class Exported:
    """What was written; `notes` say what became otherwise than asked for."""

    path: Path
    form: str
    type: str  # of the weights; empty: as they were
    bytes: int
    notes: tuple[str, ...]


def export(
    source: Path, form: str, *, out: Path | None = None, type: str | None = None
) -> Exported:
    """Write the model of a directory or GGUF file in another form, whole or not at all.

    `form` is hf (a model directory), gguf (one file) or ollama (a folder with a Modelfile); `type`
    that of the weights. Without `out` it is written beside the source.
    """
    if form not in get_args(Form):
        raise OwnwordsError(
            f"{form} is no form to export to", hint="choose of " + ", ".join(get_args(Form))
        )
    found = gguf.load(source) if source.suffix.lower() == ".gguf" else bundle.load(source)
    its_own = tokenizer.from_files(found.tokenizer_files)
    found.check_tokenizer(its_own)
    name = source.resolve().stem if source.is_file() else source.resolve().name
    out = out or source.resolve().parent / (f"{name}.gguf" if form == "gguf" else f"{name}-{form}")
    if out.resolve() == source.resolve():
        raise OwnwordsError(f"{out} is the model itself", hint="give another path to --out")
    if form == "hf":
        return _directory(found, its_own, out, type)
    kind = type or _USUAL[form]
    if form == "gguf":
        written = gguf.save(
            out,
            found.model,
            found.tokenizer_files,
            type=kind,
            name=name,
            generation=found.generation,
        )
    else:
        written = _for_ollama(found, its_own, out, kind, name)
    return Exported(written.path, form, kind, written.bytes, written.notes)


def _directory(found: Bundle, its_own: Tokenizer, out: Path, type: str | None) -> Exported:
    if type is not None and type not in _DTYPES:
        raise OwnwordsError(
            f"a model directory holds no {type}", hint="choose of " + ", ".join(_DTYPES)
        )
    bundle.save(
        out,
        found.model,
        its_own,
        card=found.card,
        provenance=found.provenance,
        generation=found.generation,
        dtype=_DTYPES[type] if type else None,
    )
    size = sum(path.stat().st_size for path in out.iterdir() if path.is_file())
    return Exported(out, "hf", type or "", size, ())


def _for_ollama(
    found: Bundle, its_own: Tokenizer, out: Path, kind: str, name: str
) -> gguf.GGUFFile:
    texts = {number: text for text, number in its_own.special.items()}

    def render(messages: Sequence[Mapping[str, str]]) -> str:
        return chat.render(its_own, messages, add_generation_prompt=True)

    end = texts.get(its_own.end) if its_own.end is not None else None
    return ollama.save(
        out,
        found.model,
        found.tokenizer_files,
        type=kind,
        name=name,
        generation=found.generation,
        render=render if its_own.template else None,
        start=texts.get(its_own.start, "") if its_own.start is not None else "",
        stops=(end,) if end else (),
    )
