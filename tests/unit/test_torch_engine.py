"""The PyTorch engine: ragged rows, cuts and copies equal one forward of the network."""

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from random import Random
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from families import TINY, some_ids, tiny
from ownwords.inference.engine import ForwardInput
from ownwords.inference.torch_engine import TorchEngine, _CapturedStep, _GraphedForward, _groups
from ownwords.models.decoder import CausalLM, build
from ownwords.models.kv_cache import StaticKVCache

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
    # What is recorded where there is CUDA, played as it comes.
    cache._graphs = _GraphedForward(cache._engine, cache._open())
    texts: list[list[int]] = [[], [], [], []]
    for _ in range(60):
        row, source = random.choices(range(4), k=2)
        match random.choice(["read", "read", "read", "cut", "copy"]):
            case "read":
                inputs = []
                for cache_row in random.sample(range(4), random.randint(1, 4)):
                    most = min(50 - len(texts[cache_row]), random.choice([1, 3, 25]))
                    if most:
                        ids = [random.randrange(97) for _ in range(random.randint(1, most))]
                        inputs.append(ForwardInput(cache_row, ids))
                        texts[cache_row] = texts[cache_row] + ids
                if inputs:
                    every = random.random() < 0.5
                    logits = cache.forward(inputs, all_positions=every)
                    parts = [
                        at_once(network, texts[item.row])[-len(item.ids) if every else -1 :]
                        for item in inputs
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
            [ForwardInput(1, ids[first:end]), ForwardInput(2, ids[first : first + 1])],
            all_positions=True,
        )
        close(logits[:-1], at_once(MODELS[name], ids)[first:end])
        cache.truncate(2, 0)
    assert cache._graphs is not None
    assert all(step._graph for step in cache._graphs._graphs.values())


class _CopiesFromHost(TorchFunctionMode):
    """Records what makes a tensor on the device, here "meta", from one of the host or a number."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_function__(
        self,
        func: Callable[..., Tensor],
        types: object,
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> Tensor:
        made = func(*args, **(kwargs or {}))
        name = getattr(func, "__name__", "")
        from_host = name in ("tensor", "as_tensor") or (
            name in ("to", "copy_") and "cpu" in [str(getattr(a, "device", "")) for a in args]
        )
        if from_host and made.device.type == "meta":
            self.names.append(name)
        return made


@pytest.mark.parametrize("name", TINY)
def test_a_step_copies_nothing_from_the_host(name: str) -> None:
    """A CUDA graph allows no such copy, and without a graph it waits for the device."""
    network = build(TINY[name], device="meta").eval()
    cache = network.new_cache(2, 16)
    ids_BT = torch.zeros(2, 1, dtype=torch.int64, device="meta")

    def step() -> None:
        network.logits(network(ids_BT, cache=StaticKVCache(cache, ids_BT, 16)))

    with torch.inference_mode():
        step()  # the first one may still set something up
        with _CopiesFromHost() as copies:
            step()
    assert copies.names == []


class _Cuda:
    """Stands in for what `torch.cuda` keeps of streams; every capture fails as PyTorch's does."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.current = self.stream()
        self.modes: list[str] = []
        for name, stand_in in {
            "current_stream": lambda _: self.current,
            "stream": self.use,
            "device": lambda _: nullcontext(),
            "graph": self.capture,
            "CUDAGraph": object,
            "synchronize": lambda _: None,
        }.items():
            monkeypatch.setattr(torch.cuda, name, stand_in)

    def stream(self) -> SimpleNamespace:
        return SimpleNamespace(wait_stream=lambda _: None)

    @contextmanager
    def use(self, stream: SimpleNamespace) -> Iterator[None]:
        before, self.current = self.current, stream
        yield
        self.current = before

    @contextmanager
    def capture(
        self, graph: object, pool: object, stream: SimpleNamespace, capture_error_mode: str
    ) -> Iterator[None]:
        self.modes.append(capture_error_mode)
        self.current = stream
        yield
        raise RuntimeError("CUDA error: operation failed due to a previous error during capture")


def test_after_a_failed_capture_the_step_runs_on_the_stream_of_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cuda, network = _Cuda(monkeypatch), tiny("qwen3").eval()
    before, kv_cache = cuda.current, network.new_cache(1, 16)
    with torch.inference_mode():
        step = _CapturedStep(network, kv_cache, 1, 16, (cuda.stream(), "pool"))  # type: ignore[arg-type]
        assert cuda.current is before
        assert cuda.modes == ["thread_local"]  # other threads may use the card meanwhile
        logits = step.replay(np.array([[5]]), np.array([[0]]))
    close(logits[0].numpy(), at_once(network, [5]))


@pytest.mark.parametrize(
    ("counts", "groups"),
    [
        ([1, 1, 1], [[0, 1, 2]]),
        ([1, 16, 3], [[0, 1, 2]]),
        ([1, 200, 2, 120], [[1, 3], [0, 2]]),
        ([17], [[0]]),
        ([40, 20, 10, 5], [[0, 1], [2, 3]]),
    ],
)
def test_texts_of_similar_length_are_read_together(
    counts: list[int], groups: list[list[int]]
) -> None:
    assert list(_groups(counts)) == groups


def test_a_network_in_training_is_left_in_training_mode() -> None:
    network = tiny("gpt2").train()
    network.dropout = 0.5
    network.blocks[0].eval()  # what somebody has frozen stays so
    modes = [module.training for module in network.modules()]
    before = torch.random.get_rng_state()
    weights = copy.deepcopy(network.state_dict())
    cache = TorchEngine(network).cache(1, 20)
    logits = cache.forward([ForwardInput(0, [1, 2, 3])], all_positions=True)
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
