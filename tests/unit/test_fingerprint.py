"""When two directories hold the same model."""

import shutil
from pathlib import Path

import pytest

import model_directories as models
from ownwords.models import fingerprint
from ownwords.models.fingerprint import model_fingerprint, model_stamp


def test_a_copy_has_the_same_fingerprint_and_any_change_another(tmp_path: Path) -> None:
    folder = tmp_path / "m"
    models.write(folder)
    key = model_fingerprint(folder)
    shutil.copytree(folder, tmp_path / "another name")
    assert model_fingerprint(tmp_path / "another name") == key
    (folder / "README.md").write_text("another card")
    assert model_fingerprint(folder) == key
    assert model_fingerprint(tmp_path / "nothing") == ""
    for name in ("model.safetensors", "config.json", "tokenizer.json", "generation_config.json"):
        data = (folder / name).read_bytes()
        (folder / name).write_bytes(data[:-1] + bytes([data[-1] ^ 1]))  # the size stays
        assert model_fingerprint(folder) != key, name
        (folder / name).write_bytes(data)
    assert model_fingerprint(folder) == key


def test_provenance_and_copy_guard_count_where_they_are_asked_for(tmp_path: Path) -> None:
    models.write(tmp_path)
    bare, complete = model_fingerprint(tmp_path), model_fingerprint(tmp_path, provenance=True)
    models.edit(tmp_path / "ownwords.json", base="another")
    assert model_fingerprint(tmp_path) == bare
    assert model_fingerprint(tmp_path, provenance=True) != complete
    (tmp_path / "copy-guard.safetensors").write_bytes(b"guard")
    assert model_fingerprint(tmp_path) != bare
    assert model_fingerprint(tmp_path, copy_guard=False) == bare


def test_an_unchanged_file_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    models.write(tmp_path)
    monkeypatch.setattr(fingerprint, "_SETTLED_NS", -1)
    key, stamp = model_fingerprint(tmp_path), model_stamp(tmp_path)
    with monkeypatch.context() as patched:
        patched.delattr(fingerprint, "open_file")
        assert model_fingerprint(tmp_path) == key
    assert model_stamp(tmp_path) == stamp
    models.write(tmp_path, seed=2)
    assert model_fingerprint(tmp_path) != key
    assert model_stamp(tmp_path) != stamp
