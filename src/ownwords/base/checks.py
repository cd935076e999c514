"""Is a base whole, and can it be read? What may be wrong with one, found before it is used.

Nothing here needs torch where the part in C++ is there.
"""

import shutil
from pathlib import Path

import numpy as np

from ownwords.base import catalogue, manifest
from ownwords.base.downloads import sha256_of
from ownwords.base.manifest import Manifest
from ownwords.core.errors import OwnwordsError
from ownwords.inference.model import Model
from ownwords.models import directory, weight_mapping
from ownwords.models.untrusted_files import ModelError
from ownwords.tokenizers import tokenizer

_SOME_TEXT = "The trouble with the world"  # any will do: what comes out must be numbers


def verify(folder: Path) -> list[str]:
    """What is wrong with a base, a sentence each; empty where it is whole, fits and can be read."""
    try:
        problems = changed_files(folder)
        return problems or [*_unfit(folder)]
    except OwnwordsError as error:
        return [str(error)]


def changed_files(folder: Path) -> list[str]:
    """The files that are not as they were when the base was put there; none if nobody knows."""
    known = Manifest.read(folder)
    if known is None:
        return []
    found = []
    for name, sha256 in known.files.items():
        path = folder / name
        if path.parent != folder or not path.is_file():
            found.append(f"{name} is missing")
        elif sha256_of(path) != sha256:
            found.append(f"{name} has changed: its SHA-256 is not the one in {manifest.FILE}")
    return found


def check_fits(folder: Path) -> None:
    """ModelError unless weights, config and tokenizer belong together and can be trained on.

    Only the heads of the files of weights are read.
    """
    said = directory.read(folder)
    stored = weight_mapping.find_tensors(folder)
    if any(name.endswith(".packed") for name in stored):
        raise ModelError(
            f"{folder} is a quantised model, and cannot be trained any further",
            hint="take the model as it was before that",
        )
    weight_mapping.check_shapes(
        weight_mapping.map_weights(stored, said.config, folder), said.config, folder
    )
    said.check_tokenizer(tokenizer.from_files(said.tokenizer_files))


def check_usable(folder: Path) -> None:
    """OwnwordsError unless a base that was just put together opens and can be read."""
    if problems := verify(folder):
        raise OwnwordsError(f"it was not added: {'; '.join(problems)}")


def check_room(folder: Path, wanted: int) -> None:
    """OwnwordsError if so many bytes do not fit the disk of a folder."""
    free = shutil.disk_usage(folder).free
    if wanted > free:
        raise OwnwordsError(
            f"it takes {wanted / 1e6:,.0f} MB, and the disk of {folder} has {free / 1e6:,.0f} MB",
            hint=f"make room, or name another place in the environment: {catalogue.HOME}=PATH",
        )


def _unfit(folder: Path) -> list[str]:
    check_fits(folder)
    model = Model.load(folder)
    ids = [int(each) for each in model.tokenizer.encode(_SOME_TEXT)]
    start = model.tokenizer.start
    ids = (ids or ([] if start is None else [start]) or [0])[: model.engine.context]
    if not np.isfinite(model.logits(ids)).all():
        return ["its weights are damaged: what it makes of a few words are no numbers"]
    return []
