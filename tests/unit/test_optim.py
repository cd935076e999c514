import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from families import tiny
from ownwords.core.errors import OwnwordsError
from ownwords.models import lora
from ownwords.training.optim import Optimizer
from ownwords.training.settings import OptimConfig
from stored_state import through_a_file

F32 = OptimConfig(newton_schulz_dtype="float32")


def set_gradients(model: nn.Module, step: int, size: float = 0.01) -> None:
    """Gradients that depend on the step alone, some above the clipping threshold, some below."""
    source = torch.Generator().manual_seed(step)
    for parameter in model.parameters():
        if parameter.requires_grad:
            gradient = torch.randn(parameter.shape, generator=source) * size * (1 + step % 3)
            parameter.grad = gradient.to(parameter.dtype)


def run(optimizer: Optimizer, model: nn.Module, steps: range, size: float = 0.01) -> None:
    for step in steps:
        set_gradients(model, step, size)
        optimizer.step(1 - step / 100, step)
        optimizer.zero_grad()


def copies(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in tensors.items()}


def parameters(model: nn.Module) -> dict[str, Tensor]:
    return copies(dict(model.named_parameters()))


def assert_close(first: dict[str, Tensor], second: dict[str, Tensor], atol: float = 0.0) -> None:
    assert first.keys() == second.keys()
    for name, tensor in first.items():
        torch.testing.assert_close(tensor, second[name], rtol=0, atol=atol)


@pytest.mark.parametrize("waits", [True, False])
@pytest.mark.parametrize("clip", [0.0, 0.5])
def test_adamw_is_torchs(waits: bool, clip: float) -> None:
    config = OptimConfig(
        kind="adamw",
        learning_rate=1e-2,
        beta2=0.97,
        weight_decay=0.3,
        embedding_weight_decay=0.05,
        grad_clip=clip,
    )
    ours, theirs = tiny("gpt2"), tiny("gpt2")
    optimizer = Optimizer(ours, config)
    optimizer._waits = waits
    decayed: dict[float, list[nn.Parameter]] = {0.3: [], 0.05: [], 0.0: []}
    for name, parameter in theirs.named_parameters():
        table = "embedding" in name or "position" in name
        decayed[0.0 if parameter.ndim < 2 else 0.05 if table else 0.3].append(parameter)
    reference = torch.optim.AdamW(
        [
            {"params": parameters_of_group, "weight_decay": decay}
            for decay, parameters_of_group in decayed.items()
        ],
        betas=(0.9, 0.97),
        foreach=False,
    )
    for step in range(20):
        set_gradients(ours, step)
        set_gradients(theirs, step)
        norm = torch.cat([parameter.grad.view(-1) for parameter in theirs.parameters()]).norm()  # type: ignore[union-attr]
        if clip:
            torch.nn.utils.clip_grad_norm_(theirs.parameters(), clip)
        for group in reference.param_groups:
            group["lr"] = 1e-2 * (1 - step / 100)
        reference.step()
        optimizer.step(1 - step / 100, step)
        torch.testing.assert_close(optimizer.gradient_norm, norm)
    assert_close(parameters(ours), parameters(theirs), atol=1e-6)


def quintic(matrix: Tensor) -> Tensor:
    """Keller Jordan's iteration, one matrix at a time, as he published it, in float32."""
    x = matrix.T if matrix.shape[0] > matrix.shape[1] else matrix
    x = x / (x.norm() + 1e-7)
    for _ in range(5):
        a = x @ x.T
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    matrix_n: Tensor = x.T if matrix.shape[0] > matrix.shape[1] else x
    return matrix_n


@pytest.mark.parametrize("waits", [True, False])
@pytest.mark.parametrize("family", ["qwen3", "gpt2"])
def test_muon_is_the_literal_one(family: str, waits: bool) -> None:
    config = OptimConfig(
        newton_schulz_dtype="float32",
        muon_lr=0.03,
        weight_decay=0.2,
        momentum_warmup_steps=10,
        grad_clip=0.5,
    )
    model = tiny(family)
    optimizer = Optimizer(model, config)
    optimizer._waits = waits
    matrices = {
        name: tensor.detach().clone()
        for name, tensor in model.named_parameters()
        if name.startswith("blocks.") and tensor.ndim == 2
    }
    assert len(matrices) >= 8
    momenta = {name: torch.zeros_like(tensor) for name, tensor in matrices.items()}
    for step in range(15):
        set_gradients(model, step)
        gradients = {name: tensor.grad for name, tensor in model.named_parameters()}
        norm = math.sqrt(sum(float(g.square().sum()) for g in gradients.values() if g is not None))
        momentum = 0.85 + min(1.0, step / 10) * 0.1
        rate = 0.03 * 0.7
        for name, weight in matrices.items():
            gradient = gradients[name]
            assert gradient is not None
            gradient = gradient * min(1.0, 0.5 / norm)
            momenta[name] = momentum * momenta[name] + (1 - momentum) * gradient
            update = quintic((1 - momentum) * gradient + momentum * momenta[name])
            update = update * max(1.0, weight.shape[0] / weight.shape[1]) ** 0.5
            weight.mul_(1 - rate * 0.2).sub_(rate * update)
        optimizer.step(0.7, step)
        now = parameters(model)
        assert_close({name: now[name] for name in matrices}, matrices, atol=2e-5)


