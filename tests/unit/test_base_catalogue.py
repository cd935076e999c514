import os
import sys
from pathlib import Path

import pytest

import model_directories
import small_bases
from ownwords.base import catalogue, install
from ownwords.base.catalogue import is_model_name
from ownwords.core.errors import OwnwordsError
from ownwords.core.workspace import data_folder
from ownwords.models import bundle
from ownwords.models.untrusted_files import ModelError
from ownwords.tokenizers.bpe import ByteTokenizer


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OWNWORDS_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    small_bases.write(tmp_path / "elsewhere" / "small")
    return tmp_path / "elsewhere" / "small"


@pytest.fixture
def box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the shipped base; empty."""
    monkeypatch.setattr(catalogue, "_SHIPPED_FOLDER", tmp_path / "box")
    return tmp_path / "box"


def test_where_things_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "xdg"))
    monkeypatch.setenv("OWNWORDS_HOME", str(tmp_path / "ours"))
    assert data_folder() == tmp_path / "ours"
    monkeypatch.delenv("OWNWORDS_HOME")
    assert data_folder() == tmp_path / "xdg" / "ownwords"
    # The XDG rules: a relative path is to be ignored.
    monkeypatch.setenv("XDG_DATA_HOME", "relative")
    monkeypatch.setattr(sys, "platform", "linux")
    assert data_folder() == tmp_path / ".local" / "share" / "ownwords"
    monkeypatch.setattr(sys, "platform", "darwin")
    support = tmp_path / "Library" / "Application Support" / "ownwords"
    assert data_folder() == support
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "local"))
    assert data_folder() == tmp_path / "local" / "ownwords"


def test_without_the_shipped_base_the_list_says_so(box: Path, home: Path) -> None:
    assert catalogue.entries() == []
    assert not catalogue.has_shipped()
    for name in ("", "shipped"):
        with pytest.raises(OwnwordsError, match="no shipped base") as raised:
            catalogue.find(name)
        assert "reinstall ownwords" in raised.value.hint


def test_the_shipped_base_is_listed_first(box: Path, home: Path, model: Path) -> None:
    box_model = small_bases.write(box)
    install.add(str(model), "another")
    assert catalogue.find("") == catalogue.find("shipped") == box
    entries = catalogue.entries()
    assert [entry.name for entry in entries] == ["shipped", "another"]
    shipped = entries[0]
    assert (shipped.source, shipped.config) == ("shipped", box_model.config)
    # Counted by PyTorch, of the model in memory.
    assert shipped.parameters == sum(parameter.numel() for parameter in box_model.parameters())
    assert shipped.bytes == sum(path.stat().st_size for path in box.iterdir())


@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_parameters_are_counted_without_the_weights(
    box: Path, home: Path, tmp_path: Path, family: str
) -> None:
    model = small_bases.write(tmp_path / "m", family)
    install.add(str(tmp_path / "m"), family)
    (entry,) = catalogue.entries()
    assert entry.parameters == sum(parameter.numel() for parameter in model.parameters())
    catalogue.check_usable(entry.folder)


def test_a_base_is_found_by_name_and_by_path(
    box: Path, home: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    added = install.add(str(model), "mine")
    assert catalogue.find("mine") == added
    assert catalogue.find(str(model)) == model
    workspace = model.parent / "blog.ownwords"
    small_bases.write(workspace / "model")
    assert catalogue.find(str(workspace)) == workspace / "model"
    # A name goes before a folder that is called like it.
    monkeypatch.chdir(model.parent)
    small_bases.write(Path("mine"))
    assert catalogue.find("mine") == added
    assert catalogue.find("./mine") == Path("mine")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("smal", "did you mean small?"),
        ("openai-community/gpt2", "ownwords base add openai-community/gpt2"),
        ("gemma3-270m", "ownwords base add gemma3-270m"),
        ("../nowhere", "ownwords base"),
        ("what is this", "ownwords base"),
    ],
)
def test_an_unknown_base_is_reported_with_advice(
    box: Path, home: Path, model: Path, name: str, hint: str
) -> None:
    install.add(str(model), "small")
    with pytest.raises(OwnwordsError, match="there is no base called") as raised:
        catalogue.find(name)
    assert hint in raised.value.hint


def test_an_added_model_outlives_its_original(box: Path, home: Path, model: Path) -> None:
    files = {path.name: path.read_bytes() for path in model.iterdir()}
    (model / "train.py").write_text("print('never copied')")
    (model / "pytorch_model.bin").write_bytes(b"never copied")
    folder = install.add(str(model), "")
    assert folder == home / "bases" / "small"
    for path in model.iterdir():
        path.unlink()
    there = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert there.keys() - files.keys() == {"base.json"}
    assert {name: there[name] for name in files} == files
    catalogue.check_usable(folder)
    (entry,) = catalogue.entries()
    assert (entry.name, entry.source) == ("small", str(model))


@pytest.mark.parametrize("name", ["none", "Shipped", "..", "a/b", "-x", "x" * 65, "a."])
def test_reserved_names_are_refused(box: Path, home: Path, model: Path, name: str) -> None:
    with pytest.raises(OwnwordsError, match=r"name"):
        install.add(str(model), name)
    assert catalogue.entries() == []


def test_an_existing_base_is_not_overwritten(box: Path, home: Path, model: Path) -> None:
    install.add(str(model), "mine")
    with pytest.raises(OwnwordsError, match="already") as raised:
        install.add(str(model), "mine")
    assert "ownwords base remove mine" in raised.value.hint


def test_an_added_base_can_be_removed(box: Path, home: Path, model: Path) -> None:
    folder = install.add(str(model), "mine")
    size = sum(path.stat().st_size for path in folder.iterdir())
    with pytest.raises(OwnwordsError, match="no added base called other") as raised:
        install.remove("other")
    assert "mine" in raised.value.hint
    assert install.remove("mine") == size
    assert catalogue.entries() == []
    assert not folder.exists()
    with pytest.raises(OwnwordsError, match="cannot be removed"):
        install.remove("shipped")


def test_an_invalid_model_is_not_added(box: Path, home: Path, tmp_path: Path, model: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "m.gguf").write_bytes(b"GGUF")
    for source, message in (
        (tmp_path / "empty", "has no config.json"),
        (tmp_path / "m.gguf", r"m\.gguf is damaged"),
        (tmp_path / "nowhere", "neither a folder, a GGUF file, a known base"),
    ):
        with pytest.raises(OwnwordsError, match=message):
            install.add(str(source), "x")
    (model / "model.safetensors").rename(model / "pytorch_model.bin")
    with pytest.raises(ModelError, match="pickle"):
        install.add(str(model), "x")
    (model / "pytorch_model.bin").rename(model / "model.safetensors")
    model_directories.edit(model / "config.json", intermediate_size=41)
    with pytest.raises(ModelError, match="has the shape"):
        install.add(str(model), "x")
    assert catalogue.entries() == []
    with pytest.raises(OwnwordsError, match="is not a model directory"):
        catalogue.find(str(tmp_path / "empty"))


def test_an_8_bit_model_is_added(box: Path, home: Path, tmp_path: Path) -> None:
    bundle.save(tmp_path / "eight", small_bases.model(), ByteTokenizer(), int8=True)
    catalogue.check_usable(install.add(str(tmp_path / "eight"), "eight"))


def test_non_finite_weights_are_detected(model: Path) -> None:
    weights = model / "model.safetensors"
    data = weights.read_bytes()
    length = 8 + int.from_bytes(data[:8], "little")
    # In float32, all bits set are no number.
    weights.write_bytes(data[:length] + b"\xff" * (len(data) - length))
    with pytest.raises(OwnwordsError, match=r"not finite|no numbers"):
        catalogue.check_usable(model)


def test_a_damaged_base_is_listed_as_such(box: Path, home: Path, model: Path) -> None:
    folder = install.add(str(model), "mine")
    (folder / "config.json").write_text("{")
    (entry,) = catalogue.entries()
    assert "not a JSON object" in entry.problem
    assert (entry.parameters, entry.config) == (0, None)


@pytest.mark.skipif(os.name == "nt", reason="locks differ")
def test_two_processes_do_not_change_one_base_at_once(box: Path, home: Path, model: Path) -> None:
    install.add(str(model), "mine")
    with (
        install._lock("mine"),
        pytest.raises(OwnwordsError, match="another ownwords"),
    ):
        install.remove("mine")


def test_a_model_is_named_after_its_workspace(tmp_path: Path) -> None:
    small_bases.write(tmp_path / "my blog.ownwords" / "model")
    assert catalogue.name_for(str(tmp_path / "my blog.ownwords" / "model")) == "my-blog"


@pytest.mark.parametrize(
    "text", ["gpt2", "a/b/c", "/a", "a/", "../b", "a b/c", "a/b?c", "https://x/y"]
)
def test_invalid_hub_names(text: str) -> None:
    assert not is_model_name(text)
