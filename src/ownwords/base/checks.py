"""Checks that a base is complete, unchanged and readable, before anything is trained from it.

Nothing here needs torch if the C++ library is compiled.
"""

import hashlib
import shutil
from pathlib import Path

import numpy as np

from ownwords.base.catalogue import MANIFEST, Manifest
from ownwords.core.errors import OwnwordsError
from ownwords.core.workspace import DATA_FOLDER_VARIABLE
from ownwords.inference.model import Model
from ownwords.models import directory, weight_mapping
from ownwords.models.quantization_scheme import INT8, schemes
from ownwords.models.safetensors_header import read_metadata
from ownwords.models.untrusted_files import ModelError
from ownwords.tokenizers import tokenizer

_SAMPLE_TEXT = "The trouble with the world"  # any text will do to check that the logits are finite


def verify(folder: Path) -> list[str]:
    """The problems of a base, one sentence each; empty if it is complete and can be read."""
    try:
        problems = changed_files(folder)
        return problems or _unreadable(folder)
    except OwnwordsError as error:
        return [str(error)]


def changed_files(folder: Path) -> list[str]:
    """The files that differ from the manifest, one sentence each; empty without a manifest."""
    known = Manifest.read(folder)
    if known is None:
        return []
    problems = []
    for name, sha256 in known.files.items():
        path = folder / name
        if path.parent != folder or not path.is_file():
            problems.append(f"{name} is missing")
        elif sha256_of(path) != sha256:
            problems.append(f"{name} has changed: its SHA-256 is not the one in {MANIFEST}")
    return problems


def check_fits(folder: Path) -> None:
    """Raise ModelError unless weights, config and tokenizer match and can be trained further.

    Only the headers of the weight files are read.
    """
    model_files = directory.read(folder)
    stored = weight_mapping.find_tensors(folder)
    config = model_files.config
    if weight_mapping.is_quantized(stored):
        made_with = schemes(read_metadata(folder / weight_mapping.SINGLE))
        if min(scheme.bits for scheme in made_with) < INT8.bits:
            raise ModelError(
                f"{folder} is quantised to fewer than 8 bits, which loses too much to train on",
                hint="take the model as it was before that",
            )
        weight_mapping.check_quantized(stored, made_with, config, folder)
    else:
        fitted = weight_mapping.map_weights(stored, config, folder)
        weight_mapping.check_shapes(fitted, config, folder)
    model_files.check_tokenizer(tokenizer.Tokenizer(model_files.tokenizer_files))


def check_usable(folder: Path) -> None:
    """Raise OwnwordsError if `verify` finds a problem with the base in this folder."""
    if problems := verify(folder):
        raise OwnwordsError(f"the model was not added: {'; '.join(problems)}")


def check_disk_space(folder: Path, needed: int) -> None:
    """Raise OwnwordsError if the disk of a folder has fewer free bytes than needed."""
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise OwnwordsError(
            f"the model needs {needed / 1e6:,.0f} MB, and the disk of {folder} has"
            f" {free / 1e6:,.0f} MB left",
            hint=f"free some space, or choose another folder: {DATA_FOLDER_VARIABLE}=PATH",
        )


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _unreadable(folder: Path) -> list[str]:
    check_fits(folder)
    model = Model.load(folder)
    ids = [int(each) for each in model.tokenizer.encode(_SAMPLE_TEXT)]
    start = model.tokenizer.start
    ids = (ids or ([] if start is None else [start]) or [0])[: model.engine.context]
    if not np.isfinite(model.logits(ids)).all():
        return ["its weights are damaged: a few words give logits that are not finite"]
    return []
