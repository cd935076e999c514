"""GGUF export and import round-trip, and damage is one sentence."""

import random
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import damage
from families import TINY
from ownwords.core.errors import OwnwordsError
from ownwords.models import gguf
from ownwords.models.configs.gemma3 import Gemma3Config
from ownwords.models.decoder import CausalLM, build
from ownwords.models.gguf import container
from ownwords.models.gguf.container import Value, tensor_type, tensor_types
from ownwords.models.gguf.reading import from_gguf
from ownwords.models.gguf.tokenizer import files_of
from ownwords.models.untrusted_files import ModelError
from ownwords.models.weight_mapping import gguf_names
from ownwords.tokenizers.byte_tokenizer import ByteTokenizer
from ownwords.tokenizers.tokenizer import from_files


def model_of(name: str, **changes: Any) -> CausalLM:  # noqa: ANN401 - any setting
    """A tiny model with room for the bytes tokenizer, no weight of it zero."""
    config = replace(TINY[name], vocabulary=270, **changes)
    if isinstance(config, Gemma3Config):  # the only scale that llama.cpp knows
        config = replace(config, query_scalar=config.head_dim)
    model = build(config)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return model.eval()


@pytest.mark.parametrize("name", ["gpt2", "llama", "qwen3", "gemma3"])
def test_an_f32_file_round_trips_to_the_bit(name: str, tmp_path: Path) -> None:
    model = model_of(name)
    files = ByteTokenizer().files()
    report = gguf.save(tmp_path / "m.gguf", model, files, type="f32")
    back = gguf.load(report.path)
    assert back.config.to_hf() == model.config.to_hf()
    ours, theirs = dict(model.named_parameters()), dict(back.model.named_parameters())
    assert ours.keys() == theirs.keys()
    if name.startswith("gemma"):  # one is added to its norms for llama.cpp, and taken off again
        assert all(torch.allclose(ours[key], theirs[key], atol=1e-6) for key in ours)
    else:
        assert all(torch.equal(ours[key], theirs[key]) for key in ours)
    its_own = from_files(back.tokenizer_files)
    assert its_own.encode("Zażółć 🙂") == ByteTokenizer().encode("Zażółć 🙂")


