import json
from functools import partial
from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor, nn

from launches import launches
from ownwords.inference.torch_engine import TorchEngine
from ownwords.models import lora, registry
from ownwords.models.decoder import CausalLM, build
from ownwords.models.lora import AdapterConfig, LoraAdapter
from ownwords.models.untrusted_files import ModelError
from ownwords.models.weights import write_tensors

QWEN = {
    "model_type": "qwen3",
    "vocab_size": 53,
    "max_position_embeddings": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
}
GPT2 = {
    "model_type": "gpt2",
    "vocab_size": 53,
    "n_positions": 64,
    "n_embd": 32,
    "n_layer": 2,
    "n_head": 4,
}


def _model(settings: dict[str, object] = QWEN, dtype: torch.dtype = torch.float32) -> CausalLM:
    model = build(registry.config_from_json(settings), dtype=dtype)
    model.init_weights(1)
    return model.eval()


def _ids(batch: int = 2, length: int = 12) -> Tensor:
    return torch.randint(53, (batch, length), generator=torch.Generator().manual_seed(2))


def _logits(model: CausalLM) -> Tensor:
    with torch.no_grad():
        return model.logits(model(_ids()))


def trained(adapter: LoraAdapter) -> list[nn.Parameter]:
    return [each for layer in adapter.layers.values() for each in (layer.down, layer.up)]


def _filled(adapter: LoraAdapter, seed: int = 3) -> LoraAdapter:
    """As if it had been trained: a new adapter is zero."""
    source = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in trained(adapter):
            parameter.copy_(0.2 * torch.randn(parameter.shape, generator=source))
    return adapter


def test_a_new_adapter_changes_nothing_and_is_the_only_trained_part() -> None:
    model = _model()
    before = _logits(model)
    adapter = lora.attach(model, AdapterConfig(rank=3), seed=5)
    assert torch.equal(_logits(model), before)
    learned = {id(p) for p in model.parameters() if p.requires_grad}
    assert learned == {id(p) for p in trained(adapter)}
    assert len(adapter.layers) == 14  # four of attention and three of the MLP, twice


def test_training_it_leaves_the_model_alone() -> None:
    torch.manual_seed(0)  # of dropout
    model = _model().train()
    before = {name: p.clone() for name, p in model.named_parameters()}
    adapter = lora.attach(model, AdapterConfig(rank=4, dropout=0.1), seed=1)
    optimiser = torch.optim.AdamW(trained(adapter), lr=3e-2)
    losses = []
    for _ in range(60):
        loss, count = model.loss(_ids()[:, :-1], _ids()[:, 1:])
        optimiser.zero_grad()
        torch.autograd.backward(loss / count)
        optimiser.step()
        losses.append(loss.item() / int(count))
    # Of a fresh, frozen head little can be had; with dropout no two steps are alike.
    assert sum(losses[-10:]) / 10 < 0.92 * losses[0]
    adapter.detach()
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, before[name]), name


def test_merging_is_exact_to_rounding() -> None:
    model = _model()
    plain = _logits(model)
    names = {name for name, _ in model.named_parameters()}
    adapter = _filled(lora.attach(model, AdapterConfig(4, 8.0), seed=1))
    attached = _logits(model)
    assert (attached - plain).abs().max() > 0.1
    adapter.merge()
    adapter.merge()  # once is enough
    assert torch.allclose(_logits(model), attached, atol=1e-5)
    adapter.detach()
    assert {name for name, _ in model.named_parameters()} == names
    assert torch.allclose(_logits(model), attached, atol=1e-5)


def test_merged_weights_keep_their_type() -> None:
    for dtype, bound in ((torch.float32, 1e-6), (torch.bfloat16, 2e-2)):
        model = _model(dtype=dtype)
        before = {name: p.clone().float() for name, p in model.named_parameters()}
        adapter = _filled(lora.attach(model, AdapterConfig(4), seed=1))
        deltas = {f"{name}.weight": layer.delta() for name, layer in adapter.layers.items()}
        adapter.merge()
        adapter.detach()
        for name, parameter in model.named_parameters():
            assert parameter.dtype == dtype
            expected = before[name] + deltas.get(name, 0.0)
            assert torch.allclose(parameter.float(), expected, atol=bound), name


def test_dropout_ends_with_training() -> None:
    model = _model()
    _filled(lora.attach(model, AdapterConfig(4, dropout=0.5), seed=1))
    assert torch.equal(_logits(model), _logits(model))


