"""Exports a model as a directory, a zip or GGUF file, or for Ollama; or its LoRA for PEFT."""

import re
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal, get_args

import torch

from ownwords.core.errors import OwnwordsError
from ownwords.core.workspace import cache_folder, translate_os_errors, writing_atomically
from ownwords.inference.text_generation import generation_config
from ownwords.models import atomic_dir, bundle, directory, lora
from ownwords.models.bundle import Bundle
from ownwords.models.directory import BaseLicense
from ownwords.models.gguf import saving
from ownwords.models.gguf.reading import convert
from ownwords.models.gguf.saving import GGUFFile
from ownwords.models.model_library import name_of
from ownwords.models.untrusted_files import ModelError
from ownwords.models.weights import write_tensors
from ownwords.tokenizers import tokenizer
from ownwords.tokenizers.tokenizer import Tokenizer

ExportFormat = Literal["hf", "gguf", "ollama", "zip", "adapter"]

_DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
_SUFFIXES = {"gguf": ".gguf", "zip": ".zip"}
# Ollama users expect small files; a GGUF file can be quantized further with other tools.
_DEFAULT_TYPES = {"gguf": "f16", "ollama": "q8_0"}

# https://github.com/ollama/ollama/blob/main/docs/modelfile.md
_MODELFILE = "Modelfile"
# Upper bound for num_ctx: Ollama's default is 4,096, and it allocates the whole context at once.
_LARGEST_CONTEXT = 8192
# The names in generation_config.json, and Ollama's.
_OLLAMA_NAMES = {
    **{name: name for name in ("temperature", "top_k", "top_p", "min_p")},
    "repetition_penalty": "repeat_penalty",
}

_TRIMMED = "The model uses part of its base's vocabulary; the adapter fits the whole base."
_OPENING = Path(__file__).with_name("adapter.md")  # how to open an adapter, for its card


@dataclass(frozen=True)
class ExportResult:
    """The exported files; `notes` say what differs from the request."""

    path: Path
    form: str
    type: str  # of the weights; empty: unchanged
    bytes: int
    notes: tuple[str, ...]


def export(
    source: Path, form: str, *, out: Path | None = None, type: str | None = None
) -> ExportResult:
    """Write the model of a directory or GGUF file atomically in another format.

    `form` is hf (a model directory), zip (the same in one file), gguf (one file), ollama (a folder
    with a Modelfile) or adapter (the model's LoRA, for PEFT); `type` is the type of the weights.
    Without `out` the result is written next to the source.
    """
    if form not in get_args(ExportFormat):
        raise OwnwordsError(
            f"cannot export to {form}", hint=f"choose from {', '.join(get_args(ExportFormat))}"
        )
    name = name_of(source)
    out = out or source.resolve().parent / (f"{name}{_SUFFIXES.get(form, f'-{form}')}")
    if out.resolve() == source.resolve():
        raise OwnwordsError(f"{out} is the model itself", hint="give another path to --out")
    if form in ("hf", "zip", "adapter") and type is not None and type not in _DTYPES:
        raise OwnwordsError(
            f"an export to {form} cannot hold {type} weights",
            hint=f"choose from {', '.join(_DTYPES)}",
        )
    if form == "adapter":
        return _adapter(source, out, type or "f32")
    if source.suffix.lower() == ".gguf":
        cache = cache_folder()
        with translate_os_errors(cache), atomic_dir.scratch_dir(cache / "export") as folder:
            convert(source, folder, type="f32")  # exact for all types
            loaded = bundle.load(folder)
    else:
        loaded = bundle.load(source)
    if loaded.fingerprint is not None and "temperature" not in loaded.generation:
        # Our older models do not record the sampling settings that they were scored with.
        loaded = replace(loaded, generation={**generation_config(), **loaded.generation})
    own_tokenizer = tokenizer.Tokenizer(loaded.tokenizer_files)
    loaded.check_tokenizer(own_tokenizer)
    if form == "hf":
        return _directory(loaded, own_tokenizer, out, type)
    if form == "zip":
        return _zipped(loaded, own_tokenizer, out, type)
    kind = type or _DEFAULT_TYPES[form]
    license = BaseLicense.of(source) if source.is_dir() else None
    write = partial(
        saving.save,
        model=loaded.model,
        tokenizer_files=own_tokenizer.files(),
        type=kind,
        name=name,
        generation=loaded.generation,
        license=license,
    )
    if form == "gguf":
        written = write(out)
    else:
        written = _ollama(out, write, name, loaded, own_tokenizer)
    return ExportResult(written.path, form, kind, written.bytes, written.notes)


