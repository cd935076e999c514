"""Weights of model directories, read into PyTorch or mapped into memory."""

import json
import os
import struct
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import model_directories as models
from ownwords.models import safetensors_header, weight_mapping, weights
from ownwords.models.safetensors_header import read_header
from ownwords.models.untrusted_files import ModelError
from ownwords.models.weight_mapping import hf_names

FAMILIES = list(models.CONFIGS)
DTYPES = [torch.float32, torch.bfloat16, torch.float16]


def read_stored(path: Path) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    """Name, type, shape and bytes of each tensor, read without the code under test."""
    data = path.read_bytes()
    begin = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:begin])
    header.pop("__metadata__", None)
    return {
        name: (entry["dtype"], tuple(entry["shape"]), data[begin + start : begin + end])
        for name, entry in header.items()
        for start, end in [entry["data_offsets"]]
    }


def read_all_stored(folder: Path) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    tensors_stored: dict[str, tuple[str, tuple[int, ...], bytes]] = {}
    for path in folder.glob("*.safetensors"):
        tensors_stored |= read_stored(path)
    return tensors_stored


def put(path: Path, tensors: dict[str, torch.Tensor]) -> None:
    """Write a safetensors file of these tensors, replacing any."""
    path.unlink(missing_ok=True)
    weights.write_tensors(path, tensors)


def tensors(path: Path) -> dict[str, torch.Tensor]:
    kinds = {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}
    return {
        name: torch.frombuffer(bytearray(data), dtype=kinds[dtype]).view(shape)
        for name, (dtype, shape, data) in read_stored(path).items()
    }


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_weights_round_trip_bit_for_bit(
    family: str, tied: bool, dtype: torch.dtype, tmp_path: Path
) -> None:
    model = models.model(family, tie_word_embeddings=tied)
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    weights.write(first, model, dtype)
    reloaded = weights.load(first, model.config, "cpu", None)
    assert {p.dtype for p in reloaded.parameters()} == {dtype}
    weights.write(second, reloaded, None)
    assert {p.name: p.read_bytes() for p in first.iterdir()} == {
        p.name: p.read_bytes() for p in second.iterdir()
    }
    stored_tensors = read_all_stored(first)
    assert ("lm_head.weight" in stored_tensors) is not tied
    assert set(stored_tensors) == {theirs for _, theirs, _ in hf_names(model.config)}
    parameters = dict(model.named_parameters())
    for ours, theirs, transposed in hf_names(model.config):
        tensor = parameters[ours].detach().to(dtype)
        tensor = tensor.t().contiguous() if transposed else tensor
        assert stored_tensors[theirs][1] == tuple(tensor.shape)
        assert stored_tensors[theirs][2] == tensor.view(-1).view(torch.uint8).numpy().tobytes()
    models.shard(first, 6000)
    assert len(list(first.glob("model-*-of-*.safetensors"))) > 2
    sharded = weights.load(first, model.config, "cpu", None)
    for name, parameter in reloaded.named_parameters():
        assert torch.equal(parameter, sharded.get_parameter(name))


def test_a_type_can_be_chosen_and_mixed_files_widen(tmp_path: Path) -> None:
    model = models.model("qwen3")
    weights.write(tmp_path, model, torch.bfloat16)
    path = tmp_path / weight_mapping.SINGLE
    chosen = weights.load(tmp_path, model.config, "cpu", torch.float32)
    assert {p.dtype for p in chosen.parameters()} == {torch.float32}
    tensors_read = tensors(path)
    put(path, {n: t.float() if t.dim() == 1 else t for n, t in tensors_read.items()})
    mixed = weights.load(tmp_path, model.config, "cpu", None)
    for parameter, reloaded_parameter in zip(chosen.parameters(), mixed.parameters(), strict=True):
        assert torch.equal(parameter, reloaded_parameter)


