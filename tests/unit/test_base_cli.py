"""`ownwords base` as a user types it."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import model_directories
import small_bases
from fake_hub import FakeServer, serving
from ownwords.base import catalogue
from ownwords.cli.main import main
from ownwords.core.workspace import data_folder


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in [name for name in os.environ if name.startswith("OWNWORDS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "data"))
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(catalogue, "_SHIPPED_FOLDER", tmp_path / "box")
    monkeypatch.chdir(tmp_path)
    return data_folder()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeServer]:
    with serving(monkeypatch) as server:
        yield server


def test_a_base_is_added_listed_verified_and_removed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small_bases.write(tmp_path / "box")
    small_bases.write(tmp_path / "mine", "gpt2")
    model_directories.edit(tmp_path / "box" / "ownwords.json", held_out={"bits_per_byte": 1.3125})
    assert main(["base", "add", "mine", "--quiet"]) == 0
    assert "ownwords make PATH --base mine" in capsys.readouterr().out
    assert main(["base"]) == 0
    output = capsys.readouterr().out
    lines = [line.split() for line in output.splitlines() if line.strip()]
    head, shipped, added_line = lines[:3]
    assert head[:3] == ["name", "params", "size"] and head[-1] == "installed"
    by_name = {line[0]: line for line in lines[1:]}
    memory, minutes, bits = shipped[-5], float(shipped[-3]), shipped[-2].split("-")
    assert shipped[0] == "shipped" and float(memory) > 0 and minutes > 0
    assert 0 < float(bits[0]) < float(bits[1]) < 8
    assert added_line[0] == "mine" and added_line[-2:] == ["?", "yes"]  # its bits are not measured
    gemma, qwen = by_name["gemma3-270m"], by_name["qwen3-1.7b"]
    assert "gemma" in gemma and gemma[-2].split("-") < bits and gemma[-1] == "no"
    assert float(qwen[-3]) >= minutes and qwen[-2:] == ["?", "no"]
    assert max(map(len, output.splitlines())) <= 80
    assert main(["base", "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["has_shipped"] is True
    here = [base["name"] for base in figures["bases"] if base["is_installed"]]
    assert here == ["shipped", "mine"]
    assert main(["base", "remove", "mine"]) == 0
    assert [entry.name for entry in catalogue.entries()] == ["shipped"]


def test_an_existing_folder_is_never_looked_up_on_the_hub(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], server: FakeServer
) -> None:
    (tmp_path / "mine" / "posts").mkdir(parents=True)
    assert main(["base", "add", "mine/posts"]) == 2
    assert "mine/posts has no config.json" in capsys.readouterr().err
    assert server.requests == []


def test_base_without_a_verb_lists_and_a_typo_is_reported(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["base", "list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert main(["base", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == listed
    assert main(["base", "lsit"]) == 2
    assert "ownwords base has no 'lsit'; did you mean list?" in capsys.readouterr().err


def test_an_install_without_its_base_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["base"]) == 0
    output = " ".join(capsys.readouterr().out.split())
    assert "built-in model is missing" in output
    assert "ownwords base add ORG/NAME" in output


def test_an_unusable_base_is_marked_in_the_list(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small_bases.write(tmp_path / "mine")
    assert main(["base", "add", "mine", "--quiet"]) == 0
    (catalogue.find("mine") / "config.json").write_text("{")
    capsys.readouterr()
    assert main(["base"]) == 0
    assert "mine cannot be used" in " ".join(capsys.readouterr().out.split())


def test_the_list_names_the_licences_of_what_a_base_has_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small_bases.write(tmp_path / "mine")
    model_directories.edit(tmp_path / "mine" / "ownwords.json", text_licenses=["CC BY 4.0", "CC0"])
    assert main(["base", "add", str(tmp_path / "mine"), "--quiet"]) == 0
    capsys.readouterr()
    assert main(["base"]) == 0
    assert "mine was trained on texts under CC BY 4.0, CC0" in capsys.readouterr().out


def test_the_list_needs_neither_torch_nor_the_network(tmp_path: Path) -> None:
    code = (
        "from ownwords.cli.main import main; import sys; status = main(['base']);"
        "print([name for name in ('torch', 'httpx', 'lxml') if name in sys.modules], status)"
    )
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert process.stdout.splitlines()[-1] == "[] 0"