@pytest.mark.parametrize("type", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("name", ["gpt2", "llama", "qwen3", "gemma3"])
def test_a_rewritten_file_is_identical(name: str, type: str, tmp_path: Path) -> None:
    generation = {"bos_token_id": 256, "eos_token_id": [257, 260], "temperature": 0.7, "top_k": 40}
    first, second = tmp_path / "a.gguf", tmp_path / "b.gguf"
    gguf.save(
        first,
        model_of(name),
        ByteTokenizer().files(),
        type=type,
        name="Дневник",
        generation=generation,
    )
    back = gguf.load(first)
    assert back.generation == generation
    gguf.save(
        second,
        back.model,
        back.tokenizer_files,
        type=type,
        name=str(back.provenance["name"]),
        generation=back.generation,
    )
    assert first.read_bytes() == second.read_bytes()


@pytest.mark.parametrize(("type", "value"), [("f16", 7e4), ("q4_0", 1e6), ("f32", float("nan"))])
def test_tensors_that_do_not_fit_a_type_are_refused(
    type: str, value: float, tmp_path: Path
) -> None:
    model = model_of("llama")
    with torch.no_grad():
        model.embedding.weight[3, 3] = value
    path = tmp_path / "m.gguf"
    with pytest.raises(OwnwordsError, match=r"token_embd\.weight are not finite|multiple"):
        gguf.save(path, model, ByteTokenizer().files(), type=type)
    assert not list(tmp_path.iterdir())


def test_non_finite_numbers_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    gguf.save(path, model_of("qwen3"), ByteTokenizer().files(), type="f32")
    with path.open("r+b") as file:
        file.seek(-64, 2)
        file.write(struct.pack("<16f", *[float("inf")] * 16))
    with pytest.raises(OwnwordsError, match="not finite"):
        gguf.load(path)


@pytest.mark.parametrize(("type", "error"), [("f16", 1e-3), ("bf16", 8e-3), ("q8_0", 1e-2)])
def test_rounding_stays_within_its_bound(type: str, error: float) -> None:
    values = np.random.default_rng(0).standard_normal((64, 96)).astype(np.float32)
    encoded = tensor_type(type).encode(values)
    back = tensor_type(type).decode(encoded, values.shape)
    assert np.abs(back - values).max() <= error * np.abs(values).max()


def test_blocks_of_every_type_are_read_or_refused_with_a_sentence() -> None:
    source, read = np.random.default_rng(0), set()
    for kind in tensor_types().values():
        shape = (3, 2 * kind.block_weights)
        data = source.integers(0, 60, kind.bytes_of(shape), dtype=np.uint8)  # finite scales
        try:
            values = kind.decode(data, shape)
        except ModelError as error:
            assert "cannot be read" in error.message
            continue
        assert values.shape == shape
        assert np.isfinite(values).all()
        read.add(kind.name)
    assert read > {"f32", "q4_0", "q5_1", "q8_0", "q2_k", "q3_k", "q4_k", "q5_k", "q6_k", "iq4_xs"}


BLOCKS = (
    *("q5_0", "q2_k", "q3_k", "q4_k", "q5_k", "q6_k"),
    *("iq1_s", "iq2_xxs", "iq3_s", "iq4_nl", "iq4_xs", "tq1_0", "mxfp4"),
)


@pytest.mark.parametrize("kind", BLOCKS)
def test_a_file_of_blocks_opens_as_its_weights(kind: str, tmp_path: Path) -> None:
    dequantize = pytest.importorskip("gguf").quants.dequantize
    model = model_of("llama", width=256, heads=8, head_dim=32, hidden=512)
    config = model.config
    plain = gguf.save(tmp_path / "a.gguf", model, ByteTokenizer().files(), type="f32").path
    block, random_bytes = tensor_type(kind), np.random.default_rng(0)
    data = {}
    with container.open_gguf(plain) as contents:
        for name, entry in contents.tensors.items():
            if len(entry.shape) > 1:  # small bytes make finite scales
                data[name] = random_bytes.integers(0, 60, block.bytes_of(entry.shape), np.uint8)
            else:
                data[name] = contents.tensor(name).view(np.uint8)
        table = container.lay_out(
            (name, block if len(entry.shape) > 1 else entry.type, entry.shape)
            for name, entry in contents.tensors.items()
        )
        metadata = contents.metadata
    with (tmp_path / "b.gguf").open("wb") as file:
        container.write_header(file, metadata, table)
        for entry in table:
            container.write_tensor(file, entry, data[entry.name])
    parameters = dict(gguf.load(tmp_path / "b.gguf").model.named_parameters())
    for ours, stored in gguf_names(config).items():
        expected = data[stored].view(np.float32)
        if len(parameters[ours].shape) > 1:
            rows = data[stored].reshape(parameters[ours].shape[0], -1)
            expected = from_gguf(config, stored, dequantize(rows, block.number))
        assert np.array_equal(parameters[ours].detach().numpy(), expected), ours


def test_rows_that_do_not_fit_blocks_are_reported(tmp_path: Path) -> None:
    report = gguf.save(tmp_path / "m.gguf", model_of("qwen3"), ByteTokenizer().files(), type="q4_0")
    assert any("multiple of 32" in note for note in report.notes)
    assert "f16" in report.tensors.values()


@pytest.mark.parametrize("at", [8, 16, *range(24, 1200, 13)])
def test_absurd_counts_allocate_nothing(at: int, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    gguf.save(path, model_of("gpt2"), ByteTokenizer().files(), type="f32")
    data = path.read_bytes()
    for count in (2**31 - 1, 2**32, 2**40, 2**63, 2**64 - 1):
        path.write_bytes(data[:at] + struct.pack("<Q", count) + data[at + 8 :])
        try:
            gguf.load(path)
        except OwnwordsError as error:
            assert error.message


@pytest.mark.parametrize(
    ("name", "message"),
    [("qwen3-window", "use_sliding_window"), ("gemma3", "query_pre_attn_scalar")],
)
def test_models_that_llama_cpp_would_compute_differently_are_refused(
    name: str, message: str, tmp_path: Path
) -> None:
    model = build(replace(TINY[name], vocabulary=270))
    with pytest.raises(OwnwordsError, match=message):
        gguf.save(tmp_path / "m.gguf", model, ByteTokenizer().files(), type="f32")
    assert not list(tmp_path.iterdir())


def test_an_unknown_type_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OwnwordsError, match="not a type of weights"):
        gguf.save(tmp_path / "m.gguf", model_of("qwen3"), ByteTokenizer().files(), type="q3_k")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["gpt2", "qwen3"])
def test_a_damaged_file_is_read_or_refused_with_a_sentence(name: str, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    gguf.save(path, model_of(name), ByteTokenizer().files(), type="q8_0")
    data = path.read_bytes()
    generator = random.Random(4)
    head = data[:20_000]
    for number in range(500):
        # Most of the file is weights, in which no damage can be seen: half go for the header.
        spoilt = damage.of_bytes(head, generator) + data[20_000:]
        path.write_bytes(spoilt if number % 2 else damage.of_bytes(data, generator))
        try:
            gguf.load(path)
        except OwnwordsError as error:
            assert error.message
            assert "\n" not in error.message


def test_sentencepiece_tokens_that_a_user_defined_last_are_merged_too() -> None:
    """As in Gemma's files: runs of tabs stand behind all other tokens."""
    tokens = ["<unk>", "<s>", *(f"<0x{byte:02X}>" for byte in range(256)), *"ab", "ab", "\u2581"]
    types = [2, 3, *[6] * 256, *[1] * 4, 4, 4, 4]
    tokens += ["\t", "\t\t", "\t\t\t"]
    scores = -np.arange(len(tokens), dtype=np.float32)
    metadata: dict[str, Value] = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": np.array(types),
        "tokenizer.ggml.scores": scores,
        "tokenizer.ggml.unknown_token_id": 0,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.add_space_prefix": False,
    }
    read = from_files(files_of(metadata))
    ids = read.encode("ab\t\t b")
    assert [tokens[i] for i in ids] == ["ab", "\t\t", "\u2581", "b"]
    assert read.decode(ids) == "ab\t\t b"
