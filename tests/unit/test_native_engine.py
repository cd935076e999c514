"""What only the C++ engine promises: the same bits however a text is read, and its own threads.

Scores, cuts, copies and refusals are of every engine: tests/contract/test_engines.py.
"""

import dataclasses
import gc

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

from families import TINY, read, some_ids, tiny
from ownwords.core.errors import OwnwordsError
from ownwords.inference.native_engine import Kind, NativeEngine
from ownwords.models.configs.config import ModelConfig
from ownwords.models.decoder import CausalLM
from ownwords.models.weight_mapping import StoredWeight
from ownwords.native.bindings import NativeError, load_library

LIBRARY = load_library()
if LIBRARY is None:
    pytest.skip("the part in C++ is not built", allow_module_level=True)

NAMES = list(TINY)


def weights_of(model: CausalLM) -> list[StoredWeight]:
    return [
        StoredWeight(name, tuple(weight.shape), "F32", weight.numpy())
        for name, weight in model.state_dict().items()
    ]


def engine_of(
    model: CausalLM, kind: Kind = "f32", threads: int = 2, config: ModelConfig | None = None
) -> NativeEngine:
    assert LIBRARY is not None
    config = config or model.config
    return NativeEngine(LIBRARY, config, weights_of(model), kind, weights=kind, threads=threads)


def some(count: int, seed: int = 0) -> list[int]:
    ids: list[int] = some_ids(1, count, seed)[0].tolist()
    return ids


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", ["f32", "bf16", "int8"])
def test_a_text_has_the_same_scores_however_it_is_read(name: str, kind: Kind) -> None:
    """At once, token by token, in chunks, in a batch, on other threads: to the last bit."""
    engine, ids = engine_of(tiny(name), kind), some(40)
    cache = engine.cache(5, 64)
    expected = read(cache, [0], [ids], every=True)
    singly = np.concatenate([read(cache, [1], [[token]]) for token in ids])
    np.testing.assert_array_equal(singly, expected)
    pieces = [ids[:7], ids[7:8], ids[8:30], ids[30:]]
    parts = [read(cache, [2], [piece], every=True) for piece in pieces]
    np.testing.assert_array_equal(np.concatenate(parts), expected)
    for count in (3, 1, 1, 20, 15):
        length = cache.cached_length(3)
        texts = [some(5, seed=count), ids[length : length + count], some(count, seed=9)]
        scores = read(cache, [4, 3, 1], texts)
        np.testing.assert_array_equal(scores[1], expected[cache.cached_length(3) - 1])
        cache.truncate(1, 1)
    cache.truncate(0, 13)
    np.testing.assert_array_equal(read(cache, [0], [ids[13:25]])[0], expected[24])
    cache.copy_prefix(0, 2, 21)
    np.testing.assert_array_equal(read(cache, [2], [ids[21:]], every=True), expected[21:])
    for threads in (1, 5):
        other = engine_of(tiny(name), kind, threads).cache(1, 64)
        np.testing.assert_array_equal(read(other, [0], [ids], every=True), expected)


@pytest.mark.parametrize("name", ["gpt2", "gemma3"])
@pytest.mark.parametrize("kind", ["f32", "int8"])
def test_long_texts(name: str, kind: Kind) -> None:
    """More tokens than are read at once, and more than one thread's share of a head."""
    model = tiny(name)
    model.config = dataclasses.replace(model.config, context=700)
    if name == "gpt2":
        spread = torch.randn(700, 30, generator=torch.Generator().manual_seed(3))
        model.get_submodule("positions").weight = torch.nn.Parameter(spread)
    ids = some(650)
    cache = engine_of(model, kind, threads=3).cache(3, 700)
    full_scores = read(cache, [0], [ids], every=True)
    last = read(cache, [2, 1], [some(300, seed=4), ids[:299]])
    np.testing.assert_array_equal(last[1], full_scores[298])
    for at in range(299, 320):
        np.testing.assert_array_equal(read(cache, [1], [[ids[at]]])[0], full_scores[at])
    np.testing.assert_array_equal(read(cache, [1], [ids[320:]])[0], full_scores[-1])


def test_what_does_not_fit_a_model_is_refused() -> None:
    assert LIBRARY is not None
    config, stored = TINY["llama"], weights_of(tiny("llama"))
    query = next(weight for weight in stored if weight.name == "blocks.1.attention.query.weight")
    others = [weight for weight in stored if weight is not query]
    wrong = query.array.copy()
    wrong[3, 5] = np.nan
    for change, weights, threads, status in (
        ({"hidden": 2**17}, stored, 2, "BAD_SHAPE"),  # int8 products would not fit into 32 bits
        ({"vocabulary": 98}, stored, 2, "BAD_TENSOR"),
        ({"layers": 1}, stored, 2, "BAD_TENSOR"),
        ({}, others, 2, "MISSING_TENSOR"),
        ({}, [*stored, query], 2, "BAD_TENSOR"),
        ({}, [*others, dataclasses.replace(query, array=wrong)], 2, "NOT_FINITE"),
        ({}, stored, 0, "BAD_COUNT"),
    ):
        changed = dataclasses.replace(config, **change)  # type: ignore[arg-type]
        with pytest.raises(NativeError) as caught:
            NativeEngine(LIBRARY, changed, weights, "int8", weights="int8", threads=threads)
        assert caught.value.status == status


def test_a_cache_beyond_all_memory() -> None:
    model = tiny("llama")
    engine = engine_of(model, threads=1, config=dataclasses.replace(model.config, context=2**30))
    with pytest.raises(OwnwordsError, match="not enough memory"):
        engine.cache(2**20, 2**30)


def test_a_cache_outlives_its_engine() -> None:
    engine, ids = engine_of(tiny("gpt2")), some(5)
    expected = read(engine.cache(1, 8), [0], [ids])
    cache = engine.cache(1, 8)
    del engine
    gc.collect()
    np.testing.assert_array_equal(read(cache, [0], [ids]), expected)
