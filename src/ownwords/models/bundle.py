"""A model with its tokenizer, saved as and loaded from a directory in Hugging Face's layout.

Neither is saved without the other. `directory` lists the files, and reads all except the weights.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from ownwords.core.version import __version__
from ownwords.core.workspace import translate_os_errors
from ownwords.models import atomic_dir, directory, weights
from ownwords.models.configs.config import check_size
from ownwords.models.decoder import CausalLM
from ownwords.models.directory import (
    ADAPTER,
    CARD,
    CONFIG,
    COPY_GUARD,
    FORMAT,
    GENERATION,
    PROVENANCE,
    RESERVED,
    TOKENIZER,
    TOKENIZER_FILES,
    BaseLicense,
    ModelDirectory,
    Tokenizer,
    encode_json,
    open_directory,
    tokenizer_fields,
)
from ownwords.models.untrusted_files import ModelError, preview

# A folder is replaced only if it holds no other files than these.
_MODEL_FILES = re.compile(
    r"(config|generation_config|ownwords|preprocessor_config)\.json|README\.md|(LICENSE|NOTICE).*"
    r"|\.gitattributes|model.*\.safetensors|model\.safetensors\.index\.json|pytorch_model.*\.bin"
    r"|pytorch_model\.bin\.index\.json|adapter_(config\.json|model\.safetensors)|"
    + "|".join(map(re.escape, (ADAPTER, COPY_GUARD, *TOKENIZER_FILES)))
)
NO_LICENSE = BaseLicense()


@dataclass(frozen=True)
class Bundle(ModelDirectory):
    """A model directory in memory, with its weights."""

    model: CausalLM


def save(
    folder: str | Path,
    model: CausalLM,
    tokenizer: Tokenizer,
    *,
    card: str = "",
    provenance: Mapping[str, object] | None = None,
    generation: Mapping[str, object] | None = None,
    dtype: torch.dtype | None = None,
    int8: bool = False,
    copy_guard: bytes = b"",
    adapter: Mapping[str, Tensor] | None = None,
    license: BaseLicense = NO_LICENSE,
) -> None:
    """Write a model directory atomically, replacing an existing one.

    `dtype` (float32, bfloat16, float16) rounds the weights; without it they keep their type. `int8`
    quantises the matrices; only ownwords can read such a model. `copy_guard` is the file that
    `inference.copy_guard` computes from the training text. `adapter` is the result of
    `lora.stored_tensors` for the LoRA that is merged into the weights. A `card` without front
    matter ("---") gets one, with the `license` of the base. Raises ModelError if tokenizer and
    model do not match or the folder holds files that do not belong to a model, WorkspaceError if
    writing fails.
    """
    folder, config = Path(folder), model.config
    files = dict(tokenizer.files())
    if TOKENIZER not in files or not files.keys() <= set(TOKENIZER_FILES):
        raise ModelError(
            f"a model is saved with its {TOKENIZER}, and these are other files: {preview([*files])}"
        )
    check_size(tokenizer.vocabulary_size, config, "the tokenizer")
    fields = tokenizer_fields(tokenizer, files[TOKENIZER])
    reserved = RESERVED & (provenance or {}).keys()
    if reserved:
        raise ModelError(f"{preview(reserved)} in {PROVENANCE} cannot be given")
    with translate_os_errors(folder):
        check_replaceable(folder)

    ids = {"bos_token_id": tokenizer.start, "eos_token_id": tokenizer.end}
    dtypes = {dtype or parameter.dtype for parameter in model.parameters()}
    narrowest = min(dtypes, key=lambda torch_dtype: torch_dtype.itemsize)
    # "int8" makes transformers refuse the model instead of starting from random weights.
    stored = "int8" if int8 else str(narrowest).removeprefix("torch.")
    files[CONFIG] = encode_json({**config.to_hf(), **ids, "torch_dtype": stored})
    files[GENERATION] = encode_json({**ids, **(generation or {})})
    files |= license.files
    if not card.startswith("---\n"):
        card = license.on(card or _about(folder.resolve().name, model))
    files[CARD] = card.encode()
    files[PROVENANCE] = encode_json(
        {
            "format": FORMAT,
            "written_by": f"ownwords {__version__}",
            "tokenizer": fields,
            **license.provenance(),
            **(provenance or {}),
        }
    )
    if copy_guard:
        files[COPY_GUARD] = copy_guard
    with atomic_dir.replace_dir(folder) as draft:
        weights.write(draft, model, dtype, int8=int8)
        if adapter:
            weights.write_tensors(draft / ADAPTER, adapter)
        for name, data in files.items():
            atomic_dir.write_file(draft / name, data)


def load(
    folder: str | Path,
    *,
    device: str = "cpu",
    dtype: torch.dtype | None = None,
    adapter: Path | None = None,
) -> Bundle:
    """Load a model directory, ours or another program's; executes nothing in it.

    Everything is checked before the weights are read: ModelError or ConfigError says what is
    missing, damaged or inconsistent. Without `dtype` the weights keep the type of their file.
    The matrices of a quantised model are restored: it can be trained and exported like any other.
    """
    with open_directory(folder) as path:
        contents = directory.read(path)
        model = weights.load(path, contents.config, device, dtype, adapter)
    return Bundle(**vars(contents), model=model)


def check_replaceable(folder: Path, config: str = CONFIG) -> None:
    """Raise ModelError if the folder holds files of no model, or lacks the file `config`."""
    if folder.exists() and not folder.is_dir():
        raise ModelError(f"{folder} is a file", hint="give the name of a folder")
    names = {path.name for path in folder.iterdir()} if folder.exists() else set()
    others = {name for name in names if not _MODEL_FILES.fullmatch(name)}
    if others or (names and config not in names):
        raise ModelError(
            f"{folder} is not replaced, because it holds files that do not belong to a model:"
            f" {preview(others or names)}",
            hint="give an empty or new folder, or move them away",
        )


def _about(name: str, model: CausalLM) -> str:
    config = model.config
    count = sum(parameter.numel() for parameter in model.parameters())
    return (
        f"# {name}\n\nA language model of {count:,} parameters ({config.MODEL_TYPE},"
        f" {config.layers} layers of width {config.width}, {config.vocabulary:,} tokens, a"
        f" context of {config.context:,}), made with ownwords.\n"
    )
