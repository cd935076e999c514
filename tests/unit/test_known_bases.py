"""Known bases: their terms, the package that carries one, and its errors."""

import errno
import hashlib
import os
import sys
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

import small_bases
from ownwords.base import catalogue, install, known_bases
from ownwords.base.known_bases import KNOWN_BASES, GGUFPackage, find_known
from ownwords.cli.main import main
from ownwords.core.errors import OwnwordsError, WorkspaceError
from ownwords.models import bundle, gguf
from ownwords.tokenizers.bpe import ByteTokenizer

MODULE = "tiny_gguf_package"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OWNWORDS_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package with a tiny model in two parts, known as `tiny`; returns its folder."""
    data = gguf.save(
        tmp_path / "m.gguf", small_bases.model(), ByteTokenizer().files(), type="q8_0"
    ).path.read_bytes()
    folder = tmp_path / "packages" / MODULE
    folder.mkdir(parents=True)
    (folder / "a").write_bytes(data[:1000])
    (folder / "b").write_bytes(data[1000:])
    (folder / "terms.html").write_text("<p>Be kind.</p>")
    (folder / "__init__.py").write_text(
        "from pathlib import Path\n"
        "def chunk_paths():\n    return [Path(__file__).parent / name for name in 'ab']\n"
    )
    monkeypatch.syspath_prepend(str(folder.parent))
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    gemma = KNOWN_BASES[0]
    tiny = replace(
        gemma,
        name="tiny",
        repository="org/tiny",
        package=GGUFPackage(
            "tiny", "tiny==1", MODULE, hashlib.sha256(data).hexdigest(), "terms.html"
        ),
    )
    monkeypatch.setattr(known_bases, "KNOWN_BASES", (tiny,))
    return folder


def test_the_requirement_is_that_of_the_extra() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8"))
    package = KNOWN_BASES[0].package
    assert package is not None
    assert package.requirement in project["project"]["optional-dependencies"][package.extra]


def test_pip_brings_the_package_and_its_failure_is_one_sentence(
    home: Path, package: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    away = package.rename(package.with_name("elsewhere"))
    tiny = known_bases.KNOWN_BASES[0].package
    assert tiny is not None
    assert install.command_line(tiny).endswith("tiny==1")
    add = ["base", "add", "tiny", "--accept-terms", "tiny", "--with-package"]
    failing = [sys.executable, "-c", "print('ERROR: no network'); raise SystemExit(1)"]
    monkeypatch.setattr(install, "command_of", lambda _: failing)
    assert main(add) == 2
    error = capsys.readouterr().err
    assert "pip could not install tiny==1: ERROR: no network" in error
    assert 'install it as you installed ownwords: "ownwords[tiny]"' in error
    script = f"import os; os.rename({str(away)!r}, {str(package)!r})"
    working = [sys.executable, "-c", script]
    monkeypatch.setattr(install, "command_of", lambda _: working)
    assert main(add) == 0
    assert catalogue.find("tiny") == home / "bases" / "tiny"
    assert install.command_line(tiny) == ""


def test_a_base_from_a_package_is_a_model_directory_with_its_terms(
    home: Path, package: Path
) -> None:
    folder = install.add("tiny", accepted_terms="tiny")
    assert folder == catalogue.find("tiny") == home / "bases" / "tiny"
    assert bundle.load(folder).config.to_hf() == small_bases.model().config.to_hf()
    assert (folder / "LICENSE.html").read_text() == "<p>Be kind.</p>"
    assert "Gemma Terms of Use" in (folder / "NOTICE").read_text()
    assert "base_model: org/tiny" in (folder / "README.md").read_text()
    assert not list(folder.glob("*.gguf"))
    assert catalogue.entries()[-1].source.startswith("org/tiny")


@pytest.mark.parametrize("accepted", ["", "other", "yes"])
def test_terms_that_were_not_accepted_stop_before_anything_is_written(
    accepted: str, home: Path, package: Path
) -> None:
    with pytest.raises(OwnwordsError, match="Gemma Terms of Use") as raised:
        install.add("tiny", accepted_terms=accepted)
    assert "--accept-terms tiny" in raised.value.hint
    assert not (home / "bases").exists()


def test_yes_accepts_no_terms(
    home: Path, package: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["base", "add", "tiny", "--yes"]) == 2
    assert "--accept-terms tiny" in capsys.readouterr().err
    assert main(["base", "add", "tiny", "--accept-terms", "tiny", "--quiet"]) == 0


def test_a_package_that_has_changed_is_refused(home: Path, package: Path) -> None:
    data = bytearray((package / "a").read_bytes())
    data[500] ^= 1
    (package / "a").write_bytes(data)
    with pytest.raises(OwnwordsError, match="checksum") as raised:
        install.add("tiny", accepted_terms="tiny")
    assert "force-reinstall" in raised.value.hint
    (package / "b").unlink()
    with pytest.raises(OwnwordsError, match="b is missing"):
        install.add("tiny", accepted_terms="tiny")
    assert [folder.name for folder in (home / "bases").iterdir()] == [".tiny.lock"]


def test_a_disk_that_fills_while_a_base_is_written_is_one_sentence(
    home: Path, package: Path, monkeypatch: pytest.MonkeyPatch
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
    assert catalogue.verify(folder) == []


def test_a_package_that_is_not_installed_is_named(
    home: Path, package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = find_known("tiny")
    assert base and base.package
    missing = replace(base, package=replace(base.package, module="no_such_package"))
    monkeypatch.setattr(known_bases, "KNOWN_BASES", (missing,))
    with pytest.raises(OwnwordsError, match="not installed") as raised:
        install.add("tiny", accepted_terms="tiny")
    assert "ownwords[tiny]" in raised.value.hint and "org/tiny" in raised.value.hint


def test_the_list_shows_installable_bases(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["base"]) == 0
    out = capsys.readouterr().out
    for base in KNOWN_BASES:
        assert f"{base.name} " in out and base.license in out
