"""The C++ engine against the torch models: the same scores, however the text is chunked."""

import dataclasses
import gc
import os
import sys
import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from numpy.typing import NDArray

from families import TINY, read, some_ids, tiny
from ownwords.core.errors import OwnwordsError
from ownwords.models.decoder import CausalLM
from ownwords.models.layers import RMSNorm
from ownwords.models.quantization_scheme import INT4, INT8, QuantizationScheme
from ownwords.models.quantize import quantize, quantized_tensors
from ownwords.native import engine
from ownwords.native.engine import Kind, ModelShape, NativeCache, NativeModel, SourceTensor, Stored

if not engine.available():
    pytest.skip("the part in C++ is not built", allow_module_level=True)

NAMES = list(TINY)
# Root mean square of the error over that of the scores. What enters a product is rounded too, to 8
# bits or more, and so are keys and values; in models this small and wild that is seen.
BOUNDS: dict[Kind, float] = {"f32": 2e-6, "bf16": 3e-2, "int8": 8e-2, "int4": 8e-2}


def shape_of(model: CausalLM, kind: Kind = "f32", ends: Kind | None = None) -> ModelShape:
    config = model.config
    windows = config.windows()
    rotaries = [
        getattr(model, name) for name in ("rotary", "rotary_sliding") if hasattr(model, name)
    ]
    norm = model.final_norm
    return ModelShape(
        vocabulary=config.vocabulary,
        context=config.context,
        width=config.width,
        layers=config.layers,
        heads=config.heads,
        kv_heads=config.kv_heads,
        head_dim=config.head_dim,
        hidden=config.hidden,
        block_type=kind,
        embedding_type=ends or kind,
        kv_bf16=kind != "f32",
        layer_norm=not isinstance(norm, RMSNorm),
        gelu=config.MODEL_TYPE in ("gpt2", "gemma3_text"),
        norm_eps=config.norm_eps,
        norm_offset=norm.offset if isinstance(norm, RMSNorm) else 0.0,
        attention_scale=float(getattr(config, "query_scalar", config.head_dim)) ** -0.5,
        embedding_scale=config.width**0.5 if config.MODEL_TYPE == "gemma3_text" else 1.0,
        softcap=config.logit_softcap,
        windows=tuple(window or 0 for window in windows),
        rope_table=tuple(
            -1 if not rotaries else int(window is not None and len(rotaries) > 1)
            for window in windows
        ),
        frequencies=np.stack([rotary.frequencies.numpy() for rotary in rotaries])
        if rotaries
        else np.zeros((0, config.head_dim // 2), np.float32),
    )


def tensors_of(model: CausalLM) -> Iterator[SourceTensor]:
    for name, weight in model.state_dict().items():
        stored: Stored = "bf16" if weight.dtype == torch.bfloat16 else "f32"
        data = weight.view(torch.uint16) if stored == "bf16" else weight
        rows, columns = weight.shape if weight.ndim == 2 else (1, weight.numel())
        yield SourceTensor(name=name, stored=stored, rows=rows, columns=columns, data=data.numpy())


def core_of(model: CausalLM, kind: Kind = "f32", threads: int = 2) -> NativeModel:
    ends: Kind = "int8" if kind == "int4" else kind
    return NativeModel(shape_of(model, kind, ends), tensors_of(model), threads=threads)


def expected(model: CausalLM, ids: Sequence[int]) -> NDArray[np.float32]:
    with torch.no_grad():
        logits: NDArray[np.float32] = model.logits(model(torch.tensor([ids])))[0].float().numpy()
    return logits


def apart(first: NDArray[np.float32], second: NDArray[np.float32]) -> float:
    return float(np.sqrt(np.mean((first - second) ** 2) / np.mean(second**2)))


def some(count: int, seed: int = 0) -> list[int]:
    ids: list[int] = some_ids(1, count, seed)[0].tolist()
    return ids


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_scores(name: str, threads: int) -> None:
    model, ids = tiny(name), some(40)
    cache = core_of(model, threads=threads).cache(1, 64)
    scores = read(cache, [0], [ids], every=True)
    assert apart(scores, expected(model, ids)) < BOUNDS["f32"]
    assert cache.cached_length(0) == 40


def source(name: str, kind: Kind) -> CausalLM:
    return tiny(name, torch.bfloat16 if kind == "bf16" else torch.float32)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", ["bf16", "int8", "int4"])
def test_scores_of_rounded_weights(name: str, kind: Kind) -> None:
    ids, model = some(40), source(name, kind)
    scores = read(core_of(model, kind).cache(1, 64), [0], [ids], every=True)
    twin = model.float()
    if kind != "bf16":
        quantize(twin, INT8 if kind == "int8" else INT4)
    assert apart(scores, expected(twin, ids)) < BOUNDS[kind]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", ["f32", "bf16", "int8"])
def test_chunked_reads_equal_a_full_read(name: str, kind: Kind) -> None:
    """At once, token by token, in chunks, in a batch: the same scores to the last bit."""
    core, ids = core_of(tiny(name), kind), some(40)
    cache = core.cache(5, 64)
    expected = read(cache, [0], [ids], every=True)
    singly = np.concatenate([read(cache, [1], [[token]]) for token in ids])
    np.testing.assert_array_equal(singly, expected)
    pieces = [ids[:7], ids[7:8], ids[8:30], ids[30:]]
    parts = [read(cache, [2], [piece], every=True) for piece in pieces]
    np.testing.assert_array_equal(np.concatenate(parts), expected)
    for count in (3, 1, 1, 20, 15):
        length = cache.cached_length(3)
        texts = [some(5, seed=count), ids[length : length + count], some(count, seed=9)]
        rows = [4, 3, 1]
        scores = read(cache, rows, texts)
        np.testing.assert_array_equal(scores[1], expected[cache.cached_length(3) - 1])
        cache.truncate(1, 1)
    assert cache.cached_length(4) == 25


@pytest.mark.parametrize("name", NAMES)
def test_the_number_of_threads_changes_nothing(name: str) -> None:
    model, ids = tiny(name), some(64)
    alone, threaded = core_of(model, threads=1), core_of(model, threads=5)
    np.testing.assert_array_equal(
        read(alone.cache(1, 64), [0], [ids]), read(threaded.cache(1, 64), [0], [ids])
    )


@pytest.mark.parametrize("name", ["gpt2", "gemma3"])
@pytest.mark.parametrize("kind", ["f32", "int8"])
def test_long_texts(name: str, kind: Kind) -> None:
    """More tokens than are read at once, and more than one thread's share of a head."""
    model = tiny(name)
    config = dataclasses.replace(model.config, context=700)
    if name == "gpt2":
        spread = torch.randn(700, config.width, generator=torch.Generator().manual_seed(3))
        model.get_submodule("positions").weight = torch.nn.Parameter(spread)
    model.config = config
    core, ids = core_of(model, kind, threads=3), some(650)
    cache = core.cache(3, 700)
    full_scores = read(cache, [0], [ids], every=True)
    if kind == "f32":
        assert apart(full_scores, expected(model, ids)) < 5e-6
    last = read(cache, [2, 1], [some(300, seed=4), ids[:299]])
    np.testing.assert_array_equal(last[1], full_scores[298])
    for at in range(299, 320):
        np.testing.assert_array_equal(read(cache, [1], [[ids[at]]])[0], full_scores[at])
    np.testing.assert_array_equal(read(cache, [1], [ids[320:]])[0], full_scores[-1])


@pytest.mark.parametrize("kind", ["f32", "int8"])
@pytest.mark.parametrize("name", NAMES)
def test_cut_and_copy(name: str, kind: Kind) -> None:
    core, ids = core_of(tiny(name), kind), some(40)
    cache, fresh = core.cache(3, 48), core.cache(1, 48)
    expected = read(fresh, [0], [ids], every=True)
    read(cache, [0], [ids])
    cache.truncate(0, 13)
    np.testing.assert_array_equal(read(cache, [0], [ids[13:25]])[0], expected[24])
    read(cache, [2], [some(30, seed=3)])
    cache.copy_prefix(0, 2, 21)
    assert [cache.cached_length(row) for row in range(3)] == [25, 0, 21]
    np.testing.assert_array_equal(read(cache, [2], [ids[21:]], every=True), expected[21:])
    np.testing.assert_array_equal(read(cache, [0], [ids[25:]], every=True), expected[25:])
    cache.truncate(0, 0)
    np.testing.assert_array_equal(read(cache, [0], [ids], every=True), expected)
    cache.copy_prefix(0, 0, 5)
    assert cache.cached_length(0) == 5


@pytest.mark.parametrize("scheme", [INT8, INT4, dataclasses.replace(INT4, group=64)])
def test_stored_codes(scheme: QuantizationScheme) -> None:
    """Codes of a quantised file equal its weights and are not rounded again."""
    model = tiny("qwen3-window")
    kind: Kind = "int8" if scheme is INT8 else "int4"
    shape = shape_of(model, kind, "int8")
    parts = dict(quantized_tensors(model, scheme, INT8))
    quantize(model, scheme)
    packed = []
    for name, tensor in parts.items():
        if name.endswith(".packed"):
            scales = parts[name.replace(".packed", ".scale")]
            rows, columns = model.get_parameter(name.replace(".packed", ".weight")).shape
            is_int8 = tensor.dtype == torch.int8
            packed.append(
                SourceTensor(
                    name=name.replace(".packed", ".weight"),
                    stored="codes8" if is_int8 else "codes4",
                    rows=rows,
                    columns=columns,
                    data=tensor.numpy(),
                    scales=(scales if is_int8 else scales.view(torch.uint16)).numpy(),
                    group=0 if is_int8 else scheme.group,
                )
            )
        elif not name.endswith(".scale"):
            packed.append(
                SourceTensor(
                    name=name, stored="f32", rows=1, columns=len(tensor), data=tensor.numpy()
                )
            )
    ids = some(30)
    scores = read(NativeModel(shape, packed, threads=2).cache(1, 64), [0], [ids], every=True)
    assert apart(scores, expected(model, ids)) < BOUNDS["int4"]


def test_transposed_and_half_precision() -> None:
    """GPT-2's matrices as stored in its files; both 16-bit formats."""
    model, ids = tiny("gpt2", torch.bfloat16), some(30)
    turned = [
        dataclasses.replace(
            tensor,
            data=np.ascontiguousarray(tensor.data.T)
            if tensor.rows > 1 and "blocks" in tensor.name
            else tensor.data,
            transposed=tensor.rows > 1 and "blocks" in tensor.name,
        )
        for tensor in tensors_of(model)
    ]
    assert any(tensor.transposed for tensor in turned)
    cache = NativeModel(shape_of(model), turned, threads=2).cache(1, 64)
    scores = read(cache, [0], [ids], every=True)
    assert apart(scores, expected(model.float(), ids)) < BOUNDS["f32"]
    model = model.half().float()
    halves = [
        dataclasses.replace(tensor, stored="f16", data=tensor.data.astype(np.float16))
        for tensor in tensors_of(model)
    ]
    scores = read(
        NativeModel(shape_of(model), halves, threads=2).cache(1, 64), [0], [ids], every=True
    )
    assert apart(scores, expected(model, ids)) < BOUNDS["f32"]


def test_a_refused_call_changes_nothing() -> None:
    core, ids = core_of(tiny("qwen3")), some(10)
    cache = core.cache(2, 16)
    read(cache, [0], [ids])
    for rows, texts, message in (
        ([2], [ids], "not one of the cache's"),
        ([-1], [ids], "not one of the cache's"),
        ([0, 0], [ids[:2], ids[:2]], "twice"),
        ([1, 0], [ids, ids], "longer than the cache"),
        ([1], [[]], "out of range"),
        ([], [], "out of range"),
        ([1], [[3, 97]], "id 97 is not in the vocabulary"),
        ([1], [[-1]], "id -1 is not in the vocabulary"),
        ([1], [[2**40]], "is not in the vocabulary"),
    ):
        with pytest.raises(OwnwordsError, match=message):
            read(cache, rows, texts)
    for change, message in (
        (lambda: cache.truncate(0, -1), "cut to -1"),
        (lambda: cache.truncate(5, 0), "row 5"),
        (lambda: cache.copy_prefix(0, 1, 11), "11 tokens of row 0"),
        (lambda: cache.copy_prefix(0, 2, 1), "row 2"),
        (lambda: cache.cached_length(2), "row 2 of 2"),
        (lambda: core.cache(0, 4), "no cache of 0"),
        (lambda: core.cache(-1, 4), "no cache"),
        (lambda: core.cache(1, 65), "no cache"),
        (lambda: core.cache(1, 0), "no cache"),
        (lambda: core.cache(2**40, 2), "no cache"),
    ):
        with pytest.raises(OwnwordsError, match=message):
            change()
    assert [cache.cached_length(0), cache.cached_length(1)] == [10, 0]


def test_hostile_models() -> None:
    model = tiny("llama")
    shape, tensors = shape_of(model), list(tensors_of(model))
    by_name = {tensor.name: tensor for tensor in tensors}
    query = by_name["blocks.1.attention.query.weight"]
    remaining = [tensor for tensor in tensors if tensor is not query]
    wrong = query.data.copy()
    wrong[3, 5] = np.nan
    for change, message in (
        ({"layers": -1}, "sizes|windows"),
        ({"width": 0}, "sizes"),
        ({"width": 2**62}, "sizes"),
        ({"heads": 2**31}, "sizes"),
        ({"kv_heads": 5}, "sizes"),
        ({"hidden": 2**17}, "sizes"),  # sums of int8 products would not fit into 32 bits
        ({"vocabulary": -5}, "sizes"),
        ({"context": 2**40}, "sizes"),
        ({"norm_eps": float("nan")}, "sizes"),
        ({"attention_scale": float("inf")}, "sizes"),
        ({"rope_table": (0, 7)}, "sizes"),
        ({"windows": (-3, 0)}, "sizes"),
        ({"windows": (0,)}, "as many windows"),
        ({"vocabulary": 98}, "fit the model's sizes"),
        ({"hidden": 41}, "fit the model's sizes"),
        ({"frequencies": np.full((1, 2), np.nan, np.float32)}, "not finite"),
        ({"frequencies": np.zeros((1, 3), np.float32)}, "frequencies"),
    ):
        with pytest.raises(OwnwordsError, match=message):
            NativeModel(dataclasses.replace(shape, **change), tensors, threads=2)
    for tensors_given, message in (
        (remaining, "missing"),
        ([*tensors, query], "given twice"),
        ([*remaining, dataclasses.replace(query, data=wrong)], "not finite"),
        (
            [*remaining, dataclasses.replace(query, name="blocks.2.attention.query.weight")],
            "unknown",
        ),
        ([*remaining, dataclasses.replace(query, name="blocks.1.attention.wisdom")], "no tensor"),
        ([*remaining, dataclasses.replace(query, rows=query.rows * 2)], "bytes"),
        ([*remaining, dataclasses.replace(query, rows=24 * 24, columns=1)], "fit the model"),
        ([*remaining, dataclasses.replace(query, rows=-24, columns=-24)], "cannot have"),
        ([*remaining, dataclasses.replace(query, data=query.data.T)], "not contiguous"),
        ([], "missing"),
    ):
        with pytest.raises(OwnwordsError, match=message):
            NativeModel(shape, tensors_given, threads=2)
    with pytest.raises(OwnwordsError, match="out of range"):
        NativeModel(shape, tensors, threads=0)


def test_a_cache_beyond_all_memory() -> None:
    model = tiny("llama")
    core = NativeModel(
        dataclasses.replace(shape_of(model), context=2**30), tensors_of(model), threads=1
    )
    with pytest.raises(OwnwordsError, match="not enough memory"):
        core.cache(2**20, 2**30)


def test_tensors_may_be_made_one_at_a_time() -> None:
    model, ids = tiny("llama"), some(20)

    def copies() -> Iterator[SourceTensor]:
        for tensor in tensors_of(model):
            yield dataclasses.replace(tensor, data=tensor.data.copy())

    scores = read(NativeModel(shape_of(model), copies(), threads=2).cache(1, 64), [0], [ids])
    assert apart(scores, expected(model, ids)[-1:]) < BOUNDS["f32"]


def test_closing_in_any_order() -> None:
    core, ids = core_of(tiny("gpt2")), some(5)
    cache = core.cache(1, 8)
    expected_scores = read(cache, [0], [ids])
    core.close()
    core.close()
    cache.truncate(0, 0)
    np.testing.assert_array_equal(read(cache, [0], [ids]), expected_scores)
    with pytest.raises(OwnwordsError, match="closed"):
        core.cache(1, 8)
    cache.close()
    with pytest.raises(OwnwordsError, match="closed"):
        read(cache, [0], [ids])
    second = core_of(tiny("gpt2")).cache(1, 8)
    gc.collect()
    np.testing.assert_array_equal(read(second, [0], [ids]), expected_scores)


def test_many_threads_of_python() -> None:
    """Concurrent reads equal single ones."""
    core, ids = core_of(tiny("qwen3")), some(20)
    expected = read(core.cache(1, 64), [0], [ids], every=True)
    wrong: list[int] = []

    def work(cache: NativeCache) -> None:
        for at, token in enumerate(ids):
            if not np.array_equal(read(cache, [0], [[token]])[0], expected[at]):
                wrong.append(at)

    threads = [threading.Thread(target=work, args=(core.cache(1, 64),)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_forked_process_reads_on() -> None:
    if not hasattr(os, "fork"):
        pytest.skip("there is no fork here")
    core, ids = core_of(tiny("gpt2")), some(20)
    cache = core.cache(1, 64)
    expected = read(cache, [0], [ids], every=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # that other threads are left behind
        child = os.fork()
    if child == 0:
        cache.truncate(0, 0)
        same = np.array_equal(read(cache, [0], [ids], every=True), expected)
        os._exit(0 if same else 1)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.skipif(sys.platform != "linux", reason="asks the kernel of Linux")
def test_an_idle_engine_sleeps() -> None:
    """After a call its threads spin for a moment, then sleep."""
    tasks = Path("/proc/self/task")
    before = set(tasks.iterdir())
    cache = core_of(tiny("gpt2"), threads=3).cache(1, 64)
    workers = set(tasks.iterdir()) - before
    assert len(workers) == 2
    read(cache, [0], [some(5)])

    def state(task: Path) -> str:
        return (task / "stat").read_text().rpartition(")")[2].split()[0]

    while {state(task) for task in workers} != {"S"}:
        time.sleep(0.001)  # the test's own time limit ends this
