"""GGUF files as models: converted once, cached, and never half written."""

import io
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import small_bases
from families import TINY
from ownwords.cli.main import main
from ownwords.core.errors import OwnwordsError
from ownwords.core.workspace import cache_folder
from ownwords.inference.model import Model
from ownwords.models import bundle, gguf
from ownwords.models.configs.gemma3 import Gemma3Config
from ownwords.models.decoder import CausalLM, build
from ownwords.models.gguf import reading
from ownwords.models.gguf_cache import model_directory
from ownwords.tokenizers.byte_tokenizer import ByteTokenizer


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def file_of(path: Path, family: str = "qwen3", type: str = "f32", seed: int = 1) -> Path:
    """A GGUF file of a tiny model."""
    model = gemma() if family == "gemma3" else small_bases.model(family, seed)
    return gguf.save(path, model, ByteTokenizer().files(), type=type, name="tiny").path


def gemma() -> CausalLM:
    config = replace(TINY["gemma3"], vocabulary=ByteTokenizer().vocabulary_size)
    assert isinstance(config, Gemma3Config)
    # The only scale that llama.cpp knows.
    model = build(replace(config, query_scalar=config.head_dim))
    model.init_weights(1)
    return model


def conversions() -> list[Path]:
    folder = cache_folder() / "gguf"
    return sorted(folder.iterdir()) if folder.exists() else []


@pytest.mark.parametrize("type", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("family", ["gpt2", "llama", "qwen3", "gemma3"])
def test_a_conversion_has_the_weights_of_the_file(family: str, type: str, tmp_path: Path) -> None:
    path = file_of(tmp_path / "m.gguf", family, type)
    there, here = gguf.load(path), bundle.load(model_directory(path))
    assert here.config.to_hf() == there.config.to_hf()
    assert here.generation.items() >= there.generation.items()
    assert here.tokenizer_files == there.tokenizer_files
    ours = dict(here.model.named_parameters())
    for name, weight in there.model.named_parameters():
        # Norms are float32 in the file, and have the matrices' type in a directory.
        assert torch.equal(ours[name].float(), weight.to(ours[name].dtype).float()), name
    kinds = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
    assert {weight.dtype for weight in ours.values()} == {kinds[type]}


def test_blocks_of_codes_become_the_nearest_bfloat16(tmp_path: Path) -> None:
    path = file_of(tmp_path / "m.gguf", type="q8_0")
    exact = dict(gguf.load(path).model.named_parameters())
    for name, weight in bundle.load(model_directory(path)).model.named_parameters():
        assert torch.equal(weight, exact[name].bfloat16())


def test_float16_that_cannot_hold_a_weight_says_so(tmp_path: Path) -> None:
    model = small_bases.model()
    with torch.no_grad():
        next(model.parameters()).fill_(1e6)
    path = gguf.save(tmp_path / "m.gguf", model, ByteTokenizer().files(), type="f32").path
    (tmp_path / "out").mkdir()
    with pytest.raises(OwnwordsError, match="too large for float16"):
        reading.convert(path, tmp_path / "out", type="f16")


def test_a_file_is_converted_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = file_of(tmp_path / "m.gguf")
    folder = model_directory(path)
    with monkeypatch.context() as patch:
        patch.setattr(reading, "convert", None)  # calling it would fail
        assert model_directory(path) == folder
        path.rename(tmp_path / "n.gguf")
        path.symlink_to("n.gguf")
        assert model_directory(path) == folder
    path.unlink()
    second = model_directory(file_of(path, seed=2))
    assert second != folder
    assert model_directory(tmp_path) == tmp_path


def test_only_a_few_conversions_stay(tmp_path: Path) -> None:
    converted = []
    for seed in range(4):
        converted.append(model_directory(file_of(tmp_path / f"{seed}.gguf", seed=seed)))
        for at, folder in enumerate(converted):
            if folder.exists():
                os.utime(folder, (at, at))
    assert conversions() == sorted(converted[1:])


@pytest.mark.parametrize("share", [0.0, 0.3, 0.99])
def test_a_truncated_file_leaves_no_files(share: float, tmp_path: Path) -> None:
    path = file_of(tmp_path / "m.gguf")
    path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])
    with pytest.raises(OwnwordsError, match=r"m\.gguf"):
        model_directory(path)
    assert conversions() == []


def test_every_verb_that_writes_opens_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = file_of(tmp_path / "m.gguf")
    small_bases.write(tmp_path / "m")
    lines = []
    for model in (path, tmp_path / "m"):
        args = ["--model", str(model), "--max-tokens", "12", "--seed", "1", "--json"]
        assert main(["write", "The", *args]) == 0
        lines.append(json.loads(capsys.readouterr().out)["texts"])
    assert lines[0] == lines[1]
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    assert main(["chat", "--model", str(path)]) == 0
    assert Model.load(path).tokenizer.encode("The") == ByteTokenizer().encode("The")