def _directory(
    loaded: Bundle, own_tokenizer: Tokenizer, out: Path, type: str | None
) -> ExportResult:
    bundle.save(
        out,
        loaded.model,
        own_tokenizer,
        card=loaded.card,
        provenance=loaded.provenance,
        generation=loaded.generation,
        license=BaseLicense(files=loaded.license_files),
        dtype=_DTYPES[type] if type else None,
    )
    size = sum(path.stat().st_size for path in out.iterdir() if path.is_file())
    return ExportResult(out, "hf", type or "", size, ())


def _ollama(
    out: Path,
    write: Callable[[Path], GGUFFile],
    name: str,
    loaded: Bundle,
    own_tokenizer: Tokenizer,
) -> GGUFFile:
    """Write a folder with `NAME.gguf`, which `write` makes, and its Modelfile."""
    if out.exists() and not out.is_dir():
        raise ModelError(f"{out} is a file", hint="give the name of a folder")
    names = [path.name for path in out.iterdir()] if out.exists() else []
    if not all(each == _MODELFILE or each.endswith(".gguf") for each in names):
        raise ModelError(
            f"{out} holds other files, and is not replaced", hint="give an empty or new folder"
        )
    # A Modelfile needs no quotes around such a name.
    file = (re.sub(r"[^\w.-]", "-", name).strip(".-") or "model") + ".gguf"
    lines = [f"FROM ./{file}"]
    if not own_tokenizer.template:  # else Ollama uses the one in the GGUF file if it knows it
        lines.append('TEMPLATE """{{ .Prompt }}"""')
    for token, i in own_tokenizer.special.items():
        if i == own_tokenizer.end:
            quotes = '"""' if '"' in token else '"'
            lines.append(f"PARAMETER stop {quotes}{token}{quotes}")
    for theirs, ours in _OLLAMA_NAMES.items():
        value = loaded.generation.get(theirs)
        if isinstance(value, int | float) and not isinstance(value, bool):
            lines.append(f"PARAMETER {ours} {value:g}")
    lines.append(f"PARAMETER num_ctx {min(loaded.config.context, _LARGEST_CONTEXT)}")
    with atomic_dir.replace_dir(out) as draft:
        written = write(draft / file)
        atomic_dir.write_file(draft / _MODELFILE, ("\n".join(lines) + "\n").encode())
    return replace(written, path=out / file)


def _adapter(source: Path, out: Path, type: str) -> ExportResult:
    with directory.open_directory(source) as folder:
        contents, stored = directory.read(folder), folder / directory.ADAPTER
        if not stored.exists():
            raise OwnwordsError(
                f"{source} has no LoRA: all its weights were trained, or an older ownwords made it",
                hint="export the whole model with --to hf, or train one: ownwords finetune PATH"
                " --lora",
            )
        base = contents.base
        config, tensors = lora.peft_files(stored, contents.config, base)
    opening = _OPENING.read_text("utf-8").format(base=base)
    front = f"library_name: peft\nbase_model: {base}\n"
    card = re.sub(r"^base_model: .*\n", "", contents.card, count=1, flags=re.MULTILINE)
    card = card.replace("library_name: transformers\n", front, 1) + opening
    files = {**contents.license_files, lora.PEFT_CONFIG: config, directory.CARD: card.encode()}
    is_trimmed = contents.provenance.get("base_is_trimmed") is True
    if not is_trimmed:
        files |= contents.tokenizer_files
    bundle.check_replaceable(out, lora.PEFT_CONFIG)
    with atomic_dir.replace_dir(out) as draft:
        write_tensors(draft / lora.PEFT_WEIGHTS, tensors, _DTYPES[type])
        for name, data in files.items():
            atomic_dir.write_file(draft / name, data)
    size = sum(path.stat().st_size for path in out.iterdir())
    return ExportResult(out, "adapter", type, size, (_TRIMMED,) if is_trimmed else ())


def _zipped(loaded: Bundle, own_tokenizer: Tokenizer, out: Path, type: str | None) -> ExportResult:
    """Write a model directory in one uncompressed file: weights do not compress."""
    with tempfile.TemporaryDirectory(dir=out.resolve().parent, prefix=f".{out.name}.") as draft:
        folder = Path(draft) / out.stem
        made = _directory(loaded, own_tokenizer, folder, type)
        with (
            writing_atomically(out) as file,
            zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive,
        ):
            for path in sorted(folder.iterdir()):
                archive.write(path, f"{folder.name}/{path.name}")
    return replace(made, path=out, form="zip", bytes=out.stat().st_size)