def test_a_number_beyond_float16_is_reported_and_not_made_infinite(tmp_path: Path) -> None:
    model = models.model("qwen3")
    with torch.no_grad():
        model.get_parameter("blocks.0.mlp.up.weight")[1, 2] = 70_000
    with pytest.raises(
        ModelError, match=r"mlp.up_proj.weight' holds 70,000, but the largest float16 number is"
    ):
        weights.write(tmp_path, model, torch.float16)


def test_a_copied_head_of_a_tied_model_is_accepted_if_equal(tmp_path: Path) -> None:
    model = models.model("qwen3")
    weights.write(tmp_path, model, None)
    path = tmp_path / weight_mapping.SINGLE
    tensors_read = tensors(path)
    embedding = tensors_read["model.embed_tokens.weight"]
    put(path, tensors_read | {"lm_head.weight": embedding})
    reloaded = weights.load(tmp_path, model.config, "cpu", None)
    assert torch.equal(reloaded.get_parameter("embedding.weight"), embedding)
    head = embedding.clone()
    head[-1, -1] += 1
    put(path, tensors_read | {"lm_head.weight": head})
    with pytest.raises(ModelError, match=r"tied.*'lm_head.weight' differs from 'model.embed_tok"):
        weights.load(tmp_path, model.config, "cpu", None)
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        tensors_read[name] = torch.tensor(1.0)
    put(path, tensors_read)
    with pytest.raises(ModelError, match=r"'model.embed_tokens.weight' has the shape \[\]"):
        weights.load(tmp_path, model.config, "cpu", None)


def test_a_quantised_model_with_numbers_that_are_not_finite_is_refused(tmp_path: Path) -> None:
    model = models.model("qwen3")
    with torch.no_grad():
        model.get_parameter("blocks.0.mlp_norm.weight")[0] = float("nan")
    weights.write(tmp_path, model, None, int8=True)
    with pytest.raises(ModelError, match=r"'blocks.0.mlp_norm.weight' holds numbers that are not"):
        weights.load(tmp_path, model.config, "cpu", None)


def test_gpt2_as_first_published_is_read(tmp_path: Path) -> None:
    """Names without their prefix, and the masks that every reader recomputes."""
    model = models.model("gpt2")
    weights.write(tmp_path, model, None)
    path = tmp_path / weight_mapping.SINGLE
    tensors_read = {name.removeprefix("transformer."): t for name, t in tensors(path).items()}
    masks = {f"h.{i}.attn.bias": torch.ones(1, 1, 8, 8) for i in range(2)}
    put(path, tensors_read | masks | {"h.0.attn.masked_bias": torch.tensor(-1e4)})
    reloaded = weights.load(tmp_path, model.config, "cpu", None)
    for parameter, reloaded_parameter in zip(
        model.parameters(), reloaded.parameters(), strict=True
    ):
        assert torch.equal(parameter, reloaded_parameter)


def test_rotary_frequencies_of_older_files_are_skipped(tmp_path: Path) -> None:
    model = models.model("llama")
    weights.write(tmp_path, model, None)
    path = tmp_path / weight_mapping.SINGLE
    names = ("model.layers.0.self_attn.rotary_emb.inv_freq", "model.rotary_emb.inv_freq")
    put(path, tensors(path) | {name: torch.ones(2) for name in names})
    weights.load(tmp_path, model.config, "cpu", None)


def test_unknown_and_missing_tensors_are_named(tmp_path: Path) -> None:
    model = models.model("llama")
    weights.write(tmp_path, model, None)
    path = tmp_path / weight_mapping.SINGLE
    tensors_read = tensors(path)
    for name in [name for name in tensors_read if "layers.1.self_attn" in name]:
        del tensors_read[name]
    put(path, tensors_read | {"model.surprise": torch.ones(1)})
    with pytest.raises(ModelError) as caught:
        weights.load(tmp_path, model.config, "cpu", None)
    assert "do not match a llama with 2 layers" in caught.value.message
    assert "1 unknown: 'model.surprise'" in caught.value.message
    assert "4 missing: 'model.layers.1.self_attn.k_proj.weight', " in caught.value.message
    assert "and 1 more" in caught.value.message


