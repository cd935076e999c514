"""Transformer blocks in C++ against the same blocks in PyTorch, and when they are used."""

from collections.abc import Iterator
from dataclasses import replace
from fnmatch import fnmatchcase
from itertools import product
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor
from torch.autograd import backward

from families import some_ids
from native_levels import isas, library_at
from ownwords.models import fused, fused_block, lora
from ownwords.models.configs.config import ModelConfig
from ownwords.models.configs.gpt2 import GPT2Config
from ownwords.models.configs.llama import Gemma3Config, LlamaConfig, Qwen3Config
from ownwords.models.decoder import CausalLM, build
from ownwords.models.kv_cache import KVCacheView
from ownwords.models.layers import AttentionMask, LoraLinear, RotaryEmbedding
from ownwords.training.device import choose
from ownwords.training.settings import Precision

if fused.find_library() is None:
    pytest.skip("the part in C++ is not built", allow_module_level=True)

SHAPES: dict[str, ModelConfig] = {
    "qwen3": Qwen3Config(
        vocabulary=97, context=256, width=64, layers=2, heads=4, kv_heads=2, head_dim=32, hidden=96
    ),
    "llama": LlamaConfig(vocabulary=97, context=256, width=64, layers=2, heads=2, hidden=160),
    "gpt2": GPT2Config(vocabulary=97, context=256, width=96, layers=2, heads=3),
    "gemma3": Gemma3Config(
        vocabulary=97,
        context=256,
        width=64,
        layers=2,
        heads=2,
        kv_heads=1,
        head_dim=256,
        hidden=96,
        window=20,
        sliding=(True, False),
    ),
}


ALL_LAYERS = ("blocks.*",)
SOME_LAYERS = ("blocks.*.down", "blocks.0.attention.q*", "blocks.1.attention.output")
TARGETS: tuple[tuple[str, ...], ...] = ((), ALL_LAYERS, SOME_LAYERS)


@pytest.fixture(autouse=True)
def counts_seen(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """One entry for each block that the library computed."""
    torch.set_num_threads(1)
    monkeypatch.setattr(fused, "has_fast_bf16", lambda: True)  # to be tested wherever it runs
    blocks: list[int] = []
    forward = fused_block.forward

    def counted(*arguments: Any) -> Tensor | None:  # noqa: ANN401
        output = forward(*arguments)
        blocks.extend([1] * (output is not None))
        return output

    monkeypatch.setattr(fused_block, "forward", counted)
    yield blocks
    fused.library().set_threads(1)


def _model(
    name: str, dtype: torch.dtype = torch.float32, targets: tuple[str, ...] = ()
) -> CausalLM:
    """A model without trivial parameters; with adapters of rank 5 on the `targets`."""
    model = build(SHAPES[name], dtype=dtype)
    model.init_weights(7)
    generator = torch.Generator().manual_seed(11)
    with torch.no_grad():
        for parameter in model.parameters():
            spread = 0.05 if parameter.ndim == 2 else 0.2
            parameter.add_(spread * torch.randn(parameter.shape, generator=generator).to(dtype))
        if targets:
            adapter = lora.attach(model, lora.AdapterConfig(5, 8.0), 1)
            for layer_name, layer in adapter.layers.items():
                if any(fnmatchcase(layer_name, target) for target in targets):
                    for parameter in (layer.down, layer.up):
                        parameter.copy_(0.1 * torch.randn(parameter.shape, generator=generator))
                else:
                    model.set_submodule(layer_name, layer.base)
    return model.train()


def _slopes(
    model: CausalLM, mixed: bool, rows: int = 2, tokens: int = 45, borders: bool = True
) -> list[Tensor]:
    """The loss of some rows of two documents each, and the gradients of all parameters."""
    third = tokens // 3
    documents = torch.tensor([[0] * third + [1] * (tokens - third)] * rows) if borders else None
    ids, targets = some_ids(rows, tokens), some_ids(rows, tokens, 1)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=mixed):
        total, _ = model.loss(ids, targets, documents_BT=documents)
    backward(total)
    return [total.detach(), *(p.grad for p in model.parameters() if p.grad is not None)]


