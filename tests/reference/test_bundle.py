"""Model directories against transformers: ours open there and theirs here, with equal results."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import model_directories as models
from ownwords.models import bundle
from ownwords.models.decoder import CausalLM
from ownwords.models.weight_mapping import hf_names

pytestmark = [
    pytest.mark.reference,
    # Of transformers' own making, at import and on saving.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]
transformers = pytest.importorskip("transformers")
safetensors = pytest.importorskip("safetensors.torch")

FAMILIES = list(models.CONFIGS)
CLASSES = {
    "gpt2": "GPT2LMHeadModel",
    "llama": "LlamaForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "gemma3_text": "Gemma3ForCausalLM",
}
STEPS = 64


def prompt() -> torch.Tensor:
    return torch.randint(0, models.VOCABULARY, (1, 12), generator=torch.Generator().manual_seed(5))


@torch.no_grad()
def our_logits(model: CausalLM, ids: torch.Tensor) -> torch.Tensor:
    logits: torch.Tensor = model.logits(model(ids))
    return logits


@torch.no_grad()
def greedy(logits_of: Callable[[torch.Tensor], torch.Tensor], ids: torch.Tensor) -> list[int]:
    for _ in range(STEPS):
        ids = torch.cat([ids, logits_of(ids)[:, -1:].argmax(-1)], dim=1)
    token_ids: list[int] = ids[0].tolist()
    return token_ids


def theirs(folder: Path, **options: object) -> Any:  # noqa: ANN401 - it has no types
    model, load_info = transformers.AutoModelForCausalLM.from_pretrained(
        folder,
        trust_remote_code=False,
        local_files_only=True,
        output_loading_info=True,
        **options,
    )
    assert not any(
        load_info[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys")
    )
    return model.eval()


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("shard_bytes", [None, 6000])
def test_our_directory_opens_in_transformers(
    family: str, tied: bool, shard_bytes: int | None, tmp_path: Path
) -> None:
    model = models.model(family, tie_word_embeddings=tied)
    bundle.save(tmp_path / "m", model, models.Letters())
    models.shard(tmp_path / "m", shard_bytes)
    peer = theirs(tmp_path / "m")
    assert type(peer).__name__ == CLASSES[family]
    assert {p.dtype for p in peer.parameters()} == {torch.float32}
    ids = prompt()
    with torch.no_grad():
        torch.testing.assert_close(our_logits(model, ids), peer(ids).logits, atol=1e-4, rtol=0)
    expected = greedy(lambda ids: our_logits(model, ids), ids)
    assert greedy(lambda ids: peer(ids).logits, ids) == expected
    generated = peer.generate(
        ids, max_new_tokens=STEPS, min_new_tokens=STEPS, do_sample=False, eos_token_id=None
    )
    assert generated[0].tolist() == expected


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_transformers_reports_the_type_and_reads_the_same_bits(
    family: str, dtype: torch.dtype, tmp_path: Path
) -> None:
    model = models.model(family)
    bundle.save(tmp_path / "m", model, models.Letters(), dtype=dtype)
    assert {p.dtype for p in theirs(tmp_path / "m", dtype="auto").parameters()} == {dtype}
    read = safetensors.load_file(tmp_path / "m" / "model.safetensors")
    parameters = dict(model.named_parameters())
    for ours, name, transposed in hf_names(model.config):
        tensor = parameters[ours].detach().to(dtype)
        assert torch.equal(read[name], tensor.t() if transposed else tensor)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize(
    ("dtype", "shards"),
    [(torch.float32, "1GB"), (torch.float32, "8KB"), (torch.bfloat16, "8KB")],
    ids=["f32", "f32 sharded", "bf16 sharded"],
)
def test_a_directory_of_transformers_opens_here(
    family: str, tied: bool, dtype: torch.dtype, shards: str, tmp_path: Path
) -> None:
    torch.manual_seed(11)
    settings = {**models.CONFIGS[family], "tie_word_embeddings": tied}
    kind = settings.pop("model_type")
    config = transformers.AutoConfig.for_model(kind, **settings)
    peer = transformers.AutoModelForCausalLM.from_config(config).to(dtype).eval()
    peer.save_pretrained(tmp_path, max_shard_size=shards)
    assert (len(list(tmp_path.glob("model-*.safetensors"))) > 1) is (shards == "8KB")
    for name, data in models.Letters().files().items():
        (tmp_path / name).write_bytes(data)

    loaded = bundle.load(tmp_path)
    assert {p.dtype for p in loaded.model.parameters()} == {dtype}
    stored = peer.state_dict()
    parameters = dict(loaded.model.named_parameters())
    for ours, name, transposed in hf_names(loaded.config):
        tensor = parameters[ours]
        assert torch.equal(stored[name], tensor.t() if transposed else tensor), name

    model, ids = bundle.load(tmp_path, dtype=torch.float32).model, prompt()
    peer = peer.float()
    with torch.no_grad():
        torch.testing.assert_close(our_logits(model, ids), peer(ids).logits, atol=1e-4, rtol=0)
    assert greedy(lambda ids: our_logits(model, ids), ids) == greedy(
        lambda ids: peer(ids).logits, ids
    )

    bundle.save(tmp_path / "again", loaded.model, models.Letters())
    resaved = safetensors.load_file(tmp_path / "again" / "model.safetensors")
    assert all(torch.equal(tensor, stored[name]) for name, tensor in resaved.items())


def test_generation_settings_and_config_survive_transformers(tmp_path: Path) -> None:
    models.write(tmp_path / "m")
    peer = theirs(tmp_path / "m")
    assert (peer.generation_config.bos_token_id, peer.generation_config.eos_token_id) == (0, 0)
    peer.save_pretrained(tmp_path / "theirs")
    for name, data in models.Letters().files().items():
        (tmp_path / "theirs" / name).write_bytes(data)
    assert bundle.load(tmp_path / "theirs").config == bundle.load(tmp_path / "m").config
    config = json.loads((tmp_path / "m" / "config.json").read_bytes())
    assert config["architectures"] == ["Qwen3ForCausalLM"]
