"""Devices; those other than the CPU are replaced by stand-ins."""

from collections.abc import Sequence
from types import SimpleNamespace

import pytest

pytest.importorskip("torch")

import torch
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

from families import TINY, some_ids, tiny
from ownwords.core import hardware
from ownwords.core.errors import ConfigError
from ownwords.models import fused, lora
from ownwords.models.decoder import build
from ownwords.native.bindings import NativeLibrary, Rates
from ownwords.training import step_time, throughput
from ownwords.training.device import Device, choose

CPU = Device("cpu", torch.device("cpu"))


ONES = torch.ones
NO_KERNEL = "CUDA error: no kernel image is available for execution on the device\nAnd much more"


def with_devices(
    monkeypatch: pytest.MonkeyPatch,
    *kinds: str,
    hip: str | None = None,
    broken: Sequence[str] = (),
    free: int = 8 << 30,
) -> list[int]:
    """Stand-ins for two cards of these kinds; returns the numbers that become the current card."""
    current: list[int] = []

    def ones_on(*shape: int, device: str, dtype: torch.dtype) -> torch.Tensor:
        if device in broken:
            raise RuntimeError(NO_KERNEL)
        return ONES(*shape, dtype=dtype)

    for kind in ("cuda", "xpu"):
        accelerator = getattr(torch, kind)
        monkeypatch.setattr(accelerator, "is_available", lambda kind=kind: kind in kinds)
        monkeypatch.setattr(accelerator, "device_count", lambda: 2)
        monkeypatch.setattr(accelerator, "set_device", current.append)
        monkeypatch.setattr(accelerator, "get_device_name", lambda: "Card 500")
    # 1 GB of what is taken is PyTorch's own reserve.
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (free - 10**9, 8 << 30))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda: 3 * 10**9)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda: 2 * 10**9)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: "mps" in kinds)
    monkeypatch.setattr(torch.version, "hip", hip)
    monkeypatch.setattr(torch, "ones", ones_on)
    monkeypatch.setattr(hardware, "_noted", set())
    return current


def test_the_best_device_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    for kinds, best in (
        ((), "cpu"),
        (("mps",), "mps"),
        (("xpu", "cuda"), "cuda"),
        (("xpu",), "xpu"),
    ):
        with_devices(monkeypatch, *kinds)
        assert choose().kind == choose("auto").kind == best
        assert choose("cpu") == CPU
    with_devices(monkeypatch, "cuda", hip="6.2")
    assert choose().kind == "rocm" and choose("rocm:1").torch_device == torch.device("cuda:1")


def test_a_card_that_cannot_compute_is_named_once_and_not_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    notes: list[str] = []
    with_devices(monkeypatch, "cuda", broken=["cuda"])
    for _ in range(2):
        assert choose("auto", notes.append) == CPU
        assert hardware.choose_device(note=notes.append) == "cpu"
    assert notes == ["Card 500 (cuda) is not used: " + NO_KERNEL.partition("\n")[0] + "."]
    with pytest.raises(ConfigError, match=r"Card 500 \(cuda\) cannot be used: .*no kernel image"):
        choose("cuda")


def test_a_card_with_too_little_memory_is_used_only_if_it_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    notes: list[str] = []
    with_devices(monkeypatch, "cuda", free=3 << 30)
    assert choose("auto", notes.append).kind == "cuda" and not notes
    assert hardware.choose_device(note=notes.append, memory_bytes=4 << 30) == "cpu"
    assert "only 3.2 GB of its memory are free; 4.3 GB are needed" in notes[0]
    assert hardware.choose_device("cuda", memory_bytes=4 << 30) == "cuda"


