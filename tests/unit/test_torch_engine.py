"""The PyTorch engine: ragged rows, cuts and copies equal one forward of the network."""

import copy
from random import Random

import numpy as np
import pytest
import torch

from families import TINY, some_ids, tiny
from ownwords.inference.torch_engine import TorchEngine
from ownwords.models.decoder import CausalLM

MODELS = {name: tiny(name, torch.float64).eval() for name in TINY}


def at_once(network: CausalLM, ids: list[int]) -> np.ndarray:
    with torch.inference_mode():
        scores = network.logits(network(torch.tensor([ids])))[0]
    return scores.float().numpy()


def close(logits: np.ndarray, expected: np.ndarray) -> None:
    assert logits.dtype == np.float32
    np.testing.assert_allclose(logits, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", TINY)
def test_steps_of_fixed_shapes_equal_single_texts(name: str) -> None:
    network, random = MODELS[name], Random(name)
    cache = TorchEngine(network, frozen=True).cache(4, 50)
    cache._has_graphs = True  # what is captured on CUDA, run as it comes
    texts: list[list[int]] = [[], [], [], []]
    for _ in range(60):
        row, source = random.choices(range(4), k=2)
        match random.choice(["read", "read", "read", "cut", "copy"]):
            case "read":
                inputs = {}
                for cache_row in random.sample(range(4), random.randint(1, 4)):
                    most = min(50 - len(texts[cache_row]), random.choice([1, 3, 25]))
                    if most:
                        ids = [random.randrange(97) for _ in range(random.randint(1, most))]
                        inputs[cache_row] = ids
                        texts[cache_row] = texts[cache_row] + ids
                if inputs:
                    every = random.random() < 0.5
                    logits = cache.forward(inputs, all_positions=every)
                    parts = [
                        at_once(network, texts[r])[-len(ids) if every else -1 :]
                        for r, ids in inputs.items()
                    ]
                    close(logits, np.concatenate(parts))
            case "cut":
                texts[row] = texts[row][: random.randint(0, len(texts[row]))]
                cache.truncate(row, len(texts[row]))
            case "copy":
                texts[row] = texts[source][: random.randint(0, len(texts[source]))]
                cache.copy_prefix(source, row, len(texts[row]))
        assert [cache.cached_length(row) for row in range(4)] == [len(text) for text in texts]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
@pytest.mark.parametrize("name", TINY)
def test_steps_recorded_on_cuda_give_the_same(name: str) -> None:
    network, ids = copy.deepcopy(MODELS[name]).to("cuda"), some_ids(1, 50)[0].tolist()
    cache = TorchEngine(network, frozen=True).cache(3, 50)
    for first, end in ((0, 20), (20, 21), (21, 24), (24, 25), (25, 50)):
        logits = cache.forward(
            {1: ids[first:end], 2: ids[first : first + 1]},
            all_positions=True,
        )
        close(logits[:-1], at_once(MODELS[name], ids)[first:end])
        cache.truncate(2, 0)
    assert cache._steps
    assert all(step._run != step._forward for step in cache._steps.values())


def test_a_network_in_training_is_left_in_training_mode() -> None:
    network = tiny("gpt2").train()
    network.dropout = 0.5
    network.blocks[0].eval()  # what somebody has frozen stays so
    modes = [module.training for module in network.modules()]
    before = torch.random.get_rng_state()
    weights = copy.deepcopy(network.state_dict())
    cache = TorchEngine(network).cache(1, 20)
    logits = cache.forward({0: [1, 2, 3]}, all_positions=True)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert [module.training for module in network.modules()] == modes
    assert not torch.is_inference_mode_enabled()
    loss, _ = network.loss(some_ids(1, 4), some_ids(1, 4))
    torch.autograd.backward(loss)
    for name, weight in network.state_dict().items():
        assert torch.equal(weight, weights[name])
    close(logits, at_once(copy.deepcopy(network).eval(), [1, 2, 3]))


def test_the_engine_describes_itself() -> None:
    engine = TorchEngine(tiny("qwen3"))
    assert (engine.vocabulary, engine.context, engine.weights) == (97, 64, "f32")
    assert engine.name == "torch f32, cpu"
    assert TorchEngine(tiny("qwen3", torch.bfloat16)).weights == "bf16"
    assert TorchEngine(tiny("qwen3", torch.float16)).name == "torch float16, cpu"
