"""A model from a hub is complete and verified, or not there at all."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import model_directories
import small_bases
from fake_hub import COMMIT, NAME, FakeServer, serving
from ownwords.base import catalogue, hub, install
from ownwords.base.catalogue import Manifest
from ownwords.base.hub import HubError
from ownwords.core.errors import ConfigError, OwnwordsError

INFO = f"/api/models/{NAME}"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeServer]:
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    # huggingface_hub waits between its tries: here for nothing.
    monkeypatch.setattr("huggingface_hub.utils._http.time.sleep", lambda _: None)
    with serving(monkeypatch) as server:
        monkeypatch.setenv("HF_ENDPOINT", server.address)
        yield server


@pytest.fixture
def model(tmp_path: Path) -> Path:
    small_bases.write(tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OWNWORDS_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_a_model_is_downloaded_checked_and_added(
    server: FakeServer, model: Path, home: Path
) -> None:
    files = names(model)
    (model / "modeling_tiny.py").write_text("raise SystemExit")
    (model / "pytorch_model.bin").write_bytes(b"a pickle")
    (model / "onnx").mkdir()
    (model / "onnx" / "config.json").write_bytes(b"of another format")
    server.publish(model)
    folder = install.add(NAME, "")
    assert folder == home / "bases" / "tiny-model"
    assert server.downloaded() == files
    assert names(folder) == files | {"base.json"}
    for name in files:
        assert (folder / name).read_bytes() == (model / name).read_bytes()
    catalogue.check_usable(folder)
    (base,) = (entry for entry in catalogue.entries() if entry.name != catalogue.SHIPPED)
    assert base.source == f"{NAME} ({server.address})"
    manifest = Manifest.read(folder)
    assert manifest is not None
    assert manifest.revision == COMMIT
    assert names(home / "bases") == {"tiny-model", ".tiny-model.lock"}


def test_files_that_arrived_are_kept_when_the_download_ends_early(
    server: FakeServer, model: Path, home: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    server.publish(model)
    weights = server.weights()
    weights.breaks_after = [0] * 20
    with pytest.raises(HubError) as raised:
        install.add(NAME, "x")
    assert "downloads the missing files" in raised.value.hint
    assert capfd.readouterr().err == ""
    assert all(entry.name == catalogue.SHIPPED for entry in catalogue.entries())
    weights.breaks_after.clear()
    server.requests.clear()
    install.add(NAME, "x")
    assert server.downloaded() == {"model.safetensors"}


def test_a_newer_version_is_downloaded_whole(server: FakeServer, model: Path, home: Path) -> None:
    server.publish(model)
    server.weights().status = 404
    with pytest.raises(HubError, match="is missing"):
        install.add(NAME, "x")
    newer = COMMIT[::-1]
    small_bases.write(model, seed=2)
    server.publish(model, newer)
    folder = install.add(NAME, "x")
    assert (folder / "model.safetensors").read_bytes() == (model / "model.safetensors").read_bytes()
    manifest = Manifest.read(folder)
    assert manifest is not None and manifest.revision == newer
    assert names(home / "bases") == {"x", ".x.lock"}


def test_weights_that_differ_from_their_listing_are_refused(
    server: FakeServer, model: Path, home: Path
) -> None:
    server.publish(model)
    weights = server.weights()
    weights.data = bytes([*weights.data[:-1], weights.data[-1] ^ 1])
    with pytest.raises(HubError, match=r"model.safetensors of .* its checksum does not match"):
        install.add(NAME, "x")
    assert names(home / "bases") == {".x.lock"}


@pytest.mark.parametrize(
    ("missing", "instead", "message"),
    [
        ("model.safetensors", "pytorch_model.bin", "can run any program"),
        ("model.safetensors", "model-q4.gguf", "model directory"),
        ("tokenizer.json", "vocab.json", "has no tokenizer.json"),
    ],
)
def test_an_incomplete_model_is_refused_before_any_download(
    server: FakeServer, model: Path, missing: str, instead: str, message: str
) -> None:
    (model / missing).rename(model / instead)
    server.publish(model)
    with pytest.raises(OwnwordsError, match=message):
        install.add(NAME, "x")
    assert server.downloaded() == set()


def test_an_unknown_family_costs_one_small_file(
    server: FakeServer, model: Path, home: Path
) -> None:
    model_directories.edit(model / "config.json", model_type="mamba")
    server.publish(model)
    with pytest.raises(ConfigError, match="mamba"):
        install.add(NAME, "x")
    assert server.downloaded() == {"config.json"}


def test_an_index_cannot_name_outside_files(server: FakeServer, tmp_path: Path, home: Path) -> None:
    small_bases.write(tmp_path / "m", "llama", shard_bytes=4000)
    index = {"weight_map": {"a": "../../etc/passwd"}}
    (tmp_path / "m" / "model.safetensors.index.json").write_text(json.dumps(index))
    server.publish(tmp_path / "m")
    with pytest.raises(OwnwordsError, match="passwd"):
        install.add(NAME, "x")


@pytest.mark.parametrize(
    ("status", "headers", "message", "hint"),
    [
        (401, {}, "has no model .*, or it is private", "HF_TOKEN"),
        (403, {"X-Error-Code": "GatedRepo"}, "only to accounts with access", "HF_TOKEN"),
        (500, {}, "answers 500", "downloads the missing"),
    ],
)
def test_a_refusal_of_the_hub_is_one_sentence(
    server: FakeServer, home: Path, status: int, headers: dict[str, str], message: str, hint: str
) -> None:
    server.put(INFO, "{}", status=status).headers = headers
    with pytest.raises(HubError, match=message) as raised:
        install.add(NAME, "x")
    assert hint in raised.value.hint


@pytest.mark.parametrize("answer", ["no JSON", '{"id": "a", "sha": "../x"}'])
def test_an_invalid_hub_answer_is_one_sentence(server: FakeServer, home: Path, answer: str) -> None:
    server.put(INFO, answer)
    with pytest.raises(HubError):
        install.add(NAME, "x")


def test_a_hub_that_cannot_be_reached_is_one_sentence(
    server: FakeServer, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")
    with pytest.raises(HubError, match=r"http://127\.0\.0\.1:1 cannot be reached"):
        install.add(NAME, "x")


def test_a_token_is_never_sent_unencrypted(
    server: FakeServer, model: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "secret")
    server.publish(model)
    install.add(NAME, "x")
    assert not any("authorization" in map(str.lower, headers) for _, _, headers in server.requests)
    assert hub.token_for("https://huggingface.co") is None  # the user's own


def test_a_full_disk_is_detected_before_the_download(
    server: FakeServer, model: Path, home: Path
) -> None:
    server.publish(model)
    listed = json.loads(server.files[INFO].data)
    for sibling in listed["siblings"]:
        if "lfs" in sibling:
            sibling["lfs"]["size"] = 1 << 60
    server.put(INFO, json.dumps(listed))
    with pytest.raises(OwnwordsError, match="the disk of"):
        install.add(NAME, "x")
    assert server.downloaded() == {"config.json"}
