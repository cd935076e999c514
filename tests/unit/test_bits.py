"""Bits per byte: every token scored once with enough context; probabilities sum to one."""

import math
from itertools import product

import numpy as np
import pytest
import torch

from families import TINY, tiny
from ownwords.evaluation import bits_per_byte
from ownwords.evaluation.bits_per_byte import document_nats, score
from ownwords.evaluation.intervals import DocumentScore, Score
from ownwords.models.configs.gpt2 import GPT2Config
from ownwords.models.configs.llama import Qwen3Config
from ownwords.models.decoder import CausalLM, build
from ownwords.tokenizers.bpe import ByteTokenizer

TEXTS = ["", "a", "Die Mühle steht.", "so much depends upon a red wheel barrow " * 4]


def of_bytes(context: int = 24) -> CausalLM:
    config = Qwen3Config(
        vocabulary=ByteTokenizer().vocabulary_size,
        context=context,
        width=16,
        layers=2,
        heads=2,
        head_dim=8,
        hidden=24,
    )
    model = build(config)
    model.init_weights(3)
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))
    return model


@torch.no_grad()
def one_by_one(model: CausalLM, ids: list[int], context: int, stride: int) -> float:
    """Token by token, as the docstring says: no shared windows, no batches."""
    total = 0.0
    for target in range(1, len(ids)):
        # Beyond the first window a token is in the first window that ends at or after it.
        if target <= context:
            begin = 0
        else:
            end = min(context + math.ceil((target - context) / stride) * stride, len(ids) - 1)
            begin = end - context if stride < context else end - (end - 1) % context - 1
        context_ids = torch.tensor([ids[begin:target]])
        logits = model.logits(model(context_ids))[0, -1].double()
        total -= float(logits.log_softmax(-1)[ids[target]])
    return total


@pytest.mark.parametrize(("context", "stride"), [(24, 12), (24, 24), (24, 5), (10, 3), (24, 1)])
def test_the_score_equals_a_token_by_token_loop(context: int, stride: int) -> None:
    model, tokenizer = of_bytes(context), ByteTokenizer()
    result = score(model, tokenizer, TEXTS, stride=stride)
    start, end = tokenizer.start, tokenizer.end
    assert start is not None
    assert end is not None
    for text, document in zip(TEXTS, result.documents, strict=True):
        ids = [start, *tokenizer.encode(text), end]
        assert document.nats == pytest.approx(one_by_one(model, ids, context, stride), abs=1e-4)
        assert document.bytes == len(text.encode())
        assert document.tokens == len(text.encode()) + 1
    assert result.nats == pytest.approx(math.fsum(document.nats for document in result.documents))
    assert result.bits_per_byte == pytest.approx(result.nats / math.log(2) / result.bytes)


@pytest.mark.parametrize("name", ["gpt2", "qwen3", "gemma3"])
def test_probabilities_of_all_continuations_sum_to_one(name: str) -> None:
    config = TINY[name]
    model = build(type(config)(**{**vars(config), "vocabulary": 9}))
    model.init_weights(2)
    generator = torch.Generator().manual_seed(4)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.5 * torch.randn(parameter.shape, generator=generator))
    texts = [list(triple) for triple in product(range(9), repeat=3)]
    rows = [np.array([4, *text]) for text in texts]
    nats = bits_per_byte.document_nats(model, rows, 64, 32)
    assert len(nats) == 9**3
    assert math.fsum(math.exp(-loss) for loss in nats) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("stride", [1, 2])
def test_it_sums_to_one_across_windows_too(stride: int) -> None:
    model = build(GPT2Config(vocabulary=5, context=2, width=8, layers=1, heads=2))
    model.init_weights(2)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(20)
    rows = [np.array([0, *text]) for text in product(range(5), repeat=5)]
    nats = bits_per_byte.document_nats(model, rows, 2, stride)
    assert np.std(nats) > 0.1
    assert math.fsum(math.exp(-loss) for loss in nats) == pytest.approx(1, abs=1e-5)


def test_low_precision_sums_to_one() -> None:
    rows = [np.array([5, *text]) for text in product(range(97), repeat=2)]
    for model in (tiny("qwen3", torch.bfloat16), tiny("qwen3")):
        with torch.autocast("cpu", torch.bfloat16):
            nats = bits_per_byte.document_nats(model, rows, 64, 32)
        assert math.fsum(math.exp(-loss) for loss in nats) == pytest.approx(1, abs=1e-4)


def test_without_context_the_first_token_is_uniform() -> None:
    bare = ByteTokenizer(special=(), start=None, end=None)
    config = GPT2Config(vocabulary=256, context=16, width=8, layers=1, heads=1)
    model = build(config)
    model.init_weights(1)
    result = score(model, bare, ["x", "xy", ""])
    assert result.documents[0].nats == pytest.approx(math.log(256))
    assert [document.tokens for document in result.documents] == [1, 2, 0]
    assert result.documents[2].nats == 0
    only_end = ByteTokenizer(start=None)
    assert [ids.tolist() for ids in bits_per_byte.encode(only_end, ["", "a"])] == [
        [only_end.end, only_end.end],
        [only_end.end, 97, only_end.end],
    ]


def test_scoring_leaves_the_model_in_its_mode() -> None:
    model = tiny("qwen3").train()
    model.blocks[0].eval()
    state = torch.get_rng_state()
    document_nats(model, [np.array([1, 2, 3])], 3, 3)
    assert model.training
    assert not model.blocks[0].training
    assert model.blocks[1].training
    assert torch.equal(state, torch.get_rng_state())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_the_interval_is_over_whole_documents() -> None:
    generator = np.random.default_rng(3)
    nats = generator.normal(1000, 50, 200)
    score_of_many = Score(
        tuple(DocumentScore(str(i), n, 700, 300) for i, n in enumerate(nats.tolist()))
    )
    interval = score_of_many.interval()
    assert interval is not None
    # All of one size: the mean's own spread, from the textbook.
    spread = nats.std() / math.sqrt(200) / math.log(2) / 700
    assert interval.high - interval.low == pytest.approx(2 * 1.96 * spread, rel=0.1)
    assert interval.low < score_of_many.bits_per_byte < interval.high
    assert interval == score_of_many.interval()
    assert Score(score_of_many.documents[:4]).interval() is None
    better = Score(tuple(DocumentScore("", n - 10, 700, 300) for n in nats.tolist()))
    gain = better.advantage(score_of_many)
    assert gain is not None
    assert gain.low == pytest.approx(10 / math.log(2) / 700)
