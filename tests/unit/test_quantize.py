import json
import math
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor

from ownwords.models import quantize, registry, weights
from ownwords.models.decoder import CausalLM, build
from ownwords.models.quantization_scheme import FIELD, INT4, INT8, QuantizationScheme, schemes
from ownwords.models.untrusted_files import ModelError

POSTS = Path(__file__).parents[2] / "examples" / "blog" / "posts"
SCHEMES = (INT8, INT4)


def _model(
    kind: str = "qwen3", vocabulary: int = 61, width: int = 48, tied: bool = True
) -> CausalLM:
    shape: dict[str, object]
    if kind == "gpt2":
        shape = {"n_positions": 64, "n_embd": width, "n_layer": 2, "n_head": 4}
    else:
        shape = {
            "max_position_embeddings": 128,
            "hidden_size": width,
            "intermediate_size": 2 * width,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": width // 4,
            "rms_norm_eps": 1e-6,
            "rope_theta": 10000.0,
            "hidden_act": "silu",
        }
    settings = {"model_type": kind, "vocab_size": vocabulary, "tie_word_embeddings": tied, **shape}
    model = build(registry.config_from_json(settings))
    source = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            # Not `init_weights`, which begins with blocks that add nothing.
            parameter.copy_(0.2 * torch.randn(parameter.shape, generator=source))
            parameter.add_(name.count("norm"))
    return model.eval()


def _ids(model: CausalLM, batch: int = 2, length: int = 20) -> Tensor:
    source = torch.Generator().manual_seed(4)
    return torch.randint(model.config.vocabulary, (batch, length), generator=source)


def _error(weight: Tensor, scheme: QuantizationScheme) -> tuple[Tensor, Tensor]:
    """The rounding error of each weight, and half a step."""
    packed, scale = quantize.quantize_matrix(weight, scheme)
    columns = weight.shape[1]
    back = quantize.dequantize(packed, scale, scheme, columns)
    step = scale.double().abs().repeat_interleave(scheme.group or columns, 1)[:, :columns]
    return (weight.double() - back.double()).abs(), step / 2


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
@pytest.mark.parametrize("columns", [1, 31, 32, 33, 64, 100, 128, 257])
def test_no_weight_moves_by_more_than_half_a_step(scheme: QuantizationScheme, columns: int) -> None:
    source = torch.Generator().manual_seed(columns)
    for spread in (1e-42, 1e-30, 0.02, 1.0, 1e37):
        for shift in (0.0, 1.0):
            weight = (torch.randn(24, columns, generator=source) + shift) * spread
            error, half = _error(weight, scheme)
            slack = 1e-4 * half + 1e-45  # the rounding of float32 itself
            assert (error <= half + slack).all()


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
def test_hard_rows_keep_the_bound(scheme: QuantizationScheme) -> None:
    rows = torch.zeros(6, 160)
    rows[1] = 1.0
    rows[2] = -1.0
    rows[3, 7] = 5.0
    rows[4] = torch.linspace(-1, 1, 160)
    rows[5] = torch.linspace(0, 3e38, 160)
    error, half = _error(rows, scheme)
    assert (error <= half * (1 + 1e-4)).all()
    assert not error[0].any()


@pytest.mark.parametrize("columns", [1, 2, 31, 64])
def test_packed_codes_round_trip(columns: int) -> None:
    source = torch.Generator().manual_seed(2)
    codes = torch.randint(-8, 8, (5, columns), generator=source, dtype=torch.int8)
    packed = quantize.pack(codes)
    assert packed.shape == (5, -(-columns // 2))
    assert torch.equal(quantize.unpack(packed, columns), codes)


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
def test_quantising_twice_changes_nothing(scheme: QuantizationScheme) -> None:
    """A quantised matrix is its own best quantisation, up to the rounding of scales."""
    weight = torch.randn(8, 256, generator=torch.Generator().manual_seed(3))
    quantized = quantize.dequantize(*quantize.quantize_matrix(weight, scheme), scheme, 256)
    again_error, half = _error(quantized, scheme)
    assert (again_error <= half * (1 + 1e-4)).all()


def test_learned_positions_and_norms_are_not_quantised() -> None:
    model = _model("gpt2")
    positions = model.get_parameter("positions.weight").clone()
    quantize.quantize(model)
    assert torch.equal(model.get_parameter("positions.weight"), positions)


def test_the_header_says_how_it_was_rounded(tmp_path: Path) -> None:
    weights.write(tmp_path, _model(), None, (INT4, INT8))
    data = (tmp_path / "model.safetensors").read_bytes()
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    header_field = json.loads(header["__metadata__"][FIELD])
    ends = {"scheme": "int8", "group": 0}
    assert header_field == {"version": 1, "scheme": "int4", "group": 32, "ends": ends}


def test_invalid_input_is_refused_with_a_reason() -> None:
    broken = _model()
    with torch.no_grad():
        broken.get_parameter("blocks.1.mlp.up.weight")[0, 0] = math.nan
    with pytest.raises(ModelError, match="not finite"):
        quantize.quantize(broken)
    for header in (
        {},
        {FIELD: '{"version": 2}'},
        {FIELD: '{"version": 1, "scheme": "int3"}'},
        {FIELD: "nonsense"},
    ):
        with pytest.raises(ModelError, match=FIELD):
            schemes(header, Path("model.safetensors"))


def _bits_per_byte(model: CausalLM, text: Tensor, length: int = 64) -> float:
    rows = text[: len(text) // length * length].view(-1, length)
    total, count = 0.0, 0
    with torch.no_grad():
        for batch in torch.split(rows, 32):
            loss, tokens = model.loss(batch[:, :-1], batch[:, 1:])
            total, count = total + loss.item(), count + int(tokens)
    return total / count / math.log(2)


@pytest.mark.slow
def test_the_cost_of_quantisation_in_bits_per_byte() -> None:
    """A byte-level model of the sample blog, trained for seconds, scored on unseen posts."""
    posts = [path.read_bytes() for path in sorted(POSTS.glob("*.md"))]
    training_bytes, unseen = b"".join(posts[:-8]), b"".join(posts[-8:])
    model = _model(vocabulary=256, width=64).train()
    model.init_weights(1)
    text = torch.tensor(list(training_bytes))
    optimiser = torch.optim.AdamW(model.parameters(), lr=4e-3, weight_decay=0.0)
    source = torch.Generator().manual_seed(9)
    for _ in range(250):
        starts = torch.randint(len(text) - 65, (16, 1), generator=source)
        rows = text[starts + torch.arange(65)]
        loss, count = model.loss(rows[:, :-1], rows[:, 1:])
        optimiser.zero_grad()
        torch.autograd.backward(loss / count)
        optimiser.step()
    model.eval()
    held_out = torch.tensor(list(unseen))
    before = _bits_per_byte(model, held_out)
    costs = {}
    for name, scheme, ends in (
        ("int8", INT8, INT8),
        ("int4 in 32, ends int8", INT4, INT8),
        ("int4 in 32, ends too", INT4, INT4),
    ):
        rounded = build(model.config).eval()
        rounded.load_state_dict(model.state_dict())
        quantize.quantize(rounded, scheme, ends)
        costs[name] = _bits_per_byte(rounded, held_out) - before
    summary = ", ".join(f"{name} {cost:+.4f}" for name, cost in costs.items())
    sys.stdout.write(f"bits/byte {before:.4f}; {summary}\n")  # pytest -rP shows it
    assert before < 3.5
    assert abs(costs["int8"]) < 0.002
    assert costs["int4 in 32, ends int8"] < 0.05
    assert costs["int4 in 32, ends too"] < 0.1
