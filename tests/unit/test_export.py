"""`ownwords export` on the command line."""

import json
import zipfile
from pathlib import Path

import numpy as np
import pytest

import ownwords
import small_bases
from ownwords.archive.blog_name import give_name
from ownwords.cli.main import main
from ownwords.core.workspace import UNFINISHED, cache_folder
from ownwords.inference.text_generation import (
    DEFAULT_SAMPLING,
    encode_prompt,
    generation_config,
)
from ownwords.models import bundle
from ownwords.models.configs.llama import config_for_budget
from ownwords.models.decoder import build
from ownwords.models.gguf.container import open_gguf
from ownwords.models.gguf.tokenizer import files_of
from ownwords.models.model_library import ModelLibrary
from ownwords.tokenizers.bpe import train
from ownwords.tokenizers.text import START
from ownwords.tokenizers.tokenizer import Tokenizer


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tokenizer = train(["The trouble with kettles is the lid. " * 20], 300)
    model = build(config_for_budget(500_000, tokenizer.vocabulary_size, 64))
    model.init_weights(7)
    bundle.save(tmp_path / "mine", model, tokenizer, generation={"temperature": 0.8})
    return tmp_path / "mine"


def figures(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, object]:
    assert main(["export", *arguments, "--json"]) == 0
    result: dict[str, object] = json.loads(capsys.readouterr().out)
    return result