@pytest.mark.parametrize("name", ["tpu", "cuda", "mps", "xpu", "cpu:x", ""])
def test_a_missing_device_is_one_sentence(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with_devices(monkeypatch)
    with pytest.raises(ConfigError, match="PyTorch finds no device"):
        choose(name)


def test_one_of_two_gpus_becomes_the_current_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch records events and synchronises on the current one unless told otherwise."""
    current = with_devices(monkeypatch, "cuda")
    assert choose("cuda:1").torch_device.index == 1
    assert current == [1]
    with pytest.raises(ConfigError, match="PyTorch finds no device 'cuda:2'"):
        choose("cuda:2")


def test_every_process_of_torchrun_takes_its_own_card(monkeypatch: pytest.MonkeyPatch) -> None:
    current = with_devices(monkeypatch, "cuda", broken=["cuda:1"])
    monkeypatch.setenv("LOCAL_RANK", "0")
    for name in ("auto", "cuda", "cuda:1"):
        assert choose(name).torch_device == torch.device("cuda:0") and current.pop() == 0
    monkeypatch.setenv("LOCAL_RANK", "1")
    with pytest.raises(ConfigError, match="cannot be used"):  # the others would wait for it
        choose("auto")
    with_devices(monkeypatch)
    assert choose("auto") == CPU


def test_a_card_without_bfloat16_trains_in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    with_devices(monkeypatch, "cuda")
    for major, tried in ((7, {"float32"}), (8, {"autocast", "bf16"})):
        monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
        card = SimpleNamespace(major=major)
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _, card=card: card)
        assert set(throughput.precisions(choose("cuda"))) == tried


def test_a_lora_multiplies_in_int16_where_that_is_fastest(monkeypatch: pytest.MonkeyPatch) -> None:
    rates = {"float32": 90.0, "bfloat16": 0.0, "bfloat16_tiles": 0.0, "int16": 150.0}
    for changed, expected in ({}, "int16"), ({"int16": 95.0}, "float32"):
        library = object.__new__(NativeLibrary)
        library.__dict__["rates"] = Rates(**rates | changed)
        monkeypatch.setattr(throughput, "find_library", lambda library=library: library)
        monkeypatch.setattr(fused, "has_fast_bf16", lambda: False)
        assert throughput.precisions(CPU, is_lora=True)[0] == expected
        assert "int16" not in throughput.precisions(CPU)


def test_out_of_memory_errors_are_recognised() -> None:
    with pytest.raises(RuntimeError) as caught:
        torch.empty(1 << 60)
    assert CPU.is_out_of_memory(caught.value)
    for error in (
        MemoryError(),
        torch.OutOfMemoryError("CUDA out of memory"),
        RuntimeError("MPS backend out of memory"),
    ):
        assert CPU.is_out_of_memory(error)
    for cause in (RuntimeError("shapes differ"), ValueError("out of memory"), KeyboardInterrupt()):
        assert not CPU.is_out_of_memory(cause)


@pytest.mark.parametrize("name", ["gpt2", "qwen3", "llama"])
def test_flops_equal_those_counted_by_pytorch(name: str) -> None:
    """Forward and backward of one row; `FlopCounterMode` counts the matrix products."""
    model, context = tiny(name), 40
    counter = FlopCounterMode(display=False)
    ids_BT = some_ids(1, context + 1)
    with counter:
        logits_BTV = model.logits(model(ids_BT[:, :-1]))
        torch.autograd.backward(functional.cross_entropy(logits_BTV[0], ids_BT[0, 1:]))
    counts = {str(op): n for op, n in counter.get_flop_counts()["Global"].items()}
    products = sum(n for op, n in counts.items() if "attention" not in op)
    config = model.config
    attention = 6.0 * config.layers * config.heads * config.head_dim * context
    assert step_time.flops_per_token(config, context) - attention == products / context


def test_flops_of_frozen_hidden_and_small_parts() -> None:
    config = TINY["llama"]
    model = build(config, device="cpu")
    all_weights = step_time.flops_per_token(config, 40)
    lora.attach(model, lora.AdapterConfig(rank=2), seed=1)
    adapter = sum(p.numel() for p in model.parameters() if p.requires_grad)
    matrices = sum(
        p.numel()
        for name, p in model.named_parameters()
        if not p.requires_grad and p.dim() == 2 and name != "embedding.weight"
    )
    of_lora = step_time.flops_per_token(config, 40, rank=2)
    assert all_weights - of_lora == 2.0 * matrices - 6.0 * adapter
    assert step_time._attended(40, 7) == pytest.approx(sum(min(i, 7) for i in range(1, 41)) / 40)
    assert step_time._attended(400, None) == pytest.approx(sum(range(1, 401)) / 400, rel=0.003)