def _apart(ours: Tensor, theirs: Tensor) -> float:
    ours, theirs = ours.detach().double(), theirs.detach().double()
    return float((ours - theirs).norm() / theirs.norm().clamp(min=1e-9))


def _errors(gradients: list[Tensor], truth: list[Tensor]) -> Tensor:
    return torch.tensor([_apart(ours, true) for ours, true in zip(gradients, truth, strict=True)])


def _plainly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused_block, "fusable_weights", lambda *_: None)


# Of the last so many tokens that the gradients of weights are summed in several parts.
ROWS = [(2, 45, True), (2, 64, False), (2, 7, False), (2, 150, True), (5, 250, False)]


@pytest.mark.parametrize("name", SHAPES)
# With weights and activations, and the numbers that are multiplied, of each type.
@pytest.mark.parametrize(
    ("targets", "dtype", "product_dtype", "rows", "tokens", "borders"),
    [
        *((*types, *ROWS[0]) for types in product(TARGETS, fused.DTYPES, fused.DTYPES)),
        *((ALL_LAYERS, each, each, *rows) for each in fused.DTYPES for rows in ROWS[1:]),
    ],
)
def test_blocks_learn_the_same(
    name: str,
    targets: tuple[str, ...],
    dtype: torch.dtype,
    product_dtype: torch.dtype,
    rows: int,
    tokens: int,
    borders: bool,
    counts_seen: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No farther from float64 than the separate layers."""
    monkeypatch.setattr(fused, "has_fast_bf16", lambda: product_dtype == torch.bfloat16)
    mixed = dtype == torch.float32 and product_dtype == torch.bfloat16
    gradients = _slopes(_model(name, dtype, targets), mixed, rows, tokens, borders)
    assert len(counts_seen) == 2
    _plainly(monkeypatch)
    plain = _slopes(_model(name, dtype, targets), mixed, rows, tokens, borders)
    truth = _slopes(_model(name, dtype, targets).double(), False, rows, tokens, borders)
    ours, theirs = _errors(gradients, truth), _errors(plain, truth)
    if dtype == product_dtype == torch.float32:
        assert ours.max() < 2e-5
        return
    # Of a few tokens either is nearer to the truth, by chance.
    assert ours.mean() < 2 * theirs.mean()
    assert ours.max() < max(0.1, 2 * float(theirs.max()))


class _Int16Product(torch.autograd.Function):
    """x W^T with frozen W, as the library rounds it: the reference."""

    @staticmethod
    def forward(ctx: Any, x_NI: Tensor, weight_OI: Tensor) -> Tensor:  # noqa: ANN401
        ctx.save_for_backward(weight_OI)
        return _rounded(x_NI) @ _rounded(weight_OI).T

    @staticmethod
    def backward(ctx: Any, dy_NO: Tensor) -> tuple[Tensor, None]:  # noqa: ANN401
        (weight_OI,) = ctx.saved_tensors
        return _rounded(dy_NO) @ _rounded(weight_OI.T).T, None


def _rounded(rows: Tensor) -> Tensor:
    """Rows as int16 times a scale, with a norm of at most the root of 2^31."""
    norm, largest = rows.norm(dim=-1, keepdim=True), rows.abs().amax(dim=-1, keepdim=True)
    scale = torch.maximum(largest / 32767, norm / (46294 - 0.5 * rows.shape[-1] ** 0.5))
    scale = scale.clamp(min=1e-30)
    return (rows / scale).round() * scale


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("dtype", fused.DTYPES)
def test_int16_products_with_frozen_weights(
    name: str, dtype: torch.dtype, counts_seen: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As near to float64 as the reference in PyTorch; trained weights are not rounded."""
    truth = _slopes(_model(name, dtype, ALL_LAYERS).double(), False)
    with fused.int16_products():
        ours = _slopes(_model(name, dtype, ALL_LAYERS), False)
        trained = _slopes(_model(name), False)
    assert len(counts_seen) == 4
    assert all(map(torch.equal, trained, _slopes(_model(name), False)))
    _plainly(monkeypatch)
    linear = torch.nn.Linear.forward

    def rounded(layer: torch.nn.Linear, x: Tensor) -> Tensor:
        if layer.weight.requires_grad:
            return linear(layer, x)
        y: Tensor = _Int16Product.apply(x, layer.weight)  # type: ignore[no-untyped-call]
        return y if layer.bias is None else y + layer.bias

    monkeypatch.setattr(torch.nn.Linear, "forward", rounded)
    reference = _slopes(_model(name, dtype, ALL_LAYERS), False)
    assert _errors(ours, truth).mean() < 1.5 * _errors(reference, truth).mean()
    if dtype == torch.float32:
        assert 1e-5 < _errors(ours, truth).max() < 2e-3


def test_rows_of_any_length_are_whole_blocks(
    counts_seen: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """More tokens than the attention's backward pass takes at once; some attend to few."""
    config = replace(SHAPES["qwen3"], context=2100)
    monkeypatch.setitem(SHAPES, "qwen3", config)
    gradients = _slopes(_model("qwen3"), True, 1, 2100)
    _plainly(monkeypatch)
    plain = _slopes(_model("qwen3"), True, 1, 2100)
    truth = _slopes(_model("qwen3").double(), False, 1, 2100)
    assert _errors(gradients, truth).mean() < 1.2 * _errors(plain, truth).mean()
    assert len(counts_seen) == 2


@pytest.mark.parametrize("name", ["qwen3", "gpt2", "gemma3"])
@pytest.mark.parametrize("targets", [(), ALL_LAYERS], ids=["full", "lora"])
def test_every_isa_that_runs_here_computes_the_same(
    name: str, targets: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    truth = _slopes(_model(name, targets=targets).double(), False)
    for isa in isas():
        library = library_at(isa)
        monkeypatch.setattr(fused, "find_library", lambda library=library: library)
        assert _errors(_slopes(_model(name, targets=targets), True), truth).max() < 0.04


@pytest.mark.parametrize("name", ["qwen3", "gemma3"])
@pytest.mark.parametrize("targets", [(), ALL_LAYERS], ids=["full", "lora"])
@pytest.mark.parametrize("dropout", [0.0, 0.2])
@pytest.mark.parametrize("precision", ["autocast", "int16"])
def test_neither_threads_nor_checkpointing_change_a_bit(
    name: str, targets: tuple[str, ...], dropout: float, precision: Precision
) -> None:
    runs = []
    for threads, checkpointing in ((1, False), (2, False), (1, True), (1, False)):
        fused.library().set_threads(threads)
        torch.manual_seed(5)
        model = _model(name, targets=targets)
        model.dropout, model.gradient_checkpointing = dropout, checkpointing
        # What comes before and after the blocks is PyTorch's, and does change.
        x_BTC = torch.randn(5, 64, 64, generator=torch.Generator().manual_seed(1)).requires_grad_()
        angles = RotaryEmbedding(model.config.head_dim, 10_000.0).angles(
            torch.arange(64)[None], torch.float32
        )
        with choose("cpu").autocast(precision):
            y_BTC = model.run_block(
                model.blocks[0], x_BTC, AttentionMask(None, causal=True), angles
            )
        backward(y_BTC, torch.ones_like(y_BTC))
        grads = [p.grad for p in model.blocks[0].parameters() if p.requires_grad]
        runs.append([y_BTC, x_BTC.grad, *grads])
    for gradients in zip(*runs, strict=True):
        assert all(torch.equal(gradients[0], gradient) for gradient in gradients[1:])


def test_dropout_is_applied_forward_and_backward(counts_seen: list[int]) -> None:
    model = _model("gpt2")
    attention, down = "blocks.0.attention.output", model.get_parameter("blocks.0.mlp.down.bias")
    with torch.no_grad():  # the attention adds nothing: what is added is the MLP's
        for name in ("weight", "bias"):
            model.get_parameter(f"{attention}.{name}").zero_()
    x_BTC = torch.randn(4, 64, 96, generator=torch.Generator().manual_seed(1))
    sight = AttentionMask(None, causal=True)

    def added(share: float, seed: int) -> Tensor:
        model.dropout = share
        torch.manual_seed(seed)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return model.run_block(model.blocks[0], x_BTC, sight) - x_BTC

    full, dropped = added(0.0, 1), added(0.25, 1)
    is_kept = dropped.abs() > 1e-7
    assert float(is_kept.float().mean()) == pytest.approx(0.75, abs=0.01)
    torch.testing.assert_close(dropped[is_kept], full[is_kept] / 0.75, rtol=1e-3, atol=1e-5)
    assert torch.equal(added(0.25, 1), dropped)
    assert not torch.equal(added(0.25, 2), dropped)
    # The slope of the last bias is the sum of what was let through.
    down.grad = None
    backward(added(0.25, 1), torch.ones_like(x_BTC))
    expected = is_kept.float().sum(dim=(0, 1)) / 0.75
    torch.testing.assert_close(down.grad, expected, rtol=4e-3, atol=0)
    model.eval()
    assert torch.equal(added(0.25, 1), full)
    assert len(counts_seen) == 6


def test_unsupported_cases_fall_back_to_pytorch(counts_seen: list[int]) -> None:
    ids = some_ids(2, 16)
    model = _model("qwen3")
    _model("qwen3").double()(ids)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        model(ids, cache=KVCacheView(model.new_cache(2, 32), torch.arange(16).expand(2, 16), 16))
        adapter = lora.attach(model, lora.AdapterConfig(4, 8.0, 0.5), 1)
        model(ids)
        adapter.detach()
        odd_model = build(Qwen3Config(**{**vars(SHAPES["qwen3"]), "width": 48}))
        odd_model.init_weights(1)
        odd_model(ids)
        assert not counts_seen
        with torch.no_grad():
            _model("qwen3")(ids)
        assert len(counts_seen) == 2
        model.eval()
        lora.attach(model, lora.AdapterConfig(4, 8.0, 0.5), 1)
        model(ids)
    assert len(counts_seen) == 4


def test_frozen_weights_have_no_gradients_and_change_no_others() -> None:
    frozen = ("attention.query.weight", "mlp.up.weight", "mlp.down.weight", "norm.weight")
    trained, partly = _model("gemma3"), _model("gemma3")
    for name, parameter in partly.named_parameters():
        parameter.requires_grad_(not name.endswith(frozen))
    _slopes(trained, True), _slopes(partly, True)
    for (name, trained_parameter), partly_parameter in zip(
        trained.named_parameters(), partly.parameters(), strict=True
    ):
        if name.endswith(frozen):
            assert partly_parameter.grad is None
        else:
            assert trained_parameter.grad is not None
            assert partly_parameter.grad is not None
            assert torch.equal(trained_parameter.grad, partly_parameter.grad)


def test_a_merged_adapter_is_part_of_the_weights(counts_seen: list[int]) -> None:
    model = _model("llama", targets=ALL_LAYERS)
    layers = {n: module for n, module in model.named_modules() if isinstance(module, LoraLinear)}
    adapter = lora.LoraAdapter(model, lora.AdapterConfig(5, 8.0), layers)
    ids = some_ids(2, 40)
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        unmerged = model(ids)
        adapter.merge()
        merged = model(ids)
        adapter.detach()
        assert torch.equal(model(ids), merged)
    assert len(counts_seen) == 6
    assert _apart(merged, unmerged) < 0.02


def test_weights_changed_before_the_backward_pass_are_detected() -> None:
    model = _model("llama")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        total, _ = model.loss(some_ids(2, 16), some_ids(2, 16, 1))
    with torch.no_grad():
        model.get_parameter("blocks.0.mlp.up.weight").mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        backward(total)
