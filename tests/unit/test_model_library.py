"""The models of a workspace: kept, compared, made current again, and never lost."""

import asyncio
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from starlette.testclient import TestClient

import model_directories as models
from ownwords.core.errors import OwnwordsError
from ownwords.core.workspace import Workspace, try_lock
from ownwords.models import directory, model_library
from ownwords.models.directory import model_fingerprint, model_stamp
from ownwords.models.model_library import BESIDE, ModelLibrary
from ownwords.serve.app import create_app
from ownwords.serve.app_state import AppState
from ownwords.serve.settings import ServeSettings

HEADERS = {"Content-Type": "application/json"}


def put(root: Path, content: str) -> None:
    """Replace the model of the workspace, as a training does."""
    ModelLibrary(root).keep()
    new = root / f"new-{content}"
    new.mkdir(parents=True)
    (new / "config.json").write_text("{}")
    (new / "model.safetensors").write_text(content)
    if (root / "model").exists():
        (root / "model").rename(root / f"old-{content}")
    new.rename(root / "model")
    ModelLibrary(root).forget_score()
    for path in BESIDE:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(f"{path.name} of {content}")


def weights(folder: Path) -> str:
    return (folder / "model.safetensors").read_text()


def beside(root: Path) -> set[str]:
    return {(root / path).read_text().partition(" of ")[2] for path in BESIDE}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "my blog.ownwords").mkdir()
    (tmp_path / "my blog.ownwords" / ".lock").touch()
    return tmp_path / "my blog.ownwords"


def test_every_model_is_kept_under_a_name(root: Path) -> None:
    library = ModelLibrary(root)
    assert library.keep() is None
    put(root, "a")
    first = library.keep()
    assert first is not None
    assert (first.name, first.is_current) == ("my blog 1", True)
    assert library.keep() == first
    put(root, "b")
    second = library.keep("The second (long)")
    assert second is not None
    assert [(m.name, m.is_current) for m in library.models()] == [
        ("The second (long)", True),
        ("my blog 1", False),
    ]
    assert (weights(first.model), weights(second.model)) == ("a", "b")
    assert (first.folder / "scorecard.json").read_text() == "scorecard.json of a"
    assert (second.model / "model.safetensors").samefile(root / "model" / "model.safetensors")


def test_a_kept_model_becomes_the_current_one_with_all_that_belongs_to_it(root: Path) -> None:
    for content in ("a", "b"):
        put(root, content)
    library = ModelLibrary(root)
    library.keep("second")
    library.use("my blog 1")
    assert (weights(root / "model"), beside(root)) == ("a", {"a"})
    assert library.models()[0].name == "my blog 1"
    library.use("second")
    library.use("second")
    assert (weights(root / "model"), beside(root)) == ("b", {"b"})


def test_a_model_without_a_score_gets_no_other_score(root: Path) -> None:
    put(root, "a")
    put(root, "b")
    ModelLibrary(root).keep("b")
    model_found = ModelLibrary(root).find("my blog 1")
    for path in BESIDE[:2]:
        model_found.beside(path).unlink()
    ModelLibrary(root).use("my blog 1")
    assert not any((root / path).exists() for path in BESIDE[:2])


def test_the_model_before_is_kept_even_if_it_never_was(root: Path) -> None:
    put(root, "a")
    ModelLibrary(root).keep("first")
    put(root, "b")  # by a training that was killed before it kept its model
    ModelLibrary(root).use("first")
    assert sorted(weights(model.model) for model in ModelLibrary(root).models()) == ["a", "b"]


def test_models_can_be_read_while_one_is_switched(root: Path) -> None:
    for content in ("a", "b"):
        put(root, content)
    library = ModelLibrary(root)
    names = [model.name for model in library.models() if not model.is_current] + ["second"]
    library.keep("second")
    state = AppState(Workspace(root))
    is_over = threading.Event()

    def read() -> None:
        while not is_over.is_set():
            assert len(state.library.models()) == 2
            assert len(state.models()) >= 2

    with ThreadPoolExecutor(4) as pool:
        readers = [pool.submit(read) for _ in range(3)]
        for number in range(10):
            state.library.use(names[number % 2])
        is_over.set()
        for reader in readers:
            reader.result()
    asyncio.run(state.close())


