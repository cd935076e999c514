"""Fixtures of every test: no network, and the shared corpora where they are present."""

import os
import signal
import socket
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings

from ownwords.archive import untrusted_files
from ownwords.archive.look import look
from ownwords.archive.store import Archive
from ownwords.ask import encoder
from ownwords.drafts.check import AuthorStyle
from ownwords.native import bindings
from ownwords.training import step_time

# Run in the background by a shell, the tests ignore Ctrl-C, and so would what they start.
signal.signal(signal.SIGINT, signal.default_int_handler)

SHARED = Path(__file__).resolve().parents[1].parent / "shared" / "data"

# The bases that the user has installed are none of the tests'.
_DATA_FOLDER = tempfile.TemporaryDirectory(prefix="ownwords-tests-")
os.environ["OWNWORDS_HOME"] = _DATA_FOLDER.name

# A slow machine is no failure: time is judged by the benchmarks.
settings.register_profile("tests", deadline=None)
settings.load_profile("tests")


def pytest_report_header() -> str:
    """The C++ library in use: without one many tests are skipped."""
    return f"C++ part: {bindings.describe_library()}"


@pytest.fixture(autouse=True)
def _offline(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("the tests run offline, and so does what they test")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket.socket, "connect_ex", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


@pytest.fixture(autouse=True)
def _no_known_speeds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans assume the same speeds, whatever was trained on this machine before."""
    monkeypatch.setattr(step_time, "_FILE", f"{os.devnull}/speeds.json")


@pytest.fixture(autouse=True)
def _no_installed_embedder(monkeypatch: pytest.MonkeyPatch) -> None:
    """Search by words, whatever is installed, unless a test names an embedder."""
    monkeypatch.setattr(encoder, "default_encoder", lambda: encoder.NONE)


@pytest.fixture
def opened_members(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the members of zips that are read from here on."""
    opened: list[str] = []
    read = untrusted_files.ExportFiles.read

    def watch(self: untrusted_files.ExportFiles, name: str, first: int | None = None) -> bytes:
        opened.append(name)
        return read(self, name, first)

    monkeypatch.setattr(untrusted_files.ExportFiles, "read", watch)
    return opened


@pytest.fixture(scope="session")
def sample_blog(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace that has read the sample blog and learned its style; to be copied, or only read.

    Learning takes seconds, and is kept beside the archive.
    """
    blog = Path(__file__).resolve().parents[1] / "examples" / "blog"
    workspace = tmp_path_factory.mktemp("sample") / "blog.ownwords"
    look([blog], workspace=workspace)
    with Archive(workspace / "archive.sqlite") as archive:
        AuthorStyle.of(archive)
    return workspace


@pytest.fixture(scope="session")
def columnist() -> Path:
    """The shared Publii site with planted problems."""
    path = SHARED / "columnist"
    if not path.exists():
        pytest.skip("the shared test corpora are not beside the repository")
    return path
