"""The contract of every engine: ids in, the scores of the plain forward out."""

import dataclasses
import random
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

import model_directories as models
from families import TINY, some_ids, tiny
from ownwords.core.errors import OwnwordsError
from ownwords.inference import native_engine
from ownwords.inference.engine import Engine, Logits, WeightFormat
from ownwords.inference.torch_engine import TorchEngine
from ownwords.models import bundle, directory, quantize
from ownwords.models.decoder import CausalLM, build

Open = Callable[..., Engine]
LENGTH = 64  # the context of the tiny models


def _native(folder: Path, weights: WeightFormat = "stored", threads: int = 2) -> Engine:
    engine = native_engine.load(
        folder, directory.read(folder).config, weights=weights, threads=threads
    )
    if engine is None:
        pytest.skip("the part in C++ is not built")
    return engine


def _torch(folder: Path, weights: WeightFormat = "stored", threads: int = 1) -> Engine:
    return TorchEngine.load(folder, weights=weights)


@pytest.fixture(params=[_native, _torch], ids=["native", "torch"])
def open_(request: pytest.FixtureRequest) -> Open:
    opened: Open = request.param
    return opened


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A directory of each tiny model."""
    model_folders = {name: tmp_path_factory.mktemp("models") / name for name in TINY}
    for name, folder in model_folders.items():
        bundle.save(folder, tiny(name), models.Letters())
    return model_folders


@pytest.fixture(params=list(TINY))
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def plain(model: CausalLM, ids: Sequence[int]) -> Logits:
    """Scores after each id, computed by the model itself without a cache."""
    with torch.inference_mode():
        return model.logits(model(torch.tensor([list(ids)])))[0].float().numpy()


def text(count: int, seed: int = 0) -> list[int]:
    return [int(token_id) for token_id in some_ids(1, count, seed)[0]]


def close(logits: Logits, wanted: Logits) -> None:
    assert logits.dtype == np.float32
    np.testing.assert_allclose(logits, wanted, rtol=1e-4, atol=2e-4)


def test_a_read_text_equals_the_plain_forward(
    open_: Open, name: str, folders: dict[str, Path]
) -> None:
    ids, wanted = text(LENGTH), plain(tiny(name), text(LENGTH))
    engine = open_(folders[name])
    assert (engine.vocabulary, engine.context, engine.weights) == (97, LENGTH, "f32")
    cache = engine.cache(1, LENGTH)
    close(cache.forward({0: ids}, all_positions=True), wanted)
    assert cache.cached_length(0) == LENGTH
    cache.truncate(0, 0)
    close(cache.forward({0: ids}), wanted[-1:])


def test_rows_of_different_lengths_are_read_in_one_batch(
    open_: Open, name: str, folders: dict[str, Path]
) -> None:
    texts = [text(count, count) for count in (40, 3, 22, 1)]
    wanted = [plain(tiny(name), ids) for ids in texts]
    cache = open_(folders[name]).cache(5, 48)
    order = (2, 0, 4, 3)
    first = {row: ids[: len(ids) // 2 + 1] for row, ids in zip(order, texts, strict=True)}
    scores = cache.forward(first, all_positions=True)
    close(
        scores,
        np.concatenate([w[: len(ids)] for w, ids in zip(wanted, first.values(), strict=True)]),
    )
    rest = [
        (row, ids[len(ids) // 2 + 1 :], w[-1:])
        for row, ids, w in zip(order, texts, wanted, strict=True)
        if len(ids) > len(ids) // 2 + 1
    ]
    rest.reverse()
    scores = cache.forward({row: ids for row, ids, _ in rest})
    close(scores, np.concatenate([w for *_, w in rest]))
    assert [cache.cached_length(row) for row in range(5)] == [3, 0, 40, 1, 22]


def test_rows_continue_after_any_cut_and_any_copy(
    open_: Open, name: str, folders: dict[str, Path]
) -> None:
    """Whatever came before, a row's scores are those of its current text."""
    model, cache = tiny(name), open_(folders[name]).cache(3, 40)
    generator = random.Random(name)
    sequences: list[list[int]] = [[], [], []]
    for _ in range(40):
        row, source = generator.randrange(3), generator.randrange(3)
        match generator.randrange(4):
            case 0:
                length = generator.randrange(len(sequences[row]) + 2)
                cache.truncate(row, length)
                sequences[row] = sequences[row][:length]
            case 1:
                length = generator.randrange(len(sequences[source]) + 1)
                cache.copy_prefix(source, row, length)
                sequences[row] = sequences[source][:length]
            case _:
                rows = generator.sample(range(3), generator.randint(1, 3))
                new = {
                    r: text(
                        min(generator.choice([1, 1, 2, 9, 30]), 40 - len(sequences[r])), row + r
                    )
                    for r in rows
                    if len(sequences[r]) < 40
                }
                if not new:
                    continue
                scores = cache.forward(new)
                for r, ids in new.items():
                    sequences[r] = sequences[r] + ids
                close(scores, np.stack([plain(model, sequences[r])[-1] for r in new]))
        assert [cache.cached_length(r) for r in range(3)] == [len(ids) for ids in sequences]