def test_a_wrong_shape_or_type_names_the_tensor(tmp_path: Path) -> None:
    model = models.model("llama")
    weights.write(tmp_path, model, None)
    for field, value in (("hidden_size", 20), ("intermediate_size", 44), ("vocab_size", 99)):
        config = models.model("llama", **{field: value}).config
        with pytest.raises(ModelError, match=rf"has the shape .*config.json .*{value}"):
            weights.load(tmp_path, config, "cpu", None)
    path = tmp_path / weight_mapping.SINGLE
    path.write_bytes(path.read_bytes().replace(b'"F32","shape":[16]', b'"I32","shape":[16]'))
    with pytest.raises(ModelError, match=r"'model.*norm.weight' is I32") as caught:
        weights.load(tmp_path, model.config, "cpu", None)
    assert "quantised" in caught.value.hint


def test_a_model_with_other_parameters_is_not_saved(tmp_path: Path) -> None:
    model = models.model("llama")
    model.register_parameter("adapter", torch.nn.Parameter(torch.ones(1)))
    with pytest.raises(ModelError, match="no weights named 'adapter'"):
        weights.write(tmp_path, model, None)


@pytest.mark.parametrize("target", ["../../etc/passwd", "a/b.safetensors", "", 7, None])
def test_an_index_cannot_point_outside(target: object, tmp_path: Path) -> None:
    index = {"weight_map": {"x": target}}
    (tmp_path / weight_mapping.INDEX).write_text(json.dumps(index), encoding="utf-8")
    with pytest.raises(ModelError, match="files beside it"):
        weight_mapping.find_tensors(tmp_path)


def test_index_and_shards_must_agree(tmp_path: Path) -> None:
    model = models.model("llama")
    weights.write(tmp_path, model, None)
    models.shard(tmp_path, 6000)
    path = tmp_path / weight_mapping.INDEX
    index = json.loads(path.read_bytes())
    file = index["weight_map"].pop("model.norm.weight")
    path.write_text(json.dumps(index), encoding="utf-8")
    with pytest.raises(ModelError, match=r"disagree on 'model.norm.weight'"):
        weight_mapping.find_tensors(tmp_path)
    (tmp_path / file).unlink()
    with pytest.raises(ModelError, match=f"{file} cannot be read"):
        weight_mapping.find_tensors(tmp_path)


@pytest.mark.skipif(sys.platform == "win32", reason="links need rights on Windows")
def test_links_are_followed_only_within_a_download_cache(tmp_path: Path) -> None:
    weights.write(tmp_path, models.model("llama"), None)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / weight_mapping.SINGLE).symlink_to(tmp_path / weight_mapping.SINGLE)
    with pytest.raises(ModelError, match="is a symbolic link"):
        weight_mapping.find_tensors(elsewhere)
    snapshot, blobs = tmp_path / "models--x" / "snapshots" / "1", tmp_path / "models--x" / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    (tmp_path / weight_mapping.SINGLE).rename(blobs / "abc")
    (snapshot / weight_mapping.SINGLE).symlink_to(Path("..", "..", "blobs", "abc"))
    assert weight_mapping.find_tensors(snapshot)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are none on Windows")
def test_a_pipe_is_refused_immediately(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / weight_mapping.SINGLE)
    with pytest.raises(ModelError, match="is not a file"):
        weight_mapping.find_tensors(tmp_path)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "pytorch_model.bin.index.json"])
