"""Another model to begin with: copied from a folder or fetched from a hub, and kept by name."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

from ownwords.base import catalogue, checks, hub, manifest
from ownwords.base.downloads import Counted
from ownwords.base.manifest import Manifest
from ownwords.core.errors import OwnwordsError
from ownwords.core.progress import Progress
from ownwords.core.workspace import telling_of_the_disk, try_lock
from ownwords.models import atomic_dir
from ownwords.models.directory import (
    CARD,
    CONFIG,
    COPY_GUARD,
    GENERATION,
    PROVENANCE,
    TOKENIZER_FILES,
)
from ownwords.models.untrusted_files import open_file
from ownwords.models.weight_mapping import INDEX, SINGLE, find_tensors

_BESIDE = (CONFIG, GENERATION, CARD, PROVENANCE, COPY_GUARD, *TOKENIZER_FILES)
_BLOCK_BYTES = 1 << 20


def add(
    source: str, name: str = "", home: Path | None = None, progress: Progress | None = None
) -> Path:
    """Put a model among the bases, under a name: a model directory, or ORG/NAME of a hub.

    A folder is copied, so that it stays when the original goes; of a hub's model only weights,
    settings and tokenizer are fetched. It is opened once before it is kept. OwnwordsError says
    what stands in the way; what was fetched by then is not fetched again.
    """
    progress = progress or Progress()
    path = Path(source).expanduser()
    local = _model_in(path)
    name = name or catalogue.name_for(str(local) if local else source)
    check_free(name, home)
    # A folder that is there is what was meant: no hub is asked for a model of its name.
    if local is None and (path.exists() or not catalogue.is_hub_name(source)):
        raise _neither(source, path)
    bases = catalogue.bases_folder(home)
    folder = bases / name
    with _alone(bases, name):
        check_free(name, home)  # still
        if local is not None:
            _copy(local, folder, progress)
        else:
            hub.fetch(source, folder, progress)
    return folder


def check_free(name: str, home: Path | None = None) -> None:
    """OwnwordsError unless a base may be called so, and none is."""
    catalogue.check_name(name)
    if atomic_dir.readable_dir(catalogue.bases_folder(home) / name).exists():
        raise OwnwordsError(
            f"there is a base called {name} already",
            hint=f"give another --name, or take that away: ownwords base remove {name}",
        )


def remove(name: str, home: Path | None = None) -> int:
    """Take an added base away, and what was begun of one; the bytes that are free now."""
    if name == catalogue.SHIPPED:
        raise OwnwordsError("the model in the box belongs to ownwords, and stays")
    catalogue.check_name(name)
    bases = catalogue.bases_folder(home)
    with _alone(bases, name):
        there = [bases / name, *hub.begun(bases / name)]
        there = [folder for folder in there if atomic_dir.readable_dir(folder).is_dir()]
        if not there:
            known = [one.name for one in catalogue.entries(home) if one.origin == "added"]
            listed = f"added were: {', '.join(known)}" if known else "none was ever added"
            raise OwnwordsError(f"there is no base called {name} to remove", hint=listed)
        size = 0
        for folder in there:
            stands = atomic_dir.readable_dir(folder)
            size += sum(each.stat().st_size for each in stands.iterdir() if each.is_file())
            atomic_dir.delete_dir(stands)
    return size


def _model_in(path: Path) -> Path | None:
    """The model directory that a path is, or that of the workspace it is."""
    for folder in (path, path / "model"):
        if (folder / CONFIG).exists():
            return folder
    return None


def _neither(source: str, path: Path) -> OwnwordsError:
    if path.suffix.lower() == ".gguf" and path.exists():
        return OwnwordsError(
            f"{path} is a GGUF file, and a base is a model directory",
            hint=f"make one of it first: ownwords export {path} --to hf",
        )
    if path.exists():
        return OwnwordsError(f"{path} holds no {CONFIG}", hint="is it the folder of a whole model?")
    return OwnwordsError(
        f"{source!r:.200} is neither a folder here nor a name on a hub",
        hint="a folder that holds config.json, or ORG/NAME, such as openai-community/gpt2",
    )


def _copy(source: Path, folder: Path, progress: Progress) -> None:
    checks.check_fits(source)
    weights = {stored.path for stored in find_tensors(source).values()}
    index = set() if weights == {source / SINGLE} else {source / INDEX}
    rest = {source / name for name in _BESIDE if (source / name).exists()}
    rest |= {path for path in source.glob("LICENSE*") if path.is_file()}
    files = sorted(weights | index | rest)
    total = sum(path.stat().st_size for path in files)
    checks.check_room(folder.parent, total)
    with (
        atomic_dir.replace_dir(folder) as made,
        progress.stage(f"Copying {folder.name}", total=total >> 20, unit="MiB") as stage,
    ):
        count = Counted(stage)
        sums = {path.name: _copied(path, made / path.name, count) for path in files}
        known = Manifest(str(source.resolve()), "", sums)
        atomic_dir.write_file(made / manifest.FILE, known.to_bytes())
        checks.check_usable(made)


def _copied(source: Path, target: Path, came: Counted) -> str:
    """Copy a file, and its SHA-256; a link is followed only where a model directory may hold it."""
    hasher = sha256()
    with open_file(source) as file, target.open("xb") as copy:
        while block := file.read(_BLOCK_BYTES):
            hasher.update(block)
            copy.write(block)
            came(len(block))
        copy.flush()
        os.fsync(copy.fileno())
    return hasher.hexdigest()


@contextmanager
def _alone(bases: Path, name: str) -> Iterator[None]:
    """While nobody else adds or removes a base of that name."""
    path = bases / f".{name}.lock"
    with telling_of_the_disk(path):
        bases.mkdir(parents=True, exist_ok=True)
        file = path.open("a+", encoding="utf-8")
    with file:
        if not try_lock(file.fileno()):
            raise OwnwordsError(
                f"another ownwords is working on the base {name}", hint="wait for it to end"
            )
        yield