def test_a_long_text_is_read_whole(open_: Open, tmp_path: Path) -> None:
    config = dataclasses.replace(TINY["gemma3"], context=1500)
    model = build(config)
    model.init_weights(3)
    bundle.save(tmp_path / "m", model, models.Letters())
    ids, wanted = text(1400), plain(model, text(1400))
    cache = open_(tmp_path / "m").cache(2, 1500)
    close(
        cache.forward({1: ids, 0: ids[:2]}),
        np.stack([wanted[-1], wanted[1]]),
    )
    cache.truncate(1, 700)
    close(cache.forward({1: ids[700:]}, all_positions=True), wanted[700:])


def test_caches_are_independent(open_: Open, folders: dict[str, Path]) -> None:
    engine, model = open_(folders["gemma3"]), tiny("gemma3")
    ids, other_ids = text(20), text(20, 5)
    first, second = engine.cache(1, 30), engine.cache(2, 64)
    first.forward({0: ids})
    second.forward({1: other_ids})
    close(first.forward({0: [7]}), plain(model, [*ids, 7])[-1:])
    first.close()
    close(second.forward({1: [9]}), plain(model, [*other_ids, 9])[-1:])
    first.close()


def test_several_threads_can_read(open_: Open, folders: dict[str, Path]) -> None:
    engine, model = open_(folders["llama"]), tiny("llama")
    wrong: list[str] = []

    def read(seed: int) -> None:
        ids, cache = text(30, seed), engine.cache(1, 30)
        for token_id in ids:
            scores = cache.forward({0: [token_id]})
        if not np.allclose(scores, plain(model, ids)[-1:], rtol=1e-4, atol=2e-4):
            wrong.append(f"seed {seed}")

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bf16", "f16"])
def test_narrow_files_are_read_without_conversion(
    open_: Open, name: str, dtype: torch.dtype, tmp_path: Path
) -> None:
    bundle.save(tmp_path / "m", tiny(name, dtype), models.Letters())
    ids = text(24)
    wanted = plain(bundle.load(tmp_path / "m", dtype=torch.float32).model, ids)
    logits = open_(tmp_path / "m", weights="f32").cache(1, 24).forward({0: ids}, all_positions=True)
    close(logits, wanted)
    engine = open_(tmp_path / "m")
    assert engine.weights == ("bf16" if dtype is torch.bfloat16 else "stored")
    near(engine.cache(1, 24).forward({0: ids}, all_positions=True), wanted, 0.05)


def near(logits: Logits, wanted: Logits, share: float) -> None:
    """The difference is at most that share of the spread of the scores."""
    assert np.isfinite(logits).all()
    spread = float(np.std(wanted - wanted.mean(-1, keepdims=True)))
    assert float(np.sqrt(np.mean((logits - wanted) ** 2))) <= share * spread


@pytest.mark.parametrize(("weights", "share"), [("bf16", 0.05), ("int8", 0.08)])
def test_weights_can_be_rounded(
    open_: Open, name: str, weights: WeightFormat, share: float, folders: dict[str, Path]
) -> None:
    ids, rounded = text(40), tiny(name, torch.bfloat16 if weights == "bf16" else torch.float32)
    if weights != "bf16":
        quantize.quantize(rounded)
    engine = open_(folders[name], weights=weights)
    assert engine.weights == weights
    cache = engine.cache(2, LENGTH)
    near(
        cache.forward({1: ids}, all_positions=True),
        plain(rounded.float(), ids),
        share,
    )
    unrounded = cache.forward({0: ids})
    cache.truncate(0, 11)
    near(cache.forward({0: ids[11:]}), unrounded, share / 2)


