import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import model_directories
import small_bases
from loopback import Clock, Server, downloads, served
from ownwords.base import catalogue, checks, hub, install
from ownwords.base.downloads import FetchError
from ownwords.base.manifest import Manifest
from ownwords.core.errors import ConfigError, OwnwordsError
from ownwords.core.progress import Progress
from ownwords.models.untrusted_files import ModelError

NAME = "someone/tiny-model"
COMMIT = "0123456789abcdef0123456789abcdef01234567"
API = f"/api/models/{NAME}/revision/main?blobs=true"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    with served(monkeypatch) as found:
        monkeypatch.setenv("HF_ENDPOINT", found.address)
        yield found


@pytest.fixture
def model(tmp_path: Path) -> Path:
    small_bases.write(tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def publish(server: Server, folder: Path, *, commit: str = COMMIT, tells: bool = True) -> None:
    """Put a folder on the hub as huggingface.co shows it: weights in LFS, the rest in git."""
    siblings = []
    for path in sorted(folder.rglob("*")):
        if path.is_dir():
            continue
        data, name = path.read_bytes(), path.relative_to(folder).as_posix()
        server.put(f"/{NAME}/resolve/{commit}/{name}", data, etag=f'"{name}"')
        told: dict[str, object] = {"rfilename": name}
        if tells:
            git = hashlib.sha1(f"blob {len(data)}\0".encode() + data).hexdigest()
            told |= {"size": len(data), "blobId": git}
        if tells and name.endswith((".safetensors", ".bin")):
            sha256 = hashlib.sha256(data).hexdigest()
            told |= {"lfs": {"sha256": sha256, "size": len(data), "pointerSize": 134}}
        siblings.append(told)
    server.put(API, json.dumps({"id": NAME, "sha": commit, "siblings": siblings}))


def fetched(server: Server) -> set[str]:
    return {path.rpartition("/")[2] for path in server.paths() if "/resolve/" in path}


def wanted(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_a_checkpoint_is_fetched_checked_and_kept(server: Server, model: Path, home: Path) -> None:
    files = wanted(model)
    (model / "modeling_tiny.py").write_text("raise SystemExit")
    (model / "pytorch_model.bin").write_bytes(b"a pickle")
    (model / "onnx").mkdir()
    (model / "onnx" / "model.onnx").write_bytes(b"another form")
    publish(server, model)
    folder = install.add(NAME, "", home)
    assert folder == home / "bases" / "tiny-model"
    assert fetched(server) == files
    for name in files:
        assert (folder / name).read_bytes() == (model / name).read_bytes()
    assert checks.verify(folder) == []
    (found,) = (each for each in catalogue.entries(home) if each.origin == "added")
    assert found.source == f"{NAME} ({server.address})"
    known = Manifest.read(folder)
    assert known is not None
    assert known.revision == COMMIT
    sums = {name: hashlib.sha256((model / name).read_bytes()).hexdigest() for name in files}
    assert known.files == sums
    assert wanted(home / "bases") == {"tiny-model", ".tiny-model.lock"}


def test_weights_in_several_files_come_with_their_index(
    server: Server, tmp_path: Path, home: Path
) -> None:
    small_bases.write(tmp_path / "m", "llama", shard_bytes=4000)
    publish(server, tmp_path / "m")
    folder = install.add(NAME, "x", home)
    assert len(list(folder.glob("*.safetensors"))) > 1
    assert checks.verify(folder) == []


def test_a_hub_that_tells_no_sizes_will_do(server: Server, model: Path, home: Path) -> None:
    publish(server, model, tells=False)
    assert checks.verify(install.add(NAME, "x", home)) == []


def test_what_a_hub_says_of_a_file_when_it_sends_us_elsewhere_is_held_to(
    server: Server, model: Path, home: Path
) -> None:
    publish(server, model, tells=False)
    path = f"/{NAME}/resolve/{COMMIT}/model.safetensors"
    weights = server.files[path]
    server.put("/elsewhere", weights.data)
    linked = hashlib.sha256(weights.data).hexdigest()
    away = {"Location": "/elsewhere", "X-Linked-Etag": f'"{linked}"'}
    server.put(path, status=302, headers=away)
    install.add(NAME, "right", home)
    server.put("/elsewhere", weights.data[:-1] + b"\x7f")
    with pytest.raises(FetchError, match="checksum"), downloads(Clock()) as through:
        hub.fetch(NAME, home / "bases" / "wrong", Progress(), through)


def test_what_came_is_not_fetched_again(server: Server, model: Path, home: Path) -> None:
    publish(server, model)
    weights = server.files[f"/{NAME}/resolve/{COMMIT}/model.safetensors"]
    weights.breaks_after = [1000, 0, 0, 0, 0]
    with downloads(Clock()) as through, pytest.raises(FetchError):
        (home / "bases").mkdir(parents=True)
        hub.fetch(NAME, home / "bases" / "x", Progress(), through)
    assert not any(each.origin == "added" for each in catalogue.entries(home))
    weights.breaks_after.clear()
    server.forget()
    install.add(NAME, "x", home)
    assert fetched(server) == {"model.safetensors"}
    assert server.asked[-1].headers["Range"] == "bytes=1000-"


def test_a_newer_version_is_fetched_whole(server: Server, model: Path, home: Path) -> None:
    publish(server, model)
    server.files[f"/{NAME}/resolve/{COMMIT}/model.safetensors"].status = 404
    with pytest.raises(FetchError, match="not all of it"):
        install.add(NAME, "x", home)
    newer = COMMIT[::-1]
    small_bases.write(model, seed=2)
    publish(server, model, commit=newer)
    folder = install.add(NAME, "x", home)
    assert (folder / "model.safetensors").read_bytes() == (model / "model.safetensors").read_bytes()
    known = Manifest.read(folder)
    assert known is not None and known.revision == newer
    assert wanted(home / "bases") == {"x", ".x.lock"}


def test_other_weights_than_were_promised_are_not_kept(
    server: Server, model: Path, home: Path
) -> None:
    publish(server, model)
    weights = server.files[f"/{NAME}/resolve/{COMMIT}/model.safetensors"]
    weights.data = bytes([*weights.data[:-1], weights.data[-1] ^ 1])
    path = home / "bases" / "x"
    with downloads(Clock()) as through, pytest.raises(FetchError, match="checksum"):
        path.parent.mkdir(parents=True)
        hub.fetch(NAME, path, Progress(), through)
    assert not path.exists()


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ({"pytorch_model.bin": b"x"}, "can run any program"),
        ({"model-q4.gguf": b"x"}, "model directory"),
        ({}, "holds no model.safetensors"),
    ],
)
def test_weights_of_other_kinds_are_refused_before_anything_is_fetched(
    server: Server, model: Path, home: Path, names: dict[str, bytes], said: str
) -> None:
    (model / "model.safetensors").unlink()
    for name, data in names.items():
        (model / name).write_bytes(data)
    publish(server, model)
    with pytest.raises(OwnwordsError, match=said):
        install.add(NAME, "x", home)
    assert fetched(server) == set()


