"""`ownwords.load`: a model and its own tokenizer, from a directory."""

from pathlib import Path

import numpy as np
import pytest
import torch

import ownwords
from ownwords.core.errors import OwnwordsError
from ownwords.models import bundle, qwen3
from ownwords.models.family import build
from ownwords.tokenizers.bpe import train

TEXTS = ["The trouble with kettles is the lid. " * 20, "Zażółć gęślą jaźń. " * 20]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tokenizer = train(TEXTS, 300)
    model = build(qwen3.sized(500_000, tokenizer.vocabulary_size, 64))
    model.init_weights(7)
    bundle.save(tmp_path / "model", model, tokenizer)
    return tmp_path / "model"


def test_logits_are_those_of_the_model(folder: Path) -> None:
    model = ownwords.load(folder)
    ids = model.tokenizer.encode("The trouble with jaźń")
    logits = model.logits(ids)
    assert logits.shape == (len(ids), model.network.config.vocabulary)
    assert logits.dtype == np.float32
    with torch.inference_mode():
        expected = model.network.logits(model.network(torch.tensor([ids])))[0]
    assert np.array_equal(logits, expected.numpy())
    assert model.tokenizer.decode(ids) == "The trouble with jaźń"


def test_ids_that_do_not_belong_are_refused(folder: Path) -> None:
    model = ownwords.load(folder)
    with pytest.raises(OwnwordsError, match="not in the vocabulary"):
        model.logits([model.network.config.vocabulary])
    with pytest.raises(OwnwordsError, match="do not fit the model's context"):
        model.logits([0] * 65)
    with pytest.raises(OwnwordsError):
        model.logits([])


def test_a_model_with_another_tokenizer_is_refused(folder: Path, tmp_path: Path) -> None:
    other = train(["Something else entirely, in other words. " * 20], 300)
    (folder / "tokenizer.json").write_bytes(other.files()["tokenizer.json"])
    with pytest.raises(OwnwordsError, match="is not the one that the model was saved with"):
        ownwords.load(folder)


def test_a_folder_without_a_model_is_said(tmp_path: Path) -> None:
    with pytest.raises(OwnwordsError, match=r"holds no config\.json"):
        ownwords.load(tmp_path)