def test_to_gguf_and_back_to_a_directory(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = figures(capsys, str(folder), "--to", "gguf", "--type", "f32")
    path = tmp_path / "mine.gguf"
    assert result == {
        "path": str(path), "form": "gguf", "type": "f32", "bytes": path.stat().st_size, "notes": [],
    }  # fmt: skip
    back = tmp_path / "back"
    figures(capsys, str(path), "--to", "hf", "--out", str(back))
    ids = [1, 2, 3, 4]
    assert np.array_equal(ownwords.load(back).logits(ids), ownwords.load(folder).logits(ids))


def test_a_folder_for_ollama(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", str(folder), "--to", "ollama"]) == 0
    ollama_folder = folder.parent / "mine-ollama"
    assert sorted(path.name for path in ollama_folder.iterdir()) == ["Modelfile", "mine.gguf"]
    text = (ollama_folder / "Modelfile").read_text(encoding="utf-8")
    assert text.startswith("FROM ./mine.gguf\n")
    assert 'PARAMETER stop "<|end|>"' in text
    assert "PARAMETER temperature 0.8" in text
    assert "PARAMETER num_ctx 64" in text
    assert "ollama create mine-ollama" in capsys.readouterr().out
    assert small_bases.read_gguf(ollama_folder / "mine.gguf").config.MODEL_TYPE == "qwen3"


def test_an_export_of_a_workspace_has_the_name_of_its_model(folder: Path, tmp_path: Path) -> None:
    root = tmp_path / "blog.ownwords"
    folder.rename(folder.with_name("model"))
    root.mkdir()
    (tmp_path / "model").rename(root / "model")
    give_name(root, "My Garden’s Year")
    assert main(["export", str(root), "--to", "gguf", "--type", "f32"]) == 0
    assert (root / "My-Gardens-Year.gguf").exists()
    assert ModelLibrary(root).keep("Second try")
    for source in (root, root / "models" / "Second try" / "model"):
        assert main(["export", str(source), "--to", "ollama"]) == 0
    for made in (root, root / "models" / "Second try"):
        names = [path.name for path in (made / "Second-try-ollama").iterdir()]
        assert sorted(names) == ["Modelfile", "Second-try.gguf"]


def test_a_gguf_file_is_exported_with_its_exact_weights(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    of_a_killed_one = cache_folder() / f".export.1{UNFINISHED}"
    (of_a_killed_one / "export").mkdir(parents=True)
    for type in ("q8_0", "f32"):
        assert main(["export", str(folder), "--to", "gguf", "--type", type, "--quiet"]) == 0
        first = (folder.parent / "mine.gguf").read_bytes()
        again = tmp_path / "again.gguf"
        words = [str(folder.parent / "mine.gguf"), "--to", "gguf", "--type", type]
        assert main(["export", *words, "--out", str(again), "--quiet"]) == 0
        assert again.stat().st_size == len(first)
        assert again.read_bytes()[-1000:] == first[-1000:]
    assert list(cache_folder().iterdir()) == []


def test_a_zip_of_the_directory_opens_as_one(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "mine here.zip"
    assert main(["export", str(folder), "--to", "zip", "--out", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["bytes"] == out.stat().st_size
    with zipfile.ZipFile(out) as archive:
        archive.extractall(tmp_path / "there")
    loaded = bundle.load(tmp_path / "there" / "mine here")
    assert loaded.model.state_dict().keys() == bundle.load(folder).model.state_dict().keys()
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


@pytest.mark.parametrize("stored", [True, False], ids=["stored", "an older directory"])
def test_every_export_has_the_sampling_settings_of_the_scorecard(
    stored: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tokenizer = train(["The trouble with kettles is the lid. " * 20], 300)
    model = build(config_for_budget(500_000, tokenizer.vocabulary_size, 64))
    model.init_weights(7)
    generation = generation_config() if stored else {}
    bundle.save(tmp_path / "mine", model, tokenizer, generation=generation)
    for form in ("hf", "gguf", "ollama"):
        figures(capsys, str(tmp_path / "mine"), "--to", form)
    expected = {
        "temperature": DEFAULT_SAMPLING.temperature,
        "top_k": DEFAULT_SAMPLING.top_k,
        "top_p": DEFAULT_SAMPLING.top_p,
        "min_p": DEFAULT_SAMPLING.min_p,
        "repetition_penalty": DEFAULT_SAMPLING.repetition_penalty,
    }
    hf = json.loads((tmp_path / "mine-hf" / "generation_config.json").read_bytes())
    assert hf["do_sample"] is True
    assert {name: hf[name] for name in expected} == expected
    for path in (tmp_path / "mine.gguf", tmp_path / "mine-ollama" / "mine.gguf"):
        read = small_bases.read_gguf(path).generation
        assert {name: read[name] for name in expected} == expected
    lines = (tmp_path / "mine-ollama" / "Modelfile").read_text(encoding="utf-8").splitlines()
    assert f"PARAMETER min_p {DEFAULT_SAMPLING.min_p:g}" in lines
    assert {"PARAMETER temperature 1", "PARAMETER top_k 0", "PARAMETER repeat_penalty 1"} <= {
        *lines
    }


def test_a_model_that_continues_text_begins_a_document(folder: Path) -> None:
    assert main(["export", str(folder), "--to", "ollama", "--quiet"]) == 0
    written = folder.parent / "mine-ollama"
    assert 'TEMPLATE """{{ .Prompt }}"""' in (written / "Modelfile").read_text(encoding="utf-8")
    with open_gguf(written / "mine.gguf") as contents:
        metadata = contents.metadata
    assert metadata["tokenizer.ggml.add_bos_token"] is True
    back = Tokenizer(files_of(metadata))
    prompt = encode_prompt(ownwords.load(folder).tokenizer, "The trouble")
    assert encode_prompt(back, "The trouble") == prompt
    assert prompt[0] == back.special[START]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere", "--to", "gguf"], "nowhere"),
        (["MODEL", "--to", "hf", "--type", "q8_0"], "cannot hold q8_0"),
        (["MODEL", "--to", "hf", "--out", "MODEL"], "is the model itself"),
        (["MODEL", "--to", "onnx"], "onnx"),
        (["nowhere", "--to", "adapter"], "nowhere does not exist"),
        (["MODEL", "--to", "adapter"], "has no LoRA"),
        (["MODEL", "--to", "adapter", "--type", "q8_0"], "to adapter cannot hold q8_0"),
    ],
)
def test_unsupported_exports_are_reported(
    arguments: list[str], message: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [str(folder) if word == "MODEL" else word for word in arguments]
    assert main(["export", *words]) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert "Traceback" not in captured.err
