"""Properties of every model family, at tiny shapes."""

from typing import Any, cast

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.autograd import backward
from torch.nn.functional import cross_entropy

from families import TINY, some_ids, tiny
from ownwords.core.errors import ConfigError
from ownwords.models import registry
from ownwords.models.configs import gpt2
from ownwords.models.configs.config import ModelConfig
from ownwords.models.configs.llama import (
    Gemma3Config,
    Qwen3Config,
    config_for_budget,
    parameter_count,
)
from ownwords.models.decoder import build
from ownwords.models.layers import ResidualBlock

QWEN3 = cast(Qwen3Config, TINY["qwen3"])
LLAMA = TINY["llama"]
GEMMA3 = TINY["gemma3"]


@pytest.mark.parametrize("name", TINY)
def test_the_same_seed_gives_the_same_weights_on_every_device(name: str) -> None:
    state, threads = torch.random.get_rng_state(), torch.get_num_threads()
    first, second, third = (build(TINY[name]) for _ in range(3))
    first.init_weights(5)
    try:
        torch.set_num_threads(3)
        second.init_weights(5)
    finally:
        torch.set_num_threads(threads)
    third.init_weights(6)
    rounded = build(TINY[name], dtype=torch.bfloat16)
    rounded.init_weights(5)
    assert torch.equal(torch.random.get_rng_state(), state)
    for key, weight in first.state_dict().items():
        assert torch.equal(weight, second.state_dict()[key])
        assert torch.equal(weight.bfloat16(), rounded.state_dict()[key])
        assert weight.isfinite().all()
    assert not torch.equal(first.embedding.weight, third.embedding.weight)


@pytest.mark.parametrize("name", TINY)
def test_a_fresh_model_expects_every_token_alike_and_learns_one_batch(name: str) -> None:
    model = build(TINY[name])
    model.init_weights(1)
    ids = some_ids(2, 33)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(60):
        total, count = model.loss(ids[:, :-1], ids[:, 1:])
        backward(total / count)
        optimizer.step()
        optimizer.zero_grad()
        losses.append((total / count).item())
    assert losses[0] == pytest.approx(torch.tensor(97.0).log().item(), abs=0.15)
    assert losses[-1] < losses[0] / 4


@pytest.mark.parametrize("name", TINY)
def test_packed_documents_do_not_see_each_other(name: str) -> None:
    model, ids = tiny(name, torch.float64), some_ids(2, 50)
    lengths = ([20, 1, 29], [8, 30, 12])
    # A number that comes back names another document: only the border counts.
    documents = torch.stack(
        [torch.tensor([4, 9, 4]).repeat_interleave(torch.tensor(row)) for row in lengths]
    )
    output = model(ids, documents_BT=documents)
    for row, parts in enumerate(lengths):
        alone = [model(part[None])[0] for part in torch.split(ids[row], parts)]
        torch.testing.assert_close(output[row], torch.cat(alone))
    total, _ = model.loss(ids, ids, documents_BT=documents)
    assert total.item() != pytest.approx(model.loss(ids, ids)[0].item(), rel=1e-4)


@pytest.mark.parametrize("name", TINY)
def test_checkpointing_changes_memory_only(name: str) -> None:
    model, ids = tiny(name), some_ids(2, 30)
    documents = torch.tensor([[0] * 10 + [1] * 20] * 2)
    grads = []
    for checkpointing in (False, True):
        model.gradient_checkpointing = checkpointing
        total, _ = model.loss(ids, ids, documents_BT=documents)
        backward(total)
        grads.append([total, *(p.grad for p in model.parameters())])
        model.zero_grad()
    torch.testing.assert_close(grads[0], grads[1], rtol=0, atol=0)


@pytest.mark.parametrize("name", TINY)
def test_dropout_follows_the_random_state_and_ends_with_training(name: str) -> None:
    model, ids = tiny(name), some_ids(2, 30)
    plain = model.loss(ids, ids)[0].item()

    def loss(seed: int) -> float:
        torch.manual_seed(seed)
        total, _ = model.loss(ids, ids)
        backward(total)
        return total.item()

    model.dropout = 0.3
    assert model.dropout == 0.3
    dropped = loss(1)
    assert dropped != pytest.approx(plain, rel=1e-4)
    assert loss(1) == dropped
    assert loss(2) != pytest.approx(dropped, rel=1e-4)
    model.gradient_checkpointing = True
    assert loss(1) == dropped
    model.eval()
    assert loss(1) == pytest.approx(plain, rel=1e-6)