@pytest.mark.parametrize("missing", ["config.json", "tokenizer.json"])
def test_a_model_that_lacks_something_is_refused_before_anything_is_fetched(
    server: Server, model: Path, home: Path, missing: str
) -> None:
    (model / missing).unlink()
    publish(server, model)
    with pytest.raises(OwnwordsError, match=f"holds no {missing}"):
        install.add(NAME, "x", home)
    assert fetched(server) == set()


def test_a_family_nobody_here_reads_costs_one_small_file(
    server: Server, model: Path, home: Path
) -> None:
    model_directories.edit(model / "config.json", model_type="mamba")
    publish(server, model)
    with pytest.raises(ConfigError, match="mamba"):
        install.add(NAME, "x", home)
    assert fetched(server) == {"config.json"}


def test_an_index_cannot_name_files_elsewhere(server: Server, tmp_path: Path, home: Path) -> None:
    small_bases.write(tmp_path / "m", "llama", shard_bytes=4000)
    index = {"weight_map": {"a": "../../etc/passwd"}}
    (tmp_path / "m" / "model.safetensors.index.json").write_text(json.dumps(index))
    publish(server, tmp_path / "m")
    with pytest.raises(OwnwordsError, match="passwd"):
        install.add(NAME, "x", home)


@pytest.mark.parametrize(
    ("status", "said", "hint"),
    [
        (401, "gives .* to nobody unnamed", "HF_TOKEN"),
        (403, "licence", "HF_TOKEN"),
        (404, "has no model", "ORG/NAME"),
    ],
)
def test_what_a_hub_refuses_is_told(
    server: Server, home: Path, status: int, said: str, hint: str
) -> None:
    server.put(API, status=status)
    with pytest.raises(FetchError, match=said) as told:
        install.add(NAME, "x", home)
    assert hint in told.value.hint


@pytest.mark.parametrize("answer", ["no JSON", "[]", "{}", '{"sha": "../x", "siblings": []}'])
def test_what_is_no_answer_of_a_hub_is_told(server: Server, home: Path, answer: str) -> None:
    server.put(API, answer)
    with pytest.raises((FetchError, ModelError)):
        install.add(NAME, "x", home)


def test_what_was_begun_can_be_taken_away(server: Server, model: Path, home: Path) -> None:
    publish(server, model)
    server.files[f"/{NAME}/resolve/{COMMIT}/model.safetensors"].status = 404
    with pytest.raises(FetchError):
        install.add(NAME, "x", home)
    assert install.remove("x", home) > 0
    assert wanted(home / "bases") == {".x.lock"}


def test_a_token_goes_only_where_nobody_can_read_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "secret")
    monkeypatch.delenv("HF_ENDPOINT", raising=False)
    assert hub._named() == {"Authorization": "Bearer secret"}
    monkeypatch.setenv("HF_ENDPOINT", "http://hub.example")
    assert hub._named() == {}


def test_a_full_disk_is_told_before(server: Server, model: Path, home: Path) -> None:
    publish(server, model)
    listed = json.loads(server.files[API].data)
    for one in listed["siblings"]:
        if "lfs" in one:
            one["lfs"]["size"] = 1 << 60
    server.put(API, json.dumps(listed))
    with pytest.raises(OwnwordsError, match="the disk of"):
        install.add(NAME, "x", home)
    assert fetched(server) == {"config.json"}
