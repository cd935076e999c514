"""LoRAs exported to PEFT, alone and from `ownwords export`: the same logits in transformers."""

import json
import random
from collections.abc import Mapping
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("peft")

import torch
import transformers
from peft import PeftModel
from torch import Tensor

import large_vocabulary
from ownwords.archive.corpus import TrainingText
from ownwords.base import trimming
from ownwords.cli.main import main
from ownwords.models import bundle, lora, registry
from ownwords.models.decoder import CausalLM, build
from ownwords.models.directory import ADAPTER
from ownwords.models.lora import AdapterConfig
from ownwords.models.weight_mapping import hf_names
from ownwords.models.weights import read_tensors, write_tensors
from ownwords.training import throughput
from ownwords.training.recipes import TrainRequest, plan_finetuning

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
    "qwen2": {**ROPE, "hidden_act": "silu", "tie_word_embeddings": True},
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


def _store_in_int8(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """As the adapters in the package are stored."""
    stored = {}
    for name, matrix in tensors.items():
        scale = matrix.abs().amax(1) / 127
        stored[name] = (matrix / scale[:, None]).round().to(torch.int8)
        stored[f"{name}.scale"] = scale
    write_tensors(path, stored)


def _attached(model: CausalLM, rank: int) -> lora.LoraAdapter:
    adapter = lora.attach(model, AdapterConfig(rank, 8.0, 0.1), seed=7)
    _fill([each for each in model.parameters() if each.requires_grad])
    return adapter


@pytest.mark.parametrize("kind", FAMILIES)
def test_two_adapters_of_ours_load_in_peft_as_one_of_the_plain_base(
    kind: str, tmp_path: Path
) -> None:
    ours, theirs = _pair(kind)
    assert _distance(ours, theirs) < 1e-4
    before = _attached(ours, 4)
    _store_in_int8(tmp_path / "before", lora.stored_tensors(before))
    before.detach()
    lora.merge_stored(ours, tmp_path / "before")
    assert _distance(ours, theirs) > 1e-2  # or the comparison would show nothing
    author = _attached(ours, 3)
    write_tensors(tmp_path / "a", lora.stored_tensors(author, tmp_path / "before"))
    config, tensors = lora.peft_files(tmp_path / "a", ours.config, "")
    (tmp_path / "peft").mkdir()
    (tmp_path / "peft" / lora.PEFT_CONFIG).write_bytes(config)
    write_tensors(tmp_path / "peft" / lora.PEFT_WEIGHTS, tensors)
    joined = PeftModel.from_pretrained(theirs, str(tmp_path / "peft")).eval()
    assert joined.peft_config["default"].r == 7
    assert _distance(ours, joined) < 1e-4


@pytest.mark.parametrize("is_trimmed", [False, True], ids=["whole", "trimmed"])
def test_a_tuned_model_is_exported_as_an_adapter_of_its_plain_base(
    is_trimmed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        throughput, "measure_speeds", lambda device, *_, **__: throughput.assumed_speeds(device)
    )
    monkeypatch.setattr(trimming, "SMALL", 100)
    letters = random.Random(5)
    texts = [
        TrainingText(str(i), "".join(letters.choices("ains ", k=400)))  # few tokens are enough
        for i in range(8)
    ]
    base = used = large_vocabulary.write(tmp_path / "base")
    if is_trimmed:
        used = trimming.trim(base, [text.text for text in texts], tmp_path / "trimmed" / "base")
        assert used != base
    model = bundle.load(used).model
    notes = _attached(model, 4)
    _store_in_int8(tmp_path / "notes", lora.stored_tensors(notes))
    fixed = {"train.steps": 4, "train.batch_size": 4, "train.sequence_length": 32, "lora.rank": 3}
    request = TrainRequest(tmp_path / "w", 600, fixed, device="cpu")
    work = {"adapter": tmp_path / "notes", "by_lora": True}
    made = plan_finetuning(used, texts, texts[:2], request, **work).train()  # type: ignore[arg-type]

    assert main(["export", str(made.folder), "--to", "adapter", "--out", str(tmp_path / "a")]) == 0
    theirs = transformers.AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    joined = PeftModel.from_pretrained(theirs, str(tmp_path / "a")).eval()
    assert (tmp_path / "a" / "tokenizer.json").exists() is not is_trimmed

    stored = read_tensors(made.folder / ADAPTER)
    author = {name: each for name, each in stored.items() if not name.startswith("before.")}
    write_tensors(tmp_path / "author", author)
    tuned = bundle.load(used).model
    for each in ("notes", "author"):
        lora.merge_stored(tuned, tmp_path / each)
    theirs_of = _same_tokens(used, base)
    ids = torch.tensor([*theirs_of])[torch.randint(len(theirs_of), (2, 20))]
    twins = torch.tensor([[theirs_of[int(each)] for each in row] for row in ids])
    with torch.no_grad():
        expected = tuned.logits(tuned(ids))[..., [*theirs_of]]
        logits = joined(twins).logits[..., [*theirs_of.values()]]
        with joined.disable_adapter():
            untuned = joined(twins).logits[..., [*theirs_of.values()]]
    assert (expected - untuned).abs().max() > 1e-2
    assert (expected - logits).abs().max() < 1e-4


def _same_tokens(model: Path, base: Path) -> dict[int, int]:
    """The ids of a model's tokens, and those of the same tokens in its base."""
    ours, theirs = (
        json.loads((each / "tokenizer.json").read_bytes())["model"]["vocab"]
        for each in (model, base)
    )
    return {number: theirs[token] for token, number in ours.items() if token in theirs}
