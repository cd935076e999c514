"""`ownwords export`, as it is typed."""

import json
from pathlib import Path

import numpy as np
import pytest

import ownwords
from ownwords.cli.main import main
from ownwords.models import bundle, gguf, qwen3
from ownwords.models.family import build
from ownwords.tokenizers.bpe import train


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tokenizer = train(["The trouble with kettles is the lid. " * 20], 300)
    model = build(qwen3.sized(500_000, tokenizer.vocabulary_size, 64))
    model.init_weights(7)
    bundle.save(tmp_path / "mine", model, tokenizer, generation={"temperature": 0.8})
    return tmp_path / "mine"


def figures(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, object]:
    assert main(["export", *arguments, "--json"]) == 0
    found: dict[str, object] = json.loads(capsys.readouterr().out)
    return found


def test_to_gguf_and_back_to_a_directory(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = figures(capsys, str(folder), "--to", "gguf", "--type", "f32")
    path = tmp_path / "mine.gguf"
    assert said == {
        "path": str(path), "form": "gguf", "type": "f32", "bytes": path.stat().st_size, "notes": [],
    }  # fmt: skip
    back = tmp_path / "back"
    figures(capsys, str(path), "--to", "hf", "--out", str(back))
    ids = [1, 2, 3, 4]
    assert np.array_equal(ownwords.load(back).logits(ids), ownwords.load(folder).logits(ids))


def test_a_folder_for_ollama(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", str(folder), "--to", "ollama"]) == 0
    made = folder.parent / "mine-ollama"
    assert sorted(path.name for path in made.iterdir()) == ["Modelfile", "mine.gguf"]
    text = (made / "Modelfile").read_text(encoding="utf-8")
    assert text.startswith("FROM ./mine.gguf\n")
    assert 'PARAMETER stop "<|end|>"' in text
    assert "PARAMETER temperature 0.8" in text
    assert "PARAMETER num_ctx 64" in text
    assert "ollama create mine-ollama" in capsys.readouterr().out
    assert gguf.load(made / "mine.gguf").config.MODEL_TYPE == "qwen3"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere", "--to", "gguf"], "nowhere"),
        (["MODEL", "--to", "hf", "--type", "q8_0"], "holds no q8_0"),
        (["MODEL", "--to", "hf", "--out", "MODEL"], "is the model itself"),
        (["MODEL", "--to", "onnx"], "onnx"),
    ],
)
def test_what_cannot_be_exported_is_said(
    arguments: list[str], said: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [str(folder) if word == "MODEL" else word for word in arguments]
    assert main(["export", *words]) == 2
    captured = capsys.readouterr()
    assert said in captured.err
    assert "Traceback" not in captured.err