def test_parameters_are_assigned_to_their_optimizers() -> None:
    model = tiny("llama")
    state = Optimizer(model, OptimConfig()).state()
    muon = {key.partition("/")[2] for key in state if key.startswith("momentum/")}
    adamw = {key.partition("/")[2] for key in state if key.startswith("mean/")}
    assert muon.isdisjoint(adamw)
    assert muon | adamw == {name for name, _ in model.named_parameters()}
    assert {"embedding.weight", "head.weight", "final_norm.weight"} <= adamw
    assert "blocks.0.mlp.down.weight" in muon
    assert all("norm" not in name for name in muon)


@pytest.mark.parametrize("kind", ["muon", "adamw"])
def test_only_an_adapter_is_trained_and_by_adamw(kind: str) -> None:
    model = tiny("qwen3")
    lora.attach(model, lora.AdapterConfig(rank=2), seed=1)
    before = parameters(model)
    optimizer = Optimizer(model, OptimConfig(kind=kind))  # type: ignore[arg-type]
    assert not any(key.startswith("momentum/") for key in optimizer.state())
    run(optimizer, model, range(3))
    changed = {n for n, tensor in parameters(model).items() if not torch.equal(tensor, before[n])}
    assert changed == {n for n, parameter in model.named_parameters() if parameter.requires_grad}
    assert all(name.endswith((".down", ".up")) for name in changed)
    assert optimizer.weights().keys() == changed


@pytest.mark.parametrize("master_weights", [False, True])
@pytest.mark.parametrize("iteration", ["float32", "bfloat16"])
@pytest.mark.parametrize("kind", ["muon", "adamw"])
def test_resumed_is_not_stopped(
    kind: str, iteration: str, master_weights: bool, tmp_path: Path
) -> None:
    config = OptimConfig(kind=kind, newton_schulz_dtype=iteration, momentum_warmup_steps=7)  # type: ignore[arg-type]
    dtype = torch.bfloat16 if master_weights else torch.float32

    def fresh() -> tuple[nn.Module, Optimizer]:
        model = tiny("gemma3", dtype)
        return model, Optimizer(model, config)

    def go(parts: tuple[nn.Module, Optimizer], steps: range) -> None:
        for step in steps:
            run(parts[1], parts[0], range(step, step + 1))

    uninterrupted, first, second = fresh(), fresh(), fresh()
    go(uninterrupted, range(12))
    go(first, range(5))
    go(second, range(20, 22))  # so that nothing is right by being fresh
    second[1].load_weights(through_a_file(first[1].weights(), tmp_path / "weights"))
    second[1].load_state(through_a_file(first[1].state(), tmp_path / "state"))
    go(second, range(5, 12))
    assert_close(parameters(second[0]), parameters(uninterrupted[0]))
    assert_close(second[1].weights(), uninterrupted[1].weights())
    assert_close(second[1].state(), uninterrupted[1].state())


def test_a_run_keeps_its_precision() -> None:
    first = Optimizer(tiny("qwen3"), OptimConfig(newton_schulz_dtype="bfloat16"))
    auto = Optimizer(tiny("qwen3"), OptimConfig())
    float32_optimizer = Optimizer(tiny("qwen3"), F32)
    for optimizer in (auto, float32_optimizer):
        optimizer.load_state(first.state())
    assert bool(auto.state()["bfloat16"])
    assert not bool(float32_optimizer.state()["bfloat16"])


