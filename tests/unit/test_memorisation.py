"""Memorised text is extracted, and new text is not."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

from families import TINY, tiny
from ownwords.evaluation import memorisation
from ownwords.evaluation.memorisation import extraction, extraction_rate
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


@dataclass
class HeldOutShards:
    ids: Any
    offsets_D1: Any
    bytes_D: Any
    names: tuple[str, ...] = ()
    row_start: int | None = None


def held_shards(documents: Sequence[Sequence[int]]) -> HeldOutShards:
    sizes = [len(ids) for ids in documents]
    return HeldOutShards(
        np.array([i for ids in documents for i in ids], np.uint16),
        np.cumsum([0, *sizes]),
        np.array(sizes),
    )


def noise(seed: int, rows: int = 2, tokens: int = 40) -> HeldOutShards:
    generator = random.Random(seed)
    return held_shards([[generator.randrange(50) for _ in range(tokens)] for _ in range(rows)])


@pytest.fixture(scope="module")
def overfitted_model() -> CausalLM:
    """A model that memorised noise(1)."""
    model = build(
        Qwen3Config(vocabulary=50, context=40, width=48, layers=2, heads=4, kv_heads=2, hidden=96)
    )
    model.init_weights(1)
    ids_BT = torch.from_numpy(noise(1).ids.astype(np.int64)).view(2, 40)
    rows_BT = torch.cat([ids_BT.roll(-n, 1)[:, :24] for n in range(0, 17, 1)])
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    for _ in range(60):
        loss, tokens = model.loss(rows_BT[:, :-1], rows_BT[:, 1:])
        optimizer.zero_grad()
        (loss / tokens).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return model


def test_memorised_text_is_extracted_and_new_text_is_not(overfitted_model: CausalLM) -> None:
    assert extraction_rate(overfitted_model, noise(1), samples=16, length=9) > 0.9
    assert extraction_rate(overfitted_model, noise(2), samples=16, length=9) == 0
    assert overfitted_model.training


@pytest.mark.parametrize("name", ["model", *TINY])
def test_extraction_equals_greedy_decoding(name: str, overfitted_model: CausalLM) -> None:
    model = overfitted_model if name == "model" else tiny(name)
    shards = noise(1)
    places = memorisation._places(shards, 18, 20)
    assert len(places) == 20
    passages = [
        memorisation._Passage(shards.ids[at : at + 18 - n % 3].astype(int), 6)
        for n, at in enumerate(places)
    ]
    reproduced = memorisation._reproduced(model, passages)
    for passage, is_reproduced in zip(passages, reproduced, strict=True):
        prefix, truth = passage.ids[:6].tolist(), passage.ids[6:].tolist()
        request = GenerationRequest(
            ids=prefix, max_tokens=len(truth), sampling=SamplingParams(temperature=0)
        )
        continued = list(generate(TorchEngine(model), request))
        assert is_reproduced == (continued == truth)


def test_sampled_passages_are_distinct_and_within_documents() -> None:
    shards = held_shards([list(range(5)), list(range(5, 20)), [], list(range(20, 32))])
    places = memorisation._places(shards, 10, 100)
    assert sorted(places) == [5, 6, 7, 8, 9, 10, 20, 21, 22]
    assert len(memorisation._places(shards, 10, 4)) == 4
    assert memorisation._places(shards, 10, 4) == memorisation._places(shards, 10, 4)
    assert memorisation._places(shards, 16, 4) == []
    assert memorisation._places(held_shards([]), 16, 4) == []


def test_too_short_a_context_or_too_short_texts() -> None:
    assert extraction_rate(tiny("gpt2"), noise(1)) == 0  # 32 + 32 do not fit 40 tokens
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