def test_a_quantised_directory_is_read_without_conversion(
    open_: Open, name: str, tmp_path: Path
) -> None:
    model = tiny(name)
    bundle.save(tmp_path / "m", model, models.Letters(), int8=True)
    quantize.quantize(model)
    engine = open_(tmp_path / "m")
    assert engine.weights == "int8"
    near(
        engine.cache(1, 40).forward({0: text(40)}, all_positions=True),
        plain(model, text(40)),
        0.08,
    )


def test_a_directory_in_several_files_is_read(open_: Open, tmp_path: Path) -> None:
    bundle.save(tmp_path / "m", tiny("gpt2"), models.Letters())
    models.shard(tmp_path / "m", 6000)
    assert len(list((tmp_path / "m").glob("*.safetensors"))) > 2
    ids = text(20)
    close(
        open_(tmp_path / "m").cache(1, 20).forward({0: ids}, all_positions=True),
        plain(tiny("gpt2"), ids),
    )


@pytest.mark.parametrize(
    ("inputs", "match"),
    [
        ({}, "read"),
        ({0: []}, "read"),
        ({2: [1]}, "row"),
        ({-1: [1]}, "row"),
        ({0: [1], 1: [97]}, "id 97 is not in the vocabulary"),
        ({0: [-1]}, "id -1"),
        ({0: [1] * 21}, "cache"),
    ],
)
def test_invalid_input_is_refused_and_nothing_is_read(
    open_: Open, inputs: dict[int, list[int]], match: str, folders: dict[str, Path]
) -> None:
    cache = open_(folders["qwen3"]).cache(2, 25)
    cache.forward({0: [1, 2, 3, 4, 5]})
    with pytest.raises(OwnwordsError, match=match):
        cache.forward(inputs)
    assert [cache.cached_length(0), cache.cached_length(1)] == [5, 0]
    close(cache.forward({0: [6]}), plain(tiny("qwen3"), [1, 2, 3, 4, 5, 6])[-1:])


def test_a_missing_model_is_refused(open_: Open, folders: dict[str, Path]) -> None:
    engine = open_(folders["qwen3"])
    cache = engine.cache(2, 25)
    cache.forward({0: [1, 2, 3]})
    wrong: list[tuple[Callable[[], object], str]] = [
        (lambda: engine.cache(0, 9), "at least one row"),
        (lambda: engine.cache(1, 0), "the context is 64"),
        (lambda: engine.cache(1, 65), "the context is 64"),
        (lambda: cache.cached_length(2), "row 2"),
        (lambda: cache.truncate(-1, 0), "row -1"),
        (lambda: cache.truncate(0, -1), "cut to -1"),
        (lambda: cache.copy_prefix(2, 0, 1), "row"),
        (lambda: cache.copy_prefix(0, 3, 1), "row"),
        (lambda: cache.copy_prefix(0, 1, 4), "4 tokens of row 0"),
        (lambda: cache.copy_prefix(0, 1, -1), "-1 tokens"),
    ]
    for call, match in wrong:
        with pytest.raises(OwnwordsError, match=match):
            call()
    assert [cache.cached_length(0), cache.cached_length(1)] == [3, 0]
    cache.close()
    with pytest.raises(OwnwordsError, match="closed"):
        cache.forward({0: [1]})


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("weights", ["stored", "int8"])
def test_weights_with_nan_are_refused(
    open_: Open, value: float, weights: WeightFormat, tmp_path: Path
) -> None:
    for number, key in enumerate(("blocks.1.mlp.down.weight", "final_norm.bias")):
        model = tiny("gpt2")
        with torch.no_grad():
            model.get_parameter(key).view(-1)[3] = value
        folder = tmp_path / str(number)
        bundle.save(folder, model, models.Letters())
        with pytest.raises(OwnwordsError, match="not finite"):
            open_(folder, weights=weights)