def test_dropout_rescales_the_kept_values() -> None:
    """The mean over many draws equals the value without dropout, in embedding and blocks."""
    model = tiny("qwen3")
    model.dropout = 0.25
    x = torch.ones(1, 100, 400)
    for dropped in (
        model.apply_dropout(x),
        cast(ResidualBlock, model.blocks[0]).add(torch.zeros_like(x), x),
    ):
        assert sorted(set(dropped.flatten().tolist())) == pytest.approx([0.0, 4 / 3])
        assert dropped.mean().item() == pytest.approx(1.0, abs=0.02)


@pytest.mark.parametrize("name", TINY)
def test_loss_is_cross_entropy_of_the_logits(name: str) -> None:
    model, ids = tiny(name, torch.float64), some_ids(2, 30)
    targets = some_ids(2, 30, seed=1)
    targets[0, :5] = -100
    total, count = model.loss(ids, targets)
    logits = model.logits(model(ids)).flatten(0, 1)
    torch.testing.assert_close(
        total, cross_entropy(logits, targets.flatten(), ignore_index=-100, reduction="sum")
    )
    assert int(count) == 55


@pytest.mark.parametrize("name", TINY)
def test_attention_is_causal(name: str) -> None:
    model, ids = tiny(name), some_ids(1, 40)
    changed = ids.clone()
    changed[0, 25:] = 3
    torch.testing.assert_close(model(ids)[0, :25], model(changed)[0, :25], rtol=0, atol=1e-6)


def _gemma3(width: int, layers: int, hidden: int) -> Gemma3Config:
    return Gemma3Config(
        vocabulary=262_144,
        context=32_768,
        width=width,
        layers=layers,
        heads=4,
        kv_heads=1,
        head_dim=256,
        hidden=hidden,
    )


@pytest.mark.parametrize(
    ("config", "count"),
    [
        (gpt2.GPT2Config(layers=12, width=768, heads=12), 124_439_808),
        (gpt2.GPT2Config(layers=48, width=1600, heads=25), 1_557_611_200),
        (_gemma3(640, 18, 2048), 268_098_176),
        (_gemma3(1152, 26, 6912), 999_885_952),
    ],
)
def test_published_shapes_have_the_published_sizes(config: ModelConfig, count: int) -> None:
    model = build(config, device="meta")
    assert sum(parameter.numel() for parameter in model.parameters()) == count


@pytest.mark.parametrize("name", TINY)
def test_a_config_round_trips_through_its_file(name: str) -> None:
    assert registry.config_from_json(TINY[name].to_hf()) == TINY[name]


def _newer(config: ModelConfig) -> dict[str, Any]:
    """The same config as newer libraries write it: rope in one table, or one per layer type."""
    data = config.to_hf()
    table: dict[str, Any] = {"rope_theta": data.pop("rope_theta"), "rope_type": "default"}
    table |= cast(dict[str, Any], data.pop("rope_scaling") or {})
    if "rope_local_base_freq" in data:
        near = {"rope_theta": data.pop("rope_local_base_freq"), "rope_type": "default"}
        table = {"full_attention": table, "sliding_attention": near}
        del data["sliding_window_pattern"]
    return {**data, "rope_parameters": table, "dtype": "float32"}


@pytest.mark.parametrize("name", [name for name in TINY if name != "gpt2"])
def test_older_and_newer_configs_say_the_same(name: str) -> None:
    assert registry.config_from_json(_newer(TINY[name])) == TINY[name]