@pytest.mark.parametrize("after", range(8))
def test_a_killed_switch_is_completed_the_next_time(
    after: int, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for content in ("a", "b"):
        put(root, content)
    ModelLibrary(root).keep("b")
    steps = 0

    def killed(name: str) -> None:
        original = getattr(model_library, name)

        def step(*arguments: object) -> object:
            nonlocal steps
            steps += 1
            if steps > after:
                raise SystemExit
            return original(*arguments)

        monkeypatch.setattr(model_library, name, step)

    for name in ("_link", "_copy", "write_atomically"):
        killed(name)
    try:
        ModelLibrary(root).use("my blog 1")
    except SystemExit:
        monkeypatch.undo()
    models = ModelLibrary(root).models()
    assert {weights(model.model) for model in models} == {"a", "b"}
    assert beside(root) == {weights(root / "model")}
    assert models[0].is_current


@pytest.mark.parametrize(
    "name", ["..", "a/b", ".x", "", "x" * 81, "a\\b", "a\0", "b.", " b", "MINE"]
)
def test_paths_and_taken_names_are_refused(name: str, root: Path) -> None:
    put(root, "a")
    ModelLibrary(root).keep("mine")
    with pytest.raises(OwnwordsError):
        ModelLibrary(root).check_name(name)


def test_a_linked_and_a_copied_model_are_equal(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_links(*_: object) -> None:
        raise OSError

    monkeypatch.setattr("os.link", no_links)  # as on another disk
    put(root, "a")
    model_kept = ModelLibrary(root).keep("mine")
    assert model_kept is not None
    assert ModelLibrary(root).keep() == model_kept
    put(root, "b")
    assert not ModelLibrary(root).find("mine").is_current


# --- the API -------------------------------------------------------------------------------------


@pytest.fixture
def api(root: Path) -> TestClient:
    app = create_app(AppState(Workspace(root), ServeSettings(key="")))
    return TestClient(app, base_url="http://127.0.0.1:8377", headers=HEADERS)


def test_models_are_listed_renamed_switched_and_deleted(root: Path, api: TestClient) -> None:
    assert api.get("/api/models").json()["models"] == []
    put(root, "a")
    (only_model,) = api.get("/api/models").json()["models"]
    assert (only_model["name"], only_model["is_current"]) == (
        "my blog",
        True,
    )  # not kept: made in another way
    put(root, "b")
    ModelLibrary(root).keep("second one")
    listed = api.get("/api/models").json()
    assert [model["name"] for model in listed["models"]] == ["second one", "my blog 1"]
    bases = {base["name"]: base for base in listed["bases"]}
    assert bases["gemma3-270m"]["terms"]["url"].startswith("https://")
    usual = bases["smollm2-135m"]
    assert usual["is_recommended"] and usual["minutes"] > 0 and usual["memory_bytes"] > 0
    assert api.patch("/api/models/my%20blog%201", json={"name": "erste Größe"}).status_code == 204
    assert api.post("/api/models/erste Größe/use", json={}).status_code == 204
    listed = api.get("/api/models").json()
    assert [model["name"] for model in listed["models"]] == ["erste Größe", "second one"]
    assert weights(root / "model") == "a"
    assert api.delete("/api/models/erste Größe").status_code == 409
    assert api.delete("/api/models/second one").status_code == 204
    assert api.delete("/api/models/second one").status_code == 404
    assert api.patch("/api/models/erste Größe", json={"name": "../x"}).status_code == 409
    assert api.post("/api/models/none/use", json={}).status_code == 404


def test_no_model_changes_while_one_is_made(root: Path, api: TestClient) -> None:
    put(root, "a")
    put(root, "b")
    (root / "runs" / "make").mkdir(parents=True, exist_ok=True)
    with (root / "runs" / "make" / ".lock").open("a+") as lock:
        assert try_lock(lock.fileno())
        assert api.post("/api/models/my blog 1/use", json={}).status_code == 409
    assert api.post("/api/models/my blog 1/use", json={}).status_code == 204


def test_kept_models_can_be_written_with(root: Path, api: TestClient) -> None:
    put(root, "a")
    put(root, "b")
    names = [model["id"] for model in api.get("/v1/models").json()["data"]]
    assert names[:2] == ["my blog", "my blog 1"]


def test_exports_are_listed_downloaded_and_deleted(root: Path, api: TestClient) -> None:
    assert api.get("/api/exports").json() == {"options": [], "exports": []}
    put(root, "a")
    options = api.get("/api/exports").json()["options"]
    assert {option["to"] for option in options} == {"gguf", "ollama", "zip", "hf"}
    exports = root / "exports"
    (exports / "blog-ollama").mkdir(parents=True)
    (exports / "blog-ollama" / "Modelfile").write_text("FROM x")
    (exports / "blog-q8_0.gguf").write_bytes(b"GGUF")
    (exports / ".draft").mkdir()
    rows = {row["name"]: row for row in api.get("/api/exports").json()["exports"]}
    assert set(rows) == {"blog-ollama", "blog-q8_0.gguf"}
    assert rows["blog-ollama"]["commands"][1] == "ollama run blog"
    assert api.get("/api/exports/blog-q8_0.gguf").content == b"GGUF"
    assert api.get("/api/exports/blog-ollama").status_code == 409
    for name in ("..", "%2e%2e%2fmodel", "none", ".draft"):
        assert api.get(f"/api/exports/{name}").status_code == 404
    for name in rows:
        assert api.delete(f"/api/exports/{name}").status_code == 204
    assert not [path for path in exports.iterdir() if not path.name.startswith(".")]


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
    monkeypatch.setattr(directory, "_SETTLED_NS", -1)
    key, stamp = model_fingerprint(tmp_path), model_stamp(tmp_path)
    with monkeypatch.context() as patched:
        patched.delattr(directory, "open_file")
        assert model_fingerprint(tmp_path) == key
    assert model_stamp(tmp_path) == stamp
    models.write(tmp_path, seed=2)
    assert model_fingerprint(tmp_path) != key
    assert model_stamp(tmp_path) != stamp