def test_a_stored_adapter_gets_the_names_of_peft(tmp_path: Path) -> None:
    model = _model(GPT2)
    adapter = _filled(lora.attach(model, AdapterConfig(8, 4.0, 0.1), seed=1))
    write_tensors(tmp_path / "a.safetensors", lora.stored_tensors(adapter))
    data, tensors = lora.peft_files(tmp_path / "a.safetensors", model.config, "mine")
    config = json.loads(data)
    assert config["target_modules"] == ["c_attn", "c_fc", "c_proj"]
    assert (config["r"], config["lora_alpha"]) == (8, 8)
    assert config["base_model_name_or_path"] == "mine"
    assert config["fan_in_fan_out"] is True
    assert len(tensors) == 16
    up = tensors["base_model.model.transformer.h.1.mlp.c_proj.lora_B.weight"]
    assert torch.equal(up, 0.5 * adapter.layers["blocks.1.mlp.down"].up)


def test_an_adapter_of_another_model_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    stored = lora.stored_tensors(_filled(lora.attach(_model(), AdapterConfig(4), seed=1)))
    write_tensors(path, stored)
    with pytest.raises(ModelError, match="not an adapter for this model"):
        lora.merge_stored(_model(GPT2), path)
    del stored["blocks.1.mlp.up.down"]
    write_tensors(tmp_path / "b.safetensors", stored)
    with pytest.raises(ModelError, match="not an adapter for this model"):
        lora.peft_files(tmp_path / "b.safetensors", _model().config, "")


def test_a_second_adapter_is_refused() -> None:
    model = _model()
    lora.attach(model, AdapterConfig(4), seed=1)
    with pytest.raises(ModelError, match="already"):
        lora.attach(model, AdapterConfig(4), seed=1)


class _Twins:
    """Two models with equal adapters; the second computes each layer and its adapter by itself."""

    def __init__(self, settings: dict[str, object], rank: int, dtype: torch.dtype) -> None:
        self.models = [_model(settings, dtype).train() for _ in range(2)]
        config = AdapterConfig(rank, 4.0)
        self.adapters = [lora.attach(each, config, seed=1) for each in self.models]
        self.models[1].adapter_groups = ()

    def losses(self) -> list[Tensor]:
        ids_BT, documents_BT = _ids(5, 24), (torch.arange(23) >= 9).int().expand(5, 23)
        return [
            each.loss(ids_BT[:, :-1], ids_BT[:, 1:], documents_BT=documents_BT)[0]
            for each in self.models
        ]

    def gradients(self) -> list[Tensor]:
        return [torch.cat([p.grad.flatten() for p in trained(a)]) for a in self.adapters]  # type: ignore[union-attr]


QWEN2 = {**QWEN, "model_type": "qwen2", "use_sliding_window": False}
LLAMA = {**QWEN, "model_type": "llama"}


@pytest.fixture
def without_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU: no compiled blocks."""
    monkeypatch.setattr("ownwords.models.fused.find_library", lambda: None)


@pytest.mark.usefixtures("without_library")
@pytest.mark.parametrize("rank", [2, 12])  # gradients by x and dy, and by that of the weight
@pytest.mark.parametrize("settings", [QWEN, QWEN2, LLAMA, GPT2])
def test_adapters_added_to_the_weights_learn_as_layers_beside_them(
    settings: dict[str, object], rank: int
) -> None:
    twins = _Twins(settings, rank, torch.float64)
    for adapter in twins.adapters:
        _filled(adapter)
    first, second = twins.losses()
    torch.testing.assert_close(first, second)
    torch.autograd.backward(first + second)
    ours, expected = twins.gradients()
    assert (ours - expected).norm() < 1e-5 * expected.norm()


@pytest.mark.usefixtures("without_library")
@pytest.mark.parametrize("settings", [LLAMA, GPT2])
def test_a_block_with_adapters_takes_few_more_kernels_than_a_plain_one(
    settings: dict[str, object],
) -> None:
    def kernels(layers: int, *, has_adapter: bool) -> int:
        key = "num_hidden_layers" if "num_hidden_layers" in settings else "n_layer"
        model = _model({**settings, key: layers}, torch.bfloat16).train()
        if has_adapter:
            lora.attach(model, AdapterConfig(2), seed=1)
        ids_BT = _ids(4, 24)
        step = partial(model.loss, ids_BT[:, :-1], ids_BT[:, 1:])
        return launches(lambda: torch.autograd.backward(step()[0])).total()

    plain, adapted = (
        kernels(3, has_adapter=each) - kernels(2, has_adapter=each) for each in (False, True)
    )
    assert adapted <= 1.3 * plain


@pytest.mark.usefixtures("without_library")
def test_generation_and_merging_use_the_current_adapter() -> None:
    model = _model()
    adapter = _filled(lora.attach(model, AdapterConfig(4, 8.0), seed=1))
    logits = _logits(model)
    cached = TorchEngine(model).cache(1, 12).forward({0: _ids()[0].tolist()}, all_positions=True)
    torch.testing.assert_close(torch.from_numpy(cached), logits[0], atol=1e-5, rtol=1e-4)
    adapter.merge()
    torch.testing.assert_close(_logits(model), logits, atol=1e-5, rtol=1e-4)
