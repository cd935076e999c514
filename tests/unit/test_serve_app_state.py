"""Served models and archives: opened on request, reloaded when replaced."""

import asyncio
import json
import os
import sqlite3
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

import ownwords
from counting_engine import CountingEngine
from ownwords.base import catalogue
from ownwords.core.errors import OwnwordsError
from ownwords.core.workspace import Workspace
from ownwords.inference.generation import generate
from ownwords.inference.model import Model
from ownwords.models import directory
from ownwords.models.directory import ModelDirectory, Stamp, model_stamp
from ownwords.serve import app_state as app_state_module
from ownwords.serve import model_worker as model_worker_module
from ownwords.serve.app_state import AppState
from ownwords.serve.errors import ApiError
from ownwords.serve.jobs import JobRequest
from ownwords.serve.model_worker import (
    LoadedModel,
    cache_size,
)
from ownwords.serve.settings import ServeSettings
from ownwords.tokenizers.bpe import ByteTokenizer

pytestmark = pytest.mark.skipif(not catalogue.has_shipped(), reason="there is no model in the box")


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path / "diary.ownwords")


@pytest.fixture(scope="module")
def model_directory() -> ModelDirectory:
    return directory.read(catalogue.shipped())


class CountingLoader:
    """Stands in for the loader: counting engines, and the number of loads."""

    def __init__(self, directory_of_model: ModelDirectory) -> None:
        self.count = 0
        self.may_go_on = threading.Event()
        self.may_go_on.set()
        self.fails: OwnwordsError | None = None
        self._directory = directory_of_model

    def __call__(
        self, folder: Path, settings: ServeSettings
    ) -> tuple[ModelDirectory, Model, Stamp]:
        assert self.may_go_on.wait(10)
        self.count += 1
        if self.fails:
            raise self.fails
        tokenizer = ByteTokenizer()
        engine = CountingEngine(tokenizer.vocabulary_size)
        return self._directory, Model(engine, tokenizer), model_stamp(folder)


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch, model_directory: ModelDirectory) -> CountingLoader:
    counting_loads = CountingLoader(model_directory)
    monkeypatch.setattr(app_state_module, "load", counting_loads)
    return counting_loads


def put_model(folder: Path, provenance: object = None) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text("{}", encoding="utf-8")
    (folder / "ownwords.json").write_text(json.dumps(provenance or {}), encoding="utf-8")
    return folder


def touch(folder: Path) -> None:
    """As if the file had been replaced."""
    os.utime(folder / "config.json", ns=(10**18, 10**18))


def run_within(state: AppState, work: Callable[[], Awaitable[None]]) -> None:
    async def run() -> None:
        try:
            async with asyncio.timeout(30):
                await work()
        finally:
            await state.close()

    asyncio.run(run())


MODEL = Model(CountingEngine(ByteTokenizer().vocabulary_size), ByteTokenizer())


async def text_of(loaded: LoadedModel, seed: int = 1, tokens: int = 20) -> list[int]:
    async with loaded.worker.generate(
        MODEL.request("Dear", max_tokens=tokens, seed=seed)
    ) as stream:
        return [token async for token in stream]


def single_text(seed: int = 1, tokens: int = 20) -> list[int]:
    engine = CountingEngine(ByteTokenizer().vocabulary_size)
    request = MODEL.request("Dear", max_tokens=tokens, seed=seed)
    return list(generate(engine, request))


# --- models ------------------------------------------------------------------------------------


