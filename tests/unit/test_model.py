"""`ownwords.load`: a model and its tokenizer from a directory, and what it generates."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

import families  # noqa: F401 - it sees to it that one thread computes
import ownwords
from ownwords.core.errors import ConfigError, OwnwordsError
from ownwords.inference import copy_guard
from ownwords.inference.generation import generate
from ownwords.inference.sampling import SamplingParams
from ownwords.inference.text_generation import encode_prompt
from ownwords.models import bundle
from ownwords.models.configs.llama import config_for_budget
from ownwords.models.decoder import build
from ownwords.models.directory import COPY_GUARD, GENERATION
from ownwords.native import bindings
from ownwords.tokenizers.bpe import train

TEXTS = ["The trouble with kettles is the lid. " * 20, "Zażółć gęślą jaźń. " * 20]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tokenizer = train(TEXTS, 300)
    model = build(config_for_budget(500_000, tokenizer.vocabulary_size, 64))
    model.init_weights(7)
    with torch.no_grad():  # blocks that write nothing would prove nothing
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1))
            parameter.add_(0.05 * noise)
    folder = tmp_path_factory.mktemp("models") / "model"
    bundle.save(folder, model, tokenizer)
    return folder


def test_ids_that_do_not_belong_are_refused(folder: Path) -> None:
    model = ownwords.load(folder)
    with pytest.raises(OwnwordsError, match="not in the vocabulary"):
        model.logits([model.engine.vocabulary])
    with pytest.raises(OwnwordsError, match="do not fit the model's context"):
        model.logits([0] * 65)
    with pytest.raises(OwnwordsError):
        model.logits([])


def test_scores_are_those_of_the_logits_with_and_without_a_scheduler(folder: Path) -> None:
    model = ownwords.load(folder)
    prompt, texts = encode_prompt(model.tokenizer, "The trouble"), [" with kettles", " is", ""]
    expected = []
    for ids in map(model.tokenizer.encode, texts):
        logits = model.logits([*prompt, *ids])[len(prompt) - 1 : -1].astype(float)
        likely = logits - np.logaddexp.reduce(logits, axis=1)[:, None]
        expected.append(-likely[range(len(ids)), ids].sum() / np.log(2))
    scheduler = model.scheduler(2, 64)
    model.write_several("The trouble", seeds=[1, 2], max_tokens=9, scheduler=scheduler)
    for how in (None, scheduler, scheduler):
        assert model.score("The trouble", texts, how) == pytest.approx(expected, abs=1e-3)
    with pytest.raises(OwnwordsError, match="do not fit"):
        model.score("The trouble", ["lid" * 65], scheduler)


def test_an_exception_leaves_a_shared_scheduler_usable(folder: Path) -> None:
    model = ownwords.load(folder)
    scheduler = model.scheduler(2, 64)

    def write(on_tokens: Callable[[int], object] = bool) -> list[str]:
        return model.write_several(
            "The trouble", seeds=[1, 2], max_tokens=9, scheduler=scheduler, on_tokens=on_tokens
        )

    with pytest.raises(ZeroDivisionError):
        write(lambda tokens: 1 // 0)
    assert write() == [*model.write_several("The trouble", seeds=[1, 2], max_tokens=9)]


def test_it_writes_in_pieces_the_same_for_the_same_seed(folder: Path) -> None:
    model = ownwords.load(folder)
    pieces = list(model.write("The trouble", max_tokens=30))
    text = "".join(pieces)
    assert len(pieces) > 1
    assert "".join(model.write("The trouble", max_tokens=30, seed=1)) == text
    assert "".join(model.write("The trouble", max_tokens=30, seed=2)) != text
    cold = "".join(model.write("The trouble", max_tokens=30, temperature=0))
    assert cold == "".join(model.write("The trouble", max_tokens=30, seed=5, temperature=0))
    stop = text[3:5]
    assert "".join(model.write("The trouble", max_tokens=30, stops=[stop])) == text.split(stop)[0]
    with pytest.raises(ConfigError, match="top_p"):
        model.write("The trouble", top_p=7)


def test_the_stop_tokens_of_the_model_file_are_used(folder: Path, tmp_path: Path) -> None:
    """As in models with an end-of-turn token besides the end-of-text token."""
    plain, greedy = ownwords.load(folder), SamplingParams(temperature=0)
    request = plain.request("The trouble", max_tokens=30, sampling=greedy)
    ids = list(generate(plain.engine, request))
    before = "".join(plain.write("The trouble", max_tokens=ids.index(ids[5]), temperature=0))
    generation_settings = json.loads((folder / GENERATION).read_text())
    shutil.copytree(folder, tmp_path / "model")
    (tmp_path / "model" / GENERATION).write_text(
        json.dumps(
            generation_settings | {"eos_token_id": [generation_settings["eos_token_id"], ids[5]]}
        )
    )
    model = ownwords.load(tmp_path / "model")
    assert "".join(model.write("The trouble", max_tokens=30, temperature=0)) == before
    together = model.write_several("The trouble", seeds=[1, 2], max_tokens=30, temperature=0)
    assert together == [before] * 2


def test_a_model_with_another_tokenizer_is_refused(folder: Path, tmp_path: Path) -> None:
    other_model = train(["Something else entirely, in other words. " * 20], 300)
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "tokenizer.json").write_bytes(other_model.files()["tokenizer.json"])
    with pytest.raises(OwnwordsError, match="is not the one that the model was saved with"):
        ownwords.load(tmp_path)


def test_a_folder_without_a_model_is_reported(tmp_path: Path) -> None:
    with pytest.raises(OwnwordsError, match=r"has no config\.json"):
        ownwords.load(tmp_path)


@pytest.mark.skipif(bindings.load_library() is None, reason="the part in C++ is not built")
def test_a_text_is_written_without_pytorch(folder: Path) -> None:
    process = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys, ownwords\n"
            "model = ownwords.load(sys.argv[1])\n"
            "print(len(''.join(model.write('The trouble', max_tokens=20))) > 0)\n"
            "print('torch' in sys.modules)",
            str(folder),
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert process.stdout.split() == ["True", "False"]


def test_the_guard_of_a_half_replaced_model_is_found(folder: Path, tmp_path: Path) -> None:
    aside = tmp_path / ".model.replaced"
    shutil.copytree(folder, aside)
    own = ownwords.load(folder).tokenizer
    guard = copy_guard.build([np.array(own.encode(text)) for text in TEXTS], own)
    (aside / COPY_GUARD).write_bytes(guard.to_bytes())
    assert ownwords.load(tmp_path / "model").guard
