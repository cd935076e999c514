import json
import random
from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor

from ownwords.core.errors import ConfigError, OwnwordsError
from ownwords.models import lora, peft, registry
from ownwords.models.decoder import CausalLM, build
from ownwords.models.lora import AdapterConfig, LoraAdapter
from ownwords.models.safetensors_header import read_header
from ownwords.models.untrusted_files import ModelError

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


def _filled(adapter: LoraAdapter, seed: int = 3) -> LoraAdapter:
    """As if it had been trained: a new adapter is zero."""
    source = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in adapter.parameters():
            parameter.copy_(0.2 * torch.randn(parameter.shape, generator=source))
    return adapter


def test_a_new_adapter_changes_nothing_and_is_the_only_trained_part() -> None:
    model = _model()
    before = _logits(model)
    adapter = lora.attach(model, AdapterConfig(rank=3), seed=5)
    assert torch.equal(_logits(model), before)
    trained = {id(p) for p in model.parameters() if p.requires_grad}
    assert trained == {id(p) for p in adapter.parameters()}
    assert len(adapter.layers) == 14  # four of attention and three of the MLP, twice


def test_the_same_seed_gives_the_same_adapter() -> None:
    torch.manual_seed(0)
    parameters = lora.attach(_model(), AdapterConfig(rank=3), seed=5).parameters()
    torch.manual_seed(1)
    two = lora.attach(_model(), AdapterConfig(rank=3), seed=5).parameters()
    assert all(torch.equal(a, b) for a, b in zip(parameters, two, strict=True))
    other_seed = lora.attach(_model(), AdapterConfig(rank=3), seed=6).parameters()
    assert not torch.equal(parameters[0], other_seed[0])


def test_patterns_choose_the_layers() -> None:
    targets = ("*.attention.query", "*.attention.value")
    adapter = lora.attach(_model(), AdapterConfig(8, targets=targets), seed=0)
    assert set(adapter.layers) == {
        f"blocks.{i}.attention.{part}" for i in (0, 1) for part in ("query", "value")
    }
    for pattern in ("*.q_proj", "head", "embedding"):
        with pytest.raises(ConfigError, match="no layer is called"):
            lora.attach(_model(), AdapterConfig(8, targets=(pattern,)), seed=0)


def test_training_it_leaves_the_model_alone() -> None:
    torch.manual_seed(0)  # of dropout
    model = _model().train()
    before = {name: p.clone() for name, p in model.named_parameters()}
    adapter = lora.attach(model, AdapterConfig(rank=4, dropout=0.1), seed=1)
    optimiser = torch.optim.AdamW(adapter.parameters(), lr=3e-2)
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


@pytest.mark.parametrize("stabilised", [False, True])
def test_merging_is_exact_to_rounding(stabilised: bool) -> None:
    model = _model()
    plain = _logits(model)
    names = {name for name, _ in model.named_parameters()}
    adapter = _filled(lora.attach(model, AdapterConfig(4, 8.0, rank_stabilised=stabilised), seed=1))
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


def _gradient(checkpointing: bool, seed: int) -> Tensor:
    model = _model().train()
    adapter = _filled(lora.attach(model, AdapterConfig(4, dropout=0.5), seed=1))
    model.gradient_checkpointing = checkpointing
    torch.manual_seed(seed)
    loss, _ = model.loss(_ids()[:, :-1], _ids()[:, 1:])
    torch.autograd.backward(loss)
    gradient = adapter.parameters()[0].grad
    assert gradient is not None
    return gradient


def test_dropout_follows_the_random_state_under_checkpointing() -> None:
    plain = _gradient(checkpointing=False, seed=0)
    assert torch.allclose(plain, _gradient(checkpointing=True, seed=0), atol=1e-6)
    assert not torch.allclose(plain, _gradient(checkpointing=False, seed=1), atol=1e-3)


def test_dropout_ends_with_training() -> None:
    model = _model()
    _filled(lora.attach(model, AdapterConfig(4, dropout=0.5), seed=1))
    assert torch.equal(_logits(model), _logits(model))


