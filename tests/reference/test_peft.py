"""Adapters exported to PEFT and imported from it: the same logits in transformers."""

from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("peft")

import torch
import transformers
from peft import PeftModel
from torch import Tensor

from ownwords.models import lora, registry
from ownwords.models.decoder import CausalLM, build
from ownwords.models.lora import AdapterConfig
from ownwords.models.weight_mapping import hf_names

pytestmark = [
    pytest.mark.reference,
    pytest.mark.filterwarnings("ignore::FutureWarning:transformers"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:transformers"),
    pytest.mark.filterwarnings("ignore::UserWarning:peft"),
]

VOCABULARY = 61
ROPE = {
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}
FAMILIES: dict[str, dict[str, object]] = {
    "gpt2": {
        "vocab_size": VOCABULARY,
        "n_positions": 64,
        "n_embd": 32,
        "n_layer": 2,
        "n_head": 4,
        "bos_token_id": None,
        "eos_token_id": None,
    },
    "llama": {**ROPE, "hidden_act": "silu", "tie_word_embeddings": False},
    "qwen3": {**ROPE, "hidden_act": "silu", "tie_word_embeddings": True},
    "gemma3_text": {
        **ROPE,
        "hidden_activation": "gelu_pytorch_tanh",
        "sliding_window": 8,
        "query_pre_attn_scalar": 8,
        "rope_local_base_freq": 1000.0,
        "layer_types": ["sliding_attention", "full_attention"],
    },
}


def _pair(kind: str) -> tuple[CausalLM, torch.nn.Module]:
    """Our model and its transformers twin, with the same weights."""
    theirs = transformers.AutoModelForCausalLM.from_config(
        transformers.AutoConfig.for_model(kind, **FAMILIES[kind])
    ).eval()
    ours = build(registry.config_from_json(theirs.config.to_dict())).eval()
    source = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, twin, transposed in hf_names(ours.config):
            value = ours.get_parameter(name)
            # Not `init_weights`, which begins with blocks that add nothing.
            value.copy_(0.2 * torch.randn(value.shape, generator=source) + name.count("norm"))
            theirs.get_parameter(twin).copy_(value.T if transposed else value)
    return ours, theirs


def _ids() -> Tensor:
    return torch.randint(VOCABULARY, (2, 20), generator=torch.Generator().manual_seed(2))


@torch.no_grad()
def _distance(ours: CausalLM, theirs: torch.nn.Module) -> float:
    logits: Tensor = theirs(_ids()).logits
    return (ours.logits(ours(_ids())) - logits).abs().max().item()


def _fill(parameters: list[torch.nn.Parameter]) -> None:
    source = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in parameters:
            parameter.copy_(0.3 * torch.randn(parameter.shape, generator=source))


@pytest.mark.parametrize("kind", FAMILIES)
def test_our_adapter_loads_in_peft(kind: str, tmp_path: Path) -> None:
    ours, theirs = _pair(kind)
    assert _distance(ours, theirs) < 1e-4
    adapter = lora.attach(ours, AdapterConfig(4, 8.0, 0.1), seed=7)
    _fill([each for each in ours.parameters() if each.requires_grad])
    assert _distance(ours, theirs) > 1e-2  # or the comparison would show nothing
    lora.save(tmp_path, adapter)
    assert _distance(ours, PeftModel.from_pretrained(theirs, str(tmp_path)).eval()) < 1e-4
