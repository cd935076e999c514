"""BERT in the compiled library against NumPy, and the files it is read from."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from ownwords.core.errors import ConfigError, OwnwordsError
from ownwords.models import registry
from ownwords.models.bert import Bert, BertConfig, NativeBert, Pooling, load_weights
from ownwords.models.safetensors_header import encode_header
from ownwords.models.untrusted_files import ModelError
from ownwords.models.weight_mapping import hf_names
from ownwords.native.bindings import NativeError, load_library
from sentence_folders import CONFIG, folder_in, weights_of, write_weights

SHAPES = [
    CONFIG,
    replace(CONFIG, gelu_tanh=True),
    replace(CONFIG, width=64, heads=1, kv_heads=1, head_dim=64, hidden=40, context=100),
    replace(CONFIG, width=144, heads=3, head_dim=48, hidden=200, layers=3, context=70),
]


@pytest.mark.parametrize("config", SHAPES, ids=lambda config: f"{config.width}x{config.heads}")
@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_the_compiled_library_makes_the_same_vectors(config: BertConfig, pooling: Pooling) -> None:
    if (library := load_library()) is None:
        pytest.skip("the compiled library is not there")
    weights = {
        # As small as a trained model's, or the rounding of large scores would decide.
        name: array * np.float32(0.1 if "attention." in name or "mlp." in name else 1)
        for name, array in weights_of(config).items()
    }
    encoder = NativeBert(library, config, weights, pool_first=pooling == "cls")
    rng = np.random.default_rng(3)
    lengths = (1, 7, config.context, 16, 33 % config.context)
    texts = [rng.integers(0, config.vocabulary, length).tolist() for length in lengths]
    rows = encoder.vectors(texts)
    reference = Bert(config, weights, pooling).vectors(texts)
    # The library multiplies numbers rounded to 8 bits of precision.
    assert np.abs(rows - reference).max() < 0.02
    assert (rows * reference).sum(1).min() > 0.9995
    for text, row in zip(texts, rows, strict=True):
        assert np.allclose(encoder.vectors([text])[0], row, atol=1e-6)


def test_the_compiled_library_refuses_ids_and_texts_that_the_model_cannot_read() -> None:
    if (library := load_library()) is None:
        pytest.skip("the compiled library is not there")
    encoder = NativeBert(library, CONFIG, weights_of(), pool_first=False)
    for texts, status in (
        ([[CONFIG.vocabulary]], "BAD_ID"),
        ([[-1]], "BAD_ID"),
        ([[1] * (CONFIG.context + 1)], "BAD_LENGTH"),
        ([[]], "BAD_LENGTH"),
    ):
        with pytest.raises(NativeError) as caught:
            encoder.vectors(texts)
        assert caught.value.status == status


def test_files_with_prefixes_and_heads_are_read_alike(tmp_path: Path) -> None:
    weights = weights_of()
    _, plain = load_weights(folder_in(tmp_path / "plain", weights=weights))
    named = folder_in(tmp_path / "named", weights=weights, prefix="bert.")
    path = named / "model.safetensors"
    extra = {"bert.pooler.dense.weight": np.ones((12, 12), np.float32)}
    stored = {theirs: weights[ours] for ours, theirs, _ in hf_names(CONFIG)}
    write_weights(path, {**stored, **extra, "cls.predictions.bias": np.ones(4, np.float32)})
    _, loaded = load_weights(named)
    assert plain.keys() == loaded.keys()
    for name, array in plain.items():
        assert np.array_equal(array, loaded[name]), name


@pytest.mark.parametrize("dtype", ["F16", "BF16"])
def test_half_precision_files_become_float32(tmp_path: Path, dtype: str) -> None:
    weights = weights_of()
    folder = folder_in(tmp_path, weights=weights)

    def half(array: npt.NDArray[np.float32]) -> npt.NDArray[np.generic]:
        if dtype == "F16":
            return array.astype(np.float16)
        return (array.view(np.uint32) >> 16).astype(np.uint16)

    stored = {
        theirs: half(np.asarray(weights[ours], np.float32)) for ours, theirs, _ in hf_names(CONFIG)
    }
    header = [(name, dtype, array.shape) for name, array in stored.items()]
    data = b"".join(array.tobytes() for array in stored.values())
    (folder / "model.safetensors").write_bytes(encode_header(header, {}) + data)
    _, loaded = load_weights(folder)
    original = np.asarray(weights["embedding.weight"], np.float32)
    assert loaded["embedding.weight"].dtype == np.float32
    assert np.allclose(loaded["embedding.weight"], original, rtol=8e-3)
    assert not np.array_equal(loaded["embedding.weight"], original)


def test_weights_that_do_not_fit_are_named(tmp_path: Path) -> None:
    weights = weights_of()
    lacking = {name: tensor for name, tensor in weights.items() if "mlp.up.bias" not in name}
    with pytest.raises(ModelError, match=r"2 missing: .*intermediate\.dense\.bias"):
        load_weights(folder_in(tmp_path / "lacking", weights=lacking))
    with pytest.raises(
        ModelError, match=r"has the shape \[12\], and config\.json asks for \[12, 12\]"
    ):
        bad = {**weights, "blocks.0.attention.key.weight": np.ones(12, np.float32)}
        load_weights(folder_in(tmp_path / "bad", weights=bad))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"model_type": "roberta"}, "model_type = 'roberta'"),
        ({"hidden_act": "relu"}, "hidden_act = 'relu'"),
        ({"num_attention_heads": 5}, "heads"),
        ({"vocab_size": 0}, "vocab_size"),
    ],
)
def test_a_model_of_another_kind_is_refused_by_name(
    changed: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        BertConfig.from_hf({**CONFIG.to_hf(), **changed})


def test_its_config_round_trips_and_it_is_not_a_generative_model() -> None:
    assert BertConfig.from_hf(CONFIG.to_hf()) == CONFIG
    with pytest.raises(OwnwordsError, match="'bert'"):
        registry.config_from_json(CONFIG.to_hf())
