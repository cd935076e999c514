import random
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

from ownwords.models import registry
from ownwords.models.decoder import CausalLM, build
from ownwords.models.llmc import (
    UINT16,
    UINT32,
    load_checkpoint,
    read_headerless,
    read_shard,
    save_checkpoint,
    write_headerless,
    write_shard,
)
from ownwords.models.untrusted_files import ModelError

SHAPE = {"vocab_size": 131, "n_positions": 12, "n_embd": 16, "n_layer": 3, "n_head": 2}


def _model(dtype: torch.dtype = torch.float32, **changed: object) -> CausalLM:
    model = build(
        registry.config_from_json({"model_type": "gpt2", **SHAPE, **changed}), dtype=dtype
    )
    model.init_weights(1)
    return model


def _header(path: Path) -> list[int]:
    return [int(number) for number in np.fromfile(path, "<i4", 256)]


def _patched(path: Path, place: int, value: int) -> None:
    data = bytearray(path.read_bytes())
    data[4 * place : 4 * place + 4] = value.to_bytes(4, "little", signed=True)
    path.write_bytes(data)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_checkpoint_brings_back_every_bit(dtype: torch.dtype, tmp_path: Path) -> None:
    model = _model(dtype)
    save_checkpoint(tmp_path / "a.bin", model)
    again = load_checkpoint(tmp_path / "a.bin")
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, again.get_parameter(name)), name
        assert again.get_parameter(name).dtype == dtype
    save_checkpoint(tmp_path / "b.bin", again)
    assert (tmp_path / "a.bin").read_bytes() == (tmp_path / "b.bin").read_bytes()


def test_the_layout_is_that_of_llm_c(tmp_path: Path) -> None:
    """Header and places as `train_gpt2.c` computes them (`fill_in_parameter_sizes`)."""
    model = _model()
    path = tmp_path / "model.bin"
    save_checkpoint(path, model)
    header = _header(path)
    assert header[:8] == [20240326, 3, 12, 131, 3, 2, 16, 256]
    assert not any(header[8:])
    numbers = np.fromfile(path, "<f4", offset=1024)
    v, t, c, n = 256, 12, 16, 3
    sizes = [v * c, t * c, n * c, n * c, n * 3 * c * c, n * 3 * c, n * c * c, n * c, n * c, n * c]
    sizes += [n * 4 * c * c, n * 4 * c, n * c * 4 * c, n * c, c, c]
    assert numbers.size == sum(sizes)
    parts = np.split(numbers, np.cumsum(sizes)[:-1])
    embedding = parts[0].reshape(v, c)
    assert np.array_equal(embedding[:131], model.get_parameter("embedding.weight").detach())
    assert not embedding[131:].any()
    fc = model.get_parameter("blocks.2.mlp.up.weight").detach()  # (out, in), the last of three
    assert np.array_equal(parts[10].reshape(n, 4 * c, c)[2], fc)
    qkv = model.get_parameter("blocks.1.attention.query_key_value.weight").detach()
    assert np.array_equal(parts[4].reshape(n, 3 * c, c)[1], qkv)


def test_a_checkpoint_can_change_its_type_on_the_way(tmp_path: Path) -> None:
    model = _model()
    save_checkpoint(tmp_path / "model.bin", model, dtype=torch.bfloat16)
    assert _header(tmp_path / "model.bin")[1] == 5
    wide = load_checkpoint(tmp_path / "model.bin", dtype=torch.float32)
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter.bfloat16().float(), wide.get_parameter(name)), name