@pytest.mark.parametrize("model_settings", [QWEN, GPT2], ids=["qwen3", "gpt2"])
def test_a_saved_adapter_round_trips(model_settings: dict[str, object], tmp_path: Path) -> None:
    model = _model(model_settings)
    settings = AdapterConfig(4, 8.0, 0.1, ("*.attention.*",), rank_stabilised=True)
    adapter = _filled(lora.attach(model, settings, seed=1))
    peft.save(tmp_path / "adapter", adapter, base="mine")
    reloaded = _model(model_settings)
    loaded = peft.load(tmp_path / "adapter", reloaded)
    assert loaded.layers.keys() == adapter.layers.keys()
    assert torch.equal(_logits(reloaded), _logits(model))
    peft.save(tmp_path / "again", loaded, base="mine")
    for name in (peft.CONFIG, peft.WEIGHTS):
        first, second = (
            (tmp_path / folder_name / name).read_bytes() for folder_name in ("adapter", "again")
        )
        assert first == second


def test_saved_tensors_have_the_names_of_peft(tmp_path: Path) -> None:
    adapter = lora.attach(
        _model(GPT2), AdapterConfig(8, targets=("*.mlp.down", "*.query_*")), seed=1
    )
    peft.save(tmp_path, adapter)
    config = json.loads((tmp_path / peft.CONFIG).read_text())
    assert config["target_modules"] == [  # c_proj alone would mean attention's too
        f"transformer.h.{i}.{part}" for i in (0, 1) for part in ("attn.c_attn", "mlp.c_proj")
    ]
    assert config["fan_in_fan_out"] is True
    names = set(read_header(tmp_path / peft.WEIGHTS))
    assert "base_model.model.transformer.h.1.mlp.c_proj.lora_B.weight" in names
    assert len(names) == 8


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    adapter = lora.attach(_model(), AdapterConfig(4, targets=("*.query", "*.up")), seed=1)
    peft.save(tmp_path / "adapter", _filled(adapter))
    return tmp_path / "adapter"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("use_dora", True),
        ("use_qalora", True),
        ("modules_to_save", ["lm_head"]),
        ("bias", "all"),
        ("lora_bias", True),
        ("init_lora_weights", "pissa_niter_4"),
        ("layer_replication", [[0, 1]]),
        ("trainable_token_indices", [1]),
        ("target_parameters", ["experts"]),
        ("something_new", {"a": 1}),
        ("peft_type", "LOHA"),
        ("r", "4"),
        ("r", 0),
        ("r", 5),
        ("lora_alpha", None),
        ("lora_alpha", 1e300),
        ("lora_dropout", 1.5),
        ("rank_pattern", {"q_proj": 7}),
        ("alpha_pattern", ["q_proj"]),
    ],
)
def test_unsupported_settings_are_refused_by_name(name: str, value: object, saved: Path) -> None:
    config = json.loads((saved / peft.CONFIG).read_text())
    (saved / peft.CONFIG).write_text(json.dumps({**config, name: value}))
    model = _model()
    with pytest.raises(ModelError) as caught:
        peft.load(saved, model)
    message = caught.value.message
    assert str(saved) in message
    if name not in ("peft_type", "r"):
        assert name.removeprefix("lora_") in message
    assert not any(isinstance(module, lora.LoraLinear) for module in model.modules())


def test_another_model_or_a_second_adapter_is_refused(saved: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no LoRA matrix"):
        peft.load(saved, _model(GPT2))
    with pytest.raises(ModelError, match="another model"):
        peft.load(saved, _model({**QWEN, "hidden_size": 40}))
    model = _model()
    adapter = peft.load(saved, model)
    with pytest.raises(ModelError, match="already"):
        peft.load(saved, model)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "diary.txt").touch()
    with pytest.raises(ModelError, match=r"diary\.txt"):
        peft.save(tmp_path / "full", adapter)


def test_a_damaged_adapter_is_one_clear_error(saved: Path) -> None:
    source = random.Random(5)
    originals = {name: (saved / name).read_bytes() for name in (peft.CONFIG, peft.WEIGHTS)}
    refused = 0
    for _ in range(300):
        for name, original in originals.items():
            (saved / name).write_bytes(original)
        name = source.choice(list(originals))
        data = bytearray(originals[name])
        if source.random() < 0.2:
            del data[source.randrange(len(data)) :]
        else:
            length = len(data) if name == peft.CONFIG else 8 + int.from_bytes(data[:8], "little")
            for _ in range(source.randint(1, 4)):
                data[source.randrange(length)] = source.randrange(256)
        (saved / name).write_bytes(data)
        try:
            peft.load(saved, _model())
        except OwnwordsError as error:
            refused += 1
            assert str(saved) in error.message
    assert refused > 200
