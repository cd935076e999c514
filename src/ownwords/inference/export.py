"""Exports a model for other tools: a directory, a GGUF file, or a folder for Ollama."""

import tempfile
import zipfile
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal, get_args

import torch

from ownwords.core.errors import OwnwordsError
from ownwords.core.workspace import cache_folder, translate_os_errors, writing_atomically
from ownwords.inference.text_generation import generation_config
from ownwords.models import atomic_dir, bundle, gguf, ollama
from ownwords.models.bundle import Bundle
from ownwords.models.directory import BaseLicense
from ownwords.models.gguf.reading import convert
from ownwords.tokenizers import tokenizer
from ownwords.tokenizers.tokenizer import Tokenizer

ExportFormat = Literal["hf", "gguf", "ollama", "zip"]

_DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
_SUFFIXES = {"gguf": ".gguf", "zip": ".zip"}
# Ollama users expect small files; a GGUF file can be quantized further with other tools.
_DEFAULT_TYPES = {"gguf": "f16", "ollama": "q8_0"}


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

    `form` is hf (a model directory), zip (the same in one file), gguf (one file) or ollama (a
    folder with a Modelfile); `type` is the type of the weights. Without `out` the result goes
    beside the source.
    """
    if form not in get_args(ExportFormat):
        raise OwnwordsError(
            f"cannot export to {form}", hint="choose from " + ", ".join(get_args(ExportFormat))
        )
    if source.suffix.lower() == ".gguf":
        cache = cache_folder()
        with translate_os_errors(cache), atomic_dir.scratch_dir(cache / "export") as folder:
            convert(source, folder, type="f32")  # which holds all types exactly
            loaded = bundle.load(folder)
    else:
        loaded = bundle.load(source)
    if loaded.fingerprint is not None and "temperature" not in loaded.generation:
        # Older models of ours do not record the sampling settings they were scored with.
        loaded = replace(loaded, generation={**generation_config(), **loaded.generation})
    own_tokenizer = tokenizer.Tokenizer(loaded.tokenizer_files)
    loaded.check_tokenizer(own_tokenizer)
    name = source.resolve().stem if source.is_file() else source.resolve().name
    out = out or source.resolve().parent / (f"{name}{_SUFFIXES.get(form, f'-{form}')}")
    if out.resolve() == source.resolve():
        raise OwnwordsError(f"{out} is the model itself", hint="give another path to --out")
    if form == "hf":
        return _directory(loaded, own_tokenizer, out, type)
    if form == "zip":
        return _zipped(loaded, own_tokenizer, out, type)
    kind = type or _DEFAULT_TYPES[form]
    license = BaseLicense.of(source) if source.is_dir() else None
    write = partial(
        gguf.save,
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
        ends = [token for token, i in own_tokenizer.special.items() if i == own_tokenizer.end]
        written = ollama.save(
            *(out, write, name, loaded.generation, loaded.config.context),
            chats=bool(own_tokenizer.template),
            stops=ends[:1],
        )
    return ExportResult(written.path, form, kind, written.bytes, written.notes)


def _directory(
    loaded: Bundle, own_tokenizer: Tokenizer, out: Path, type: str | None
) -> ExportResult:
    if type is not None and type not in _DTYPES:
        raise OwnwordsError(
            f"a model directory cannot hold {type} weights",
            hint="choose from " + ", ".join(_DTYPES),
        )
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


def _zipped(loaded: Bundle, own_tokenizer: Tokenizer, out: Path, type: str | None) -> ExportResult:
    """A model directory in one file, stored as it is: weights do not compress."""
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