@pytest.mark.parametrize("key", ["sliding_window_pattern", "_sliding_window_pattern", None])
def test_gemma_configs_without_layer_types_have_a_pattern(key: str | None) -> None:
    data = GEMMA3.to_hf()
    del data["layer_types"], data["sliding_window_pattern"]
    config = registry.config_from_json(data if key is None else {**data, key: 3})
    full = [layer for layer, window in enumerate(config.windows()) if window is None]
    assert full == ([5] if key is None else [2, 5])


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("llama", {"model_type": "mamba"}, "model_type 'mamba'"),
        ("llama", {"vocab_size": None}, "has no vocab_size"),
        ("llama", {"hidden_size": "24"}, 'hidden_size must be a whole number .*, not "24"'),
        ("llama", {"num_hidden_layers": 10**6}, r"layers \(1000000\) must be from 1 to 1024"),
        ("llama", {"rms_norm_eps": float("inf")}, "rms_norm_eps must be finite"),
        ("llama", {"tie_word_embeddings": 1}, "tie_word_embeddings must be true or false, not 1"),
        ("llama", {"num_key_value_heads": 4}, r"kv_heads \(4\) must divide heads \(6\)"),
        ("llama", {"head_dim": None, "num_attention_heads": 5}, r"heads \(5\) must divide width"),
        ("llama", {"head_dim": 5}, r"head_dim \(5\) must be even"),
        ("llama", {"attention_bias": True}, "attention_bias = True, which is not implemented"),
        ("llama", {"hidden_act": "gelu"}, "hidden_act = 'gelu'"),
        ("llama", {"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "rope_type = 'yarn'"),
        ("llama", {"rope_scaling": {"type": "linear"}}, "rope_scaling in .* has no factor"),
        ("llama", {"rope_scaling": [1]}, "rope_scaling must be an object"),
        ("llama", {"partial_rotary_factor": 0.5}, "partial_rotary_factor = 0.5"),
        ("qwen3", {"layer_types": ["full_attention"]}, "layer_types must list 2 layers"),
        ("qwen3", {"layer_types": ["linear_attention"] * 2}, "layer_types must list"),
        ("qwen3", {"layer_types": ["sliding_attention"] * 2}, "layers with a sliding window"),
        ("qwen2", {"use_sliding_window": True}, "use_sliding_window = True"),
        ("gemma3", {"attn_logit_softcapping": 50.0}, "attn_logit_softcapping = 50.0"),
        ("gemma3", {"sliding_window": 0}, "sliding_window must be .*, not 0"),
        ("gpt2", {"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx"),
    ],
)
def test_invalid_configs_are_named(name: str, change: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        registry.config_from_json({**TINY[name].to_hf(), **change})


@given(data=st.data())
def test_a_damaged_config_is_read_or_refused(data: st.DataObject) -> None:
    config = TINY[data.draw(st.sampled_from(sorted(TINY)))].to_hf()
    wild = st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
        max_leaves=4,
    )
    for key in data.draw(st.lists(st.sampled_from(sorted(config)), min_size=1, max_size=3)):
        config[key] = data.draw(wild)
    try:
        read = registry.config_from_json(config)
    except ConfigError as error:
        assert str(error)
    else:
        assert read.layers <= 1024


@pytest.mark.parametrize("vocabulary", [256, 8192])
@pytest.mark.parametrize("budget", [500_000, 9_000_000, 300_000_000])
def test_the_default_shape_has_the_size_asked_for(budget: int, vocabulary: int) -> None:
    if budget < 100 * vocabulary:
        pytest.skip("the embedding alone decides")
    config = config_for_budget(budget, vocabulary, 512)
    model = build(config, device="meta")
    assert sum(parameter.numel() for parameter in model.parameters()) == parameter_count(config)
    assert parameter_count(config) == pytest.approx(budget, rel=0.12)
    assert config.tied
    assert config.heads * config.head_dim == config.width
    assert config.hidden == pytest.approx(config.width * 8 / 3, rel=0.15)
    assert 12 <= config.width / config.layers <= 80


def test_the_default_shape_refuses_a_vocabulary_that_leaves_no_room() -> None:
    with pytest.raises(ConfigError, match="no model of 500,000 parameters has a vocabulary"):
        config_for_budget(500_000, 100_000, 256)


def test_every_family_is_tested() -> None:
    assert {type(config) for config in TINY.values()} == registry.FAMILIES.keys()