@pytest.mark.parametrize("master_weights", [False, True])
def test_the_start_tokens_embedding_learns_as_many_times_as_fast(master_weights: bool) -> None:
    dtype = torch.bfloat16 if master_weights else torch.float32
    plain_model, model = tiny("qwen3", dtype), tiny("qwen3", dtype)
    plain = Optimizer(plain_model, F32)
    before = copies(plain.weights())["embedding.weight"]
    fast = replace(F32, start_lr_scale=40.0)
    optimizer = Optimizer(model, fast, start_token=5)
    for each, each_model in ((plain, plain_model), (optimizer, model)):
        run(each, each_model, range(4))
    expected = copies(plain.weights())
    # Gradients do not depend on the weights here, so every step moves the row 40 times as far.
    moved = expected["embedding.weight"][5] - before[5]
    assert moved.abs().max() > 0
    expected["embedding.weight"][5] = before[5] + 40 * moved
    assert_close(optimizer.weights(), expected, atol=1e-5)
    rounded = {name: weight.to(dtype) for name, weight in optimizer.weights().items()}
    assert_close(parameters(model), rounded)


def test_a_frozen_start_token_stays_as_it_is() -> None:
    model = tiny("llama")
    lora.attach(model, lora.AdapterConfig(rank=2), seed=1)
    untouched = parameters(model)["embedding.weight"]
    run(Optimizer(model, OptimConfig(start_lr_scale=40.0), start_token=5), model, range(2))
    torch.testing.assert_close(parameters(model)["embedding.weight"], untouched, rtol=0, atol=0)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize(("waits", "master_weights"), [(True, True), (True, False), (False, False)])
def test_a_non_finite_step_changes_nothing(bad: float, waits: bool, master_weights: bool) -> None:
    dtype = torch.bfloat16 if master_weights else torch.float32
    model = tiny("qwen3", dtype)
    optimizer = Optimizer(model, F32)
    optimizer._waits = waits
    set_gradients(model, 0)
    next(model.parameters()).grad[0, 0] = bad  # type: ignore[index]
    untouched = parameters(model)
    optimizer.step(1.0, 0)  # even the very first
    assert_close(parameters(model), untouched)
    run(optimizer, model, range(1, 4))
    before, state = copies(optimizer.weights()), copies(optimizer.state())
    for name, parameter in model.named_parameters():
        if name == "blocks.1.mlp.up.weight":
            set_gradients(model, 7)
            parameter.grad.view(-1)[5] = bad  # type: ignore[union-attr]
            optimizer.step(1.0, 7)
    assert not optimizer.gradient_norm.isfinite()
    assert_close(optimizer.weights(), before)
    assert_close(optimizer.state(), state)
    run(optimizer, model, range(8, 10))
    assert all(bool(tensor.isfinite().all()) for tensor in optimizer.weights().values())


def test_master_weights_keep_what_bfloat16_would_lose() -> None:
    # Steps of a thousandth part of the weight's last place, all in one direction.
    model = nn.Linear(4, 4, bias=False, dtype=torch.bfloat16)
    nn.init.ones_(model.weight)
    config = OptimConfig(kind="adamw", learning_rate=1e-4, weight_decay=0.0)
    optimizer = Optimizer(model, config)
    for step in range(100):
        model.weight.grad = torch.ones_like(model.weight)
        optimizer.step(1.0, step)
    torch.testing.assert_close(optimizer.weights()["weight"], torch.full((4, 4), 0.99))
    assert torch.equal(model.weight.detach(), torch.full((4, 4), 0.99).bfloat16())


@pytest.mark.parametrize("clip", [0.0, 0.5])
@pytest.mark.parametrize("kind", ["muon", "adamw"])
def test_the_native_optimizer_changes_nothing(
    kind: str, clip: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = OptimConfig(
        kind=kind,  # type: ignore[arg-type]
        newton_schulz_dtype="float32",
        grad_clip=clip,
        learning_rate=1e-2,
    )
    with_it, without = tiny("gpt2", torch.bfloat16), tiny("gpt2", torch.bfloat16)
    native = Optimizer(with_it, config)
    plain = Optimizer(without, config)
    for step in range(10):
        run(native, with_it, range(step, step + 1))
        with monkeypatch.context() as patched:
            patched.setattr("ownwords.models.fused.find_library", lambda: None)
            run(plain, without, range(step, step + 1))
        torch.testing.assert_close(native.gradient_norm, plain.gradient_norm)
    assert_close(native.weights(), plain.weights(), atol=1e-6)
    for name, parameter in parameters(with_it).items():
        assert torch.equal(parameter, native.weights()[name].bfloat16())


def test_invalid_uses_are_reported() -> None:
    model = tiny("qwen3")
    optimizer = Optimizer(model, F32)
    with pytest.raises(OwnwordsError, match="the same settings of optim"):
        optimizer.load_state(Optimizer(tiny("qwen3"), OptimConfig(kind="adamw")).state())
    shapes = optimizer.state() | {"mean/embedding.weight": torch.zeros(20, 97)}
    with pytest.raises(OwnwordsError, match=r"\[20, 97\]"):
        optimizer.load_state(shapes)