def test_models_are_those_of_the_workspace_its_base_and_the_arguments(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OWNWORDS_HOME", str(tmp_path / "home"))
    extra = put_model(tmp_path / "given")
    state = AppState(workspace, models={"given": extra})
    assert list(state.models()) == ["given", "shipped"]
    assert state.own_model == ""

    put_model(workspace.root / "model", {"base_name": "shipped"})
    assert list(state.models()) == ["diary", "given", "shipped"]
    assert state.own_model == "diary"
    assert state.models()["shipped"] == catalogue.shipped()


def test_the_command_of_a_job_names_what_was_asked_and_what_the_workspace_knows(
    workspace: Workspace,
) -> None:
    blog = workspace.root.parent
    state = AppState(workspace, sources=[blog])
    state.sources.set_filter({"drafts": True})
    fixed = [str(blog), "--workspace", str(workspace.root)]
    drafts = ["--set", "archive.drafts=true", "--json"]
    assert state._arguments(JobRequest("look")) == ["look", *fixed, *drafts]
    asked = ["--minutes", "4.0", "--base", "shipped"]
    assert state._arguments(JobRequest("make", 4.0, "shipped")) == ["make", *fixed, *asked, *drafts]
    base = JobRequest("base", source="org/name", accepted=True)
    accepted = ["--accept-terms", "org/name", "--json"]
    assert state._arguments(base) == ["base", "add", "org/name", *accepted]
    put_model(workspace.root / "model")
    on_a_card = AppState(workspace, ServeSettings(device="cuda:1"), sources=[blog])
    for request in (JobRequest("make"), JobRequest("score")):
        assert "--device" not in state._arguments(request)
        assert "--device cuda:1" in " ".join(on_a_card._arguments(request))
    out = str(workspace.root / "exports" / "diary-q8_0.gguf")
    export = ["--to", "gguf", "--type", "q8_0", "--out", out, "--json"]
    model = str(workspace.root / "model")
    export_request = JobRequest("export", to="gguf", type="q8_0")
    assert state._arguments(export_request) == ["export", model, *export]


def test_concurrent_requests_load_a_model_once_without_blocking_others(
    workspace: Workspace, loads: CountingLoader
) -> None:
    put_model(workspace.root / "model")
    loads.may_go_on.clear()
    state = AppState(workspace)

    async def work() -> None:
        names = [""] * 10 + ["diary"]
        tasks = [asyncio.create_task(state.get_model(name)) for name in names]
        while not state._loading.locked():
            await asyncio.sleep(0.001)
        await state.run(lambda: None)  # while it is being loaded
        loads.may_go_on.set()
        models_loaded = await asyncio.gather(*tasks)
        assert len(set(map(id, models_loaded))) == 1
        assert loads.count == 1
        assert await text_of(models_loaded[0]) == single_text()

    run_within(state, work)


def test_a_replaced_model_is_reloaded_and_running_texts_continue(
    workspace: Workspace, loads: CountingLoader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_worker_module, "_GRACE_S", 0.01)
    folder = put_model(workspace.root / "model")
    state = AppState(workspace)

    async def work() -> None:
        before = await state.get_model()
        assert await state.get_model() is before
        async with before.worker.generate(MODEL.request("Dear", max_tokens=3000)) as stream:
            ids = [await anext(aiter(stream))]
            (folder / "README.md").write_text("a card", encoding="utf-8")
            assert await state.get_model() is before
            touch(folder)
            after = await state.get_model()
            assert after is not before
            assert await text_of(after, seed=2) == single_text(seed=2)
            async for token in stream:
                ids.append(token)
        assert ids == single_text(tokens=3000)
        assert [*state._loaded] == ["diary"]
        while before.worker._thread.is_alive():
            await asyncio.sleep(0.01)

    run_within(state, work)
    assert loads.count == 2


def test_of_many_models_the_most_recently_used_stays_loaded(
    workspace: Workspace, loads: CountingLoader, tmp_path: Path
) -> None:
    models = {name: put_model(tmp_path / name) for name in "abc"}
    state = AppState(workspace, ServeSettings(loaded=2), models=models)

    async def work() -> None:
        for name in ("a", "b", "a", "c"):
            assert (await state.get_model(name)).name == name
        assert [*state._loaded] == ["a", "c"]

    run_within(state, work)


def test_unavailable_models_are_reported(workspace: Workspace, loads: CountingLoader) -> None:
    state = AppState(workspace)

    async def work() -> None:
        with pytest.raises(
            ApiError, match=r"no model called 'dairy'.*available models: shipped"
        ) as refused:
            await state.get_model("dairy")
        assert refused.value.status == 404
        loads.fails = OwnwordsError("its config is damaged")
        with pytest.raises(OwnwordsError, match="damaged"):
            await state.get_model()
        loads.fails = None
        assert (await state.get_model()).name == "shipped"

    run_within(state, work)


def test_the_cache_size_follows_the_available_memory(
    model_directory: ModelDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = model_directory.config
    token = 2 * config.layers * config.kv_heads * config.head_dim * 4
    free = 10 * token * config.context * 4  # a quarter of which holds ten texts
    monkeypatch.setattr(
        "ownwords.core.hardware.read_memory", lambda: type("", (), {"available_bytes": free})
    )
    assert cache_size(config, ServeSettings()) == (10, config.context)
    assert cache_size(config, ServeSettings(rows=3, context=100)) == (3, 100)
    assert cache_size(config, ServeSettings(memory_share=1e-9)) == (1, config.context)


# --- threads -----------------------------------------------------------------------------------


def test_work_is_done_in_order_and_cancelled_work_not_started(workspace: Workspace) -> None:
    state = AppState(workspace, ServeSettings(workers=1))
    has_begun, go_on, results = threading.Event(), threading.Event(), list[int]()

    def first_work() -> None:
        has_begun.set()
        go_on.wait(10)

    async def work() -> None:
        first = asyncio.create_task(state.run(first_work))
        await asyncio.to_thread(has_begun.wait, 10)
        tasks = [
            asyncio.create_task(state.run(lambda number=number: results.append(number)))  # type: ignore[misc]
            for number in range(5)
        ]
        await asyncio.sleep(0)
        tasks[2].cancel()
        await asyncio.sleep(0)
        go_on.set()
        await first
        await asyncio.gather(*tasks, return_exceptions=True)
        assert results == [0, 1, 3, 4]

    run_within(state, work)


# --- the archive -------------------------------------------------------------------------------


def look(tmp_path: Path, workspace: Workspace, **posts: str) -> None:
    source = tmp_path / "blog"
    source.mkdir(exist_ok=True)
    for name, text in posts.items():
        (source / f"{name}.md").write_text(f"# {name}\n\n{text}\n", encoding="utf-8")
    ownwords.look(source, workspace=workspace.root)


WORDS = "We put the {} on the long table under the window and went on with it until the evening. "


def test_each_thread_has_its_own_archive_and_searches_see_the_last_look(
    workspace: Workspace, tmp_path: Path
) -> None:
    state = AppState(workspace)
    look(tmp_path, workspace, lamps=WORDS.format("lamp") * 9)

    def titles(question: str) -> list[str]:
        return [passage.title for passage in state.searcher().find(question).passages]

    async def work() -> None:
        archives = await asyncio.gather(*(state.run(state.archive) for _ in range(40)))
        assert 1 <= len(set(map(id, archives))) <= state.settings.workers
        assert await state.run(lambda: titles("lamp")) == ["lamps"]
        look(tmp_path, workspace, kettles=WORDS.format("kettle") * 9)
        assert await state.run(lambda: titles("kettle")) == ["kettles"]
        # Another file of the same name, as after it was deleted and made anew.
        workspace.archive.unlink()
        look(tmp_path, workspace, ladders=WORDS.format("ladder") * 9)
        assert await state.run(lambda: titles("ladder")) == ["ladders"]
        count = await state.run(lambda: sum(1 for _ in state.archive().headers()))
        assert count == 3

    run_within(state, work)


def test_an_archive_of_another_version_is_not_changed(workspace: Workspace, tmp_path: Path) -> None:
    look(tmp_path, workspace, lamps=WORDS.format("lamp") * 9)
    with sqlite3.connect(workspace.archive) as db:
        db.execute("PRAGMA user_version = 99")
    db.close()
    before = workspace.archive.read_bytes()
    state = AppState(workspace)
    for ask in (state.archive, state.searcher):
        with pytest.raises(ApiError, match="another version") as refused:
            ask()
        assert refused.value.status == 409
    assert workspace.archive.read_bytes() == before