def test_a_pickle_is_refused_with_advice(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"\x80\x04")
    with pytest.raises(ModelError, match=r"only as a pickle.*save_pretrained"):
        weight_mapping.find_tensors(tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(ModelError, match=r"holds no model\.safetensors"):
        weight_mapping.find_tensors(tmp_path)


def header_of(**fields: object) -> dict[str, object]:
    return {"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]} | fields}


@pytest.mark.parametrize(
    "header",
    [
        header_of(dtype="F31"),
        header_of(dtype=["F32"]),
        header_of(shape=[3]),
        header_of(shape=[-2]),
        header_of(shape=[True, 2]),
        header_of(shape=[1 << 62, 1 << 62]),
        header_of(shape=[1 << 80]),
        header_of(shape=[(1 << 63) - 1] * 50_000),  # whose product takes ten seconds
        header_of(shape="2"),
        header_of(data_offsets=[8, 0]),
        header_of(data_offsets=[0]),
        header_of(data_offsets=[4, 12]),
        header_of(extra=1),
        header_of(**{"\n" * 1000: 1}),
        header_of(dtype="F32\n"),
        {"a": 1},
        {"a\n": {"dtype": "F31", "shape": [2], "data_offsets": [0, 8]}},
        header_of() | {"b": header_of()["a"]},
        header_of() | {"__metadata__": 1},
        header_of() | {"__metadata__": {"a": 1}},
        {},
    ],
)
def test_a_false_header_is_refused(header: object, tmp_path: Path) -> None:
    encoded = json.dumps(header).encode()
    path = tmp_path / "x.safetensors"
    path.write_bytes(len(encoded).to_bytes(8, "little") + encoded + b"\0" * 8)
    with pytest.raises(ModelError, match="is damaged, or not a safetensors file: ") as caught:
        read_header(path)
    assert "\n" not in str(caught.value)
    assert len(caught.value.message) < 300 + len(str(path))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff" * 20,
        (5).to_bytes(8, "little") + b"[1,2]",
        (3).to_bytes(8, "little") + b'"\xff"',
        (13).to_bytes(8, "little") + b'{"a":1,"a":2}',
        (100_000).to_bytes(8, "little") + b"[" * 100_000,
        (17 << 20).to_bytes(8, "little") + b" " * (17 << 20),
    ],
    ids=range(7),
)
def test_an_invalid_header_is_refused(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(data)
    with pytest.raises(ModelError):
        read_header(path)


def test_a_truncated_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / weight_mapping.SINGLE
    put(path, {"a": torch.ones(3), "b": torch.ones(2, 2)})
    data = path.read_bytes()
    for length in range(len(data)):
        path.write_bytes(data[:length])
        with pytest.raises(ModelError):
            read_header(path)
    path.write_bytes(data + b"\0")
    with pytest.raises(ModelError, match="describes"):
        read_header(path)


VALUES: dict[str, tuple[str, safetensors_header.Array]] = {
    "a": ("F32", np.arange(6, dtype=np.float32).reshape(2, 3)),
    "b": ("BF16", np.arange(5, dtype=np.uint16)),
    "c": ("I8", np.arange(-3, 3, dtype=np.int8)),
    "d": ("F16", np.ones((1, 2), np.float16)),
    "e": ("U8", np.arange(4, dtype=np.uint8)),
}


def write(path: Path, shift: int) -> None:
    """A file whose numbers begin `shift` bytes off their alignment."""
    header: dict[str, object] = {}
    at, data = 0, b""
    for name, (dtype, array) in VALUES.items():
        offsets = [at, at + array.nbytes]
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": offsets}
        at, data = offsets[1], data + array.tobytes()
    encoded = json.dumps(header).encode()
    encoded += b" " * (-len(encoded) % 8 + shift)
    path.write_bytes(struct.pack("<Q", len(encoded)) + encoded + data)


@pytest.mark.parametrize("shift", range(5))
def test_every_type_is_read_at_any_place(shift: int, tmp_path: Path) -> None:
    write(tmp_path / "x", shift)
    arrays = safetensors_header.map_arrays(read_header(tmp_path / "x").values())
    for name, (_, array) in VALUES.items():
        assert arrays[name].dtype == array.dtype
        np.testing.assert_array_equal(arrays[name], array)
        assert arrays[name].flags.aligned
        assert not arrays[name].flags.writeable


def test_a_file_cut_short_since_its_header_was_read_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "x", 0)
    stored = read_header(tmp_path / "x").values()
    os.truncate(tmp_path / "x", (tmp_path / "x").stat().st_size - 3)
    with pytest.raises(ModelError, match="cut short while it was opened"):
        safetensors_header.map_arrays(stored)
