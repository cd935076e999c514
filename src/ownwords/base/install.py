"""Adds and removes bases: models copied, converted or downloaded."""

import os
import shlex
import subprocess
import sys
import sysconfig
from contextlib import AbstractContextManager
from hashlib import sha256
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
            _install_from_package(known, known.package, folder, progress)
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


def _lock(bases: Path, name: str) -> AbstractContextManager[object]:
    """Hold the lock of a base, so that no other process adds or removes it."""
    return locked(
        bases / f".{name}.lock",
        f"another ownwords process is working on the base {name}",
        "wait until it has finished",
    )


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
        assembled = made / "assembled.gguf"
        _assemble(package, assembled, progress)
        convert(assembled, made, progress=progress)
        assembled.unlink()
        for name, data in _papers(base, package).items():
            atomic_dir.write_file(made / name, data)
        Manifest.write(made, f"{base.repository} (package {package.module})", package.sha256)
        progress.begin("open")
        with progress.stage(f"Opening {base.name}"):
            catalogue.check_usable(made)


def _assemble(package: GGUFPackage, path: Path, progress: Progress) -> None:
    """Join the parts of the file; OwnwordsError if its checksum is not ours."""
    parts = package.parts()
    hasher = sha256()
    try:
        total = sum(part.stat().st_size for part in parts)
        with (
            path.open("xb") as whole,
            progress.stage("Joining the parts", total=total >> 20, unit="MiB") as stage,
        ):
            for part in parts:
                with part.open("rb") as file:
                    while block := file.read(_BLOCK_BYTES):
                        hasher.update(block)
                        whole.write(block)
                        stage.advance(len(block) >> 20)
    except FileNotFoundError as error:
        raise _damaged(package, f"{error.filename} is missing") from error
    if hasher.hexdigest() != package.sha256:
        raise _damaged(package, "its file does not have the checksum in our catalogue")


def _damaged(package: GGUFPackage, reason: str) -> OwnwordsError:
    return OwnwordsError(
        f"the package {package.module} cannot be used: {reason}",
        hint=f'install it again: pip install --force-reinstall "ownwords[{package.extra}]"',
    )


def _papers(base: KnownBase, package: GGUFPackage) -> dict[str, bytes]:
    """The card, the terms and the notice that go with the model."""
    link = f"license_link: {base.terms.url}\n" if base.terms else ""
    card = (
        f"---\nlicense: {base.license}\nbase_model: {base.repository}\n{link}---\n\n"
        f"# {base.name}\n\n"
        f"The weights of {base.repository}, converted from a GGUF file to bfloat16 by ownwords.\n"
    )
    papers = {CARD: card.encode()}
    if base.terms:
        papers["LICENSE.html"] = package.terms()
        papers["NOTICE"] = (base.terms.notice + "\n").encode()
    return papers


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
