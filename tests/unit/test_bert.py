"""BERT against the formulas computed in NumPy, and the files that it is read from."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

pytest.importorskip("torch")

import torch

from ownwords.core.errors import ConfigError, OwnwordsError
from ownwords.models import registry
from ownwords.models.bert import Bert
from ownwords.models.configs.bert import BertConfig
from ownwords.models.safetensors_header import encode_header
from ownwords.models.untrusted_files import ModelError
from ownwords.models.weight_mapping import hf_names
from sentence_folders import CONFIG, Weights, folder_in, weights_of, write_weights

torch.set_num_threads(1)  # tensors this small are slower with more

Array = npt.NDArray[np.float64]
IDS = [5, 9, 31, 7, 60, 8, 2]


def erf(x: Array) -> Array:
    found: Array = np.vectorize(math.erf)(x)
    return found


def norm(x: Array, weights: Weights, name: str, eps: float) -> Array:
    centred = x - x.mean(-1, keepdims=True)
    spread = np.sqrt((centred**2).mean(-1, keepdims=True) + eps)
    found: Array = centred / spread * weights[f"{name}.weight"] + weights[f"{name}.bias"]
    return found


def states(ids: list[int], weights: Weights, config: BertConfig) -> Array:
    """Devlin et al. 2018, written down once more: one text, no padding, float64."""

    def linear(x: Array, name: str) -> Array:
        found: Array = x @ weights[f"{name}.weight"].T.astype(float) + weights[f"{name}.bias"]
        return found

    x: Array = weights["embedding.weight"][ids].astype(float)
    x = x + weights["positions.weight"][: len(ids)] + weights["token_types.weight"][0]
    x = norm(x, weights, "embedding_norm", config.norm_eps)
    size = config.width // config.heads
    for layer in range(config.layers):
        name = f"blocks.{layer}"
        query, key, value = (
            linear(x, f"{name}.attention.{one}") for one in ("query", "key", "value")
        )
        heads = []
        for head in range(config.heads):
            at = slice(head * size, (head + 1) * size)
            scores = query[:, at] @ key[:, at].T / math.sqrt(size)
            chances = np.exp(scores - scores.max(-1, keepdims=True))
            chances /= chances.sum(-1, keepdims=True)
            heads.append(chances @ value[:, at])
        seen = linear(np.concatenate(heads, -1), f"{name}.attention.output")
        x = norm(x + seen, weights, f"{name}.attention_norm", config.norm_eps)
        up = linear(x, f"{name}.mlp.up")
        if config.gelu_tanh:
            hidden = up / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (up + 0.044715 * up**3)))
        else:
            hidden = up / 2 * (1 + erf(up / math.sqrt(2)))
        x = norm(
            x + linear(hidden, f"{name}.mlp.down"), weights, f"{name}.mlp_norm", config.norm_eps
        )
    return x


@pytest.mark.parametrize("gelu_tanh", [False, True])
def test_states_are_those_of_the_formulas(tmp_path: Path, gelu_tanh: bool) -> None:
    config = replace(CONFIG, gelu_tanh=gelu_tanh)
    weights = weights_of(config)
    model = Bert.load(folder_in(tmp_path, config=config, weights=weights))
    with torch.inference_mode():
        ours = model(torch.tensor([IDS]), torch.tensor([len(IDS)]))[0].numpy()
    assert np.abs(ours - states(IDS, weights, config)).max() < 2e-5


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_a_vector_is_the_same_beside_longer_texts(tmp_path: Path, pooling: str) -> None:
    weights = weights_of()
    model = Bert.load(folder_in(tmp_path, weights=weights))
    rows = torch.tensor([IDS, [*IDS[:3], 0, 0, 0, 0]])
    made = model.vectors(rows, torch.tensor([7, 3]), "mean" if pooling == "mean" else "cls").numpy()
    for row, ids in zip(made, (IDS, IDS[:3]), strict=True):
        alone = states(ids, weights, CONFIG)
        wanted = alone.mean(0) if pooling == "mean" else alone[0]
        assert np.abs(row - wanted / np.linalg.norm(wanted)).max() < 2e-5
    long = model.vectors(rows, torch.tensor([7, 3]), "mean", unit=False)[1].numpy()
    assert np.abs(long - states(IDS[:3], weights, CONFIG).mean(0)).max() < 2e-5


def test_files_with_other_names_and_heads_are_read_alike(tmp_path: Path) -> None:
    weights = weights_of()
    plain = Bert.load(folder_in(tmp_path / "plain", weights=weights))
    named = folder_in(tmp_path / "named", weights=weights, prefix="bert.")
    path = named / "model.safetensors"
    extra = {"bert.pooler.dense.weight": np.ones((12, 12), np.float32)}
    stored = {theirs: weights[ours] for ours, theirs, _ in hf_names(CONFIG)}
    write_weights(path, {**stored, **extra, "cls.predictions.bias": np.ones(4, np.float32)})
    other = Bert.load(named)
    for (name, one), (_, two) in zip(
        plain.named_parameters(), other.named_parameters(), strict=True
    ):
        assert torch.equal(one, two), name
    assert not any(one.requires_grad for one in plain.parameters())


def test_half_precision_files_become_float32(tmp_path: Path) -> None:
    weights = weights_of()
    folder = folder_in(tmp_path, weights=weights)
    halves = {theirs: weights[ours].astype(np.float16) for ours, theirs, _ in hf_names(CONFIG)}
    said = [(name, "F16", tensor.shape) for name, tensor in halves.items()]
    data = b"".join(tensor.tobytes() for tensor in halves.values())
    (folder / "model.safetensors").write_bytes(encode_header(said, {}) + data)
    model = Bert.load(folder)
    assert model.embedding.weight.dtype is torch.float32
    wanted = weights["embedding.weight"].astype(np.float16).astype(np.float32)
    assert np.array_equal(model.embedding.weight.numpy(), wanted)


def test_weights_that_do_not_fit_are_named(tmp_path: Path) -> None:
    weights = weights_of()
    lacking = {name: each for name, each in weights.items() if "mlp.up.bias" not in name}
    with pytest.raises(ModelError, match=r"2 missing: .*intermediate\.dense\.bias"):
        Bert.load(folder_in(tmp_path / "lacking", weights=lacking))
    with pytest.raises(
        ModelError, match=r"has the shape \[12\], but config\.json requires \[12, 12\]"
    ):
        bad = {**weights, "blocks.0.attention.key.weight": np.ones(12, np.float32)}
        Bert.load(folder_in(tmp_path / "bad", weights=bad))


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"model_type": "roberta"}, "model_type = 'roberta'"),
        ({"hidden_act": "relu"}, "hidden_act = 'relu'"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type"),
        ({"num_attention_heads": 5}, "heads"),
        ({"vocab_size": 0}, "vocab_size"),
    ],
)
def test_a_model_of_another_kind_is_refused_by_name(changed: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        BertConfig.from_hf({**CONFIG.to_hf(), **changed})


def test_its_config_comes_back_and_it_is_no_model_that_writes() -> None:
    assert BertConfig.from_hf(CONFIG.to_hf()) == CONFIG
    with pytest.raises(OwnwordsError, match="'bert'"):
        registry.config_from_json(CONFIG.to_hf())