def test_what_llm_c_does_not_compute_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "model.bin"
    for changed, message in (
        ({"n_inner": 48}, "hidden 64"),
        ({"layer_norm_epsilon": 1e-6}, "norm_eps"),
        ({"tie_word_embeddings": False}, "tied"),
    ):
        with pytest.raises(ModelError, match=message):
            save_checkpoint(path, _model(**changed))
    with pytest.raises(ModelError, match="float16"):
        save_checkpoint(path, _model(torch.float16))
    assert not path.exists()


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (0, 20240520, "no checkpoint"),
        (1, 2, "version 2"),
        (2, 13, "its header describes"),
        (2, 0, "context 0"),
        (2, 2**31 - 1, "its header describes"),
        (3, -1, "vocabulary -1"),
        (4, 2, "its header describes"),
        (5, 3, "3 heads"),
        (6, 32, "its header describes"),
        (7, 384, "pads a vocabulary of 131 to 384"),
        (256 + 131 * 16, 1, "rows that pad"),
    ],
)
def test_a_wrong_checkpoint_is_one_clear_error(
    place: int, value: int, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "model.bin"
    save_checkpoint(path, _model())
    _patched(path, place, value)
    with pytest.raises(ModelError, match=message):
        load_checkpoint(path)


def test_a_damaged_checkpoint_is_one_clear_error(tmp_path: Path) -> None:
    path = tmp_path / "model.bin"
    save_checkpoint(path, _model())
    whole = path.read_bytes()
    source = random.Random(3)
    # A vocabulary that takes some rows of padding for its own is as possible as the true one.
    places = [place for place in range(32) if place != 12]
    for _ in range(300):
        data = bytearray(whole)
        if source.random() < 0.3:
            del data[source.randrange(len(data)) :]
        else:
            data[source.choice(places)] ^= 1 << source.randrange(8)
        path.write_bytes(data)
        with pytest.raises(ModelError, match=r"model\.bin"):
            load_checkpoint(path)


@pytest.mark.parametrize("kind", [UINT16, UINT32])
def test_a_shard_brings_back_its_tokens(kind: object, tmp_path: Path) -> None:
    wanted = UINT16 if kind is UINT16 else UINT32
    ids = np.arange(0, 50_000, 7)
    assert write_shard(tmp_path / "a.bin", np.array_split(ids, 9), wanted) == ids.size
    assert _header(tmp_path / "a.bin")[:4] == [wanted.magic, wanted.version, ids.size, 0]
    tokens = read_shard(tmp_path / "a.bin", 50_257)
    assert tokens.dtype == wanted.dtype
    assert np.array_equal(tokens, ids)
    assert isinstance(tokens, np.memmap)


def test_nanogpt_has_no_header(tmp_path: Path) -> None:
    ids = np.array([50_256, 0, 77], dtype=np.uint16)
    (tmp_path / "train.bin").write_bytes(ids.tobytes())  # as data/*/prepare.py does
    assert np.array_equal(read_headerless(tmp_path / "train.bin", 50_257), ids)
    assert write_headerless(tmp_path / "again.bin", [ids[:1], ids[1:]]) == 3
    assert (tmp_path / "again.bin").read_bytes() == ids.tobytes()


def test_a_wrong_shard_is_one_clear_error(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    ids = np.arange(100)

    def refused(message: str) -> None:
        with pytest.raises(ModelError, match=message):
            read_shard(path, 100)

    write_shard(path, [ids])
    with pytest.raises(ModelError, match="token 99, and the vocabulary has 99"):
        read_shard(path, 99)
    with pytest.raises(ModelError, match="has llm"):
        read_headerless(path, 100)
    for place, value, message in (
        (0, 1, "begins with 1"),
        (1, 2, "version 2"),
        (2, 0, "0 tokens"),
        (2, -5, "-5 tokens"),
        (2, 101, "describes 1,226"),
    ):
        write_shard(path, [ids])
        _patched(path, place, value)
        refused(message)
    path.write_bytes(path.read_bytes()[:700])
    refused("700 bytes")
    (tmp_path / "odd.bin").write_bytes(b"123")
    (tmp_path / "empty.bin").write_bytes(b"")
    for name in ("odd.bin", "empty.bin", "missing.bin"):
        with pytest.raises(ModelError):
            read_headerless(tmp_path / name, 100)


def test_a_token_that_has_no_room_is_not_written(tmp_path: Path) -> None:
    for wrong in (70_000, -1):
        with pytest.raises(ModelError, match="65,535"):
            write_shard(tmp_path / "a.bin", [np.array([1, wrong])])
    with pytest.raises(ModelError, match="not 0"):
        write_shard(tmp_path / "a.bin", [])
    assert not list(tmp_path.iterdir())
