"""Memorised text is extracted, and new text is not."""

import numpy as np
import pytest
import torch

from families import tiny
from ownwords.evaluation import memorisation
from ownwords.evaluation.memorisation import extraction
from ownwords.inference.generation import GenerationRequest, generate
from ownwords.inference.sampling import SamplingParams
from ownwords.inference.torch_engine import TorchEngine
from ownwords.models.configs.llama import Qwen3Config
from ownwords.models.decoder import CausalLM, build
from ownwords.tokenizers import bpe

# Of different words, so that each passage is told apart.
POSTS = [" ".join(f"w{n}" for n in range(90 * i, 90 * i + 85)) for i in range(9)]


def untrained(context: int) -> CausalLM:
    model = build(
        Qwen3Config(
            vocabulary=400, context=context, width=16, layers=1, heads=2, kv_heads=2, hidden=32
        )
    )
    model.init_weights(1)
    return model


ROWS = np.random.default_rng(1).integers(0, 50, (2, 40))


@pytest.fixture(scope="module")
def overfitted_model() -> CausalLM:
    """A model that memorised ROWS."""
    model = build(
        Qwen3Config(vocabulary=50, context=40, width=48, layers=2, heads=4, kv_heads=2, hidden=96)
    )
    model.init_weights(1)
    ids_BT = torch.from_numpy(ROWS)
    rows_BT = torch.cat([ids_BT.roll(-n, 1)[:, :24] for n in range(0, 17, 1)])
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    for _ in range(60):
        loss, tokens = model.loss(rows_BT[:, :-1], rows_BT[:, 1:])
        optimizer.zero_grad()
        (loss / tokens).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return model


@pytest.mark.parametrize("name", ["model", "llama", "gemma3"])
def test_extraction_equals_greedy_decoding(name: str, overfitted_model: CausalLM) -> None:
    model = overfitted_model if name == "model" else tiny(name)
    passages = [
        memorisation._Passage(row[at : at + 18 - at % 3], 6)
        for row in ROWS
        for at in range(0, 20, 2)
    ]
    reproduced = memorisation._reproduced(model, passages)
    assert any(reproduced) == (name == "model")
    for passage, is_reproduced in zip(passages, reproduced, strict=True):
        prefix, truth = passage.ids[:6].tolist(), passage.ids[6:].tolist()
        request = GenerationRequest(
            ids=prefix, max_tokens=len(truth), sampling=SamplingParams(temperature=0)
        )
        continued = list(generate(TorchEngine(model), request))
        assert is_reproduced == (continued == truth)


def test_too_short_a_context_or_too_short_texts() -> None:
    tokenizer = bpe.train(POSTS, 400)
    short, long = (extraction(untrained(n), tokenizer, POSTS, POSTS) for n in (40, 400))
    assert short.words < long.words == 40
    assert short.training.of > long.training.of == len(POSTS)
    # Where no post is as long, passages are shorter, too; where none is long enough there is none.
    model = untrained(400)
    assert extraction(model, tokenizer, ["one two " * 6], []).words == 5
    nothing = extraction(model, tokenizer, ["one"], [])
    assert (nothing.training.of, nothing.training.interval) == (0, None)


def test_passages_are_the_same_whatever_the_vocabulary() -> None:
    """Fifty tokens of one are twice as much text as of another."""
    drawn = []
    for size in (261, 400):
        tokenizer = bpe.train(POSTS, size)
        passages = memorisation._word_passages(tokenizer, POSTS, 10, 20)
        halves = [
            (tokenizer.decode(ids[:prefix]), tokenizer.decode(ids[prefix:]))
            for ids, prefix, _ in passages
        ]
        assert len(set(halves)) == len(passages) == 20
        assert all(len(half.split()) == 10 for pair in halves for half in pair)
        assert all(any("".join(pair) in post for post in POSTS) for pair in halves)
        drawn.append(halves)
    assert drawn[0] == drawn[1]


def test_many_passages_of_few_posts_are_no_more_evidence_than_the_posts() -> None:
    known = extraction(untrained(400), bpe.train(POSTS, 400), POSTS, [], words=5).training
    assert (known.of, known.value) == (8 * len(POSTS), 0)
    assert known.interval is not None and known.interval.high > 0.2
